"""Apache's transforms as Spark expressions, compared with the Java classes."""

import datetime
import json
from collections.abc import Mapping, Sequence
from decimal import Decimal
from functools import reduce
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace.connect.converters.writing import write_records
from headrace.connect.transforms.applying import apply
from tests.support.kafka_connect import JSON_CONVERTER, KafkaConnect, Record

pytestmark = [pytest.mark.spark, pytest.mark.java]

APACHE = "org.apache.kafka.connect.transforms."
WRITING = {"key.converter": JSON_CONVERTER, "value.converter": JSON_CONVERTER}
ROW = (
    "id int, small tinyint, big bigint, price double, ratio float, flag boolean, amount "
    "decimal(10,2), name string, bin binary, day date, at timestamp, tags array<string>, "
    "inner struct<x: int, `a.b`: string, deep: struct<y: string>>"
)
SCHEMA = (
    "topic string, partition int, offset bigint, timestamp timestamp, key struct<id: int, name: "
    f"string>, value struct<{ROW}>, headers array<struct<key: string, value: binary>>"
)
AT = datetime.datetime(2023, 11, 14, 22, 13, 20, 123_000)
FULL = (
    *(7, -3, 1_700_000_000_123, -1.75, 2.5, True, Decimal("123.45"), "300", b"\x00\xff"),
    *(datetime.date(2022, 1, 8), AT, ["a", "b"], (5, "dotted", ("end",))),
)
EXTREME: tuple[Any, ...] = (
    *(-2_000_000_000, 127, -(1 << 40) - 1, 1e300, 3e38, False, Decimal("-99999999.99")),
    *("1.5e3", b"", datetime.date(1970, 1, 2), AT, [], (None, None, None)),
)
NULLS = (None,) * 13
ROWS = [
    ("orders", 3, 40, AT, (1, "k"), FULL, [("h", b"1"), ("other", b"text"), ("h", b"2")]),
    ("payments", 3, 41, AT, (2, "300"), EXTREME, []),
    ("orders", 3, 42, AT, (None, None), NULLS, []),
    ("orders", 3, 43, AT, None, None, [("h", b"x")]),
]


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(ROWS, SCHEMA)


@pytest.fixture(scope="module")
def java_records(rows: DataFrame) -> list[Record]:
    written = write_records(rows.withColumn("_offset_", F.col("offset")), WRITING)
    found = {row["_offset_"]: row for row in written.collect()}
    return [
        Record(
            None if found[row[2]]["value"] is None else json.loads(found[row[2]]["value"]),
            None if found[row[2]]["key"] is None else json.loads(found[row[2]]["key"]),
            row[0],
            row[1],
            row[2],
            1_700_000_000_123,
            [(name, value.decode()) for name, value in row[6]],
        )
        for row in ROWS
    ]


