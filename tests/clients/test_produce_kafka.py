"""The same batches, right and wrong, for Headrace and Apache Kafka: both give the same answers."""

import datetime
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import pytest

from headrace.errors import ErrorCode
from headrace.wire.batch import CONTROL, HEADER, HEADER_BYTES, OVERHEAD, put_checksum
from headrace.wire.compression import compress
from headrace.wire.records import Record, encode_batch, write_varint
from tests.support import raw
from tests.support.apache_kafka import ApacheKafka
from tests.support.headrace_broker import HeadraceBroker
from tests.support.messages import item, part
from tests.support.raw_producer import PRODUCE, request, response
from tests.support.topics import create_topic

pytestmark = [pytest.mark.java, pytest.mark.slow]

NOW = int(time.time() * 1000)
YEAR_MS = 365 * 24 * 3_600_000
COMPACTED = {"cleanup.policy": "compact"}
PLAIN: dict[str, str] = {}

_Broker: TypeAlias = HeadraceBroker | ApacheKafka


@pytest.fixture(scope="module")
def brokers(
    tmp_path_factory: pytest.TempPathFactory, apache_kafka: ApacheKafka
) -> Iterator[tuple[str, str]]:
    folder: Path = tmp_path_factory.mktemp("headrace")
    with HeadraceBroker(folder) as ours:
        yield ours.bootstrap, apache_kafka.bootstrap


# ------------------------------------------------------------------------------- record errors


@dataclass(frozen=True)
class Answer:
    """What a Produce response says of one batch, without the wording of its messages."""

    code: ErrorCode
    base_offset: int
    has_message: bool
    records: tuple[tuple[int, bool], ...]


def asked(
    bootstrap: str, config: dict[str, str], batch: bytes | bytearray, name: str, version: int
) -> Answer:
    """Produce one batch into a new topic."""
    topic = create_topic(bootstrap, name, config=config)
    kind = type(part(PRODUCE, version, "topic_data"))
    partition = item(kind, "partition_data", index=0, records=bytes(batch))
    data = part(PRODUCE, version, "topic_data", name=topic, partition_data=(partition,))
    sent = request(
        PRODUCE, version,
        transactional_id=None, acks=-1, timeout=datetime.timedelta(seconds=30), topic_data=(data,),
    )  # fmt: skip
    with raw.RawClient(bootstrap) as client:
        answer = response(PRODUCE, version, client.ask(sent))
    (found,) = answer.responses[0].partition_responses
    return Answer(
        ErrorCode(found.error_code),
        found.base_offset,
        bool(found.error_message),
        tuple(
            (record.batch_index, bool(record.batch_index_error_message))
            for record in found.record_errors
        ),
    )


def records(*fields: tuple[bytes | None, int], codec: int = 0) -> bytearray:
    """A batch of records with these keys and timestamps."""
    return encode_batch([Record(0, at, key, b"v") for key, at in fields], codec=codec)


FAR = NOW + YEAR_MS
NO_KEYS = ((b"a", NOW), (None, NOW), (b"b", NOW), (None, NOW))
REFUSED_RECORDS = {
    "no-keys": (COMPACTED, NO_KEYS, (1, 3)),
    "times": (PLAIN, ((b"a", NOW), (b"b", FAR), (None, NOW), (b"c", FAR)), (1, 3)),
    "both": (COMPACTED, ((b"a", FAR), (None, NOW), (None, FAR), (b"b", NOW)), (0, 1, 2)),
    "none": (COMPACTED, ((b"a", NOW), (b"b", NOW)), ()),
}


@pytest.mark.parametrize("codec", [0, 4])
@pytest.mark.parametrize("version", [8, 9, 12])
@pytest.mark.parametrize("case", REFUSED_RECORDS)
def test_both_name_the_records_that_they_refuse(
    brokers: tuple[str, str], case: str, version: int, codec: int
) -> None:
    config, fields, places = REFUSED_RECORDS[case]
    name = f"refused-{case}-{version}-{codec}"
    ours, theirs = (
        asked(bootstrap, config, records(*fields, codec=codec), name, version)
        for bootstrap in brokers
    )
    assert ours == theirs
    assert tuple(place for place, _ in ours.records) == places


# ------------------------------------------------------------------------------ false batches


def varint(value: int) -> bytes:
    out = bytearray()
    write_varint(out, value)
    return bytes(out)


