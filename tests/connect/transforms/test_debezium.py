"""Debezium's transforms of change events."""

import datetime
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession

from headrace.connect.transforms.applying import apply

pytestmark = pytest.mark.spark

UNWRAP = "io.debezium.transforms.ExtractNewRecordState"
OUTBOX = "io.debezium.transforms.outbox.EventRouter"
TABLE = "struct<id: int, name: string>"
EVENT = (
    "struct<id: string, aggregatetype: string, aggregateid: string, type: string, payload: string>"
)


def envelope(row: str) -> str:
    return (
        "topic string, partition int, offset bigint, timestamp timestamp, key struct<id: int>, "
        f"value struct<before: {row}, after: {row}, source: struct<table: string, ts_ms: bigint>, "
        "op: string, ts_ms: bigint>, headers array<struct<key: string, value: binary>>"
    )


NOW = datetime.datetime(2026, 1, 2, 3, 4, 5)


def record(offset: int, value: Any) -> tuple[Any, ...]:
    return ("db.public.orders", 0, offset, NOW, (1,), value, [])


SOURCE = ("orders", 5)
CHANGES = [
    record(0, (None, (1, "new"), SOURCE, "c", 10)),
    record(1, ((1, "new"), (1, "changed"), SOURCE, "u", 11)),
    record(2, ((1, "changed"), None, SOURCE, "d", 12)),
    record(3, None),
]
EVENTS = [
    record(0, (None, ("e1", "Order", "7", "Created", '{"a":1}'), SOURCE, "c", 10)),
    record(1, (("e1", "", "", "", ""), ("e1", "Order", "7", "x", ""), SOURCE, "u", 11)),
    record(2, (("e1", "Order", "7", "x", ""), None, SOURCE, "d", 12)),
    record(3, None),
    record(4, (None, ("e2", "Order", "8", "Removed", " "), SOURCE, "r", 13)),
]


@pytest.fixture(scope="module")
def changes(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(CHANGES, envelope(TABLE))


@pytest.fixture(scope="module")
def events(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(EVENTS, envelope(EVENT))


def transformed(rows: DataFrame, class_name: str, **options: str) -> dict[int, Row]:
    config = {"transforms": "x", "transforms.x.type": class_name}
    config |= {f"transforms.x.{name.replace('_', '.')}": value for name, value in options.items()}
    return {row["offset"]: row for row in apply(rows, config).collect()}


def plain(row: Row) -> Any:
    return None if row["value"] is None else row["value"].asDict()


ADDED = {"__op": "c", "__table": "orders", "__source_ts_ms": 5, "__when": 10}


@pytest.mark.parametrize(
    ("options", "delete", "tombstone"),
    [
        ({}, None, "dropped"),
        ({"delete_tombstone_handling_mode": "tombstone"}, None, "dropped"),
        ({"delete_tombstone_handling_mode": "drop"}, "dropped", "dropped"),
        ({"delete_tombstone_handling_mode": "rewrite"}, "rewritten", "dropped"),
        ({"delete_tombstone_handling_mode": "rewrite-with-tombstone"}, "rewritten", None),
        ({"drop_tombstones": "false"}, "dropped", None),
        ({"drop_tombstones": "true", "delete_handling_mode": "none"}, None, "dropped"),
        ({"drop_tombstones": "false", "delete_handling_mode": "rewrite"}, "rewritten", None),
    ],
)
def test_deletes_and_tombstones_follow_the_mode(
    changes: DataFrame, options: dict[str, str], delete: str | None, tombstone: str | None
) -> None:
    found = transformed(changes, UNWRAP, **options)
    rewrites = delete == "rewritten"
    deleted = {"__deleted": "false"} if rewrites else {}
    assert plain(found[0]) == {"id": 1, "name": "new", **deleted}
    assert plain(found[1]) == {"id": 1, "name": "changed", **deleted}
    assert (2 in found) == (delete != "dropped")
    if rewrites:
        assert plain(found[2]) == {"id": 1, "name": "changed", "__deleted": "true"}
    elif 2 in found:
        assert plain(found[2]) is None
    assert (3 in found) == (tombstone != "dropped")


def test_fields_and_headers_of_the_envelope_are_added(changes: DataFrame) -> None:
    found = transformed(
        changes,
        UNWRAP,
        add_fields="op,table,source.ts_ms,ts_ms:when,missing",
        add_headers="op",
        delete_tombstone_handling_mode="rewrite-with-tombstone",
    )
    assert plain(found[0]) == {"id": 1, "name": "new", **ADDED, "__deleted": "false"}
    assert plain(found[2])["__op"] == "d"
    headers = {offset: [tuple(one) for one in row["headers"]] for offset, row in found.items()}
    assert headers[0] == [("__op", b"c")]
    assert headers[3] == [("__op", b"d")]


def test_a_value_that_is_no_change_event_passes(spark: SparkSession) -> None:
    rows = spark.sql("select 't' as topic, 0L as offset, 'k' as key, struct(1 as id) as value")
    found = transformed(rows, UNWRAP)
    assert plain(found[0]) == {"id": 1}


def test_events_of_an_outbox_are_routed(events: DataFrame) -> None:
    found = transformed(
        events,
        OUTBOX,
        table_fields_additional_placement="type:header:eventType",
        route_tombstone_on_empty_payload="true",
    )
    assert sorted(found) == [0, 4]
    row = found[0]
    assert (row["topic"], row["key"], row["value"]) == ("outbox.event.Order", "7", '{"a":1}')
    assert [tuple(one) for one in row["headers"]] == [("id", b"e1"), ("eventType", b"Created")]
    assert row["timestamp"] == datetime.datetime(1970, 1, 1, 0, 0, 0, 10_000)
    assert found[4]["value"] is None


def test_an_update_in_an_outbox_is_an_error_if_asked_for(events: DataFrame) -> None:
    found = transformed(
        events,
        OUTBOX,
        table_op_invalid_behavior="fatal",
        table_fields_additional_placement="type:envelope:kind",
        route_by_field="type",
        route_topic_replacement="t.${routedByValue}",
    )
    assert sorted(found) == [0, 1, 4]
    assert found[1]["_error"] == "Unexpected update message received"
    assert found[0]["topic"] == "t.Created"
    assert plain(found[0]) == {"payload": '{"a":1}', "kind": "Created"}
