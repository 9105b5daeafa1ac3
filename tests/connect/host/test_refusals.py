"""The failed records of a task: tolerated, counted, and chosen for the log. Without Spark."""

import logging
import pickle

import pyarrow as pa
import pytest

from headrace.connect.host.dead_letters import RefusedRecord, context
from headrace.connect.host.outcomes import EpochOutcome
from headrace.connect.host.refusals import EXAMPLES, Refusals
from headrace.connect.host.work import ConnectorWork
from headrace.connect.plugin import PermanentError

TOLERANT = {"errors.tolerance": "all", "errors.log.enable": "true"}


def batch(*errors: str | None) -> pa.RecordBatch:
    rows = [
        {
            "topic": "t",
            "partition": 1,
            "offset": offset,
            "_error": error,
            "_stage": None if error is None else "VALUE_CONVERTER",
        }
        for offset, error in enumerate(errors)
    ]
    return pa.RecordBatch.from_pylist(rows)


def refusals(config: dict[str, str]) -> Refusals:
    return Refusals(ConnectorWork("c", "", config), 0, {})


def test_failed_records_are_taken_out_and_counted() -> None:
    task = refusals(TOLERANT)
    assert task.take_out(batch(None, "bad", None)).column("offset").to_pylist() == [0, 2]
    (result,) = task.stored(2).to_pylist()
    assert (result["written"], result["failed"]) == (2, 1)
    assert result["examples"] == ["VALUE_CONVERTER: bad"]
    assert pickle.loads(result["done"]) == (None, None)


def test_without_tolerance_the_first_failed_record_is_named() -> None:
    with pytest.raises(PermanentError, match=r"offset 1 of t-1 failed \(VALUE_CONVERTER\): bad"):
        refusals({"errors.deadletterqueue.topic.name": "dead"}).take_out(batch(None, "bad"))


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"errors.log.enable": "false"}, []),
        ({}, ["VALUE_CONVERTER: bad"] * EXAMPLES),
        (
            {"errors.log.include.messages": "true"},
            [f"t-1, offset {n}, VALUE_CONVERTER: bad" for n in range(EXAMPLES)],
        ),
    ],
)
def test_the_log_has_some_failed_records_if_it_is_enabled(
    more: dict[str, str], expected: list[str]
) -> None:
    task = refusals({**TOLERANT, **more})
    task.take_out(batch(*["bad"] * (EXAMPLES + 5)))
    (result,) = task.stored(0).to_pylist()
    assert result["examples"] == expected
    assert result["failed"] == EXAMPLES + 5


def test_the_driver_logs_the_records_and_their_number(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        EpochOutcome(failed=7, examples=["TASK_PUT: refused"]).log("orders")
    assert [each.getMessage() for each in caplog.records] == [
        "connector orders: a record failed: TASK_PUT: refused",
        "connector orders: 7 records of the epoch failed",
    ]


def test_a_letter_that_fails_again_keeps_its_id_and_counts_its_attempts() -> None:
    work = ConnectorWork("c", "", {"connector.class": "FilesSink", "value.converter": "V"})
    record = RefusedRecord("t", 1, 5, None, b"v", (), "VALUE_CONVERTER", "bad", 2, "t-1-4")
    about = context(record, work, 3)
    assert (about["id"], about["attempt"], about["task.id"]) == ("t-1-4", "3", "3")
    assert (about["class.name"], about["offset"]) == ("V", "5")
    assert about["exception.class.name"] == "org.apache.kafka.connect.errors.DataException"