CASES: dict[str, Sequence[Mapping[str, str]]] = {
    "Cast$Value": [
        {
            "spec": "id:int8,small:int64,big:int32,price:int64,ratio:int8,flag:float64,"
            "amount:int16,name:float32,missing:int8"
        },
        {
            "spec": "id:string,big:string,price:string,flag:string,amount:string,bin:string,"
            "at:string"
        },
        {
            "spec": "id:boolean,price:boolean,amount:boolean,name:boolean,flag:int32,day:int32,"
            "at:int64"
        },
        {"spec": "name:int32"},
        {"spec": "name:int8"},
        {"spec": "price:float32,big:float32,amount:float64,price:int16,ratio:int32"},
        {"spec": "tags:string"},
        {"spec": "bin:int32"},
    ],
    "Cast$Key": [{"spec": "id:string"}, {"spec": "string"}],
    "DropHeaders": [{"headers": "h,none"}],
    "ExtractField$Value": [
        {"field": "name"},
        {"field": "inner"},
        {"field": "at"},
        {"field": "inner.x"},
        {"field": "inner.x", "field.syntax.version": "V2"},
        {"field": "inner.`a.b`", "field.syntax.version": "V2"},
        {"field": "inner.deep.y", "field.syntax.version": "V2"},
    ],
    "ExtractField$Key": [{"field": "id"}],
    "Flatten$Value": [{}, {"delimiter": "_"}],
    "HeaderFrom$Value": [
        {"fields": "name,price", "headers": "n,p", "operation": "copy"},
        {"fields": "id,tags", "headers": "i,t", "operation": "move"},
        {"fields": "at,bin,flag", "headers": "a,b,f", "operation": "move"},
    ],
    "HeaderFrom$Key": [{"fields": "name", "headers": "n", "operation": "move"}],
    "HoistField$Key": [{"field": "wrapped"}],
    "InsertField$Value": [
        {"topic.field": "t", "partition.field": "p!", "offset.field": "o?"},
        {"timestamp.field": "ts", "static.field": "s", "static.value": "fixed"},
    ],
    "InsertHeader": [
        {"header": "new", "value.literal": literal}
        for literal in ("abc", "1", '"quoted \\" text"', "2020-01-01", "true")
    ],
    "MaskField$Value": [
        {"fields": "id,small,big,price,ratio,flag,name,day,at,tags,missing"},
        {"fields": "id,small,big,price,ratio,name", "replacement": "300"},
        {"fields": "name", "replacement": "***"},
        {"fields": "id", "replacement": "***"},
        {"fields": "flag", "replacement": "1"},
        {"fields": "bin"},
    ],
    "RegexRouter": [
        {"regex": "orders", "replacement": "x-$0"},
        {"regex": "(.*)", "replacement": "prefix-$1"},
        {"regex": "order", "replacement": "x"},
        {"regex": "o|orders", "replacement": "X"},
        {"regex": "(?<first>.)(.*)", "replacement": "$2-${first}"},
    ],
    "ReplaceField$Value": [
        {"exclude": "id,tags"},
        {"include": "id,name,price", "exclude": "price", "renames": "id:key,name:title"},
    ],
    "ReplaceField$Key": [{"renames": "id:number"}],
    "SetSchemaMetadata$Value": [{"schema.name": "org.example.Row", "schema.version": "3"}],
    "TimestampConverter$Value": [
        {"field": "at", "target.type": "string", "format": "yyyy-MM-dd'T'HH:mm:ss.SSSZ"},
        {"field": "at", "target.type": "unix"},
        {"field": "at", "target.type": "unix", "unix.precision": "seconds"},
        {"field": "at", "target.type": "unix", "unix.precision": "nanoseconds"},
        {"field": "at", "target.type": "Date"},
        {"field": "at", "target.type": "Time"},
        {"field": "big", "target.type": "Timestamp"},
        {"field": "big", "target.type": "Timestamp", "unix.precision": "microseconds"},
        {"field": "day", "target.type": "Timestamp"},
        {"field": "id", "target.type": "Timestamp"},
        {"field": "missing", "target.type": "unix"},
    ],
    "TimestampRouter": [
        {},
        {"topic.format": "a-${timestamp}-${topic}", "timestamp.format": "yyyy.MM"},
    ],
    "ValueToKey": [{"fields": "id,name"}, {"fields": "missing"}],
}


@pytest.mark.parametrize("name", CASES)
def test_a_transform_does_what_the_java_class_does(
    rows: DataFrame, java_records: list[Record], kafka_connect: KafkaConnect, name: str
) -> None:
    found = []
    for case, config in enumerate(CASES[name]):
        given = {"transforms": "x", "transforms.x.type": APACHE + name}
        given |= {f"transforms.x.{option}": value for option, value in config.items()}
        changed = apply(rows.withColumn("_place", F.col("offset")), given)
        written = write_records(changed, WRITING)
        found.append(written.withColumn("_case", F.lit(case)))
    results = {
        (row["_case"], row["_place"]): row for row in reduce(DataFrame.union, found).collect()
    }
    for case, config in enumerate(CASES[name]):
        expected = kafka_connect.transform_all(APACHE + name, config, java_records)
        for record, theirs in zip(java_records, expected, strict=True):
            ours = results[case, record.offset]
            where = f"{config} of offset {record.offset}"
            if isinstance(theirs, str):
                assert ours["_error"] is not None, f"{where}: {theirs}"
                assert ours["_stage"] == "TRANSFORMATION"
                assert similar(ours["_error"], theirs), f"{where}: {ours['_error']!r}, {theirs!r}"
                continue
            assert ours["_error"] is None, f"{where}: {ours['_error']}"
            assert ours["topic"] == theirs.topic, where
            headers = [
                (one["key"], None if one["value"] is None else one["value"].decode())
                for one in ours["headers"] or ()
            ]
            assert headers == theirs.headers, where
            for part, wanted in (("key", theirs.key), ("value", theirs.value)):
                assert same(ours[part], wanted), f"{part} of {where}: {ours[part]} {wanted}"


def similar(ours: str, theirs: str) -> bool:
    """Whether two messages say the same: null values have no schema in ours."""
    return ours.split("found:")[0].split("[")[-1] == theirs.split("found:")[0].split("[")[-1]


def same(ours: bytes | None, theirs: Any) -> bool:
    if theirs is None or theirs["payload"] is None:
        return ours is None or json.loads(ours)["payload"] is None
    if ours is None:
        return False
    found = json.loads(ours)
    if theirs["schema"] is None:
        return bool(found["payload"] == theirs["payload"])
    return bool(
        found["payload"] == theirs["payload"] and types(found["schema"]) == types(theirs["schema"])
    )


def types(schema: Mapping[str, Any]) -> Any:
    """A schema without optionality and precision."""
    if schema["type"] == "struct":
        inner: Any = [(each["field"], types(each)) for each in schema["fields"]]
    else:
        inner = [types(schema[name]) for name in ("items", "keys", "values") if name in schema]
    return schema["type"], schema.get("name"), schema.get("version"), inner
