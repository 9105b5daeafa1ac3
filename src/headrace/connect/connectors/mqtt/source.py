"""The MQTT source: subscribes to topics and receives their messages into a topic."""

import queue
import threading
import uuid
from collections import deque
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any

from headrace.connect.connectors.mqtt.connecting import (
    CONNECTION,
    IGNORED,
    NEVER,
    MqttConnector,
    MqttSession,
    connected,
    subscribe,
)
from headrace.connect.plugin import (
    HEADERS_TYPE,
    REQUIRED,
    Option,
    OptionError,
    PermanentError,
    PushSource,
    Received,
    SourceStream,
)

if TYPE_CHECKING:
    from paho.mqtt.client import Client

RECEIVE_MAXIMUM = 10_000
IDLE_S = 1.0


class MqttSource(PushSource, MqttConnector):
    """Receives messages of an MQTT server, at least once with `mqtt.qos` 1 or 2.

    The key is the MQTT topic, the value the payload.
    """

    aliases = ("io.confluent.connect.mqtt.MqttSourceConnector",)
    ignored = (
        *IGNORED,
        "records.buffer.queue.size",
        "records.buffer.queue.empty.timeout",
        "records.buffer.queue.max.batch.size",
    )
    options = (
        *CONNECTION,
        Option("mqtt.topics", list[str], REQUIRED,
               "The topics; + stands for one level and # for all that follow.",
               importance="high", group="Subscription"),
        Option("kafka.topic", str, "mqtt", "The topic for the messages.", importance="high",
               group="Subscription"),
        Option("mqtt.qos", int, 1,
               "The quality of service. 0: messages may be lost. 1 and 2: each is received at "
               "least once.",
               importance="high", group="Subscription"),
        Option("mqtt.clean.session.enabled", bool, False,
               "Whether the server forgets the subscription and its messages when the connector is "
               "not connected.",
               group="Subscription"),
        Option("mqtt.session.expiry.seconds", int, NEVER,
               "After how many seconds without a connection the server forgets them; by default "
               "never. MQTT 5 only.",
               group="Subscription"),
        Option("mqtt.receive.maximum", int, RECEIVE_MAXIMUM,
               "How many messages the server sends before the first is acknowledged; MQTT 5 only.",
               importance="low", group="Subscription"),
    )  # fmt: skip

    mqtt_topics: Sequence[str]
    kafka_topic: str
    mqtt_qos: int
    mqtt_clean_session_enabled: bool
    mqtt_session_expiry_seconds: int
    mqtt_receive_maximum: int

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        if self.mqtt_qos not in (0, 1, 2):
            raise OptionError("mqtt.qos", f"Expected 0, 1 or 2, not {self.mqtt_qos}.")
        if not self.mqtt_topics:
            raise OptionError("mqtt.topics", "Name a topic.")
        for name in self.mqtt_topics:
            if not _is_filter(name):
                raise OptionError(
                    "mqtt.topics",
                    f"{name} is not a topic filter: + and # are whole levels, and # is the last.",
                )
        if not 1 <= self.mqtt_receive_maximum <= 65_535:
            raise OptionError("mqtt.receive.maximum", "Expected a number from 1 to 65535.")
        if not 0 < self.mqtt_session_expiry_seconds <= NEVER:
            raise OptionError(
                "mqtt.session.expiry.seconds", f"Expected a number from 1 to {NEVER}."
            )
        self.servers()
        self._client: Client | None = None
        self._unacknowledged: deque[tuple[int, int]] = deque()
        """Numbers of messages with their packet identifiers, in the order of their arrival."""
        self._lock = threading.Lock()

    def check(self) -> None:
        # With the identifier of the connector, the server would end its connection.
        session = MqttSession(f"headrace-check-{uuid.uuid4().hex[:12]}")
        try:
            with connected(self, session) as client:
                subscribe(client, self.mqtt_topics, 0, self.mqtt_connect_timeout_seconds)
        except (ConnectionError, PermanentError) as error:
            raise OptionError("mqtt.server.uri", str(error)) from error

    def streams(self) -> Sequence[SourceStream]:
        columns = f"topic string, payload binary, headers {HEADERS_TYPE}"
        return [
            SourceStream(
                self.kafka_topic, columns, self.partitions(), ("topic",), "payload", "headers"
            )
        ]

    def receive(self) -> Generator[Received | None, None, None]:
        arrived: queue.Queue[Any] = queue.Queue(self.mqtt_receive_maximum)
        closing = threading.Event()

        def on_message(_client: Any, _data: Any, message: Any) -> None:
            # Only messages with quality 0 can be more than the server may send.
            while not closing.is_set():
                try:
                    arrived.put(message, timeout=IDLE_S)
                except queue.Full:
                    continue
                return

        session = MqttSession(
            self.client_id,
            self.mqtt_clean_session_enabled,
            self.mqtt_session_expiry_seconds,
            self.mqtt_receive_maximum,
            on_message,
        )
        number = 0
        with connected(self, session) as client:
            self._client = client
            try:
                # The library has quality 2 only in memory: what it has received but not
                # completed would be lost with the process.
                qos = min(self.mqtt_qos, 1)
                subscribe(client, self.mqtt_topics, qos, self.mqtt_connect_timeout_seconds)
                while True:
                    try:
                        message = arrived.get(timeout=IDLE_S)
                    except queue.Empty:
                        if session.lost:
                            raise ConnectionError(
                                f"the connection to the MQTT server was lost: {session.lost[0]}"
                            ) from None
                        yield None
                        continue
                    number += 1
                    if message.qos > 0:
                        with self._lock:
                            self._unacknowledged.append((number, message.mid))
                    yield Received(_row(message), number, message.dup)
            finally:
                closing.set()

    def acknowledge(self, upto: object) -> None:
        assert isinstance(upto, int), "receipts of this source are numbers"
        assert self._client is not None, "a message is received before it is acknowledged"
        with self._lock:
            while self._unacknowledged and self._unacknowledged[0][0] <= upto:
                self._client.ack(self._unacknowledged.popleft()[1], 1)


def _is_filter(name: str) -> bool:
    *levels, last = name.split("/")
    return all("#" not in level for level in levels) and all(
        level in ("+", "#") or not {"+", "#"} & set(level) for level in (*levels, last)
    )


def _row(message: Any) -> dict[str, object]:
    described = {
        "mqtt.message.id": message.mid,
        "mqtt.qos": message.qos,
        "mqtt.retained": str(message.retain).lower(),
        "mqtt.topic": message.topic,
    }
    headers: list[dict[str, object]] = [
        {"key": name, "value": str(value).encode()} for name, value in described.items()
    ]
    properties = getattr(message, "properties", None)
    headers += [
        {"key": name, "value": value.encode()}
        for name, value in getattr(properties, "UserProperty", ())
    ]
    return {"topic": message.topic, "payload": message.payload, "headers": headers}
