"""Batches that a leader accepts, converts and refuses."""

import asyncio
import time
from collections.abc import Coroutine
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.apis.records.produce import Produce
from headrace.cluster.image import PartitionState
from headrace.errors import ErrorCode, KafkaError
from headrace.replication.examination import Examination, Examined, TakesLong
from headrace.replication.partition import Partition
from headrace.replication.verification import VerificationGuard
from headrace.wire.batch import (
    CODEC_MASK,
    LOG_APPEND_TIME,
    MAX_TIMESTAMP_AT,
    TRANSACTIONAL,
    put_checksum,
    read_header,
)
from headrace.wire.checksum import crc32c
from headrace.wire.compression import CODECS, compress
from headrace.wire.markers import encode_marker
from headrace.wire.records import Record, encode_batch, iterate
from headrace.wire.steps import finish
from tests.apis import one_broker
from tests.apis.one_broker import CALLER, OneBroker
from tests.support import raw

NOW = int(time.time() * 1000)
CAP = 48 * 1024 * 1024
INVALID = ErrorCode.INVALID_RECORD


@pytest.fixture
def broker(tmp_path: Path) -> OneBroker:
    return OneBroker(tmp_path)


def topic(broker: OneBroker, **configs: str) -> Partition:
    broker.create("t", 1, **configs)
    return broker.replicas.partition("t", 0)


def batch(*values: bytes | None, key: bytes | None = b"k", **options: int) -> bytearray:
    return encode_batch([Record(0, NOW, key, value) for value in values], **options)


def append(partition: Partition, data: bytearray, acks: int = -1, now_ms: int = NOW) -> int:
    whole = memoryview(data)
    try:
        base, _, _ = partition.append(data, whole, 0, len(data), acks, now_ms)
    except TakesLong as long:
        examined = complete(long.examination)
        base, _, _ = partition.append(data, whole, 0, len(data), acks, now_ms, None, examined)
    return base


def complete(examination: Examination) -> Examined:
    """What `LongBatches` does, without letting others have their turn."""
    examination.unpack()
    return examination.pack(finish(examination.steps()))


def stored(partition: Partition, offset: int = 0) -> bytes:
    found = partition.replica.read(offset, 10_000_000, True)
    assert found is not None
    return found.read()


def refused(partition: Partition, data: bytearray, acks: int = -1) -> ErrorCode:
    before = partition.replica.log.end_offset
    with pytest.raises(KafkaError) as raised:
        append(partition, data, acks)
    assert partition.replica.log.end_offset == before
    return raised.value.code


@pytest.mark.parametrize("codec", range(5))
def test_a_producers_own_codec_is_kept(broker: OneBroker, codec: int) -> None:
    partition = topic(broker)
    append(partition, batch(b"v" * 100, b"w" * 100, codec=codec))
    data = stored(partition)
    assert read_header(data, 0)[5] & CODEC_MASK == codec
    assert [r.value for r in iterate(data, 0, len(data), CAP)] == [b"v" * 100, b"w" * 100]


@pytest.mark.parametrize("theirs", range(5))
@pytest.mark.parametrize("ours", CODECS)
def test_a_topics_own_codec_replaces_the_producers(
    broker: OneBroker, ours: str, theirs: int
) -> None:
    partition = topic(broker, compression_type=ours)
    append(partition, batch(b"v" * 100, b"w" * 100, codec=theirs))
    data = stored(partition)
    assert read_header(data, 0)[5] & CODEC_MASK == CODECS[ours]
    records = list(iterate(data, 0, len(data), CAP))
    assert [(r.value, r.timestamp) for r in records] == [(b"v" * 100, NOW), (b"w" * 100, NOW)]


def test_log_append_time_is_the_brokers(broker: OneBroker) -> None:
    partition = topic(broker, message_timestamp_type="LogAppendTime")
    data = batch(b"v")
    later = NOW + 5_000_000_000
    _, append_time, _ = partition.append(data, memoryview(data), 0, len(data), 1, later)
    assert append_time == later
    kept = stored(partition)
    assert read_header(kept, 0)[5] & LOG_APPEND_TIME
    assert [r.timestamp for r in iterate(kept, 0, len(kept), CAP)] == [later]
    assert partition.replica.log.find_timestamp(later) is not None


