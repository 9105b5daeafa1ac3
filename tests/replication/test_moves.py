"""The state that a copy in another data folder takes from the log that it replaces."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headrace.log.log import Log
from headrace.replication.partition import Partition
from headrace.types import TopicPartition
from headrace.wire.batch import TRANSACTIONAL, read_header
from headrace.wire.markers import encode_marker
from tests.apis.one_broker import NOW, OneBroker
from tests.log.samples import batch, contents

NAME = TopicPartition("t", 0)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[OneBroker]:
    broker = OneBroker(tmp_path / "data", folders=2)
    yield broker
    broker.close()


def partition_of(broker: OneBroker, **configs: str) -> Partition:
    broker.create("t", 1, internal_segment_bytes="600", index_interval_bytes="100", **configs)
    return broker.replicas.partition("t", 0)


def append(log: Log, data: bytearray, epoch: int = 0) -> None:
    log.append(data, memoryview(data), 0, len(data), read_header(data, 0), epoch, NOW)


async def until(happened: Callable[[], bool]) -> None:
    for _ in iter(happened, True):
        await asyncio.sleep(0)


def moved(broker: OneBroker, partition: Partition) -> Log:
    """Move the partition to the other folder; its log there."""
    (target,) = [each for each in broker.directories.all if not each.has(NAME)]

    async def move() -> None:
        broker.replicas.moves.begin(partition, target)
        await until(lambda: not broker.replicas.moves.under_way)

    before = partition.replica.log
    asyncio.run(move())
    assert broker.directories.home_of(NAME) is target
    assert partition.replica.log is not before
    return partition.replica.log


def knowledge(log: Log) -> object:
    producers = {
        producer_id: (producer.epoch, producer.expected, producer.batches)
        for producer_id, producer in log.producers.producers.items()
    }
    return (
        contents(log),
        (log.start_offset, log.end_offset, log.last_stable_offset(log.end_offset)),
        producers,
        log.epochs.entries,
        [log.find_timestamp(NOW + ms) for ms in range(0, 50, 5)],
        [log.transactions.between(start, log.end_offset) for start in range(log.end_offset)],
    )


def test_a_copy_has_the_whole_state_of_the_log(broker: OneBroker) -> None:
    partition = partition_of(broker)
    log = partition.replica.log
    for n in range(30):
        append(log, batch(2, timestamp=NOW + n, producer_id=7, epoch=0, sequence=2 * n), n // 9)
        if n % 4 == 0:
            values = batch(producer_id=8, epoch=0, sequence=n // 4, attributes=TRANSACTIONAL)
            append(log, values, n // 9)
            if n < 28:
                append(log, encode_marker(8, 0, n % 8 == 0, 1, NOW), n // 9)
    log.delete_records_before(9)
    expected = knowledge(log)
    fresh = moved(broker, partition)
    assert knowledge(fresh) == expected
    assert knowledge(moved(broker, partition)) == expected, "and back again"
    end = partition.replica.log.end_offset
    append(partition.replica.log, batch(2, producer_id=7, epoch=0, sequence=58), 3)
    assert partition.replica.log.end_offset == end, "a duplicate"


def test_what_only_producer_state_remembers_is_handed_over(broker: OneBroker) -> None:
    partition = partition_of(broker)
    append(partition.replica.log, batch(producer_id=7, epoch=3, sequence=0))
    append(partition.replica.log, batch())
    partition.replica.log.roll(NOW)
    append(partition.replica.log, batch())
    partition.replica.log.delete_records_before(2)
    fresh = moved(broker, partition)
    assert fresh.producers.producers[7].epoch == 3
    assert contents(fresh)[0][0] == 2


def test_offsets_that_compaction_took_from_the_end_are_not_used_again(broker: OneBroker) -> None:
    partition = partition_of(broker, cleanup_policy="compact")
    append(partition.replica.log, batch())
    partition.replica.log.skip_to(50)
    append(partition.replica.log, batch())
    partition.replica.log.skip_to(99)
    fresh = moved(broker, partition)
    assert (fresh.start_offset, fresh.end_offset) == (0, 99)
    assert [base for base, _ in contents(fresh)] == [0, 50]


def test_an_empty_partition_moves(broker: OneBroker) -> None:
    partition = partition_of(broker)
    fresh = moved(broker, partition)
    assert (fresh.start_offset, fresh.end_offset) == (0, 0)
    broker.append("t", [NOW])
    assert fresh.end_offset == 1


@pytest.mark.parametrize("happens", ["retention", "cut"])
def test_a_copy_follows_a_log_that_loses_records_meanwhile(broker: OneBroker, happens: str) -> None:
    partition = partition_of(broker)
    log = partition.replica.log
    for n in range(40):
        append(log, batch(timestamp=NOW + n))
    (target,) = [each for each in broker.directories.all if not each.has(NAME)]

    async def move() -> None:
        broker.replicas.moves.begin(partition, target)
        copy = target.futures[NAME].log
        assert copy is not None
        await until(lambda: copy.end_offset > 0)
        if happens == "retention":
            log.delete_records_before(log.end_offset)
        else:
            log.truncate_to(copy.end_offset - 3)
        for n in range(10):
            append(log, batch(timestamp=NOW + 100 + n, value=b"other"))
        await until(lambda: not broker.replicas.moves.under_way)

    asyncio.run(move())
    assert broker.directories.home_of(NAME) is target
    expected = [*range(40, 50)] if happens == "retention" else [*range(log.end_offset)]
    assert [base for base, _ in contents(partition.replica.log)] == expected
    values = [data for _, data in contents(partition.replica.log)]
    assert sum(b"other" in value for value in values) == 10


def test_a_log_is_not_compacted_while_it_moves(broker: OneBroker) -> None:
    partition = partition_of(broker)
    (target,) = [each for each in broker.directories.all if not each.has(NAME)]
    partition.replica.log.compacting = True

    async def move() -> None:
        broker.replicas.moves.begin(partition, target)
        assert broker.directories.is_moving(NAME), "so compaction leaves it alone"
        for _ in range(50):
            await asyncio.sleep(0)
        assert broker.directories.home_of(NAME) is not target, "it waits for the compaction"
        partition.replica.log.compacting = False
        await until(lambda: not broker.replicas.moves.under_way)

    asyncio.run(move())
    assert broker.directories.home_of(NAME) is target
