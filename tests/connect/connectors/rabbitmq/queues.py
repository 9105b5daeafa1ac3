"""Queues of the tests, which other clients than the connectors fill and read."""

import contextlib
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika

from headrace.connect.connectors.rabbitmq.source import RabbitMqSource
from tests.connect.push.reading import SpoolReader, reading
from tests.support.message_brokers import RabbitMqServer


class Queue:
    """A queue of a test."""

    def __init__(self, server: RabbitMqServer) -> None:
        self.server = server
        self.name = f"q-{uuid.uuid4().hex[:8]}"
        self.config = {
            "name": self.name,
            "rabbitmq.host": "127.0.0.1",
            "rabbitmq.port": str(server.port),
            "rabbitmq.queue": self.name,
            "kafka.topic": "orders",
        }
        self.declare(self.name)

    @contextlib.contextmanager
    def channel(self) -> Iterator[Any]:
        parameters = pika.ConnectionParameters("127.0.0.1", self.server.port)
        with pika.BlockingConnection(parameters) as connection:
            yield connection.channel()

    def declare(self, name: str, **arguments: str) -> None:
        with self.channel() as channel:
            channel.queue_declare(name, durable=True, arguments=arguments)

    def send(self, *texts: str, queue: str = "", **properties: Any) -> None:
        described = pika.BasicProperties(delivery_mode=2, **properties)
        with self.channel() as channel:
            channel.confirm_delivery()
            for text in texts:
                channel.basic_publish("", queue or self.name, text.encode(), described)

    def count(self) -> int:
        """The messages that are not delivered; all that are not acknowledged if nobody consumes."""
        with self.channel() as channel:
            return int(channel.queue_declare(self.name, passive=True).method.message_count)

    def reading(
        self, folder: Path, **options: str
    ) -> contextlib.AbstractContextManager[SpoolReader]:
        return reading(self.source(**options), folder)

    def source(self, **options: str) -> RabbitMqSource:
        given = {name.replace("_", "."): value for name, value in options.items()}
        return RabbitMqSource({**self.config, **given})
