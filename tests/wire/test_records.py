"""Single records are compatible with those of other clients."""

import struct
from collections.abc import Callable

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AioBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AioBuilder
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

from headrace.errors import ErrorCode, KafkaError
from headrace.wire.batch import (
    CRC_AT,
    HEADER,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    Header,
    checked_header,
    read_header,
)
from headrace.wire.records import Record, encode_batch, iterate, repack, unpack

CAP = 1 << 22
NOW = 1_700_000_000_000

SOME = [
    Record(0, NOW, b"k", b"v"),
    Record(1, NOW - 5, None, b"x" * 70, (("h", b"1"), ("h", None), ("é", b""))),
    Record(2, NOW + 2**40, b"", None),
    Record(3, NOW, b"k" * 9000, b""),
]

texts = st.text(st.characters(codec="utf-8"), max_size=8)
records = st.lists(
    st.builds(
        Record,
        offset=st.just(0),
        timestamp=st.integers(0, 2**62),
        key=st.none() | st.binary(max_size=200),
        value=st.none() | st.binary(max_size=200),
        headers=st.lists(st.tuples(texts, st.none() | st.binary(max_size=20)), max_size=3).map(
            tuple
        ),
    ),
    min_size=1,
    max_size=20,
)


def numbered(items: list[Record], base: int = 0) -> list[Record]:
    return [record._replace(offset=base + index) for index, record in enumerate(items)]


def decode(batch: bytes | bytearray) -> list[Record]:
    return list(iterate(batch, 0, len(batch), CAP))


def resealed(batch: bytearray) -> bytearray:
    """The batch with its length and checksum made right again."""
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">I", batch, CRC_AT, crc32c(bytes(batch[21:])))
    return batch


def error_of(batch: bytes | bytearray) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        decode(batch)
    return caught.value.code


@given(records, st.sampled_from(range(5)), st.integers(0, 2**40))
def test_records_come_back_as_they_were(items: list[Record], codec: int, base: int) -> None:
    batch = encode_batch(items, base, codec)
    assert decode(batch) == numbered(items, base)
    header = Header._make(checked_header(batch, memoryview(batch), 0, len(batch)))
    assert header.max_timestamp == max(record.timestamp for record in items)


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize("reader", [AioBatch, KafkaPythonBatch])
def test_other_clients_read_our_batches(codec: int, reader: Callable[[bytes], AioBatch]) -> None:
    batch = reader(bytes(encode_batch(SOME, 100, codec, 7, 1, 5)))
    assert batch.validate_crc()
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (7, 1, 5)
    read = [
        Record(
            r.offset, r.timestamp, r.key, r.value, tuple((name, value) for name, value in r.headers)
        )
        for r in batch
    ]
    assert read == numbered(SOME, 100)


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize("builder", [AioBuilder, KafkaPythonBuilder])
def test_we_read_other_clients_batches(codec: int, builder: type[AioBuilder]) -> None:
    build = builder(
        magic=2, compression_type=codec, is_transactional=0, producer_id=-1, producer_epoch=-1,
        base_sequence=-1, batch_size=1 << 20,
    )  # fmt: skip
    for record in SOME:
        added = build.append(
            record.offset, timestamp=record.timestamp, key=record.key, value=record.value,
            headers=list(record.headers),
        )  # fmt: skip
        assert added
    batch = bytes(build.build())
    checked_header(batch, memoryview(batch), 0, len(batch))
    assert decode(batch) == SOME


@pytest.mark.parametrize("old", range(5))
@pytest.mark.parametrize("new", range(5))
def test_recompressing_changes_the_codec_and_nothing_else(old: int, new: int) -> None:
    batch = encode_batch(SOME, 50, old, 9, 2, 4, attributes=0x10, epoch=6)
    framed = b"junk" + bytes(batch) + b"junk"
    header = read_header(framed, 4)
    payload = unpack(framed, 4, 4 + len(batch), header, CAP)
    again = repack(framed[4 : 4 + HEADER_BYTES], header, payload, new, None)
    before, after = HEADER.unpack_from(batch), HEADER.unpack_from(again)
    assert after[5] == 0x10 | new
    assert (before[0], before[2], *before[6:]) == (after[0], after[2], *after[6:])
    checked_header(again, memoryview(again), 0, len(again))
    assert decode(again) == numbered(SOME, 50)


def test_records_of_a_batch_stamped_by_the_broker_have_its_time() -> None:
    batch = encode_batch(SOME, attributes=LOG_APPEND_TIME)
    struct.pack_into(">q", batch, 35, 123)
    assert {record.timestamp for record in decode(batch)} == {123}


