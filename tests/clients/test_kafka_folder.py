"""A partition folder that Apache Kafka wrote is opened, read to its end and written on."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.clients.test_confluent import consuming, take
from tests.support import java
from tests.support.apache_kafka import ApacheKafka
from tests.support.headrace_broker import HeadraceBroker

pytestmark = [pytest.mark.java, pytest.mark.slow]

TOPIC = "moved"
CONFIG = {"segment.bytes": "1048576"}
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
RECORDS = 3000


def create(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(TOPIC, 1, 1, config=CONFIG)])[TOPIC].result(60)


@pytest.fixture(scope="module")
def written_by_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    if reason := java.missing():
        pytest.skip(reason)
    with ApacheKafka(tmp_path_factory.mktemp("kafka"), quick=True) as kafka:
        create(kafka.bootstrap)
        for codec in CODECS:
            producer = Producer(
                {
                    "bootstrap.servers": kafka.bootstrap,
                    "compression.type": codec,
                    "enable.idempotence": True,
                }
            )
            for n in range(RECORDS // len(CODECS)):
                producer.produce(TOPIC, b"%d " % n + b"x" * 1000, key=codec, partition=0)
            assert producer.flush(60) == 0
        kafka.stop()
        yield kafka.partition_folder(TOPIC)


@pytest.mark.parametrize("clean", [True, False], ids=["clean-stop", "crash"])
def test_a_folder_that_kafka_wrote_is_read_to_its_end_and_written_on(
    written_by_kafka: Path, tmp_path: Path, clean: bool
) -> None:
    broker = HeadraceBroker(tmp_path)
    with broker:
        create(broker.bootstrap)
        if clean:
            broker.stop()
        else:
            broker.kill()
        folder = broker.partition_folder(TOPIC)
        ours = (folder / "partition.metadata").read_bytes()
        shutil.rmtree(folder)
        shutil.copytree(written_by_kafka, folder)
        # The records are Kafka's; the topic's identity stays the one that our metadata knows.
        (folder / "partition.metadata").write_bytes(ours)
        broker.start()

        with consuming(broker.bootstrap, TopicPartition(TOPIC, 0, 0)) as consumer:
            messages = take(consumer, RECORDS, 30)
        assert [m.offset() for m in messages] == list(range(RECORDS))
        assert {m.key().decode() for m in messages} == set(CODECS)
        assert messages[-1].value().startswith(b"%d " % (RECORDS // len(CODECS) - 1))

        # The folder remembers producer ids that Kafka gave out; ours must not meet them.
        producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
        producer.produce(TOPIC, b"ours", partition=0)
        assert producer.flush(60) == 0
        with consuming(broker.bootstrap, TopicPartition(TOPIC, 0, RECORDS)) as consumer:
            assert [m.value() for m in take(consumer, 1)] == [b"ours"]
