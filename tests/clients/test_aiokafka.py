"""aiokafka: an asyncio client that speaks older request versions."""

import asyncio
import time
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic

from tests.clients.conftest import MakeTopic

T = TypeVar("T")


def within(seconds: float, work: Coroutine[Any, Any, T]) -> T:
    async def bounded() -> T:
        return await asyncio.wait_for(work, seconds)

    return asyncio.run(bounded())


async def send(bootstrap: str, topic: str, values: list[bytes | None], **options: Any) -> list[Any]:
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, **options) as producer:
        futures = [await producer.send(topic, value, partition=0) for value in values]
        return [await future for future in futures]


async def read(bootstrap: str, topic: str, count: int, offset: int = 0) -> list[Any]:
    async with AIOKafkaConsumer(bootstrap_servers=bootstrap) as consumer:
        partition = TopicPartition(topic, 0)
        consumer.assign([partition])
        consumer.seek(partition, offset)
        return [await consumer.getone() for _ in range(count)]


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_comes_back_readable(bootstrap: str, topic: str, codec: str | None) -> None:
    values: list[bytes | None] = [b"weir " * 40 + b"%d" % n for n in range(200)]

    async def there_and_back() -> list[Any]:
        await send(bootstrap, topic, values, compression_type=codec, linger_ms=10)
        return await read(bootstrap, topic, 200)

    assert [r.value for r in within(60, there_and_back())] == values


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_every_acks_level_stores_the_records(bootstrap: str, topic: str, acks: int | str) -> None:
    async def there_and_back() -> list[Any]:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap, acks=acks) as producer:
            for n in range(10):
                await producer.send_and_wait(topic, b"%d" % n)
        return await read(bootstrap, topic, 10)

    assert [r.offset for r in within(60, there_and_back())] == list(range(10))


def test_an_idempotent_producer_keeps_order(bootstrap: str, topic: str) -> None:
    async def there_and_back() -> tuple[list[Any], list[Any]]:
        sent = await send(
            bootstrap, topic, [b"%d" % n for n in range(300)], enable_idempotence=True
        )
        return sent, await read(bootstrap, topic, 300)

    sent, records = within(60, there_and_back())
    assert [metadata.offset for metadata in sent] == list(range(300))
    assert [r.value for r in records] == [b"%d" % n for n in range(300)]


def test_keys_headers_nulls_and_timestamps_survive(bootstrap: str, topic: str) -> None:
    moment = int(time.time() * 1000) - 5000

    async def there_and_back() -> list[Any]:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
            await producer.send_and_wait(
                topic, b"v", key=b"k", headers=[("h", b"1")], timestamp_ms=moment
            )
            await producer.send_and_wait(topic, None, key=b"k")
        return await read(bootstrap, topic, 2)

    first, second = within(60, there_and_back())
    assert (first.key, first.value, first.headers) == (b"k", b"v", (("h", b"1"),))
    assert (first.timestamp, first.timestamp_type) == (moment, 0)
    assert (second.key, second.value) == (b"k", None)


def test_log_append_time_is_marked(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic(**{"message.timestamp.type": "LogAppendTime"})

    async def there_and_back() -> list[Any]:
        (sent,) = await send(bootstrap, topic, [b"v"])
        return [sent, *await read(bootstrap, topic, 1)]

    sent, record = within(60, there_and_back())
    assert (sent.timestamp_type, record.timestamp_type) == (1, 1)
    assert sent.timestamp == record.timestamp


def test_offsets_are_found_at_both_ends_and_by_time(bootstrap: str, topic: str) -> None:
    start = int(time.time() * 1000) - 50_000
    partition = TopicPartition(topic, 0)

    async def ask() -> tuple[Any, Any, Any]:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
            for n in range(5):
                await producer.send_and_wait(topic, b"v", timestamp_ms=start + n * 1000)
        async with AIOKafkaConsumer(bootstrap_servers=bootstrap) as consumer:
            consumer.assign([partition])
            first = await consumer.beginning_offsets([partition])
            last = await consumer.end_offsets([partition])
            found = await consumer.offsets_for_times({partition: start + 2500})
            return first[partition], last[partition], found[partition].offset

    assert within(60, ask()) == (0, 5, 3)


def test_a_megabyte_arrives_whole(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic(**{"max.message.bytes": "2000000"})
    large = bytes(range(256)) * 4096

    async def there_and_back() -> list[Any]:
        await send(bootstrap, topic, [large], max_request_size=2_000_000)
        return await read(bootstrap, topic, 1)

    assert [r.value == large for r in within(60, there_and_back())] == [True]


def test_the_admin_client_creates_grows_and_deletes(bootstrap: str, new_name: str) -> None:
    async def listed(client: Any, there: bool) -> None:
        # This client does not wait for the creation, so the topic may appear a moment later.
        while (new_name in await client.list_topics()) is not there:  # noqa: ASYNC110
            await asyncio.sleep(0.05)

    async def administer() -> int:
        client = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await client.start()
        try:
            await client.create_topics([NewTopic(new_name, 1, 1)])
            await listed(client, True)
            await client.create_partitions({new_name: NewPartitions(3)})
            (described,) = await client.describe_topics([new_name])
            await client.delete_topics([new_name])
            await listed(client, False)
            return len(described["partitions"])
        finally:
            await client.close()

    assert within(60, administer()) == 3
