"""JSON as in Kafka Connect, whose own JsonConverter is the oracle."""

import base64
import datetime
import decimal
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession

from headrace.connect.converters.reading import (
    DeclaredSchemas,
    by_schema,
    read_records,
)
from headrace.connect.converters.writing import write_records
from tests.support.kafka_connect import JSON_CONVERTER, KafkaConnect

pytestmark = pytest.mark.spark

STRING_CONVERTER = "org.apache.kafka.connect.storage.StringConverter"
BASE = {"key.converter": STRING_CONVERTER, "value.converter": JSON_CONVERTER}
WITH_SCHEMA = BASE | {"value.converter.schemas.enable": "true"}
PLAIN = BASE | {"value.converter.schemas.enable": "false"}
SOURCE = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
    "headers array<struct<key:string,value:binary>>"
)
NOW = datetime.datetime(2026, 1, 2, 3, 4, 5)


def source(spark: SparkSession, values: Sequence[bytes | None], key: bytes = b"k") -> DataFrame:
    rows = [(key, value, "t", 0, place, NOW, None) for place, value in enumerate(values)]
    return spark.createDataFrame(rows, SOURCE)


def no_target(_topic: str) -> str | None:
    return None


def read_plain(spark: SparkSession, values: Sequence[bytes | None], **more: str) -> Sequence[Row]:
    config = PLAIN | {"topics": "t"} | {n.replace("_", "."): v for n, v in more.items()}
    return read_records(source(spark, values), config, no_target).orderBy("offset").collect()


def read_declared(spark: SparkSession, values: Sequence[bytes | None], **more: str) -> list[Row]:
    config = WITH_SCHEMA | {n.replace("__", "."): v for n, v in more.items()}
    rows: list[Row] = []
    for declared, group in by_schema(source(spark, values), config):
        rows += read_records(group, config, no_target, declared).collect()
    return sorted(rows, key=lambda row: int(row["offset"]))


def envelope(schema: Any, payload: Any) -> bytes:
    return json.dumps({"schema": schema, "payload": payload}).encode()


def field(name: str, kind: str, /, optional: bool = True, **more: Any) -> dict[str, Any]:
    return {"field": name, "type": kind, "optional": optional, **more}


def struct(*fields: Mapping[str, Any], optional: bool = True) -> dict[str, Any]:
    return {"type": "struct", "optional": optional, "fields": list(fields)}


LOGICAL = "org.apache.kafka.connect.data."
EVERY_TYPE = struct(
    field("i8", "int8"),
    field("i16", "int16"),
    field("i32", "int32"),
    field("i64", "int64"),
    field("f32", "float"),
    field("f64", "double"),
    field("b", "boolean"),
    field("s", "string"),
    field("x", "bytes"),
    field("d", "bytes", name=LOGICAL + "Decimal", version=1, parameters={"scale": "2"}),
    field("day", "int32", name=LOGICAL + "Date", version=1),
    field("time", "int32", name=LOGICAL + "Time", version=1),
    field("at", "int64", name=LOGICAL + "Timestamp", version=1),
    field("list", "array", items={"type": "int32", "optional": True}),
    field(
        "map",
        "map",
        keys={"type": "string", "optional": False},
        values={"type": "int64", "name": LOGICAL + "Timestamp", "version": 1, "optional": True},
    ),
    field(
        "pairs",
        "map",
        keys={"type": "int32", "optional": False},
        values={"type": "string", "optional": True},
    ),
    field("inner", "struct", fields=[field("a.b", "int32"), field("c", "string")]),
)
EVERY_VALUE = {
    "i8": -7,
    "i16": 300,
    "i32": 70_000,
    "i64": 1 << 40,
    "f32": 1.5,
    "f64": 1e100,
    "b": True,
    "s": 'quote " and é \u2028',
    "x": "AAEC/w==",
    "d": "MDk=",
    "day": 19_000,
    "time": 3_600_001,
    "at": 1_700_000_000_123,
    "list": [1, None, 3],
    "map": {"k": 1_000, "none": None},
    "pairs": [[5, "five"], [6, None]],
    "inner": {"a.b": 1, "c": None},
}


