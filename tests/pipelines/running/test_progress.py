"""A query's state, as Spark's events advance it."""

import json
from typing import Any

import pytest

from headrace.pipelines.running import progress
from headrace.pipelines.running.gauges import values
from headrace.pipelines.running.progress import Query, QueryState

NEW = Query("id", "run", "orders", "shop", "local-1", 1000, 1000)
# As Spark 4.3 writes it for two sources; offsets of a Python source are JSON in JSON.
REPORT: dict[str, Any] = {
    "id": "id",
    "runId": "run",
    "name": "orders",
    "timestamp": "2026-01-31T12:00:00.500Z",
    "batchId": 4,
    "batchDuration": 250,
    "numInputRows": 30,
    "inputRowsPerSecond": 60.04,
    "processedRowsPerSecond": 120.0,
    "durationMs": {"addBatch": 200, "triggerExecution": 250},
    "eventTime": {"watermark": "2026-01-31T11:59:00.000Z"},
    "stateOperators": [
        {"numRowsTotal": 5, "memoryUsedBytes": 100, "numRowsDroppedByWatermark": 2},
        {"numRowsTotal": 7, "memoryUsedBytes": 50, "numRowsDroppedByWatermark": 0},
    ],
    "sources": [
        {
            "description": "headrace",
            "endOffset": '{"orders": {"0": 10, "1": 20, "id": "x", "initial": {"0": 1}}}',
            "latestOffset": '{"orders": {"0": 15, "1": 22, "2": 9}}',
            "numInputRows": 30,
            "processedRowsPerSecond": 120.0,
        },
        {
            "description": "KafkaV2",
            "endOffset": {"prices": {"0": 3}},
            "latestOffset": {"prices": {"0": 3}},
        },
        {"description": "RateStreamV2", "endOffset": 12, "latestOffset": 12},
    ],
    "sink": {"description": "NoopTable", "numOutputRows": 3},
}


def test_a_report_becomes_rates_lag_times_and_state() -> None:
    query = progress.advanced(NEW, REPORT)
    assert query.state is QueryState.RUNNING
    assert (query.batch, query.batch_ms, query.rows) == (4, 250, 30)
    assert (query.input_rows_per_s, query.processed_rows_per_s) == (60.0, 120.0)
    assert (query.state_rows, query.state_bytes, query.late_rows) == (12, 150, 2)
    assert query.time_ms == 1769860800500
    assert query.watermark == "2026-01-31T11:59:00.000Z"
    assert [each.lag_records for each in query.sources] == [7, 0, None]
    assert query.sources[0].topics == {"orders": 7}
    assert query.sources[0].positions == {"orders": 30}
    assert query.sources[2].positions == {}
    assert query.lag_records == 7


def test_rows_add_up_over_batches() -> None:
    query = progress.advanced(progress.advanced(NEW, REPORT), REPORT)
    assert (query.rows, query.rows_total, query.late_rows) == (30, 60, 4)


@pytest.mark.parametrize("rate", [float("nan"), float("inf"), None, "NaN"])
def test_a_rate_that_spark_cannot_tell_is_unknown(rate: object) -> None:
    assert progress.advanced(NEW, {**REPORT, "inputRowsPerSecond": rate}).input_rows_per_s is None


@pytest.mark.parametrize(
    "offset", [None, 12, "", "x", "12", {}, {"seconds": 4}, {"orders": {"0": "a"}}, "[1]"]
)
def test_offsets_that_are_no_logs_have_no_lag(offset: object) -> None:
    assert progress.topic_lags(offset, offset) is None


def test_a_query_comes_back_from_json_as_it_was() -> None:
    query = progress.advanced(NEW, REPORT)
    document = json.loads(json.dumps(query.as_json()))
    assert progress.from_json(document) == query
    assert document["lag_records"] == 7


def test_fields_of_a_later_version_are_passed_over() -> None:
    document = {**NEW.as_json(), "colour": "red"}
    assert progress.from_json(document) == NEW


def test_an_end_with_an_error_is_a_failure_that_keeps_its_first_line() -> None:
    failed = progress.ended(NEW, 2000, "\nboom: no such topic\n\tat org.apache.spark...\n")
    assert (failed.state, failed.error, failed.time_ms) == (
        QueryState.FAILED,
        "boom: no such topic",
        2000,
    )
    stopped = progress.ended(NEW, 2000, None)
    assert (stopped.state, stopped.error) == (QueryState.STOPPED, None)
    assert not failed.state.alive
    assert not stopped.state.alive


def test_an_idle_query_runs_but_reads_nothing() -> None:
    query = progress.idle(progress.advanced(NEW, REPORT), 3000)
    assert (query.state, query.state.alive, query.rows) == (QueryState.IDLE, True, 0)
    assert (query.input_rows_per_s, query.rows_total) == (0.0, 30)


def test_prometheus_gets_the_lag_of_the_query_and_of_each_topic() -> None:
    found = values(progress.advanced(NEW, REPORT))
    assert found["headrace.orders.lag_records"] == 7
    assert found["headrace.orders.orders.lag_records"] == 7
    assert found["headrace.orders.prices.lag_records"] == 0
    assert found["headrace.orders.batch_ms"] == 250
    assert found["headrace.orders.running"] == 1
    assert values(progress.ended(NEW, 1, None))["headrace.orders.running"] == 0
    # What is not known is not shown as nothing.
    assert "headrace.orders.lag_records" not in values(NEW)
