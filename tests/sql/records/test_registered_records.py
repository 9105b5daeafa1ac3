"""AVRO, JSON_SR and PROTOBUF: rows through a registry."""

import datetime
from collections.abc import Iterator
from decimal import Decimal
from uuid import uuid4

import pytest

from headrace.schemas.client import SchemaClient
from headrace.sql.records.decoding import RowReader
from headrace.sql.records.encoding import RowWriter
from headrace.sql.records.errors import UnreadableRecord
from headrace.testing.running import RunningBroker
from tests.sql.records.rows import record, source
from tests.support.headrace_registry import HeadraceRegistry

EVERY = (
    "b boolean; l tinyint; i int; n bigint; f float; d double; s string; o binary;"
    " a array<string>; m map<string,bigint>; r struct<x: int, y: struct<z: string>>; t timestamp"
)
VALUES = {
    "b": True,
    "l": -3,
    "i": 5,
    "n": 2**63 - 1,
    "f": 0.5,
    "d": 0.1,
    "s": "ä",
    "o": b"\0\xff",
    "a": ["p", "q"],
    "m": {"k": 1, "j": 2},
    "r": {"x": 1, "y": {"z": "deep"}},
    "t": datetime.datetime(2026, 1, 2, 3, 4, 5, 678000, datetime.UTC),
}
NOT_IN_PROTOBUF = {"x": Decimal("-12.50"), "day": datetime.date(2026, 1, 2)}


@pytest.fixture(scope="module")
def registry(
    headrace: RunningBroker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SchemaClient]:
    folder = tmp_path_factory.mktemp("registry")
    topic = f"schemas-{uuid4().hex}"
    with HeadraceRegistry(headrace.bootstrap_servers, folder, topic=topic) as running:
        yield SchemaClient((running.url,))


@pytest.mark.parametrize("form", ["AVRO", "JSON_SR", "PROTOBUF"])
def test_rows_are_written_and_read(form: str, registry: SchemaClient) -> None:
    more = "" if form == "PROTOBUF" else "; x decimal(10,2); day date"
    values = VALUES if form == "PROTOBUF" else VALUES | NOT_IN_PROTOBUF
    of = source(f"k string key; {EVERY}{more}", form, form, topic=uuid4().hex)
    key, value = RowWriter(of, registry).write({"k": "one", **values})
    nothing_key, nothing = RowWriter(of, registry).write({"k": "two"})
    assert key is not None
    assert value is not None
    assert key[0] == value[0] == 0
    rows, bad = RowReader(of, registry).read_many(
        [record(key, value), record(nothing_key, nothing), record(key, None)], 0
    )
    assert bad == []
    assert dict(zip((each.name for each in of.columns), rows[0].values, strict=True)) == {
        "k": "one",
        **values,
    }
    empty: dict[str, object] = {"a": [], "m": {}} if form == "PROTOBUF" else {}
    assert dict(zip((each.name for each in of.columns), rows[1].values, strict=True)) == {
        "k": "two",
        **dict.fromkeys(values),
        **empty,
    }
    assert rows[2].is_deleted
    assert rows[2].values[0] == "one"


def test_records_of_other_schemas_are_read_and_others_are_told(registry: SchemaClient) -> None:
    topic = uuid4().hex
    old = source("k string key, a int", value="AVRO", topic=topic)
    new = source("k string key, A bigint, b string", value="AVRO", topic=topic)
    _, first = RowWriter(old, registry).write({"k": "k", "a": 5})
    # A new field is added to the schema; the case of names does not matter.
    wider = source("k string key, a int, b string", value="AVRO", topic=topic)
    _, second = RowWriter(wider, registry).write({"k": "k", "a": 6, "b": "x"})
    reader = RowReader(new, registry)
    assert reader.read(record(b"k", first)).values == ("k", 5, None)
    assert reader.read(record(b"k", second)).values == ("k", 6, "x")
    for octets, why in (
        (b"{}", "value: 2 bytes are too few for a schema id"),
        (b"abcdef", "value: begins with 0x61"),
        (b"\0\0\xff\xff\xffx", "value: the registry has no schema with id"),
    ):
        with pytest.raises(UnreadableRecord, match=why):
            reader.read(record(b"k", octets))


def test_a_single_value_may_be_unwrapped(registry: SchemaClient) -> None:
    of = source(
        "k bigint key, v string", "AVRO", "AVRO", topic=uuid4().hex, wrap_single_value=False
    )
    key, value = RowWriter(of, registry).write({"k": 7, "v": "x"})
    assert (key or b"")[5:] == b"\x0e"
    assert (value or b"")[5:] == b"\x02x"
    assert RowReader(of, registry).read(record(key, value)).values == (7, "x")