def same_schema(ours: Any, theirs: Any) -> bool:
    """Whether two schemas are equal apart from the precision, which only ours knows."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        ours = {name: value for name, value in ours.items() if name != "connect.decimal.precision"}
        return ours.keys() == theirs.keys() and all(
            same_schema(ours[name], theirs[name]) for name in ours
        )
    if isinstance(ours, list) and isinstance(theirs, list):
        return len(ours) == len(theirs) and all(map(same_schema, ours, theirs))
    return bool(ours == theirs)


@pytest.mark.java
@pytest.mark.parametrize("format_", ["BASE64", "NUMERIC"])
def test_every_type_is_read_and_written_as_by_kafka_connect(
    spark: SparkSession, kafka_connect: KafkaConnect, format_: str
) -> None:
    numeric = EVERY_VALUE | {"d": 123.45}
    nothing: dict[str, Any] = dict.fromkeys(EVERY_VALUE)
    values = [envelope(EVERY_TYPE, value) for value in (EVERY_VALUE, numeric, nothing)]
    theirs = kafka_connect.converter(JSON_CONVERTER, schemas_enable="true", decimal_format=format_)
    config = WITH_SCHEMA | {"value.converter.decimal.format": format_}
    ((declared, group),) = by_schema(source(spark, values), config)
    records = read_records(group, config, no_target, declared)
    assert [row["_error"] for row in records.collect()] == [None, None, None]
    written = write_records(records.orderBy("offset"), config).collect()
    for value, row in zip(values, written, strict=True):
        read = theirs.toConnectData("t", value)
        expected = json.loads(bytes(theirs.fromConnectData("t", read.schema(), read.value())))
        found = json.loads(row["value"])
        assert found["payload"] == expected["payload"]
        assert same_schema(found["schema"], expected["schema"])


@pytest.mark.java
def test_decimals_of_all_sizes_keep_their_digits(
    spark: SparkSession, kafka_connect: KafkaConnect
) -> None:
    schema = struct(
        field("d", "bytes", name=LOGICAL + "Decimal", version=1, parameters={"scale": "10"})
    )
    numbers = [0, 1, -1, 127, 128, -128, -129, 255, 1 << 63, -(1 << 63), (1 << 64) - 1, 1 << 64]
    numbers += [10**38 - 1, -(10**38) + 1, -(10**36) + 7, -5 * 10**10]
    codec = kafka_connect.converter(JSON_CONVERTER, schemas_enable="true")
    octets = [
        number.to_bytes((number if number >= 0 else ~number).bit_length() // 8 + 1, signed=True)
        for number in numbers
    ]
    values = [envelope(schema, {"d": base64.b64encode(each).decode()}) for each in octets]
    theirs = [codec.toConnectData("t", value).value().get("d") for value in values]
    ((declared, group),) = by_schema(source(spark, values), WITH_SCHEMA)
    records = read_records(group, WITH_SCHEMA, no_target, declared).orderBy("offset")
    found = [row["value"]["d"] for row in records.collect()]
    exact = decimal.Context(prec=60)
    assert found == theirs == [decimal.Decimal(n).scaleb(-10, exact) for n in numbers]
    written = [
        json.loads(row["value"])["payload"] for row in write_records(records, WITH_SCHEMA).collect()
    ]
    assert written == [json.loads(value)["payload"] for value in values]


def test_types_of_the_declared_schema_are_spark_types(spark: SparkSession) -> None:
    (row,) = read_declared(spark, [envelope(EVERY_TYPE, EVERY_VALUE)])
    value = row["value"]
    assert value["d"] == decimal.Decimal("123.45")
    assert value["day"] == datetime.date(2022, 1, 8)
    assert value["at"] == datetime.datetime(2023, 11, 14, 22, 13, 20, 123_000)
    assert value["x"] == bytearray(b"\x00\x01\x02\xff")
    assert value["pairs"] == {5: "five", 6: None}
    assert value["inner"]["a.b"] == 1


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"{", "value: "),
        (b'{"a":1}', '"schema" and "payload"'),
        (b'{"schema":{"type":"int32"},"payload":1,"more":2}', '"schema" and "payload"'),
        (b'{"schema":{"type":"int32"},"payload":"text"}', "does not match its schema"),
        (b'{"schema":{"type":"int32"},"payload":null}', "Invalid null value for required"),
        (b'{"schema":{"type":"int33"},"payload":1}', "Unknown schema type: int33"),
        (b"\xff\xfe", "not UTF-8"),
        (
            envelope(struct(field("a", "int32", optional=False)), {}),
            "payload.a: Invalid null value for required int32 field",
        ),
        (
            envelope(
                {"type": "array", "items": {"type": "int32", "optional": False}}, [1, None, 2]
            ),
            "payload[]: Invalid null value for required int32 field",
        ),
        (
            envelope(
                struct(field("d", "bytes", name=LOGICAL + "Decimal", parameters={"scale": "0"})),
                {"d": "not base64!"},
            ),
            "payload.d is not a decimal",
        ),
        (
            envelope(
                struct(field("at", "int64", name=LOGICAL + "Timestamp")), {"at": (1 << 63) - 1}
            ),
            "payload.at is too large for a timestamp",
        ),
    ],
)
def test_a_bad_envelope_is_an_error_of_its_record(
    spark: SparkSession, value: bytes, reason: str
) -> None:
    (row,) = read_declared(spark, [value])
    assert reason in row["_error"]
    assert row["_stage"] == "VALUE_CONVERTER"
    assert row["value"] is None
    assert (row["_raw"]["key"], row["_raw"]["value"]) == (b"k", value)


def test_a_bad_record_does_not_hurt_its_neighbours(spark: SparkSession) -> None:
    schema = struct(field("a", "int32"))
    rows = read_declared(spark, [envelope(schema, {"a": 1}), b"{", None, envelope(schema, None)])
    assert [row["value"] and row["value"]["a"] for row in rows] == [1, None, None, None]
    assert [row["_error"] is None for row in rows] == [True, False, True, True]


@pytest.mark.java
def test_a_default_replaces_null_unless_it_is_switched_off(
    spark: SparkSession, kafka_connect: KafkaConnect
) -> None:
    schema = struct(
        field("a", "int32", optional=False, default=7),
        field("b", "int64", name=LOGICAL + "Timestamp", version=1, default=1_000),
    )
    value = envelope(schema, {"a": None})
    (row,) = read_declared(spark, [value])
    theirs = kafka_connect.converter(JSON_CONVERTER, schemas_enable="true")
    read = theirs.toConnectData("t", value).value()
    assert row["value"]["a"] == read.get("a") == 7
    assert row["value"]["b"] == datetime.datetime(1970, 1, 1, 0, 0, 1)
    (row,) = read_declared(spark, [value], value__converter__replace__null__with__default="false")
    assert "required" in row["_error"]


def test_records_of_one_key_stay_in_order_across_schemas(spark: SparkSession) -> None:
    old, new = struct(field("a", "int32")), struct(field("a", "int32"), field("b", "string"))
    values = [
        (b"1", envelope(old, {"a": 1})),
        (b"1", envelope(new, {"a": 2, "b": "x"})),
        (b"1", None),
        (b"2", envelope(old, {"a": 3})),
        (b"1", envelope(old, {"a": 4})),
    ]
    rows = [(key, value, "t", 0, place, NOW, None) for place, (key, value) in enumerate(values)]
    batch = spark.createDataFrame(rows, SOURCE)
    groups = by_schema(batch, WITH_SCHEMA)
    seen = []
    for declared, group in groups:
        records = read_records(group, WITH_SCHEMA, no_target, declared).orderBy("offset").collect()
        assert all(row["_error"] is None for row in records)
        seen += [(row["key"], row["offset"]) for row in records]
    assert [offset for key, offset in seen if key == "1"] == [0, 1, 2, 4]
    assert sorted(offset for _, offset in seen) == [0, 1, 2, 3, 4]
    assert len(groups) == 3


def test_json_without_schema_has_the_type_of_the_option(spark: SparkSession) -> None:
    values = [
        b'{"id":1,"tags":["a"],"more":true}',
        b'{"id":"x"}',
        b"[]",
        b"null",
        b"",
        None,
        b"{",
        b"\xff",
    ]
    rows = read_plain(spark, values, value_schema="id int, tags array<string>")
    assert rows[0]["value"].asDict() == {"id": 1, "tags": ["a"]}
    assert [row["value"] for row in rows[1:]] == [None] * 7
    assert [row["_error"] is not None for row in rows] == [
        *(False, True, True, False, False, False, True, True)
    ]
    assert "not JSON of the type struct<id:int" in rows[1]["_error"]


def test_json_without_schema_has_the_columns_of_the_target(spark: SparkSession) -> None:
    config = PLAIN | {"topics": "t"}
    rows = read_records(
        source(spark, [b'{"id":1}']), config, lambda topic: f"id_{topic} int, id bigint"
    )
    assert rows.schema["value"].dataType.simpleString() == "struct<id_t:int,id:bigint>"
    assert rows.collect()[0]["value"]["id"] == 1


def test_json_without_any_schema_is_text_and_has_to_be_json(spark: SparkSession) -> None:
    rows = read_plain(spark, [b'{"id": 1}', b"5", b"{", b"null"])
    assert [row["value"] for row in rows] == ['{"id": 1}', "5", None, None]
    assert [row["_error"] for row in rows] == [None, None, "value: not JSON", None]


def test_a_single_type_is_a_schema_too(spark: SparkSession) -> None:
    rows = read_plain(spark, [b"5", b'"x"', b"null"], value_schema="int")
    assert [row["value"] for row in rows] == [5, None, None]
    assert rows[1]["_error"] is not None


def test_a_declared_schema_is_required_before_rows_are_read(spark: SparkSession) -> None:
    declared = DeclaredSchemas()
    rows = read_records(source(spark, [None]), WITH_SCHEMA, no_target, declared).collect()
    assert rows[0]["value"] is None
    assert rows[0]["_error"] is None


@pytest.mark.java
def test_json_without_schema_is_written_as_by_kafka_connect(
    spark: SparkSession, kafka_connect: KafkaConnect
) -> None:
    codec = kafka_connect.converter(JSON_CONVERTER, schemas_enable="true")
    plain = kafka_connect.converter(JSON_CONVERTER, schemas_enable="false")
    value = envelope(EVERY_TYPE, EVERY_VALUE)
    read = codec.toConnectData("t", value)
    expected = json.loads(bytes(plain.fromConnectData("t", read.schema(), read.value())))
    ((declared, group),) = by_schema(source(spark, [value]), WITH_SCHEMA)
    records = read_records(group, WITH_SCHEMA, no_target, declared)
    written = write_records(records, PLAIN).collect()
    assert json.loads(written[0]["value"]) == expected
    assert list(json.loads(written[0]["value"])) == list(expected)


@pytest.mark.parametrize(
    ("ddl", "text"),
    [
        ("'a\"b'", '"a\\"b"'),
        ("5", "5"),
        ("true", "true"),
        ("1.5D", "1.5"),
        ("array(1,null)", "[1,null]"),
        ("map('a',1)", '{"a":1}'),
        ("cast(null as int)", None),
    ],
)
def test_scalars_are_written_as_bare_json(spark: SparkSession, ddl: str, text: str | None) -> None:
    rows = spark.sql(f"select 't' as topic, 'k' as key, {ddl} as value")
    (row,) = write_records(rows, PLAIN).collect()
    assert row["value"] == (None if text is None else text.encode())


def test_columns_of_the_host_are_kept(spark: SparkSession) -> None:
    rows = spark.sql("select 't' as topic, 'k' as key, 1 as value, 'x' as _offset, 2 as other")
    written = write_records(rows, PLAIN)
    assert written.columns == ["topic", "key", "value", "_offset"]


def test_a_record_that_begins_like_others_is_checked_like_them(spark: SparkSession) -> None:
    good = envelope(struct(field("n", "int32")), {"n": 1})
    start = good.removesuffix(b'{"n": 1}}')
    values = [
        good,
        start + b'{"n": 2}}',
        start + b'{"n": 3}, "more": 1}',
        start + b'{"n": 4}, "schema": {}}',
        start + b'{"n": 5}, {"n": 6}}',
        start + b'{"n": "seven"}}',
        start + b'{"n": 8}',
        start + b"}",
        start + b'{"n": 9}}\n',
        start + b"null}",
        start + b'{"n": "\xff"}}',
    ]
    rows = read_declared(spark, values)
    assert [row["value"] and row["value"]["n"] for row in rows] == [
        1, 2, None, None, None, None, None, None, 9, None, None,
    ]  # fmt: skip
    assert [bool(row["_error"]) for row in rows] == [
        False, False, True, True, True, True, True, True, False, False, True,
    ]  # fmt: skip
    assert '"schema" and "payload"' in rows[2]["_error"]
