"""Batches whose records take long to examine: other requests are served, results do not change.

How long others wait is measured by `benchmarks/large_requests.py`; here their turns are counted.
"""

import asyncio
import struct
import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from headrace.apis.hot import CloseConnection, LongProduce
from headrace.apis.records.long_batches import LongBatches
from headrace.apis.records.produce import Produce
from headrace.apis.slices import Slices
from headrace.clock import ManualClock
from headrace.cluster.image import PartitionState
from headrace.errors import ErrorCode
from headrace.replication import examination
from headrace.replication.partition import Partition
from headrace.wire.batch import TRANSACTIONAL, put_checksum, read_header
from headrace.wire.compression import compress
from headrace.wire.records import Record, encode_batch
from tests.apis.one_broker import CALLER, NODE, NOW, OneBroker
from tests.apis.test_transactions import NAME, NEW, init
from tests.support.raw import CLIENT_ID, produce, produce_error

MANY = 5_000
TURNS = 5
START = 4 + 10 + len(CLIENT_ID) + 1
"""Where the body of a request begins behind its header."""

LONG = [
    ({"cleanup_policy": "compact"}, 0),
    ({"cleanup_policy": "compact"}, 1),
    ({"cleanup_policy": "compact"}, 2),
    ({"cleanup_policy": "compact"}, 3),
    ({"cleanup_policy": "compact"}, 4),
    ({"record_validation": "full"}, 4),
    ({"compression_type": "gzip"}, 0),
    ({"compression_type": "snappy"}, 4),
    ({"compression_type": "lz4"}, 1),
    ({"compression_type": "zstd"}, 3),
    ({"compression_type": "uncompressed"}, 2),
    ({"cleanup_policy": "compact", "compression_type": "zstd"}, 1),
    ({"cleanup_policy": "compact", "message_timestamp_type": "LogAppendTime"}, 3),
]


@pytest.fixture(autouse=True)
def real_time(broker: OneBroker) -> None:
    """Slices end by the clock, and that of the broker stands still."""
    broker.services.slices = Slices(time.perf_counter)
    broker.services.long_batches = LongBatches(broker.services.slices)


def long_batch(codec: int = 0, count: int = MANY, **options: int) -> bytearray:
    """A batch that is not examined at once."""
    records = [Record(n, NOW - n, b"key-%d" % n, b"value %d" % n * 8) for n in range(count)]
    return encode_batch(records, codec=codec, **options)


def partition_of(broker: OneBroker, **configs: str) -> Partition:
    broker.create("t", 1, max_message_bytes="10000000", **configs)
    return broker.replicas.partition("t", 0)


def call(broker: OneBroker, batch: bytearray, acks: int = 1) -> LongProduce:
    """The work on a Produce, in a buffer that is used for something else at once."""
    request = bytearray(produce("t", batch, acks=acks))
    answer = Produce(broker.services)(
        CALLER, request, memoryview(request), START, len(request), 9, 1
    )
    assert isinstance(answer, LongProduce)
    request[:] = bytes(len(request))
    return answer


def run(work: LongProduce, meanwhile: Callable[[], None] = lambda: None) -> tuple[int, int]:
    """Error code and base offset; `meanwhile` is called once, while the work is under way."""

    async def finish() -> bytes | None:
        task = asyncio.ensure_future(work)
        await asyncio.sleep(0)
        meanwhile()
        return await asyncio.wait_for(task, 60)

    answer = asyncio.run(finish())
    assert answer is not None
    return produce_error(answer[4:], "t")


def stored(partition: Partition) -> bytes:
    found = partition.replica.read(0, 100_000_000, True)
    assert found is not None
    return found.read()


