"""ListOffsets finds offsets by position and by time."""

import asyncio
import datetime
from collections.abc import Callable, Coroutine

import pytest
from kio.schema.list_offsets.v11.request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)

from headrace.apis.records.list_offsets import list_offsets
from headrace.errors import ErrorCode
from headrace.wire.batch import TRANSACTIONAL, put_checksum
from headrace.wire.primitives import BrokerId, TopicName, i8, i32, i64
from headrace.wire.records import Record, encode_batch
from tests.apis.one_broker import NEWEST, NOW, OneBroker


def asked(
    timestamp: int,
    topic: str = "t",
    index: int = 0,
    epoch: int = -1,
    times: int = 1,
    isolation: int = 0,
) -> ListOffsetsRequest:
    wanted = ListOffsetsPartition(
        partition_index=i32(index), current_leader_epoch=i32(epoch), timestamp=i64(timestamp)
    )
    return ListOffsetsRequest(
        replica_id=BrokerId(-1),
        isolation_level=i8(isolation),
        topics=(ListOffsetsTopic(name=TopicName(topic), partitions=(wanted,) * times),),
        timeout=datetime.timedelta(0),  # type: ignore[arg-type]
    )


def found(
    broker: OneBroker, request: ListOffsetsRequest, version: int = NEWEST
) -> tuple[int, int, int, int]:
    response = broker.ask(list_offsets, request, version)
    if isinstance(response, Coroutine):
        response = asyncio.run(response)
    answer = response.topics[0].partitions[0]
    return answer.error_code, answer.timestamp, answer.offset, answer.leader_epoch


@pytest.fixture
def filled(broker: OneBroker) -> OneBroker:
    """Offsets 0-2 at 10, 20, 30 and 3-4 at 25, 40."""
    broker.create("t")
    broker.append("t", [NOW + 10, NOW + 20, NOW + 30])
    broker.append("t", [NOW + 25, NOW + 40])
    return broker


@pytest.mark.parametrize(
    ("timestamp", "answer"),
    [
        (-1, (-1, 5, 0)),
        (-2, (-1, 0, 0)),
        (-3, (NOW + 40, 4, 0)),
        (-4, (-1, 0, 0)),
        (-5, (-1, -1, -1)),
        (-6, (-1, -1, -1)),
        (0, (NOW + 10, 0, 0)),
        (NOW + 20, (NOW + 20, 1, 0)),
        (NOW + 21, (NOW + 30, 2, 0)),
        (NOW + 31, (NOW + 40, 4, 0)),
        (NOW + 41, (-1, -1, -1)),
    ],
)
def test_places_in_a_log(filled: OneBroker, timestamp: int, answer: tuple[int, int, int]) -> None:
    assert found(filled, asked(timestamp)) == (0, *answer)


def test_places_in_an_empty_log(broker: OneBroker) -> None:
    broker.create("t")
    assert found(broker, asked(-1)) == (0, -1, 0, 0)
    assert found(broker, asked(-2))[:3] == (0, -1, 0)
    assert found(broker, asked(-3)) == (0, -1, -1, -1)
    assert found(broker, asked(5)) == (0, -1, -1, -1)


