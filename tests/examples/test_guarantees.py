"""The delivery guarantees under `examples/guarantees`, each with its crash, on the real broker."""

import subprocess
import sys
from pathlib import Path

from headrace.testing.running import RunningBroker

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "guarantees"
PRODUCED = 20


def count(name: str, broker: RunningBroker) -> dict[str, int]:
    """Runs an example; what it counted in the end."""
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / f"{name}.py"), "--bootstrap", broker.bootstrap_servers],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    shown = (EXAMPLES / "README.md").read_text()
    assert f"```\n{done.stdout}```\n" in shown, "the README shows something else"
    names, numbers = done.stdout.splitlines()[-2:]
    return dict(zip(names.split(), map(int, numbers.split()), strict=True))


def test_at_most_once_loses_and_never_doubles(headrace: RunningBroker) -> None:
    found = count("at_most_once", headrace)
    assert found["doubled"] == 0
    assert found["lost"] > 0
    assert found["processed"] == PRODUCED - found["lost"]


def test_at_least_once_doubles_and_never_loses(headrace: RunningBroker) -> None:
    found = count("at_least_once", headrace)
    assert found["lost"] == 0
    assert found["doubled"] > 0
    assert found["processed"] == PRODUCED + found["doubled"]


def test_effectively_once_ignores_what_was_delivered_again(headrace: RunningBroker) -> None:
    found = count("effectively_once", headrace)
    assert found["delivered"] > PRODUCED
    assert (found["processed"], found["lost"], found["doubled"]) == (PRODUCED, 0, 0)


def test_exactly_once_has_every_record_once_with_nothing_to_filter_them(
    headrace: RunningBroker,
) -> None:
    found = count("exactly_once", headrace)
    assert found["delivered"] > PRODUCED
    assert (found["processed"], found["lost"], found["doubled"]) == (PRODUCED, 0, 0)