def test_create_time_is_the_producers_and_must_not_lie_far_ahead(broker: OneBroker) -> None:
    partition = topic(broker)
    append(partition, batch(b"v"), now_ms=NOW - 3_000_000)
    with pytest.raises(KafkaError) as raised:
        append(partition, batch(b"v"), now_ms=NOW - 4_000_000)
    assert raised.value.code == ErrorCode.INVALID_TIMESTAMP


def test_a_batch_over_the_topics_limit_gets_10(broker: OneBroker) -> None:
    partition = topic(broker, max_message_bytes="1000")
    assert append(partition, batch(b"v" * 800)) == 0
    assert refused(partition, batch(b"v" * 1000)) == ErrorCode.MESSAGE_TOO_LARGE


def test_too_few_in_sync_replicas_get_19_for_acks_all_only(broker: OneBroker) -> None:
    partition = topic(broker, min_insync_replicas="2")
    partition.use_state(PartitionState(1, 1, (1, 2, 3), (1,)))
    assert refused(partition, batch(b"v"), acks=-1) == ErrorCode.NOT_ENOUGH_REPLICAS
    assert append(partition, batch(b"v"), acks=1) == 0


def test_more_in_sync_replicas_than_there_are_at_all_are_not_asked_for(broker: OneBroker) -> None:
    """As Kafka has it since KIP-966; see `tests/clients/test_in_sync.py`."""
    partition = topic(broker, min_insync_replicas="2")
    assert append(partition, batch(b"v"), acks=-1) == 0
    assert partition.replica.high_watermark == 1


def test_a_compacted_topic_needs_keys(broker: OneBroker) -> None:
    partition = topic(broker, cleanup_policy="compact")
    assert append(partition, batch(b"v", None)) == 0
    assert refused(partition, batch(b"v", key=None)) == ErrorCode.INVALID_RECORD
    compressed = batch(b"v", key=None, codec=4)
    assert refused(partition, compressed) == ErrorCode.INVALID_RECORD


def test_the_list_of_refused_records_is_bounded(broker: OneBroker) -> None:
    partition = topic(broker, cleanup_policy="compact")
    data = batch(*[b"v"] * 5000, key=None)
    with pytest.raises(KafkaError) as raised:
        append(partition, data)
    assert raised.value.code is ErrorCode.INVALID_RECORD
    assert [index for index, _ in raised.value.record_errors] == list(range(1000))


def falsified(data: bytearray, at: int, value: int, size: int) -> bytearray:
    """The batch with another number in its header, and a right checksum."""
    data[at : at + size] = value.to_bytes(size, "big", signed=True)
    put_checksum(data)
    return data


@pytest.mark.parametrize("count", [1, 32, 33, 500])
def test_records_that_do_not_fill_their_batch_are_refused(broker: OneBroker, count: int) -> None:
    partition = topic(broker)
    for false_count in (count + 1, count + 100, max(count - 1, 0)):
        data = falsified(batch(*[b"v"] * count), 57, false_count, 4)
        assert refused(partition, falsified(data, 23, false_count - 1, 4)) == INVALID
    padded = batch(*[b"v"] * count) + b"\0\0\0"
    assert refused(partition, falsified(padded, 8, len(padded) - 12, 4)) == INVALID
    append(partition, batch(*[b"v"] * count))


def test_a_false_maximum_timestamp_is_corrected_in_small_batches(broker: OneBroker) -> None:
    partition = topic(broker)
    append(partition, falsified(batch(b"a", b"b"), MAX_TIMESTAMP_AT, NOW + 1000, 8))
    assert read_header(stored(partition), 0)[8] == NOW
    many = falsified(batch(*[b"v"] * 33), MAX_TIMESTAMP_AT, NOW + 1000, 8)
    append(partition, many)
    assert read_header(stored(partition, 2), 0)[8] == NOW + 1000, "a large batch is trusted"