def test_the_beginning_moves_with_deleted_records(filled: OneBroker) -> None:
    filled.replicas.partition("t", 0).replica.delete_records(3)
    assert found(filled, asked(-2)) == (0, -1, 3, 0)
    assert found(filled, asked(0)) == (0, NOW + 25, 3, 0)


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (asked(-1, topic="none"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (asked(-1, index=7), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (asked(-1, index=-1), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (asked(-1, epoch=9), ErrorCode.UNKNOWN_LEADER_EPOCH),
        (asked(-1, times=2), ErrorCode.INVALID_REQUEST),
        (asked(-9), ErrorCode.UNSUPPORTED_VERSION),
    ],
)
def test_what_cannot_be_answered(
    filled: OneBroker, request_: ListOffsetsRequest, code: ErrorCode
) -> None:
    assert found(filled, request_) == (code, -1, -1, -1)


@pytest.mark.parametrize(("timestamp", "first"), [(-3, 7), (-4, 8), (-5, 9), (-6, 11)])
def test_newer_places_are_unknown_to_older_versions(
    filled: OneBroker, timestamp: int, first: int
) -> None:
    assert found(filled, asked(timestamp), first - 1)[0] == ErrorCode.UNSUPPORTED_VERSION
    assert found(filled, asked(timestamp), first)[0] == 0


def test_readers_of_committed_records_see_the_last_stable_offset(filled: OneBroker) -> None:
    data = encode_batch(
        [Record(0, NOW + 50, b"k", b"v")],
        producer_id=7,
        producer_epoch=0,
        base_sequence=0,
        attributes=TRANSACTIONAL,
    )
    partition = filled.replicas.partition("t", 0)
    partition.append_own(data, NOW)
    assert found(filled, asked(-1)) == (0, -1, 6, 0)
    assert found(filled, asked(-1, isolation=1)) == (0, -1, 5, 0)
    assert found(filled, asked(NOW + 50)) == (0, NOW + 50, 5, 0)
    assert found(filled, asked(NOW + 50, isolation=1)) == (0, -1, -1, -1)
    partition.append_marker(7, 0, True, 0, NOW)
    assert found(filled, asked(-1, isolation=1)) == (0, -1, 7, 0)
    assert found(filled, asked(NOW + 50, isolation=1)) == (0, NOW + 50, 5, 0)


MANY = 3_000


def with_large_batch(broker: OneBroker, codec: int) -> None:
    """A large batch, whose records are a millisecond apart, between two small ones."""
    broker.create("t")
    broker.append("t", [NOW - 10])
    records = [Record(0, NOW + n, b"k", b"v" * 200) for n in range(MANY)]
    large = encode_batch(records, codec=codec)
    partition = broker.replicas.partition("t", 0)
    partition.append(large, memoryview(large), 0, len(large), 1, NOW)
    broker.append("t", [NOW - 5])


@pytest.mark.parametrize("codec", range(5))
def test_a_time_is_found_in_a_large_batch_while_others_are_served(
    broker: OneBroker, codec: int
) -> None:
    with_large_batch(broker, codec)
    for place in (0, 1, 1_500, MANY - 1):
        assert found(broker, asked(NOW + place)) == (0, NOW + place, 1 + place, 0)
    assert found(broker, asked(-3)) == (0, NOW + MANY - 1, MANY, 0)
    assert found(broker, asked(NOW + MANY)) == (0, -1, -1, -1)
    assert found(broker, asked(NOW - 10)) == (0, NOW - 10, 0, 0)


def test_a_large_batch_that_cannot_be_decoded_is_found_by_its_header(broker: OneBroker) -> None:
    broker.create("t")
    broken = encode_batch([Record(0, NOW, b"k", b"v")] * MANY, codec=1)
    broken[-9:-8] = bytes([broken[-9] ^ 1])
    put_checksum(broken)
    partition = broker.replicas.partition("t", 0)
    partition.append(broken, memoryview(broken), 0, len(broken), 1, NOW)
    assert found(broker, asked(NOW - 1)) == (0, NOW, 0, 0)


def test_a_partition_that_changes_during_a_search_is_looked_at_again(broker: OneBroker) -> None:
    with_large_batch(broker, 3)
    partition = broker.replicas.partition("t", 0)

    async def search(timestamp: int, change: Callable[[], object]) -> tuple[int, int]:
        response = broker.ask(list_offsets, asked(timestamp))
        assert isinstance(response, Coroutine)
        task = asyncio.ensure_future(response)
        await asyncio.sleep(0)
        change()
        answer = (await task).topics[0].partitions[0]
        return answer.error_code, answer.offset

    assert asyncio.run(search(NOW, lambda: partition.replica.delete_records(100))) == (0, 100)
    assert asyncio.run(search(NOW, lambda: partition.replica.truncate_to(1))) == (0, -1)


def test_a_topic_that_is_deleted_during_a_search_is_unknown(broker: OneBroker) -> None:
    with_large_batch(broker, 3)

    async def search() -> int:
        response = broker.ask(list_offsets, asked(NOW))
        assert isinstance(response, Coroutine)
        task = asyncio.ensure_future(response)
        await asyncio.sleep(0)
        broker.metadata.delete_topics(["t"])
        return (await task).topics[0].partitions[0].error_code

    assert asyncio.run(search()) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
