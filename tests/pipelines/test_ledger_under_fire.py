"""The ledger while its driver and the broker are killed at random moments, many times.

Without Spark, so that a hundred runs take minutes. Every run of the driver computes other rows, so
that an epoch with rows of two runs is detected.
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from headrace.testing.plugin import BrokerFactory
from headrace.testing.running import RunningBroker
from tests.pipelines.small_driver import EPOCHS, ROWS, TASKS
from tests.support.committed import committed_values
from tests.support.topics import create_topic

KILLS = 4
MANY_RUNS = int(os.environ.get("HEADRACE_FIRE_RUNS", "100"))


def drive(broker: RunningBroker, folder: Path, run: int, chosen: random.Random) -> bool:
    """One life of the driver; True if it came to the end of its work."""
    killed = run < KILLS
    process = subprocess.Popen(
        [
            sys.executable, "-m", "tests.pipelines.small_driver", str(folder),
            broker.bootstrap_servers, "out", str(run),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "begins\n"
        if killed:
            time.sleep(chosen.uniform(0, 0.4))
            if chosen.random() < 0.5:
                broker.kill()
                broker.start()
                time.sleep(chosen.uniform(0, 0.4))
            process.send_signal(signal.SIGKILL)
        said = process.stdout.read()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    assert killed or said == "end\n", "the driver failed by itself"
    return said == "end\n"


def check(values: list[bytes]) -> None:
    """Every row of every epoch once, and all rows of an epoch by the same run."""
    parts = [value.decode().split("/") for value in values]
    seen = Counter((int(epoch), int(task), int(row)) for epoch, task, row, _ in parts)
    assert [row for row, count in seen.items() if count > 1] == []
    assert len(seen) == EPOCHS * TASKS * ROWS
    writers = {(epoch, run) for epoch, _, _, run in parts}
    assert len(writers) == EPOCHS, f"epochs that two runs brought: {sorted(writers)}"


def survive(broker: RunningBroker, folder: Path, seed: int) -> None:
    create_topic(broker.bootstrap_servers, "out", 2)
    chosen = random.Random(seed)
    for run in range(KILLS + 1):
        if drive(broker, folder, run, chosen):
            break
    check(committed_values(broker.bootstrap_servers, "out", silence_s=60))


@pytest.mark.parametrize("seed", [1])
def test_epochs_stay_whole_when_driver_and_broker_are_killed(
    headrace_factory: BrokerFactory, tmp_path: Path, seed: int
) -> None:
    survive(headrace_factory(), tmp_path, seed)


@pytest.mark.endurance
@pytest.mark.parametrize("seed", range(100, 100 + MANY_RUNS))
def test_epochs_stay_whole_in_many_runs(
    headrace_factory: BrokerFactory, tmp_path: Path, seed: int
) -> None:
    survive(headrace_factory(), tmp_path, seed)
