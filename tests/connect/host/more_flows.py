"""More connectors under fire: messages that are pushed, requests over HTTP, files and tables."""

import contextlib
import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pika
import pyarrow.dataset as ds
from confluent_kafka import KafkaException, Producer
from deltalake import DeltaTable
from paho.mqtt import publish
from starlette.responses import Response

from headrace.connect.connectors.mqtt.source import MqttSource
from tests.connect.host.conftest import WITHIN_S, HostUnderTest
from tests.connect.host.fire import JSON, STEPS, Flow, numbers_of
from tests.support.http_server import HttpServerUnderTest, SeenRequest
from tests.support.message_brokers import MosquittoServer, RabbitMqServer

BYTES = {
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.converters.ByteArrayConverter",
}


class PushFlow(Flow):
    """Messages to a topic, at least once."""

    repeats = True

    def expected(self) -> Counter[Any]:
        return Counter(number for step in range(STEPS) for number in numbers_of(step))

    def found(self) -> Counter[Any]:
        return Counter(self.host.values(self.topic))


class MqttFlow(PushFlow):
    """Messages of an MQTT server."""

    def __init__(self, host: HostUnderTest, name: str, server: MosquittoServer) -> None:
        super().__init__(host, name)
        self._mosquitto = server

    def prepare(self) -> None:
        # The server stores messages from the first subscription on.
        config = {"name": self.name, **self.config()}
        with contextlib.closing(MqttSource(config).receive()) as first:
            next(first)

    def config(self) -> Mapping[str, str]:
        return {
            **BYTES,
            "connector.class": "io.confluent.connect.mqtt.MqttSourceConnector",
            "mqtt.server.uri": self._mosquitto.address,
            "mqtt.topics": f"{self.name}/#",
            "kafka.topic": self.topic,
        }

    def feed(self, step: int) -> None:
        messages: list[Any] = [
            {"topic": f"{self.name}/n", "payload": str(number), "qos": 1}
            for number in numbers_of(step)
        ]
        publish.multiple(messages, "127.0.0.1", self._mosquitto.port)


class RabbitMqFlow(PushFlow):
    """Messages of a queue of RabbitMQ."""

    def __init__(self, host: HostUnderTest, name: str, server: RabbitMqServer) -> None:
        super().__init__(host, name)
        self._port = server.port

    def prepare(self) -> None:
        self._send(range(0))

    def config(self) -> Mapping[str, str]:
        return {
            **BYTES,
            "connector.class": "io.confluent.connect.rabbitmq.RabbitMQSourceConnector",
            "rabbitmq.host": "127.0.0.1",
            "rabbitmq.port": str(self._port),
            "rabbitmq.queue": self.name,
            "kafka.topic": self.topic,
        }

    def feed(self, step: int) -> None:
        self._send(numbers_of(step))

    def _send(self, numbers: range) -> None:
        parameters = pika.ConnectionParameters("127.0.0.1", self._port)
        with pika.BlockingConnection(parameters) as connection:
            channel = connection.channel()
            channel.queue_declare(self.name, durable=True)
            for number in numbers:
                channel.basic_publish("", self.name, str(number).encode())


class TopicFlow(Flow):
    """A topic to a target, which must have the records of the topic."""

    rows_option = "consumer.override.max.poll.records"

    def prepare(self) -> None: ...

    def feed(self, step: int) -> None:
        producer = Producer({"bootstrap.servers": self.host.bootstrap, "enable.idempotence": True})
        for number in numbers_of(step):
            producer.produce(self.topic, json.dumps({"n": number}).encode(), b"%d" % number)
        assert producer.flush(WITHIN_S) == 0

    def expected(self) -> Counter[Any]:
        # A step whose first attempt failed may be there twice.
        try:
            return Counter(value["n"] for value in self.host.values(self.topic))
        except KafkaException:  # the broker is away, so that it is not over
            return Counter({"unknown": 1})


class HttpSinkFlow(TopicFlow):
    """A topic to an HTTP server, at least once."""

    repeats = True

    def __init__(self, host: HostUnderTest, name: str, server: HttpServerUnderTest) -> None:
        super().__init__(host, name)
        self._server = server
        self._taken: Counter[Any] = Counter()
        server.answer = self._take

    def _take(self, request: SeenRequest) -> Response:
        self._taken.update(each["n"] for each in json.loads(request.body))
        return Response(status_code=204)

    def config(self) -> Mapping[str, str]:
        return {
            **JSON,
            "connector.class": "HttpSink",
            "topics": self.topic,
            "http.api.url": f"{self._server.url}/target",
            "request.body.format": "json",
            "batch.max.size": "8",
            "batch.json.as.array": "true",
            "value.schema": "n bigint",
        }

    def found(self) -> Counter[Any]:
        return self._taken.copy()


class FolderFlow(TopicFlow):
    """A topic to files or a table, exactly once."""

    def __init__(self, host: HostUnderTest, name: str, folder: Path, kind: str) -> None:
        super().__init__(host, name)
        self._folder = folder / name
        self._kind = kind

    def prepare(self) -> None:
        self._folder.mkdir()

    def config(self) -> Mapping[str, str]:
        folder = str(self._folder)
        kinds = {
            "files-sink": {"connector.class": "FilesSink", "folder": folder, "format": "jsonl"},
            "parquet": {"connector.class": "ParquetSink", "path": folder, "flush.size": "100"},
            "delta": {"connector.class": "DeltaSink", "table.path": f"{folder}/table"},
        }
        return {
            **JSON,
            **kinds[self._kind],
            "topics": self.topic,
            "value.schema": "n bigint",
            "poll.interval.ms": "200",
        }

    def found(self) -> Counter[Any]:
        if self._kind == "files-sink":
            lines = [
                line
                for path in self._folder.rglob("*.jsonl")
                if not path.name.startswith(".")
                for line in path.read_text().splitlines()
            ]
            return Counter(json.loads(line)["n"] for line in lines)
        if self._kind == "delta":
            table = self._folder / "table"
            if not (table / "_delta_log").exists():
                return Counter()
            return Counter(DeltaTable(table).to_pyarrow_table()["n"].to_pylist())
        files = [str(path) for path in self._folder.rglob("*.parquet")]
        if not files:
            return Counter()
        return Counter(ds.dataset(files, format="parquet").to_table()["n"].to_pylist())
