"""The records of a topic, read independently: librdkafka, read_committed, from the beginning."""

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition


def committed_values(bootstrap: str, topic: str, silence_s: float = 20) -> list[bytes]:
    """The values of all committed records, partition by partition; ends at the topic's end."""
    return [value for _, value in committed_records(bootstrap, topic, silence_s)]


def committed_records(
    bootstrap: str, topic: str, silence_s: float = 20
) -> list[tuple[bytes, bytes]]:
    """The keys and values of all committed records, in the order of each partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 50,
        }
    )
    partitions = consumer.list_topics(topic, 30).topics[topic].partitions
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions])
    records: list[tuple[bytes, bytes]] = []
    ended: set[int] = set()
    while len(ended) < len(partitions):
        message = consumer.poll(silence_s)
        assert message is not None, f"{topic}: no end within {silence_s} s"
        if message.error() is None:
            records.append((message.key(), message.value()))
        else:
            assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
            ended.add(message.partition())
    consumer.close()
    return records