def test_compaction_may_keep_offsets_with_gaps() -> None:
    kept = [SOME[0]._replace(offset=10), SOME[1]._replace(offset=14)]
    batch = encode_batch(kept, 10, last_offset_delta=9)
    assert decode(batch) == kept
    assert read_header(batch, 0).last_offset_delta == 9
    assert decode(encode_batch([], 10, last_offset_delta=9)) == []


@pytest.mark.parametrize("magic", [0, 1, 3])
def test_only_magic_2_is_read(magic: int) -> None:
    batch = encode_batch(SOME)
    batch[16] = magic
    assert error_of(batch) is ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT


@pytest.mark.parametrize("count", [-1, 0, 3, 5, 2**31 - 1])
@pytest.mark.parametrize("codec", [0, 4])
def test_a_false_record_count_is_invalid(count: int, codec: int) -> None:
    batch = encode_batch(SOME, codec=codec)
    struct.pack_into(">i", batch, 57, count)
    assert error_of(batch) is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("length", [0, 11, 48, 10_000, -1])
def test_a_false_batch_length_is_invalid(length: int) -> None:
    batch = encode_batch(SOME)
    struct.pack_into(">i", batch, 8, length)
    assert error_of(batch) is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize(
    "payload",
    {
        "shorter than a record": b"\x0a\x00\x00\x00\x01\x01",
        "length past the end": b"\x0e\x00\x00\x00\x01\x01\x00",
        "bytes left in the record": b"\x0e\x00\x00\x00\x01\x01\x00\x00",
        "bytes left in the batch": b"\x0c\x00\x00\x00\x01\x01\x00\x00",
        "negative length": b"\x01\x00\x00\x00\x01\x01\x00",
        "key length -2": b"\x0c\x00\x00\x00\x03\x01\x00",
        "key past its record": b"\x0c\x00\x00\x00\x08\x01\x00",
        "offset delta 1 of one record": b"\x0c\x00\x00\x02\x01\x01\x00",
        "offset delta -1": b"\x0c\x00\x00\x01\x01\x01\x00",
        "header count -1": b"\x0c\x00\x00\x00\x01\x01\x01",
        "a billion headers": b"\x14\x00\x00\x00\x01\x01\x80\x80\x80\x80\x0f",
        "header without a key": b"\x10\x00\x00\x00\x01\x01\x02\x01\x01",
        "six-byte length": b"\x8c\x80\x80\x80\x80\x00\x00\x00\x00\x01\x01\x00",
        "eleven-byte timestamp": b"\x20\x00" + b"\x80" * 10 + b"\x00\x00\x01\x01\x00",
        "timestamp of 70 bits": b"\x1e\x00" + b"\xff" * 9 + b"\x7f\x00\x01\x01\x00",
    }.items(),
    ids=lambda item: item[0],
)
def test_a_record_that_breaks_the_layout_is_invalid(payload: tuple[str, bytes]) -> None:
    batch = encode_batch([Record(0, NOW, None, None)])
    assert batch[HEADER_BYTES:] == b"\x0c\x00\x00\x00\x01\x01\x00"
    assert error_of(resealed(batch[:HEADER_BYTES] + payload[1])) is ErrorCode.INVALID_RECORD


def test_the_last_byte_of_every_varint_may_be_the_longest_allowed() -> None:
    batch = encode_batch([Record(0, NOW, None, None)])
    payload = b"\x8c\x80\x80\x80\x00" + b"\x00\x00\x00\x01\x01\x00"
    assert decode(resealed(batch[:HEADER_BYTES] + payload)) == [Record(0, NOW, None, None)]
    far = [Record(0, 0, None, None), Record(1, 2**63 - 1, None, None)]
    assert decode(encode_batch(far)) == far


@given(records, st.integers(0), st.integers(1, 255))
def test_a_changed_byte_gives_records_or_a_kafka_error(
    items: list[Record], where: int, change: int
) -> None:
    batch = encode_batch(items)
    at = HEADER_BYTES + where % (len(batch) - HEADER_BYTES)
    batch[at] ^= change
    try:
        assert len(decode(batch)) == len(items)
    except KafkaError as error:
        if error.code is not ErrorCode.INVALID_RECORD:
            raise


def test_what_unpacks_to_more_than_the_cap_is_too_large() -> None:
    batch = encode_batch([Record(0, NOW, None, bytes(100_000))], codec=4)
    with pytest.raises(KafkaError) as caught:
        list(iterate(batch, 0, len(batch), 50_000))
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
