"""The chain of transforms: predicates, errors, records that pass, and headrace.Sql."""

import datetime
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession

from headrace.connect.plugin import OptionError, PermanentError
from headrace.connect.transforms.applying import apply
from tests.support.kafka_connect import KafkaConnect, Record

pytestmark = pytest.mark.spark

APACHE = "org.apache.kafka.connect.transforms."
PREDICATES = APACHE + "predicates."
SCHEMA = (
    "topic string, partition int, offset bigint, timestamp timestamp, key string, value struct<id: "
    "int, name: string>, headers array<struct<key: string, value: binary>>, _error string, "
    "_stage string, _offset string"
)
NOW = datetime.datetime(2026, 1, 2, 3, 4, 5)
GOOD = ("orders", 0, 0, NOW, "a", (1, "10"), [("h", b"x")], None, None, None)
OTHER: tuple[Any, ...] = ("payments", 0, 1, NOW, "b", (2, "text"), [], None, None, None)
TOMBSTONE = ("orders", 0, 2, NOW, "c", None, None, None, None, None)
BAD = ("orders", 0, 3, NOW, None, None, None, "value: not JSON", "VALUE_CONVERTER", None)
MARK = ("orders", 0, 4, NOW, None, None, None, None, None, "source offset")


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame([GOOD, OTHER, TOMBSTONE, BAD, MARK], SCHEMA)


def chain(*transforms: Mapping[str, str], **predicates: Mapping[str, str]) -> dict[str, str]:
    config = {"transforms": ",".join(f"t{place}" for place in range(len(transforms)))}
    for place, options in enumerate(transforms):
        config |= {f"transforms.t{place}.{name}": value for name, value in options.items()}
    config["predicates"] = ",".join(predicates)
    for predicate, options in predicates.items():
        config |= {f"predicates.{predicate}.{name}": value for name, value in options.items()}
    return config


def result(rows: DataFrame, config: Mapping[str, str]) -> Sequence[Row]:
    found: Sequence[Row] = apply(rows, config).orderBy("offset").collect()
    return found


def plain(value: Any) -> Any:
    return value.asDict() if isinstance(value, Row) else value


ORDERS = {"type": PREDICATES + "TopicNameMatches", "pattern": "order."}


def test_an_error_and_a_source_offset_pass_every_transform(rows: DataFrame) -> None:
    config = chain(
        {"type": APACHE + "HoistField$Value", "field": "inner"},
        {"type": APACHE + "InsertHeader", "header": "new", "value.literal": "1"},
        {"type": APACHE + "RegexRouter", "regex": ".*", "replacement": "elsewhere"},
    )
    found = result(rows, config)
    assert [row["topic"] for row in found] == ["elsewhere"] * 3 + ["orders"] * 2
    assert found[2]["value"].asDict() == {"inner": None}
    for row, given in ((found[3], BAD), (found[4], MARK)):
        assert (row["key"], row["value"], row["headers"]) == (None, None, None)
        assert (row["_error"], row["_stage"], row["_offset"]) == given[-3:]


def test_a_record_that_fails_passes_the_transforms_after_it(rows: DataFrame) -> None:
    config = chain(
        {"type": APACHE + "Cast$Value", "spec": "name:int32"},
        {"type": APACHE + "RegexRouter", "regex": ".*", "replacement": "elsewhere"},
    )
    found = result(rows, config)
    assert found[0]["value"].asDict() == {"id": 1, "name": 10}
    assert found[0]["topic"] == "elsewhere"
    assert found[1]["topic"] == "payments"
    assert found[1]["_error"] == "Value (text) was out of range for requested data type"
    assert found[1]["_stage"] == "TRANSFORMATION"
    assert found[2]["_error"] is None


def test_a_field_that_only_some_records_have_is_null_in_the_others(rows: DataFrame) -> None:
    insert = {"type": APACHE + "InsertField$Value", "static.field": "s", "static.value": "v"}
    config = chain({**insert, "predicate": "p"}, p=ORDERS)
    found = result(rows, config)
    assert [plain(row["value"]) for row in found[:3]] == [
        {"id": 1, "name": "10", "s": "v"},
        {"id": 2, "name": "text", "s": None},
        None,
    ]


def test_a_predicate_that_would_give_a_field_two_types_is_refused(rows: DataFrame) -> None:
    cast = {"type": APACHE + "Cast$Value", "spec": "id:string", "predicate": "p"}
    with pytest.raises(PermanentError, match=r"transforms\.t0: the value of records that match"):
        apply(rows, chain(cast, p=ORDERS))


