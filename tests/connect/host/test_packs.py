"""Which sources are packed, and that packs are taken apart into the same records."""

from collections.abc import Iterator

import pyarrow as pa
import pytest

from headrace.connect.converters.options import BYTES, JSON, STRING
from headrace.connect.host import packs
from headrace.connect.host.packs import packings
from headrace.connect.plugin import HEADERS_TYPE, SourceStream

OFFSETS = "connect-offsets"
LINES = SourceStream("lines", "line string", [{}], value="line")
MESSAGES = SourceStream(
    "messages",
    f"id string, body binary, found {HEADERS_TYPE}",
    [{}],
    ("id",),
    "body",
    headers="found",
)
TEXTS = {"key.converter": STRING, "value.converter": STRING}
ROUTED = {
    "transforms": "t",
    "transforms.t.type": "org.apache.kafka.connect.transforms.RegexRouter",
    "transforms.t.regex": "a",
    "transforms.t.replacement": "b",
}
OCTETS = {"key.converter": STRING, "value.converter": BYTES}


def unpacked(*found: pa.RecordBatch) -> list[dict[str, object]]:
    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.concat_batches(found)

    return [row for batch in packs._unpacked(batches()) for row in batch.to_pylist()]


@pytest.mark.parametrize(
    ("stream", "config"),
    [
        (LINES, TEXTS),
        (LINES, {"value.converter": STRING}),
        (LINES, {**TEXTS, "key.converter": JSON}),
        (MESSAGES, OCTETS),
    ],
)
def test_sources_without_work_for_spark_are_packed(
    stream: SourceStream, config: dict[str, str]
) -> None:
    assert packings([stream], config, OFFSETS) is not None


@pytest.mark.parametrize(
    ("stream", "config"),
    [
        (LINES, {"value.converter": JSON}),
        (LINES, {**TEXTS, "value.converter.converter.encoding": "UTF-16"}),
        (LINES, {**TEXTS, "key.converter": BYTES}),
        (LINES, {**TEXTS, **ROUTED}),
        (MESSAGES, TEXTS),
        (SourceStream("rows", "n bigint", [{}]), TEXTS),
        (SourceStream("numbers", "n bigint", [{}], value="n"), TEXTS),
        (SourceStream("spans", "line string, s interval", [{}], value="line"), TEXTS),
    ],
)
def test_sources_with_work_for_spark_are_not_packed(
    stream: SourceStream, config: dict[str, str]
) -> None:
    assert packings([stream], config, OFFSETS) is None
    assert packings([LINES, stream], config, OFFSETS) is None


def test_packs_have_the_records_of_the_rows_and_the_offset() -> None:
    made = packings([MESSAGES], OCTETS, OFFSETS)
    assert made is not None
    rows = [
        {"id": "a", "body": b"1", "found": [{"key": "h", "value": b"x"}]},
        {"id": None, "body": None, "found": None},
    ]
    found = [*made[0].packs(pa.array(rows, made[0].row)), made[0].offset("k", "v")]
    assert [batch.column("records").to_pylist() for batch in found] == [[2], [0]]
    assert unpacked(*found) == [
        {
            "topic": "messages",
            "key": b"a",
            "value": b"1",
            "headers": [{"key": "h", "value": b"x"}],
        },
        {"topic": "messages", "key": None, "value": None, "headers": None},
        {"topic": OFFSETS, "key": b"k", "value": b"v", "headers": None},
    ]


def test_large_rows_are_in_packs_of_limited_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packs, "PACK_BYTES", 1000)
    made = packings([LINES], TEXTS, OFFSETS)
    assert made is not None
    rows = [{"line": "x" * 400} for _ in range(20)]
    found = list(made[0].packs(pa.array(rows, made[0].row)))
    assert len(found) >= 8
    assert [row["value"] for row in unpacked(*found)] == [b"x" * 400] * 20


def test_the_records_of_packs_are_counted_by_the_progress() -> None:
    metrics = {"packed-a": {"records": 3}, "packed-b": {"records": None}, "refused-a": {}}
    assert packs.packed_records({"observedMetrics": metrics}) == 3
    assert packs.packed_records({"observedMetrics": {}}) is None