def record(
    index: int = 0, *, time_delta: int = 0, offset_delta: int | None = None, key: bytes = b"\x02k",
    value: bytes = b"\x02v", headers: bytes = b"\0", attributes: int = 0, length: int | None = None,
) -> bytes:  # fmt: skip
    """One record, of which every field can be false; `key`, `value` and `headers` with lengths."""
    delta = index if offset_delta is None else offset_delta
    body = bytes([attributes]) + varint(time_delta) + varint(delta) + key + value + headers
    return varint(len(body) if length is None else length) + body


def sealed(
    payload: bytes, count: int = 3, *, last: int | None = None, codec: int = 0,
    attributes: int = 0, base_time: int = NOW, max_time: int = NOW, producer_id: int = -1,
    epoch: int = -1, sequence: int = -1, packed: bytes | None = None, magic: int = 2,
) -> bytes:  # fmt: skip
    """A batch with a right checksum."""
    body = packed if packed is not None else compress(codec, payload) if codec else payload
    out = bytearray(HEADER_BYTES)
    HEADER.pack_into(
        out, 0, 0, HEADER_BYTES - OVERHEAD + len(body), -1, magic, 0, attributes | codec,
        count - 1 if last is None else last, base_time, max_time, producer_id, epoch, sequence,
        count,
    )  # fmt: skip
    out += body
    put_checksum(out)
    return bytes(out)


THREE = b"".join(record(index) for index in range(3))
MANY = b"".join(record(index) for index in range(40))
HEADER_OF_ONE = b"\x02" + b"\x02h" + b"\x02v"


def last_is(false_record: bytes) -> bytes:
    """Two right records and a false one."""
    return record(0) + record(1) + false_record


FALSE = {
    "right": sealed(THREE),
    "right-gzip": sealed(THREE, codec=1),
    "right-many": sealed(MANY, 40),
    "count-40-of-3": sealed(THREE, 40),
    "count-40-of-3-gzip": sealed(THREE, 40, codec=1),
    "count-2-of-3": sealed(THREE, 2),
    "count-39-of-40": sealed(MANY, 39),
    "count-41-of-40": sealed(MANY, 41),
    "count-2-of-3-lz4": sealed(THREE, 2, codec=3),
    "count-0": sealed(b"", 0),
    "count-0-of-3": sealed(THREE, 0),
    "count-negative": sealed(THREE, -3),
    "count-huge": sealed(THREE, 2**31 - 1),
    "last-offset-delta-differs": sealed(THREE, last=5),
    "last-offset-delta-negative": sealed(THREE, last=-5),
    "no-records-in-it": sealed(b"", 3),
    "trailing-byte": sealed(THREE + b"\0"),
    "trailing-bytes-many": sealed(MANY + b"\0" * 50, 40),
    "trailing-bytes-zstd": sealed(THREE + b"\0" * 5, codec=4),
    "headers-huge": sealed(last_is(record(2, headers=varint(2**31 - 1)))),
    "headers-minus-one": sealed(last_is(record(2, headers=varint(-1)))),
    "headers-one-of-none": sealed(last_is(record(2, headers=varint(1)))),
    "headers-right": sealed(last_is(record(2, headers=HEADER_OF_ONE))),
    "headers-right-null-value": sealed(last_is(record(2, headers=b"\x02\x02h\x01"))),
    "header-key-null": sealed(last_is(record(2, headers=b"\x02\x01\x02v"))),
    "header-key-null-gzip": sealed(last_is(record(2, headers=b"\x02\x01\x02v")), codec=1),
    "header-key-empty": sealed(last_is(record(2, headers=b"\x02\0\x02v"))),
    "header-key-too-long": sealed(last_is(record(2, headers=b"\x02\x7eh\x02v"))),
    "header-value-too-long": sealed(last_is(record(2, headers=b"\x02\x02h\x7ev"))),
    "header-key-not-utf-8": sealed(last_is(record(2, headers=b"\x02\x02\xff\x02v"))),
    "key-null": sealed(last_is(record(2, key=b"\x01"))),
    "key-too-long": sealed(last_is(record(2, key=b"\x7ek"))),
    "value-null": sealed(last_is(record(2, value=b"\x01"))),
    "value-too-long": sealed(last_is(record(2, value=b"\x7ev"))),
    "value-too-short": sealed(last_is(record(2, value=b"\x02value"))),
    "value-of-the-next-record": sealed(record(0, value=b"\x06v") + record(1) + record(2)),
    "length-zero": sealed(last_is(b"\0")),
    "length-negative": sealed(last_is(record(2, length=-1))),
    "length-too-short": sealed(last_is(record(2, length=3))),
    "length-too-long": sealed(last_is(record(2, length=90))),
    "length-of-two-records": sealed(
        record(0) + record(1, length=2 * len(record(1)) - 1) + record(2), 2
    ),
    "length-varint-endless": sealed(last_is(b"\xff" * 30)),
    "length-varint-padded": sealed(last_is(b"\x90\x00" + record(2)[1:])),
    "time-delta-endless": sealed(last_is(b"\x28\0" + b"\xff" * 19)),
    "offset-deltas-all-zero": sealed(record(0) * 3),
    "offset-deltas-all-zero-gzip": sealed(record(0) * 3, codec=1),
    "record-attributes": sealed(last_is(record(2, attributes=7))),
    "garbage": sealed(b"\xa5" * 200, 3),
    "garbage-gzip": sealed(b"", 3, codec=1, packed=b"\xa5" * 200),
    "garbage-snappy": sealed(b"", 3, codec=2, packed=b"\xa5" * 200),
    "garbage-lz4": sealed(b"", 3, codec=3, packed=b"\xa5" * 200),
    "garbage-zstd": sealed(b"", 3, codec=4, packed=b"\xa5" * 200),
    "codec-unknown": sealed(THREE, attributes=5),
    "control": sealed(THREE, attributes=CONTROL),
    "delete-horizon": sealed(THREE, attributes=0x40),
    "attributes-unused": sealed(THREE, attributes=0x180),
    "transactional-without-id": sealed(THREE, attributes=0x10, producer_id=5, epoch=0, sequence=0),
    "magic-0": sealed(THREE, magic=0),
    "magic-1": sealed(THREE, magic=1),
    "magic-3": sealed(THREE, magic=3),
    "magic-negative": sealed(THREE, magic=0x82),
    "epoch-minus-five": sealed(THREE, producer_id=5, epoch=-5, sequence=0),
    "epoch-minus-one": sealed(THREE, producer_id=5, epoch=-1, sequence=0),
    "sequence-minus-one": sealed(THREE, producer_id=5, epoch=0),
    "sequence-minus-two": sealed(THREE, producer_id=5, epoch=0, sequence=-2),
    "sequence-starts-at-7": sealed(THREE, producer_id=5, epoch=0, sequence=7),
    "sequence-wraps": sealed(THREE, producer_id=5, epoch=0, sequence=2**31 - 2),
    "sequence-without-producer": sealed(THREE, sequence=3),
    "epoch-without-producer": sealed(THREE, epoch=3),
    "epoch-negative-without-producer": sealed(THREE, epoch=-5),
    "producer-minus-five": sealed(THREE, producer_id=-5, epoch=0, sequence=0),
    "times-overflow": sealed(last_is(record(2, time_delta=2**63 - 1))),
}


