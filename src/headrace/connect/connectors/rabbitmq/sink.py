"""The RabbitMQ sink: publishes records into an exchange."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from headrace.connect.connectors.rabbitmq.connecting import CONNECTION, IGNORED, RabbitMqConnector
from headrace.connect.connectors.value_texts import as_bytes, check_variables, filled, plain
from headrace.connect.plugin import (
    REQUIRED,
    Option,
    OptionError,
    PermanentError,
    RecordError,
    Sink,
    SinkTask,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.connect.connectors.rabbitmq.publishing import ConfirmedPublisher, OutgoingMessage

DELIVERY_MODES = {"PERSISTENT": 2, "TRANSIENT": 1}


class RabbitMqSink(Sink, RabbitMqConnector):
    """Publishes records into an exchange of RabbitMQ, at least once, with publisher confirms.

    The message id is topic, partition and offset of the record.
    """

    aliases = ("io.confluent.connect.rabbitmq.sink.RabbitMQSinkConnector",)
    ignored = (*IGNORED, "rabbitmq.publish.max.retries")
    options = (
        *CONNECTION,
        Option("rabbitmq.exchange", str, REQUIRED,
               "The exchange, which must exist; empty: the default exchange.", importance="high",
               group="Sink"),
        Option("rabbitmq.routing.key", str, REQUIRED,
               "The routing key; it may contain ${topic} and ${key}.", importance="high",
               group="Sink"),
        Option("rabbitmq.delivery.mode", str, "PERSISTENT", "Whether messages are on disk.",
               tuple(DELIVERY_MODES), "medium", "Sink"),
        Option("rabbitmq.forward.kafka.key", bool, False,
               "Whether the key is the correlation id.", group="Sink"),
        Option("rabbitmq.forward.kafka.headers", bool, False,
               "Whether headers of the record are headers of the message.", group="Sink"),
        Option("rabbitmq.forward.kafka.metadata", bool, False,
               "Whether kafka.topic, kafka.partition, kafka.offset, kafka.timestamp are headers.",
               group="Sink"),
        Option("rabbitmq.publish.max.batch.size", int, 1000,
               "How many messages are published before their confirms are waited for.",
               importance="low", group="Sink"),
        Option("rabbitmq.publish.ack.timeout", int, 30_000,
               "How many milliseconds the confirms may take.", importance="low", group="Sink"),
    )  # fmt: skip

    rabbitmq_exchange: str
    rabbitmq_routing_key: str
    rabbitmq_delivery_mode: str
    rabbitmq_forward_kafka_key: bool
    rabbitmq_forward_kafka_headers: bool
    rabbitmq_forward_kafka_metadata: bool
    rabbitmq_publish_max_batch_size: int
    rabbitmq_publish_ack_timeout: int

    def __init__(self, config: Mapping[str, str]) -> None:
        super().__init__(config)
        check_variables("rabbitmq.routing.key", self.rabbitmq_routing_key)
        if self.rabbitmq_publish_max_batch_size < 1:
            raise OptionError("rabbitmq.publish.max.batch.size", "Expected at least 1.")
        self._publisher: ConfirmedPublisher | None = None
        self._done: set[str] = set()
        """Records of a batch with refused ones that were published: the host writes them again."""

    def check(self) -> None:
        option = "rabbitmq.host"
        try:
            with self.connected() as connection:
                option = "rabbitmq.exchange"
                if self.rabbitmq_exchange:
                    channel = connection.channel()
                    channel.exchange_declare(self.rabbitmq_exchange, passive=True)
        except (ConnectionError, PermanentError) as error:
            raise OptionError(option, str(error)) from None

    def open(self, task: SinkTask) -> None:
        from headrace.connect.connectors.rabbitmq.publishing import ConfirmedPublisher

        timeout_s = self.rabbitmq_publish_ack_timeout / 1000
        self._publisher = ConfirmedPublisher(self, self.rabbitmq_exchange, timeout_s)
        self._done = set()

    def write(self, batch: "pa.RecordBatch") -> None:
        assert self._publisher is not None, "a sink is open when it writes"
        records = batch.to_pylist(maps_as_pydicts="lossy")
        tombstones = [row for row, record in enumerate(records) if record["value"] is None]
        if tombstones:
            raise RecordError(dict.fromkeys(tombstones, "a tombstone has no body"))
        refused: dict[int, str] = {}
        rows: dict[str, int] = {}
        messages = []
        for number, record in enumerate(records):
            message = self._message(record)
            if message.id not in self._done:
                messages.append(message)
                rows[message.id] = number
        size = self.rabbitmq_publish_max_batch_size
        for first in range(0, len(messages), size):
            returned = self._publisher.publish(messages[first : first + size])
            refused |= {rows[name]: why for name, why in returned.items()}
        self._done = (
            {name for name, row in rows.items() if row not in refused} if refused else set()
        )
        if refused:
            raise RecordError(refused)

    def close(self) -> None:
        self.abandon()

    def abandon(self) -> None:
        if self._publisher is not None:
            self._publisher.close()
            self._publisher = None

    def _message(self, record: Mapping[str, Any]) -> "OutgoingMessage":
        import pika

        from headrace.connect.connectors.rabbitmq.publishing import OutgoingMessage

        topic, key = record["topic"], record["key"]
        name = f"{topic}-{record['partition']}-{record['offset']}"
        headers: dict[str, Any] = {}
        if self.rabbitmq_forward_kafka_headers:
            headers |= {each["key"]: _header(each["value"]) for each in record["headers"] or ()}
        if self.rabbitmq_forward_kafka_metadata:
            names = ("topic", "partition", "offset", "timestamp")
            headers |= {f"kafka.{each}": record[each] for each in names}
        properties = pika.BasicProperties(
            headers=headers or None,
            delivery_mode=DELIVERY_MODES[self.rabbitmq_delivery_mode],
            correlation_id=plain(key)
            if self.rabbitmq_forward_kafka_key and key is not None
            else None,
            message_id=name,
        )
        routing_key = filled(self.rabbitmq_routing_key, topic, key)
        return OutgoingMessage(name, routing_key, as_bytes(record["value"]), properties)


def _header(value: bytes | None) -> str | bytes | None:
    """Most headers are texts, which other clients read as such."""
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return value
