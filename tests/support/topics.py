"""Topics made and filled for tests, by librdkafka."""

import time
from collections.abc import Mapping

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec, TopicMetadata

NOWHERE = TopicMetadata()


def create_topic(
    bootstrap: str, name: str, partitions: int = 1, config: Mapping[str, str] | None = None
) -> str:
    """Creates the topic and returns its name, once it is seen and its leaders lead.

    Apache Kafka names a leader in its metadata a moment before that one accepts requests.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap})
    new = NewTopic(name, num_partitions=partitions, replication_factor=1, config=dict(config or {}))
    admin.create_topics([new])[name].result(60)
    deadline = time.monotonic() + 60
    while len(admin.list_topics(timeout=60).topics.get(name, NOWHERE).partitions) < partitions:
        assert time.monotonic() < deadline, f"{name} does not appear"
        time.sleep(0.02)
    wanted = {TopicPartition(name, index): OffsetSpec.latest() for index in range(partitions)}
    while not _have_offsets(admin, wanted):
        assert time.monotonic() < deadline, f"{name} is not led"
        time.sleep(0.02)
    return name


def _have_offsets(admin: AdminClient, wanted: dict[TopicPartition, OffsetSpec]) -> bool:
    try:
        return all(found.result(60) for found in admin.list_offsets(wanted).values())
    except KafkaException:
        return False


def recreate_topic(bootstrap: str, name: str, partitions: int = 1) -> None:
    """Deletes the topic and creates it again under the same name."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics([name])[name].result(60)
    deadline = time.monotonic() + 60
    while name in admin.list_topics(timeout=60).topics:
        assert time.monotonic() < deadline, f"{name} does not go"
        time.sleep(0.02)
    create_topic(bootstrap, name, partitions)