# Batches that Apache Kafka refuses and that only record.validation=full looks into.
UNSEEN = {name for name in FALSE if name.endswith(("-gzip", "-lz4", "-snappy", "-zstd"))}
UNSEEN -= {"right-gzip"}
CODES_OF_FALSE_RECORDS = {
    ErrorCode.INVALID_RECORD,
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
}


def answers(brokers: tuple[str, str], case: str, mode: str) -> tuple[Answer, Answer]:
    ours, theirs = brokers
    topic = f"false-{mode}-{case}"
    return (
        asked(ours, {"record.validation": mode}, FALSE[case], topic, 9),
        asked(theirs, PLAIN, FALSE[case], topic, 9),
    )


def agree(ours: Answer, theirs: Answer) -> bool:
    """The same answer, or a better one than UNKNOWN_SERVER_ERROR."""
    if theirs.code is ErrorCode.UNKNOWN_SERVER_ERROR:
        return ours.code in CODES_OF_FALSE_RECORDS
    return (ours.code, ours.base_offset) == (theirs.code, theirs.base_offset)


@pytest.mark.parametrize("case", [name for name in FALSE if name not in UNSEEN])
def test_both_answer_the_same_to_false_batches(brokers: tuple[str, str], case: str) -> None:
    ours, theirs = answers(brokers, case, "lengths")
    assert agree(ours, theirs), (ours, theirs)


@pytest.mark.parametrize("case", [name for name in FALSE if name != "offset-deltas-all-zero"])
def test_full_validation_refuses_what_kafka_refuses(brokers: tuple[str, str], case: str) -> None:
    ours, theirs = answers(brokers, case, "full")
    assert agree(ours, theirs), (ours, theirs)


def test_full_validation_refuses_offset_deltas_that_kafka_stores(brokers: tuple[str, str]) -> None:
    ours, theirs = answers(brokers, "offset-deltas-all-zero", "full")
    assert (ours.code, theirs.code) == (ErrorCode.INVALID_RECORD, ErrorCode.NONE)