@pytest.mark.parametrize("codec", [0, 4])
@pytest.mark.parametrize(("count", "size"), [(1001, 1), (40, 150_000)])
def test_a_large_batch_with_doubtful_timestamps_is_stored_without_decoding_it(
    broker: OneBroker, codec: int, count: int, size: int
) -> None:
    partition = topic(broker, max_message_bytes="100000000")
    data = falsified(batch(*[bytes(size)] * count, codec=codec), MAX_TIMESTAMP_AT, NOW - 1, 8)
    base = append(partition, data)
    decoded = codec == 0 and count <= 1000
    assert read_header(stored(partition, base), 0)[8] == (NOW if decoded else -1)
    ahead = encode_batch([Record(0, NOW + 10**10, None, bytes(size))] * count, codec=codec)
    assert refused(partition, ahead) == ErrorCode.INVALID_TIMESTAMP


@pytest.mark.parametrize("setting", ["topic", "broker"])
def test_full_validation_looks_at_every_record(tmp_path: Path, setting: str) -> None:
    by_default = {"log.record.validation": "full"} if setting == "broker" else {}
    broker = OneBroker(tmp_path, by_default)
    partition = topic(broker, **({} if by_default else {"record_validation": "full"}))
    for codec in range(5):
        many = falsified(batch(*[b"v"] * 33, codec=codec), MAX_TIMESTAMP_AT, NOW + 1000, 8)
        base = append(partition, many)
        assert read_header(stored(partition, base), 0)[8] == NOW
        data = falsified(batch(*[b"v"] * 33, codec=codec), 57, 34, 4)
        assert refused(partition, falsified(data, 23, 33, 4)) == INVALID


def test_a_compressed_batch_cannot_say_more_records_than_may_be_unpacked(
    broker: OneBroker,
) -> None:
    partition = topic(broker)
    data = falsified(batch(b"v", codec=1), 57, 2**31 - 1, 4)
    assert refused(partition, falsified(data, 23, 2**31 - 2, 4)) == INVALID


def test_a_topics_own_codec_counts_the_records(broker: OneBroker) -> None:
    partition = topic(broker, compression_type="lz4")
    data = falsified(batch(*[b"v"] * 40, codec=1), 57, 41, 4)
    assert refused(partition, falsified(data, 23, 40, 4)) == INVALID


@pytest.fixture(scope="module")
def partitions(tmp_path_factory: pytest.TempPathFactory) -> list[Partition]:
    """Partitions that differ in what they look at."""
    settings: list[dict[str, str]] = [
        {},
        {"record_validation": "full"},
        {"cleanup_policy": "compact"},
        {"compression_type": "zstd"},
    ]
    found = []
    for number, configs in enumerate(settings):
        broker = OneBroker(tmp_path_factory.mktemp(f"broker-{number}"))
        found.append(topic(broker, **configs))
    return found


@given(
    st.integers(0, 3),
    st.lists(st.none() | st.binary(max_size=90), min_size=1, max_size=60),
    st.integers(0, 4),
    st.lists(st.tuples(st.integers(0), st.integers(1, 255)), max_size=4),
)
def test_hostile_records_are_stored_or_refused_and_break_nothing(
    partitions: list[Partition],
    which: int,
    values: list[bytes | None],
    codec: int,
    changes: list[tuple[int, int]],
) -> None:
    partition, data = partitions[which], batch(*values, codec=codec)
    for where, change in changes:
        data[21 + where % (len(data) - 21)] ^= change
    put_checksum(data)
    before = partition.replica.log.end_offset
    try:
        append(partition, data)
    except KafkaError:
        assert partition.replica.log.end_offset == before
    else:
        # The same changes may make the same batch of an idempotent producer again.
        assert partition.replica.log.end_offset in (before, before + read_header(data, 0)[12])


def test_clients_may_not_write_to_internal_topics(broker: OneBroker) -> None:
    broker.create("__consumer_offsets", 1)
    partition = broker.replicas.partition("__consumer_offsets", 0)
    assert refused(partition, batch(b"v")) == ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize("codec", range(1, 5))
@pytest.mark.parametrize("configs", [{"cleanup_policy": "compact"}, {"compression_type": "lz4"}])
def test_a_batch_that_unpacks_to_more_than_the_cap_is_refused(
    broker: OneBroker, codec: int, configs: dict[str, str]
) -> None:
    partition = topic(broker, max_message_bytes="10000000", **configs)
    if configs.get("compression_type") == "lz4" and codec == 3:
        pytest.skip("a batch in the topic's own codec is not unpacked")
    bomb = encode_batch([Record(0, NOW, b"k", b"v")])
    payload = compress(codec, bytes(CAP + 2**20))
    bomb[61:] = payload
    reseal(bomb, codec)
    assert refused(partition, bomb) in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_RECORD)


