"""When a program is run again, how often and after how long."""

import json
from collections.abc import Mapping

import pytest

from headrace.pipelines.running import restarts
from headrace.pipelines.running.environmental import NOT_STARTED, SPARK
from headrace.pipelines.running.restarts import RestartedProgram, Restarts
from headrace.pipelines.running.session import MAX_RESTARTS_VARIABLE, RESTARTED_VARIABLE
from headrace.pipelines.running.starts import Starts


class Thrown:
    """An exception of Java, as far as it is looked at."""

    def __init__(self, name: str, message: str) -> None:
        self._name, self._message = name, message

    def getClass(self) -> "Thrown":
        return self

    def getName(self) -> str:
        return self._name

    def getMessage(self) -> str:
        return self._message

    def getCause(self) -> None:
        return None


class Captured(Exception):
    """An exception as PySpark raises it."""

    def __init__(self, name: str = SPARK, message: str = f"{NOT_STARTED}.") -> None:
        super().__init__(message)
        self._origin = Thrown(name, message)


def program(starts: Starts, limit: int = 3, so_far: Restarts | None = None) -> RestartedProgram:
    environment: dict[str, str] = {MAX_RESTARTS_VARIABLE: str(limit)}
    if so_far is not None:
        told = {"count": so_far.count, "in_a_row": so_far.in_a_row, "reason": so_far.reason}
        environment[RESTARTED_VARIABLE] = json.dumps(told)
    return RestartedProgram(starts, environment)


@pytest.fixture
def streaming() -> Starts:
    starts = Starts()
    starts.streaming = True
    return starts


def test_a_failure_of_the_machine_is_answered_by_a_restart(
    streaming: Starts, caplog: pytest.LogCaptureFixture
) -> None:
    assert program(streaming).next_life(Captured()) == Restarts(1, 1, NOT_STARTED)
    assert (
        "restarting the program from its checkpoints in 1 s (restart 1 of 3 in a row)"
        in caplog.text
    )


def test_restarts_in_a_row_are_bounded_and_wait_longer_each_time(
    streaming: Starts, caplog: pytest.LogCaptureFixture
) -> None:
    state: Restarts | None = Restarts()
    waits = []
    while state is not None:
        state = program(streaming, limit=8, so_far=state).next_life(Captured())
        waits += [state.wait_s] if state else []
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60]
    assert "restarted 8 times in a row" in caplog.text


def test_a_program_that_has_recovered_begins_to_count_again(
    streaming: Starts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restarts, "RECOVERED_S", 0.0)
    found = program(streaming, so_far=Restarts(7, 3, NOT_STARTED)).next_life(Captured())
    assert found == Restarts(8, 1, NOT_STARTED)


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError(f"{NOT_STARTED}."),
        ValueError("wrong"),
        Captured("org.apache.spark.api.python.PythonException", f"{NOT_STARTED}."),
    ],
)
def test_an_exception_of_the_program_is_never_answered_by_a_restart(
    streaming: Starts, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    assert program(streaming).next_life(error) is None
    assert caplog.text == ""


def test_a_query_without_a_checkpoint_prevents_restarts_with_a_log_line(
    streaming: Starts, caplog: pytest.LogCaptureFixture
) -> None:
    streaming.without_checkpoint.append("totals")
    assert program(streaming).next_life(Captured()) is None
    assert "the query totals has no checkpoint that a restart would find" in caplog.text


def test_a_program_without_streams_is_not_restarted(caplog: pytest.LogCaptureFixture) -> None:
    assert program(Starts()).next_life(Captured()) is None
    assert "has no streaming query" in caplog.text


@pytest.mark.parametrize("environment", [{}, {MAX_RESTARTS_VARIABLE: "0"}])
def test_restarts_can_be_turned_off(streaming: Starts, environment: Mapping[str, str]) -> None:
    assert RestartedProgram(streaming, environment).next_life(Captured()) is None