@pytest.mark.parametrize(("configs", "codec"), LONG)
def test_a_long_batch_is_stored_as_a_short_one_is(
    broker: OneBroker, configs: dict[str, str], codec: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = partition_of(broker, **configs)
    assert run(call(broker, long_batch(codec))) == (0, 0)
    slowly = stored(partition)
    monkeypatch.setattr(examination, "AT_ONCE_RECORDS", 1 << 30)
    monkeypatch.setattr(examination, "AT_ONCE_BYTES", 1 << 30)
    batch = long_batch(codec)
    assert partition.append(batch, memoryview(batch), 0, len(batch), 1, NOW)[0] == MANY
    both = stored(partition)
    at_once = bytearray(both[len(slowly) :])
    at_once[:8] = bytes(8)  # the base offset
    assert bytes(at_once) == slowly
    assert read_header(slowly, 0)[12] == MANY


@pytest.mark.parametrize(("configs", "codec"), LONG)
def test_others_have_their_turn_while_a_long_batch_is_examined(
    broker: OneBroker, configs: dict[str, str], codec: int
) -> None:
    partition_of(broker, **configs)
    batch = long_batch(codec, count=20_000)

    async def count_turns() -> int:
        task = asyncio.ensure_future(call(broker, batch))
        turns = 0
        while not task.done():
            await asyncio.sleep(0)
            turns += 1
        assert produce_error((await task or b"")[4:], "t") == (0, 0)
        return turns

    assert asyncio.run(count_turns()) >= TURNS


def broken(batch: bytearray, at: int, value: int) -> bytearray:
    batch[at] = value
    put_checksum(batch)
    return batch


@pytest.mark.parametrize("acks", [-1, 0, 1])
def test_a_long_batch_that_is_wrong_is_refused(broker: OneBroker, acks: int) -> None:
    partition = partition_of(broker, cleanup_policy="compact")
    wrong = broken(long_batch(), -1, 7)  # the header count of the last record
    if acks:
        assert run(call(broker, wrong, acks))[0] == ErrorCode.INVALID_RECORD
    else:
        with pytest.raises(CloseConnection, match="acks=0 failed"):
            run(call(broker, wrong, acks))
    assert partition.replica.log.end_offset == 0


def test_a_long_batch_without_acks_is_stored_and_not_answered(broker: OneBroker) -> None:
    partition = partition_of(broker, cleanup_policy="compact")

    async def finish() -> bytes | None:
        return await call(broker, long_batch(), acks=0)

    assert asyncio.run(finish()) is None
    assert partition.replica.log.end_offset == MANY


def test_a_batch_that_is_too_large_in_the_topics_codec_is_refused(broker: OneBroker) -> None:
    broker.create("t", 1, compression_type="uncompressed")
    partition = broker.replicas.partition("t", 0)
    zeros = encode_batch([Record(0, NOW, None, bytes(2_000_000))], codec=4)
    assert run(call(broker, zeros))[0] == ErrorCode.MESSAGE_TOO_LARGE
    assert partition.replica.log.end_offset == 0


def test_very_many_headers_are_checked_to_the_last(broker: OneBroker) -> None:
    partition_of(broker, record_validation="full")
    headers = tuple(("h", b"v") for _ in range(300_000))
    batch = encode_batch([Record(0, NOW, None, b"v", headers)], codec=1)
    assert run(call(broker, batch)) == (0, 0)
    plain = encode_batch([Record(0, NOW, None, b"v", headers)])
    wrong = bytearray(plain[:-4])
    wrong += b"\x01h\x02v"  # the last header has no key
    assert len(wrong) == len(plain)
    packed = encode_batch([Record(0, NOW, None, b"v")], codec=1)
    packed[61:] = compress(1, bytes(wrong[61:]))
    struct.pack_into(">i", packed, 8, len(packed) - 12)
    put_checksum(packed)
    assert run(call(broker, packed))[0] == ErrorCode.INVALID_RECORD


# ----------------------------------------------------------------------- changes in the meantime


def test_a_leader_that_stops_leading_meanwhile_appends_nothing(broker: OneBroker) -> None:
    partition = partition_of(broker, cleanup_policy="compact")
    other = PartitionState(2, 4, (NODE, 2), (NODE, 2))
    code, _ = run(call(broker, long_batch()), lambda: partition.use_state(other))
    assert code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert partition.replica.log.end_offset == 0


def test_a_leader_in_a_new_epoch_appends_in_that_epoch(broker: OneBroker) -> None:
    partition = partition_of(broker, cleanup_policy="compact")
    again = PartitionState(NODE, 7, (NODE,), (NODE,))
    assert run(call(broker, long_batch()), lambda: partition.use_state(again)) == (0, 0)
    assert read_header(stored(partition), 0)[2] == 7


def test_a_topic_that_is_deleted_meanwhile_is_unknown(broker: OneBroker) -> None:
    partition = partition_of(broker, cleanup_policy="compact")

    def delete() -> None:
        assert broker.metadata.delete_topics(["t"]) == [None]

    code, _ = run(call(broker, long_batch()), delete)
    assert code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert partition.closed


def test_settings_that_change_meanwhile_count(broker: OneBroker) -> None:
    partition = partition_of(broker, compression_type="zstd")
    keyless = encode_batch([Record(0, NOW, None, b"value" * 20)] * MANY)

    def compact() -> None:
        partition.use_settings(replace(partition.settings, cleanup_policy=frozenset({"compact"})))

    assert run(call(broker, keyless), compact)[0] == ErrorCode.INVALID_RECORD
    assert partition.replica.log.end_offset == 0


def test_the_append_time_is_that_of_the_append(broker: OneBroker) -> None:
    partition = partition_of(
        broker, cleanup_policy="compact", message_timestamp_type="LogAppendTime"
    )
    clock = broker.services.clock
    assert isinstance(clock, ManualClock)
    assert run(call(broker, long_batch()), lambda: clock.advance(1_000)) == (0, 0)
    assert read_header(stored(partition), 0)[8] == clock.now_ms() == NOW + 1_000


def test_what_was_appended_before_a_long_batch_is_not_acknowledged_by_a_later_leader(
    broker: OneBroker,
) -> None:
    """Two partitions in one request: the first waits for its followers, the second takes long."""
    broker.create("t", 2, cleanup_policy="compact", max_message_bytes="10000000")
    first, second = broker.replicas.topic("t")
    first.use_state(PartitionState(NODE, 1, (NODE, 2), (NODE, 2)))
    small = encode_batch([Record(0, NOW, b"k", b"lost")])
    request = both_partitions(small, long_batch())

    def lose_and_lead_again() -> None:
        first.use_state(PartitionState(2, 2, (NODE, 2), (NODE, 2)))
        first.replica.truncate_to(0)
        first.use_state(PartitionState(NODE, 3, (NODE,), (NODE,)))
        other = encode_batch([Record(0, NOW, b"k", b"another")])
        first.append(other, memoryview(other), 0, len(other), 1, NOW)

    async def finish() -> bytes | None:
        answer = Produce(broker.services)(
            CALLER, request, memoryview(request), 0, len(request), 3, 1
        )
        assert isinstance(answer, LongProduce)
        task = asyncio.ensure_future(answer)
        await asyncio.sleep(0)
        lose_and_lead_again()
        return await asyncio.wait_for(task, 60)

    told = asyncio.run(finish())
    assert told is not None
    rows = told[4 + 4 + 4 + 2 + 1 + 4 :]
    codes = [struct.unpack_from(">ih", rows, n * 22) for n in range(2)]
    assert codes == [(0, ErrorCode.NOT_LEADER_OR_FOLLOWER), (1, 0)]
    assert second.replica.log.end_offset == MANY


def both_partitions(one: bytes | bytearray, two: bytes | bytearray) -> bytearray:
    """The body of a Produce v3 with acks=all for two partitions of the topic t."""
    body = bytearray(struct.pack(">hhiih", -1, -1, 60_000, 1, 1) + b"t" + struct.pack(">i", 2))
    for index, batch in enumerate((one, two)):
        body += struct.pack(">ii", index, len(batch)) + batch
    return body


# ------------------------------------------------------------------------------------- order


def test_a_transactions_batches_stay_in_order_behind_a_long_one(broker: OneBroker) -> None:
    """The first batch waits for the coordinator's disk, and takes long after that."""
    broker.create("orders", 1, cleanup_policy="compact", max_message_bytes="10000000")
    who = init(broker)
    for partition in broker.replicas.topic("__transaction_state"):
        partition.use_settings(replace(partition.settings, flush_messages=1))

    def body(sequence: int, count: int) -> bytearray:
        batch = long_batch(
            count=count, producer_id=who.producer_id, producer_epoch=who.epoch,
            base_sequence=sequence, attributes=TRANSACTIONAL,
        )  # fmt: skip
        return in_transaction(NAME, "orders", batch)

    async def all_of_them() -> list[bytes]:
        handler = Produce(broker.services)
        works = []
        for sequence, count in ((0, MANY), (MANY, 1), (MANY + 1, MANY), (2 * MANY + 1, 1)):
            request = body(sequence, count)
            work = handler(CALLER, request, memoryview(request), 0, len(request), NEW, 1)
            assert not isinstance(work, bytes | None)
            works.append(asyncio.ensure_future(work))
        return [answer or b"" for answer in await asyncio.gather(*works)]

    answers = asyncio.run(all_of_them())
    assert [produce_error(answer[4:], "orders")[0] for answer in answers] == [0] * 4
    assert broker.replicas.partition("orders", 0).replica.log.end_offset == 2 * MANY + 2


def in_transaction(name: str, topic: str, batch: bytearray) -> bytearray:
    """The body of a Produce v12 in a transaction."""
    whole = produce(topic, batch, acks=-1, version=12)[START:]
    return bytearray(bytes([len(name) + 1]) + name.encode() + whole[1:])
