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


def commit_often(bootstrap: str, topic: str, seconds: float, commit_every_ms: int) -> float:
    """Sends records of 100 bytes and commits so often; committed records a second."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": topic,
            "linger.ms": 5,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 1_000_000,
        }
    )
    producer.init_transactions(60)
    values = [{"value": b"x" * 100}] * 500
    records = 0
    began = now = time.monotonic()
    while now - began < seconds:
        producer.begin_transaction()
        due = now + commit_every_ms / 1000
        while time.monotonic() < due:
            queued = producer.produce_batch(topic, values, partition=0)
            records += queued
            # Acknowledged records leave the queue here; where it is full, the broker is behind.
            producer.poll(0 if queued == len(values) else 0.001)
        producer.commit_transaction(60)
        now = time.monotonic()
    return records / (now - began)


def produce_in_transactions(bootstrap: str, topic: str, records: int, each: int) -> int:
    """Writes `records` of 100 bytes, `each` in a transaction, and aborts every tenth of them.

    Returns how many are committed.
    """
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": f"fill-{topic}",
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    producer.init_transactions(60)
    value = b"x" * 100
    committed = 0
    for number in range(records // each):
        producer.begin_transaction()
        for _ in range(each):
            producer.produce(topic, value, partition=0)
        if number % 10 == 9:
            assert producer.flush(60) == 0
            producer.abort_transaction(60)
        else:
            producer.commit_transaction(60)
            committed += each
    return committed


def consume(bootstrap: str, topic: str, records: int) -> float:
    """Reads `records` from the beginning of partition 0; returns records per second."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
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
