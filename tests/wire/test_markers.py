"""Markers have Kafka's bytes, and other control batches are not mistaken for them."""

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AioBatch
from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch

from headrace.wire.batch import CONTROL, TRANSACTIONAL, read_header
from headrace.wire.markers import Marker, decode_marker, encode_marker
from headrace.wire.records import Record, encode_batch

NOW = 1_700_000_000_000


@pytest.mark.parametrize("commit", [False, True])
def test_a_marker_has_kafkas_fields(commit: bool) -> None:
    data = encode_marker(1234, 5, commit, 7, NOW)
    header = read_header(data, 0)
    assert header.attributes == TRANSACTIONAL | CONTROL
    assert header[7:] == (NOW, NOW, 1234, 5, -1, 1)
    assert bytes(data[61:]).endswith(
        b"\x08\0\0\0" + bytes([commit]) + b"\x0c\0\0\0\0\0\x07" + b"\0"
    )
    assert decode_marker(data) == Marker(commit, 7)


@pytest.mark.parametrize("reader", [AioBatch, KafkaPythonBatch])
def test_clients_know_a_marker(reader: type[AioBatch] | type[KafkaPythonBatch]) -> None:
    batch = reader(bytes(encode_marker(1234, 5, False, 7, NOW)))
    assert batch.is_control_batch
    assert batch.is_transactional
    assert batch.producer_id == 1234
    assert batch.validate_crc()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"\0\0\0\x02", b"\0\0\0\0\0\x07"),
        (b"\0\0\0", b"\0\0\0\0\0\x07"),
        (b"\0\0\0\x01", b"\0\0\0"),
        (None, None),
    ],
    ids=["of another type", "a short key", "a short value", "nothing"],
)
def test_other_control_batches_are_no_markers(key: bytes | None, value: bytes | None) -> None:
    data = encode_batch([Record(0, NOW, key, value)], producer_id=1, attributes=CONTROL)
    assert decode_marker(data) is None


def test_a_marker_without_its_record_is_none() -> None:
    data = encode_marker(1, 0, True, 0, NOW)
    assert decode_marker(data[:-3]) is None
