"""The delivery guarantees under `examples/guarantees`, each with its crash, on the real broker."""

import subprocess
import sys
from pathlib import Path

import pytest

from headrace.testing.running import RunningBroker

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "guarantees"
PRODUCED = 20


@pytest.fixture
def counted(request: pytest.FixtureRequest, headrace: RunningBroker) -> dict[str, int]:
    """Runs the example that the test names; what it counted."""
    output = _run(str(request.param), headrace)
    names, numbers = output.splitlines()[-2:]
    return dict(zip(names.split(), map(int, numbers.split()), strict=True))


def _run(name: str, broker: RunningBroker) -> str:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / f"{name}.py"), "--bootstrap", broker.bootstrap_servers],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{done.stdout}```" in (EXAMPLES / "README.md").read_text(), "the README shows another"
    return done.stdout


@pytest.mark.parametrize("counted", ["at_most_once"], indirect=True)
def test_at_most_once_loses_and_never_doubles(counted: dict[str, int]) -> None:
    assert counted["doubled"] == 0
    assert counted["lost"] > 0
    assert counted["processed"] == PRODUCED - counted["lost"]


@pytest.mark.parametrize("counted", ["at_least_once"], indirect=True)
def test_at_least_once_doubles_and_never_loses(counted: dict[str, int]) -> None:
    assert counted["lost"] == 0
    assert counted["doubled"] > 0
    assert counted["processed"] == PRODUCED + counted["doubled"]


@pytest.mark.parametrize("counted", ["effectively_once"], indirect=True)
def test_effectively_once_ignores_what_was_delivered_again(counted: dict[str, int]) -> None:
    assert counted["delivered"] > PRODUCED
    assert (counted["processed"], counted["lost"], counted["doubled"]) == (PRODUCED, 0, 0)


@pytest.mark.parametrize("counted", ["exactly_once"], indirect=True)
def test_exactly_once_has_every_record_once_though_nothing_filters_them(
    counted: dict[str, int],
) -> None:
    assert counted["delivered"] > PRODUCED
    assert (counted["processed"], counted["lost"], counted["doubled"]) == (PRODUCED, 0, 0)