def test_filter_drops_what_the_predicate_chooses(rows: DataFrame) -> None:
    drop = {"type": APACHE + "Filter", "predicate": "p"}
    assert [row["offset"] for row in result(rows, chain(drop, p=ORDERS))] == [1, 3, 4]
    negated = chain({**drop, "negate": "true"}, p=ORDERS)
    assert [row["offset"] for row in result(rows, negated)] == [0, 2, 3, 4]
    tombstones = chain(drop, p={"type": PREDICATES + "RecordIsTombstone"})
    assert [row["offset"] for row in result(rows, tombstones)] == [0, 1, 3, 4]
    header = chain(drop, p={"type": PREDICATES + "HasHeaderKey", "name": "h"})
    assert [row["offset"] for row in result(rows, header)] == [1, 2, 3, 4]


@pytest.mark.java
def test_predicates_are_those_of_kafka_connect(
    rows: DataFrame, kafka_connect: KafkaConnect
) -> None:
    for pattern in ("order.", "order", ".*"):
        config = {"pattern": pattern}
        name = PREDICATES + "TopicNameMatches"
        theirs = kafka_connect.predicate(name, config, Record(topic="orders"))
        drop = {"type": APACHE + "Filter", "predicate": "p"}
        found = result(rows, chain(drop, p={"type": name, **config}))
        assert (0 not in [row["offset"] for row in found]) == theirs


def test_sql_changes_and_filters_records(rows: DataFrame) -> None:
    text = "select upper(key) as key, value.id * 2 as twice, name from record where value.id > 1"
    with pytest.raises(OptionError, match="name"):
        apply(rows, chain({"type": "headrace.Sql", "sql": text}))
    found = result(
        rows, chain({"type": "headrace.Sql", "sql": text.replace(" name", " value.name")})
    )
    assert [row["offset"] for row in found] == [1, 3, 4]
    assert found[0]["key"] == "B"
    assert found[0]["value"].asDict() == {"twice": 4, "name": "text"}
    assert found[1]["_error"] == "value: not JSON"
    assert found[2]["_offset"] == "source offset"


def test_sql_keeps_the_columns_that_it_does_not_name(rows: DataFrame) -> None:
    found = result(
        rows,
        chain({"type": "headrace.Sql", "sql": "SELECT concat('x-', topic) AS topic FROM record"}),
    )
    assert [row["topic"] for row in found] == ["x-orders", "x-payments", "x-orders"] + [
        "orders"
    ] * 2
    assert found[0]["value"].asDict() == {"id": 1, "name": "10"}


@pytest.mark.parametrize(
    "text", ["select 1", "delete from record", "select value, 1 as more from record"]
)
def test_sql_of_another_form_is_an_error_of_its_option(rows: DataFrame, text: str) -> None:
    with pytest.raises(OptionError) as caught:
        apply(rows, chain({"type": "headrace.Sql", "sql": text}))
    assert caught.value.option == "transforms.t0.sql"


def test_a_number_that_is_no_timestamp_is_an_error_of_its_record(spark: SparkSession) -> None:
    rows = spark.sql(
        "select 't' as topic, id as offset, 'k' as key, named_struct('at', case id when 0 then "
        "5000 else 9223372036854775807 end) as value from range(2)"
    )
    convert = {"type": APACHE + "TimestampConverter$Value", "field": "at"}
    found = result(rows, chain({**convert, "target.type": "Timestamp"}))
    assert found[0]["value"]["at"] == datetime.datetime(1970, 1, 1, 0, 0, 5)
    assert found[1]["_error"] == "the number is too large for a timestamp"


def test_no_transforms_change_nothing(rows: DataFrame) -> None:
    assert apply(rows, {}) is rows


def test_sql_fails_only_for_the_records_that_it_cannot_compute(rows: DataFrame) -> None:
    text = "select cast(value.name as int) as n, cast(value.name as int) + 1 as m from record"
    good, bad, tombstone, *_ = result(rows, chain({"type": "headrace.Sql", "sql": text}))
    assert plain(good["value"]) == {"n": 10, "m": 11}
    assert (bad["_error"], bad["_stage"]) == (
        "transforms.t0.sql: n cannot be computed for this record",
        "TRANSFORMATION",
    )
    assert plain(tombstone["value"]) == {"n": None, "m": None}


def test_sql_fails_only_for_the_records_whose_condition_it_cannot_compute(rows: DataFrame) -> None:
    text = "select value.id as id from record where value.name is null or int(value.name) > 10"
    bad, tombstone, *others = result(rows, chain({"type": "headrace.Sql", "sql": text}))
    assert bad["key"] == "b"
    assert bad["_error"] == "transforms.t0.sql: where cannot be computed for this record"
    assert (tombstone["key"], tombstone["_error"]) == ("c", None)
    assert len(others) == 2


def test_sql_without_a_condition_that_is_true_or_false_is_refused(rows: DataFrame) -> None:
    text = "select value.id as id from record where value.id"
    with pytest.raises(OptionError, match="the condition is int, not boolean"):
        apply(rows, chain({"type": "headrace.Sql", "sql": text}))
