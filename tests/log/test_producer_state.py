import struct

import pytest

from headrace.errors import ErrorCode, KafkaError
from headrace.log.producer_state import (
    MAX_SEQUENCE,
    CorruptSnapshot,
    EndedTransaction,
    Producer,
    ProducerState,
)
from headrace.wire.batch import CONTROL, TRANSACTIONAL, Header
from headrace.wire.checksum import crc32c
from headrace.wire.markers import Marker

PID = 42


def header(
    sequence: int, count: int = 1, epoch: int = 0, *, attributes: int = 0, timestamp: int = 1000
) -> Header:
    delta = count - 1
    return Header(
        0, 0, 0, 2, 0, attributes, delta, timestamp, timestamp, PID, epoch, sequence, count
    )


def feed(state: ProducerState, head: Header, base: int) -> None:
    assert state.check(head) == -1
    state.record(head, base)


def code(state: ProducerState, head: Header) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        state.check(head)
    return caught.value.code


def six_batches() -> ProducerState:
    state = ProducerState()
    for n in range(6):
        feed(state, header(n * 10, 10), 100 + n * 10)
    return state


def test_a_gap_in_the_sequence_is_out_of_order() -> None:
    state = six_batches()
    assert code(state, header(61)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_replay_of_the_last_five_gets_its_old_offset() -> None:
    state = six_batches()
    assert [state.check(header(n * 10, 10)) for n in range(1, 6)] == [110, 120, 130, 140, 150]


def test_a_replay_of_the_sixth_is_out_of_order() -> None:
    assert code(six_batches(), header(0, 10)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_duplicate_must_have_the_same_range() -> None:
    assert code(six_batches(), header(50, 9)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_the_sequence_wraps_to_zero_between_batches() -> None:
    state = ProducerState()
    feed(state, header(MAX_SEQUENCE - 4, 5), 0)
    feed(state, header(0, 5), 5)
    assert state.check(header(MAX_SEQUENCE - 4, 5)) == 0


def test_the_sequence_wraps_inside_a_batch() -> None:
    state = ProducerState()
    feed(state, header(MAX_SEQUENCE - 1, 5), 0)
    assert state.check(header(MAX_SEQUENCE - 1, 5)) == 0
    feed(state, header(3), 5)


def test_an_unknown_producer_may_start_anywhere() -> None:
    assert ProducerState().check(header(77)) == -1


def test_an_older_epoch_is_fenced() -> None:
    state = ProducerState()
    feed(state, header(0, epoch=3), 0)
    assert code(state, header(1, epoch=2)) == ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_new_epoch_starts_at_zero() -> None:
    state = six_batches()
    assert code(state, header(60, epoch=1)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    feed(state, header(0, epoch=1), 200)
    assert code(state, header(60, epoch=0)) == ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_data_batch_without_a_sequence_is_refused() -> None:
    assert code(ProducerState(), header(-1)) == ErrorCode.INVALID_RECORD


def test_a_plain_batch_in_an_open_transaction_is_refused() -> None:
    state = ProducerState()
    feed(state, header(0, attributes=TRANSACTIONAL), 5)
    assert state.first_open_transaction() == 5
    assert code(state, header(1)) == ErrorCode.INVALID_TXN_STATE
    feed(state, header(1, attributes=TRANSACTIONAL), 6)
    producer = state.producers[PID]
    assert (producer.kind, producer.expected) == (TRANSACTIONAL, 2), "the quick way is for these"


def test_a_marker_needs_no_sequence_and_ends_the_transaction() -> None:
    state = ProducerState()
    feed(state, header(0, attributes=TRANSACTIONAL), 5)
    marker = header(-1, attributes=TRANSACTIONAL | CONTROL)
    assert state.check(marker) == -1
    ended = state.record_marker(marker, 6, Marker(True, 9))
    assert ended == EndedTransaction(PID, 5, 6, 7, False)
    assert state.first_open_transaction() is None
    assert state.producers[PID].coordinator_epoch == 9
    feed(state, header(1), 7)


def test_a_marker_of_a_new_epoch_resets_the_sequence() -> None:
    state = six_batches()
    state.record_marker(header(-1, epoch=1, attributes=CONTROL), 69, Marker(True, 0))
    assert code(state, header(60, epoch=1)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    feed(state, header(0, epoch=1), 70)


def test_a_marker_of_an_older_epoch_is_fenced() -> None:
    state = ProducerState()
    feed(state, header(0, epoch=3), 0)
    marker = header(-1, epoch=2, attributes=CONTROL)
    assert code(state, marker) == ErrorCode.INVALID_PRODUCER_EPOCH


def test_silent_producers_expire_but_not_in_a_transaction() -> None:
    state = ProducerState()
    feed(state, header(0, timestamp=1000), 0)
    assert state.expire(1999, 1000) == 0
    assert state.expire(2000, 1000) == 1
    assert state.check(header(50)) == -1
    feed(state, header(0, attributes=TRANSACTIONAL), 1)
    assert state.expire(10**9, 1000) == 0


def test_a_snapshot_has_kafkas_bytes() -> None:
    state = ProducerState()
    feed(state, header(7, 3, epoch=2, timestamp=0x1234), 100)
    data = state.encode()
    assert data[:2] == b"\0\x01"
    assert data[6:].hex() == (
        "00000001"  # one producer
        "000000000000002a"  # its id
        "0002"  # epoch
        "00000009"  # last sequence
        "0000000000000066"  # last offset
        "00000002"  # offset delta
        "0000000000001234"  # timestamp
        "ffffffff"  # coordinator epoch
        "ffffffffffffffff"  # no open transaction
    )


def test_a_snapshot_keeps_the_last_five_batches_of_each_producer() -> None:
    state = six_batches()
    state.producers[7] = Producer(4)
    loaded = ProducerState.decode(state.encode())
    for n in range(1, 6):
        assert loaded.check(header(n * 10, 10)) == 100 + n * 10
    assert code(loaded, header(0, 10)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert loaded.producers[PID].batches == state.producers[PID].batches
    feed(loaded, header(60), 160)
    assert loaded.producers[7].epoch == 4
    assert loaded.producers[7].batches == []


def test_the_last_entry_of_a_producer_in_a_snapshot_is_what_kafka_would_write() -> None:
    """Kafka reads the entries in order, and the last one of a producer replaces the others."""
    state = ProducerState()
    for n in range(3):
        feed(state, header(n, attributes=TRANSACTIONAL, timestamp=1000 + n), 100 + n)
    entries = list(struct.iter_unpack(">qhiqiqiq", state.encode()[10:]))
    assert entries == [
        (PID, 0, 0, 100, 0, 1002, -1, -1),
        (PID, 0, 1, 101, 0, 1002, -1, -1),
        (PID, 0, 2, 102, 0, 1002, -1, 100),
    ]
    loaded = ProducerState.decode(state.encode())
    assert loaded.open_transactions == {PID: 100}
    assert loaded.check(header(0, attributes=TRANSACTIONAL)) == 100


def test_an_entry_of_another_epoch_in_a_snapshot_replaces_those_before_it() -> None:
    older, newer = six_batches(), ProducerState()
    feed(newer, header(0, epoch=1), 200)
    count = struct.pack(">i", 6)
    body = count + older.encode()[10:] + newer.encode()[10:]
    loaded = ProducerState.decode(struct.pack(">hI", 1, crc32c(body)) + body)
    assert loaded.producers[PID].epoch == 1
    assert loaded.producers[PID].batches == newer.producers[PID].batches


def test_every_flipped_or_missing_byte_of_a_snapshot_is_noticed() -> None:
    data = six_batches().encode()
    for at in range(len(data)):
        with pytest.raises(CorruptSnapshot):
            ProducerState.decode(data[:at])
        with pytest.raises(CorruptSnapshot):
            ProducerState.decode(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
