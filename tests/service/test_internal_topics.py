"""Writers of internal topics: transactions, and the writer that another one has fenced."""

import asyncio
from pathlib import Path

import pytest

from headrace.client.cluster import Cluster
from headrace.client.committed_records import TopicRecord
from headrace.client.config import ClientConfig, client_config
from headrace.client.producing import add_partitions, init_producer, produce
from headrace.errors import ErrorCode, KafkaError
from headrace.service.internal_topics import (
    Follow,
    InternalTopic,
    KeyValue,
    TopicFollower,
    TopicWriter,
    make_topics,
)
from headrace.types import TopicPartition
from headrace.wire.batch import TRANSACTIONAL
from headrace.wire.records import Record, encode_batch
from tests.support.headrace_broker import HeadraceBroker

TOPIC = InternalTopic("states", 1, 1, "states.topic")
PARTITION = TopicPartition("states", 0)
FENCED = {ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH}


def _leave_open(config: ClientConfig) -> None:
    """What a writer leaves that is killed before it commits."""
    with Cluster(config) as cluster:
        producer = init_producer(cluster, "states-writer", 600_000)
        add_partitions(cluster, producer, [PARTITION])
        batch = encode_batch(
            [Record(0, 0, b"lost", b"x")],
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=0,
            attributes=TRANSACTIONAL,
        )
        produce(cluster, {PARTITION: batch}, producer)


async def _write_in_turns(config: ClientConfig) -> list[bytes]:
    read: list[TopicRecord] = []
    first, second = (TopicWriter(config, {"states": 1}, "states-writer") for _ in range(2))
    follower = TopicFollower(config, [Follow("states", 1, read.append)])
    follower.start()
    try:
        await asyncio.to_thread(_leave_open, config)
        await first.take_over()
        await first.write("states", [KeyValue(b"a", b"1"), KeyValue(b"b", b"1")])
        await second.take_over()
        ends = await second.write("states", [KeyValue(b"a", b"2")])
        for _ in range(2):
            # The second attempt begins with a new producer epoch, which is refused as well.
            with pytest.raises(KafkaError) as error:
                await first.write("states", [KeyValue(b"a", b"3")])
            assert error.value.code in FENCED
        ends |= await second.write("states", [KeyValue(b"b", None)])
        await asyncio.wait_for(follower.reached(ends), 60)
    finally:
        await asyncio.to_thread(follower.stop)
        first.close()
        second.close()
    return [each.key or b"" for each in read]


def test_a_writer_that_is_fenced_stays_fenced(tmp_path: Path) -> None:
    with HeadraceBroker(tmp_path) as broker:
        config = client_config({"bootstrap.servers": broker.bootstrap})
        with Cluster(config) as cluster:
            make_topics(cluster, [TOPIC])
        assert asyncio.run(_write_in_turns(config)) == [b"a", b"b", b"a", b"b"]