def reseal(data: bytearray, codec: int) -> None:
    """Make header and checksum fit the payload."""
    data[8:12] = (len(data) - 12).to_bytes(4, "big")
    data[21:23] = codec.to_bytes(2, "big")
    data[17:21] = crc32c(bytes(data[21:])).to_bytes(4, "big")


@pytest.mark.parametrize(
    ("sequences", "last", "outcome"),
    [
        ([0, 1], 3, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        ([0, 1, 2, 3, 4, 5], 1, 1),
        ([0, 1, 2, 3, 4, 5], 0, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        ([2**31 - 2, 2**31 - 1], 0, 2),
    ],
    ids=["a gap", "one of the last five", "the sixth", "wrap-around"],
)
def test_sequences_are_judged_as_kafka_does(
    broker: OneBroker, sequences: list[int], last: int, outcome: int | ErrorCode
) -> None:
    partition = topic(broker)
    for sequence in sequences:
        append(partition, idempotent(sequence))
    if isinstance(outcome, ErrorCode):
        assert refused(partition, idempotent(last)) == outcome
    else:
        assert append(partition, idempotent(last)) == outcome


def test_a_new_epoch_starts_at_zero_and_fences_the_old_one(broker: OneBroker) -> None:
    partition = topic(broker)
    append(partition, idempotent(0, epoch=1))
    wrong = refused(partition, idempotent(7, epoch=2))
    assert wrong == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert append(partition, idempotent(0, epoch=2)) == 1
    assert refused(partition, idempotent(1, epoch=1)) == ErrorCode.INVALID_PRODUCER_EPOCH


def idempotent(sequence: int, epoch: int = 0) -> bytearray:
    return batch(b"v", producer_id=7, producer_epoch=epoch, base_sequence=sequence)


# -- transactions --------------------------------------------------------------------------------


def in_transaction(sequence: int, epoch: int = 0, producer_id: int = 7) -> bytearray:
    return batch(
        b"v",
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        attributes=TRANSACTIONAL,
    )


def append_verified(
    partition: Partition, data: bytearray, verification: VerificationGuard | None = None
) -> int:
    header = read_header(data, 0)
    verification = verification or partition.verifications.begin(
        header.producer_id, header.producer_epoch
    )
    base, _, _ = partition.append(data, memoryview(data), 0, len(data), -1, NOW, verification)
    return base


def refused_verified(
    partition: Partition, data: bytearray, verification: VerificationGuard | None = None
) -> ErrorCode:
    before = partition.replica.log.end_offset
    with pytest.raises(KafkaError) as raised:
        append_verified(partition, data, verification)
    assert partition.replica.log.end_offset == before
    return raised.value.code


def marker_refused(partition: Partition, epoch: int, coordinator_epoch: int) -> ErrorCode:
    before = partition.replica.log.end_offset
    with pytest.raises(KafkaError) as raised:
        partition.append_marker(7, epoch, True, coordinator_epoch, NOW)
    assert partition.replica.log.end_offset == before
    return raised.value.code


def test_a_transaction_is_hidden_until_its_marker(broker: OneBroker) -> None:
    partition = topic(broker)
    append(partition, batch(b"v"))
    assert append_verified(partition, in_transaction(0)) == 1
    assert 7 in partition.replica.log.producers.open_transactions
    assert (partition.replica.high_watermark, partition.replica.last_stable_offset) == (2, 1)
    piece, aborted = partition.replica.read_committed(0, 10_000, True)
    assert piece is not None
    assert len(piece.read()) == read_header(piece.read(), 0)[1] + 12
    assert aborted == []
    assert partition.replica.read_committed(1, 10_000, True) == (None, [])
    assert partition.append_marker(7, 0, True, 3, NOW) == 2
    assert 7 not in partition.replica.log.producers.open_transactions
    assert not partition.replica.log.transactions.unreplicated, (
        "nothing is kept for each transaction"
    )
    assert partition.replica.last_stable_offset == 3
    assert partition.replica.read_committed(1, 10_000, True)[1] == []


def test_an_aborted_transaction_is_reported_to_readers_of_its_offsets_only(
    broker: OneBroker,
) -> None:
    partition = topic(broker)
    append_verified(partition, in_transaction(0))
    partition.append_marker(7, 0, False, 3, NOW)
    append(partition, batch(b"v"))
    assert partition.replica.log.transactions.between(0, 3) == [(7, 0)]
    assert partition.replica.read_committed(0, 10_000, True)[1] == [(7, 0)]
    assert partition.replica.read_committed(2, 10_000, True)[1] == []
    assert partition.replica.read_committed(3, 10_000, True) == (None, [])


def test_transactional_records_need_a_request_with_a_transactional_id(broker: OneBroker) -> None:
    partition = topic(broker)
    code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert refused(partition, in_transaction(0)) == code
    append_verified(partition, in_transaction(0))
    assert refused(partition, in_transaction(1)) == code


def test_plain_records_are_not_part_of_an_open_transaction(broker: OneBroker) -> None:
    partition = topic(broker)
    append_verified(partition, in_transaction(0))
    assert refused(partition, idempotent(1)) == ErrorCode.INVALID_TXN_STATE


def test_a_marker_that_overtakes_the_coordinators_answer_makes_it_void(broker: OneBroker) -> None:
    partition = topic(broker)
    late = partition.verifications.begin(7, 0)
    assert late.needed
    partition.append_marker(7, 0, False, 3, NOW)
    assert refused_verified(partition, in_transaction(0), late) == ErrorCode.INVALID_TXN_STATE
    again = partition.verifications.begin(7, 0)
    assert append_verified(partition, in_transaction(0), again) == 1
    assert not partition.verifications.begin(7, 0).needed


def test_a_verification_is_for_its_own_producer(broker: OneBroker) -> None:
    partition = topic(broker)
    other = partition.verifications.begin(8, 0)
    assert refused_verified(partition, in_transaction(0), other) == ErrorCode.INVALID_TXN_STATE


def test_two_requests_in_flight_share_a_verification(broker: OneBroker) -> None:
    partition = topic(broker)
    first, second = partition.verifications.begin(7, 0), partition.verifications.begin(7, 0)
    assert append_verified(partition, in_transaction(0), first) == 0
    assert append_verified(partition, in_transaction(1), second) == 1


def test_a_retry_after_the_commit_gets_its_old_offset(broker: OneBroker) -> None:
    partition = topic(broker)
    used = partition.verifications.begin(7, 0)
    append_verified(partition, in_transaction(0), used)
    partition.append_marker(7, 0, True, 3, NOW)
    assert append_verified(partition, in_transaction(0), used) == 0
    assert refused_verified(partition, in_transaction(1), used) == ErrorCode.INVALID_TXN_STATE
    assert partition.replica.last_stable_offset == partition.replica.log.end_offset == 2


def test_a_marker_of_the_next_epoch_fences_late_records(broker: OneBroker) -> None:
    partition = topic(broker)
    append_verified(partition, in_transaction(0))
    partition.append_marker(7, 1, True, 3, NOW)
    assert refused_verified(partition, in_transaction(1)) == ErrorCode.INVALID_PRODUCER_EPOCH
    wrong = refused_verified(partition, in_transaction(1, epoch=1))
    assert wrong == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert append_verified(partition, in_transaction(0, epoch=1)) == 2


def test_markers_of_older_epochs_are_refused(broker: OneBroker) -> None:
    partition = topic(broker)
    append_verified(partition, in_transaction(0, epoch=5))
    assert marker_refused(partition, 4, 3) == ErrorCode.INVALID_PRODUCER_EPOCH
    partition.append_marker(7, 5, True, 3, NOW)
    assert marker_refused(partition, 5, 2) == ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert partition.append_marker(7, 5, True, 3, NOW) == 2


def test_transactional_records_without_a_producer_or_a_sequence_are_refused(
    broker: OneBroker,
) -> None:
    partition = topic(broker)
    nobodys = batch(b"v", attributes=TRANSACTIONAL)
    assert refused_verified(partition, nobodys) == ErrorCode.INVALID_RECORD
    assert refused_verified(partition, in_transaction(-1)) == ErrorCode.INVALID_RECORD


def test_clients_may_not_write_markers(broker: OneBroker) -> None:
    partition = topic(broker)
    marker = encode_marker(7, 0, True, 0, NOW)
    assert refused(partition, marker) == ErrorCode.INVALID_RECORD
    assert refused_verified(partition, marker) == ErrorCode.INVALID_RECORD


def test_the_brokers_own_transactional_records_need_no_sequence(broker: OneBroker) -> None:
    broker.create("__consumer_offsets", 1)
    partition = broker.replicas.partition("__consumer_offsets", 0)
    assert partition.append_own(in_transaction(-1), NOW) == 0
    assert partition.append_own(in_transaction(-1), NOW) == 1
    assert partition.replica.last_stable_offset == 0
    partition.append_marker(7, 1, False, 0, NOW)
    assert partition.replica.log.transactions.between(0, 3) == [(7, 0)]
    with pytest.raises(KafkaError) as raised:
        partition.append_own(in_transaction(-1), NOW)
    assert raised.value.code == ErrorCode.INVALID_PRODUCER_EPOCH


# -- replication ---------------------------------------------------------------------------------


def test_a_flush_that_ends_after_the_leadership_commits_nothing(broker: OneBroker) -> None:
    partition = topic(broker, flush_messages="1")
    partition.use_state(PartitionState(1, 1, (1, 2), (1, 2)))
    append(partition, batch(b"v"))
    partition.use_state(PartitionState(2, 2, (1, 2), (1, 2)))
    partition.flushed(partition.replica.log.flush())
    assert (partition.replica.log.end_offset, partition.replica.high_watermark) == (1, 0)


def test_a_leader_that_steps_down_wakes_waiting_fetches(broker: OneBroker) -> None:
    class Told:
        times = 0

        def changed(self) -> None:
            self.times += 1

    partition, told = topic(broker), Told()
    partition.replica.watchers[told] = None
    broker.replicas.step_down()
    broker.services.waiting_fetches.wake()
    assert (told.times, partition.leads) == (1, False)


def shared(broker: OneBroker) -> Partition:
    """A partition with a follower that has fetched nothing yet."""
    partition = topic(broker)
    partition.use_state(PartitionState(1, 3, (1, 2), (1, 2)))
    return partition


def test_nothing_is_acknowledged_for_what_comes_after_the_leadership_has_ended(
    broker: OneBroker,
) -> None:
    told = asyncio.run(acknowledged_late(broker, shared(broker)))
    assert raw.produce_error(told[4:], "t")[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def acknowledged_late(broker: OneBroker, partition: Partition) -> bytes:
    lost = encode_batch([Record(0, one_broker.NOW, None, b"lost")])
    sent = raw.produce("t", lost, acks=-1)[4 + 8 + 2 + len(raw.CLIENT_ID) + 1 :]
    buf = bytearray(sent)
    answer = Produce(broker.services)(CALLER, buf, memoryview(buf), 0, len(buf), 9, 1)
    assert isinstance(answer, Coroutine)
    # Between the append and the wait somebody else leads, and has something else there.
    partition.use_state(PartitionState(2, 4, (1, 2), (1, 2)))
    partition.replica.truncate_to(0)
    data = batch(b"other")
    partition.replica.log.append_replica(memoryview(data), 0, len(data), NOW)
    partition.replica.use_leader_high_watermark(1)
    told = await answer
    assert isinstance(told, bytes)
    return told


def test_a_follower_waits_for_no_commit(broker: OneBroker) -> None:
    partition = shared(broker)
    partition.use_state(PartitionState(2, 4, (1, 2), (1, 2)))

    async def wait() -> None:
        await partition.wait_committed(1)

    with pytest.raises(KafkaError) as raised:
        asyncio.run(wait())
    assert raised.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_batch_that_is_none_makes_no_folder(broker: OneBroker) -> None:
    """Making one may take long, and a request can name ten thousand partitions."""
    broker.create("wide", 100)
    partition = broker.replicas.partition("wide", 99)
    for data in (bytearray(), bytearray(100)):
        with pytest.raises(KafkaError):
            append(partition, data)
    assert not partition.replica.opened
    assert append(partition, batch(b"v")) == 0
