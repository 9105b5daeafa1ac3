"""librdkafka as producer and consumer, measured as an application would see it."""

import time

from confluent_kafka import Consumer, Producer, TopicPartition


def produce(bootstrap: str, topic: str, records: int) -> float:
    """Sends `records` of 100 bytes with acks=1; returns records a second, answers included."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "1",
            "linger.ms": 5,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 1_000_000,
        }
    )
    value = b"x" * 100
    producer.list_topics(topic, 20)
    began = time.monotonic()
    for number in range(records):
        producer.produce(topic, value, partition=0)
        if number % 1000 == 0:
            producer.poll(0)
    left = producer.flush(60)
    assert left == 0, f"{left} records were not acknowledged"
    return records / (time.monotonic() - began)


def consume(bootstrap: str, topic: str, records: int) -> float:
    """Reads `records` from the beginning of partition 0; returns records per second."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "fetch.queue.backoff.ms": 1,
            "queued.min.messages": 1_000_000,
            "queued.max.messages.kbytes": 1_000_000,
        }
    )
    try:
        began = time.monotonic()
        consumer.assign([TopicPartition(topic, 0, 0)])
        seen = 0
        while seen < records:
            batch = consumer.consume(10_000, 10)
            assert batch, f"nothing more came after {seen} of {records} records"
            seen += len(batch)
        return seen / (time.monotonic() - began)
    finally:
        consumer.close()


def end_offsets(bootstrap: str, topic: str, partitions: int) -> int:
    """The sum of the end offsets of all partitions."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused"})
    try:
        ends = [
            consumer.get_watermark_offsets(TopicPartition(topic, number), 20)[1]
            for number in range(partitions)
        ]
        return sum(ends)
    finally:
        consumer.close()
