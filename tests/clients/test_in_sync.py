"""`min.insync.replicas` has the same effect as in Apache Kafka."""

from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.testing.running import RunningBroker
from tests.support.apache_kafka import ApacheKafka

pytestmark = [pytest.mark.java, pytest.mark.slow]


def outcome(bootstrap_servers: str) -> KafkaError | None:
    """What becomes of a record with acks=all, if two shall be in sync and there is only one."""
    configs = {"min.insync.replicas": "2"}
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    admin.create_topics([NewTopic("t", 1, 1, config=configs)])["t"].result(60)
    errors: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": bootstrap_servers, "acks": "all", "retries": 0})
    producer.produce("t", b"v", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(60) == 0
    return errors[0]


def test_a_topic_with_fewer_replicas_than_should_be_in_sync_is_written_as_in_kafka(
    tmp_path: Path,
) -> None:
    with ApacheKafka(tmp_path, quick=True) as kafka:
        theirs = outcome(kafka.bootstrap)
    with closing(RunningBroker()) as broker:
        ours = outcome(broker.bootstrap_servers)
    assert (ours is None) == (theirs is None), (ours, theirs)
    assert ours is None
