"""The RabbitMQ source: receives the messages of queues into a topic."""

import json
from collections import deque
from collections.abc import Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headrace.connect.connectors.rabbitmq.connecting import CONNECTION, IGNORED, RabbitMqConnector
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
    from pika.adapters.blocking_connection import BlockingChannel, BlockingConnection

PREFETCH = 5000
IDLE_S = 1.0
PROPERTIES = (
    "content_type",
    "content_encoding",
    "delivery_mode",
    "priority",
    "correlation_id",
    "reply_to",
    "expiration",
    "message_id",
    "timestamp",
    "type",
    "user_id",
    "app_id",
    "cluster_id",
)
COUNTED = "x-delivery-count"
"""A header of quorum queues, which is another one each time a message is delivered."""


class RabbitMqSource(PushSource, RabbitMqConnector):
    """Receives the messages of RabbitMQ's queues, at least once.

    The key is the message id, the value the body.
    """

    aliases = ("io.confluent.connect.rabbitmq.RabbitMQSourceConnector",)
    ignored = IGNORED
    options = (
        *CONNECTION,
        Option("rabbitmq.queue", list[str], REQUIRED, "The queues; they must exist.",
               importance="high", group="Source"),
        Option("kafka.topic", str, REQUIRED, "The topic for the messages.", importance="high",
               group="Source"),
        Option("rabbitmq.prefetch.count", int, PREFETCH,
               "How many messages of a queue the server delivers before the first is "
               "acknowledged; 0: no limit.",
               group="Source"),
        Option("rabbitmq.prefetch.global", bool, False,
               "Whether this is the number for all queues together.", importance="low",
               group="Source"),
    )  # fmt: skip

    rabbitmq_queue: Sequence[str]
    kafka_topic: str
    rabbitmq_prefetch_count: int
    rabbitmq_prefetch_global: bool

    def __init__(self, config: Mapping[str, str]) -> None:
        super().__init__(config)
        if not self.rabbitmq_queue:
            raise OptionError("rabbitmq.queue", "Name a queue.")
        if not 0 <= self.rabbitmq_prefetch_count <= 65_535:
            raise OptionError("rabbitmq.prefetch.count", "Expected a number from 0 to 65535.")
        self._connection: BlockingConnection | None = None
        self._channel: BlockingChannel | None = None

    def check(self) -> None:
        option = "rabbitmq.host"
        try:
            with self.connected() as connection:
                option = "rabbitmq.queue"
                for queue in self.rabbitmq_queue:
                    connection.channel().queue_declare(queue, passive=True)
        except (ConnectionError, PermanentError) as error:
            raise OptionError(option, str(error)) from None

    def streams(self) -> Sequence[SourceStream]:
        columns = f"id string, body binary, headers {HEADERS_TYPE}"
        return [
            SourceStream(self.kafka_topic, columns, self.partitions(), ("id",), "body", "headers")
        ]

    def receive(self) -> Generator[Received | None, None, None]:
        arrived: deque[tuple[Any, Any, bytes]] = deque()
        cancelled: list[str] = []
        with self.connected() as connection:
            channel = connection.channel()
            self._connection, self._channel = connection, channel
            channel.basic_qos(
                prefetch_count=self.rabbitmq_prefetch_count,
                global_qos=self.rabbitmq_prefetch_global,
            )
            channel.add_on_cancel_callback(lambda frame: cancelled.append(frame.method.NAME))
            for queue in self.rabbitmq_queue:
                channel.basic_consume(
                    queue, lambda _, method, more, body: arrived.append((method, more, body))
                )
            while not cancelled:
                connection.process_data_events(IDLE_S)
                if not arrived:
                    yield None
                while arrived:
                    method, properties, body = arrived.popleft()
                    row = _row(method, properties, body)
                    yield Received(row, method.delivery_tag, method.redelivered)
        raise ConnectionError(
            f"the RabbitMQ server {self.address} has ended the consumer: a queue was deleted, or "
            "its leader has moved"
        )

    def acknowledge(self, upto: object) -> None:
        assert isinstance(upto, int), "receipts of this source are delivery tags"
        connection, channel = self._connection, self._channel
        assert connection is not None, "a message is received before it is acknowledged"
        assert channel is not None
        with self.translated():
            connection.add_callback_threadsafe(lambda: channel.basic_ack(upto, multiple=True))


def _row(method: Any, properties: Any, body: bytes) -> dict[str, object]:
    described = {"exchange": method.exchange, "routing.key": method.routing_key}
    for name in PROPERTIES:
        value = getattr(properties, name)
        if value is not None:
            described[name.replace("_", ".")] = value
    headers = {f"rabbitmq.{name}": value for name, value in described.items()}
    headers |= {n: v for n, v in (properties.headers or {}).items() if n != COUNTED}
    return {
        "id": properties.message_id,
        "body": body,
        "headers": [{"key": name, "value": _text(value)} for name, value in headers.items()],
    }


def _text(value: object) -> bytes | None:
    """The value of a header: text as it is, tables and lists as JSON."""
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, dict | list | bool):
        return json.dumps(value, default=str).encode()
    return str(value).encode()
