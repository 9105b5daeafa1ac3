"""The MQTT sink: publishes the values of records."""

import contextlib
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from headrace.connect.connectors.mqtt.connecting import (
    CONNECTION,
    IGNORED,
    MqttConnector,
    MqttSession,
    connected,
)
from headrace.connect.connectors.value_texts import as_bytes, check_variables, filled
from headrace.connect.plugin import (
    Option,
    OptionError,
    PermanentError,
    RecordError,
    Sink,
    SinkTask,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from paho.mqtt.client import Client

WITHOUT_ANSWER_S = 30.0
"""How long the server may confirm nothing."""
CHECKED_EVERY_S = 0.5


class MqttSink(Sink, MqttConnector):
    """Publishes records to an MQTT server, at least once with `mqtt.qos` 1 or 2."""

    aliases = ("io.confluent.connect.mqtt.MqttSinkConnector",)
    ignored = (*IGNORED, "max.retry.time.ms", "mqtt.clean.session.enabled")
    options = (
        *CONNECTION,
        Option("mqtt.topic", str, "${topic}", "The MQTT topic; it may contain ${topic} and ${key}.",
               importance="high", group="Messages"),
        Option("mqtt.qos", int, 1, "The quality of service; 0: messages may be lost.",
               importance="high", group="Messages"),
        Option("mqtt.retained.enabled", bool, False,
               "Whether the server keeps the last message of a topic for new subscribers.",
               group="Messages"),
    )  # fmt: skip

    mqtt_topic: str
    mqtt_qos: int
    mqtt_retained_enabled: bool

    def __init__(self, config: Mapping[str, str]) -> None:
        super().__init__(config)
        check_variables("mqtt.topic", self.mqtt_topic)
        if self.mqtt_qos not in (0, 1, 2):
            raise OptionError("mqtt.qos", f"Expected 0, 1 or 2, not {self.mqtt_qos}.")
        self.servers()
        self._client: Client | None = None
        self._session = MqttSession("")
        self._closing = contextlib.ExitStack()

    def check(self) -> None:
        try:
            with connected(self, MqttSession("")):
                pass
        except (ConnectionError, PermanentError) as error:
            raise OptionError("mqtt.server.uri", str(error)) from error

    def open(self, task: SinkTask) -> None:
        # Tasks run at the same time, and a server ends connections with the same identifier.
        self._session = MqttSession(f"{self.client_id}-{task.number}")
        self._client = self._closing.enter_context(connected(self, self._session))

    def write(self, batch: "pa.RecordBatch") -> None:
        assert self._client is not None, "a sink is open when it writes"
        records = batch.to_pylist(maps_as_pydicts="lossy")
        topics = [filled(self.mqtt_topic, each["topic"], each["key"]) for each in records]
        refused = {
            row: f"{topic!r} is not a topic to publish to"
            for row, topic in enumerate(topics)
            if not topic or {"+", "#", "\0"} & set(topic)
        }
        if refused:
            raise RecordError(refused)
        pending = [
            self._client.publish(
                topic,
                b"" if record["value"] is None else as_bytes(record["value"]),
                self.mqtt_qos,
                self.mqtt_retained_enabled,
            )
            for topic, record in zip(topics, records, strict=True)
        ]
        for each in pending:
            self._wait(each)

    def _wait(self, published: Any) -> None:
        """Until the server has the message, or the connection is lost."""
        deadline = time.monotonic() + WITHOUT_ANSWER_S
        while not self._is_published(published):
            if time.monotonic() > deadline:
                raise ConnectionError(
                    f"the MQTT server has not confirmed a message for {WITHOUT_ANSWER_S:g} s"
                )
            with contextlib.suppress(RuntimeError, ValueError):
                published.wait_for_publish(CHECKED_EVERY_S)

    def _is_published(self, published: Any) -> bool:
        reason = self._session.lost[0] if self._session.lost else None
        try:
            if published.is_published():
                return True
        except (RuntimeError, ValueError) as error:
            reason = str(error)
        if reason is not None:
            raise ConnectionError(f"the connection to the MQTT server was lost: {reason}")
        return False

    def close(self) -> None:
        self.abandon()

    def abandon(self) -> None:
        self._client = None
        self._closing.close()
