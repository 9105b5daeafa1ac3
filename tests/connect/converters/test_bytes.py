"""Texts, bytes and numbers, compared with Kafka Connect's converters."""

import datetime
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace.connect.converters import check, class_types, options_of
from headrace.connect.converters.reading import read_records
from headrace.connect.converters.writing import write_records
from headrace.connect.plugin import PermanentError
from tests.support.kafka_connect import KafkaConnect

pytestmark = pytest.mark.spark

STORAGE = "org.apache.kafka.connect.storage."
CONVERTERS = "org.apache.kafka.connect.converters."
SOURCE = "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp"
NOW = datetime.datetime(2026, 1, 2, 3, 4, 5)
CASES: dict[str, list[bytes | None]] = {
    STORAGE + "StringConverter": [b"", "é".encode(), b"\xff\xc3(a", b"\xe2\x82", None],
    CONVERTERS + "ByteArrayConverter": [b"\x00\xff", b"", None],
    CONVERTERS + "LongConverter": [b"\xff" * 8, bytes([127]) + b"\xff" * 7, b"1", None],
    CONVERTERS + "IntegerConverter": [b"\xff" * 4, b"\x80\0\0\0", b"\0\0\0\7", b"12345", None],
    CONVERTERS + "ShortConverter": [b"\xff\xff", b"\x80\0", b"\0\1", b"", None],
    CONVERTERS + "DoubleConverter": [b"\x40\x09\x21\xfb\x54\x44\x2d\x18", b"\0" * 8, b"1", None],
    CONVERTERS + "FloatConverter": [b"\x3f\xc0\0\0", b"\0" * 4, b"1", None],
    CONVERTERS + "BooleanConverter": [b"\x01", b"\x00", b"\x02", None],
}


@pytest.mark.java
@pytest.mark.parametrize("name", CASES)
def test_bytes_are_read_and_written_as_by_kafka_connect(
    spark: SparkSession, kafka_connect: KafkaConnect, name: str
) -> None:
    values = CASES[name]
    config = {"key.converter": name, "value.converter": name}
    rows = [(value, value, "t", 0, place, NOW) for place, value in enumerate(values)]
    records = read_records(spark.createDataFrame(rows, SOURCE), config, lambda _: None)
    found = records.orderBy("offset").collect()
    theirs = kafka_connect.converter(name)
    good = records.where("_error is null").orderBy("offset")
    written = {row["offset"]: row for row in write_records_with_offset(good, config)}
    for row, value in zip(found, values, strict=True):
        expected, failed = outcome(theirs, value)
        assert (row["_error"] is not None) == failed, (value, row["_error"])
        assert row["value"] == expected
        assert row["_raw"]["value"] == value
        if failed:
            assert row["_stage"] == "KEY_CONVERTER"
        else:
            again = value
            if name == STORAGE + "StringConverter" and expected is not None:
                again = bytes(theirs.fromConnectData("t", None, expected))
            assert written[row["offset"]]["value"] == again
            assert written[row["offset"]]["key"] == written[row["offset"]]["value"]


def write_records_with_offset(records: Any, config: dict[str, str]) -> Any:
    return (
        write_records(records.withColumnRenamed("offset", "_place"), config)
        .withColumnRenamed("_place", "offset")
        .collect()
    )


def outcome(converter: Any, value: bytes | None) -> tuple[Any, bool]:
    try:
        found = converter.toConnectData("t", value).value()
    except Exception:
        return None, True
    return (bytearray(found) if isinstance(found, bytes | bytearray) else found), False


def test_a_struct_as_text_is_that_of_java(spark: SparkSession) -> None:
    rows = spark.sql(
        "select 't' as topic, 1 as key, struct(1 as a, cast(null as int) as b, 'x' as c, "
        "array(1, null) as d, map('k', 2.5D) as e) as value"
    )
    config = {"value.converter": STORAGE + "StringConverter"}
    (row,) = write_records(rows, config).collect()
    assert row["value"] == b"Struct{a=1,c=x,d=[1, null],e={k=2.5}}"
    assert row["key"] == b"1"


def test_a_value_of_another_type_is_refused_with_the_reason(spark: SparkSession) -> None:
    rows = spark.sql("select 't' as topic, 'k' as key, 5 as value")
    with pytest.raises(PermanentError, match="writes binary, but the value is int"):
        write_records(rows, {"value.converter": CONVERTERS + "ByteArrayConverter"})


def test_converters_and_their_options_are_known() -> None:
    assert options_of(CONVERTERS + "LongConverter") == ()
    assert options_of("org.example.Converter") is None
    assert class_types()[CONVERTERS + "LongConverter"] == "converter"
    found = check(
        {
            "key.converter": "org.example.Converter",
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
            "value.converter.schemas.enable": "perhaps",
            "value.converter.colour": "red",
        }
    )
    assert [error.option for error in found] == [
        "key.converter",
        "value.converter.schemas.enable",
        "value.converter.colour",
    ]
