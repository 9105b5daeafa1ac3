"""Tables while their driver is killed at random moments, many times.

Without Spark, so that a hundred runs take minutes; with it in test_sink_under_fire.
"""

import multiprocessing
import os
import random
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from headrace.pipelines.lake import verify as proof
from headrace.types import TopicPartition
from tests.pipelines.lake import driver
from tests.pipelines.lake.driver import EPOCHS, ROWS, TASKS
from tests.pipelines.lake.lakes import Lake

KILLS = 4
# Forked from a process that has imported everything and used nothing: a life takes milliseconds.
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload([driver.__name__])
MANY_RUNS = int(os.environ.get("HEADRACE_FIRE_RUNS", "100"))


class Filled:
    """The topic that the driver copies: every offset is a record."""

    def bounds(self, topic: str) -> Mapping[int, tuple[int, int]]:
        return dict.fromkeys(range(TASKS), (0, EPOCHS * ROWS))

    def offsets(self, place: TopicPartition, first: int, last: int) -> proof.Offsets:
        return np.arange(first, last + 1)


def live(kind: str, folder: Path, kill_after_s: float | None) -> None:
    """One life of the driver: so long after it begins, or to the end."""
    begins = PROCESSES.Event()
    process = PROCESSES.Process(target=driver.drive, args=(kind, folder, begins))
    process.start()
    try:
        assert begins.wait(60), "the driver does not begin"
        if kill_after_s is None:
            process.join(60)
            assert process.exitcode == 0, "the driver failed by itself"
        else:
            time.sleep(kill_after_s)
    finally:
        process.kill()
        process.join()


def survive(lake: Lake, seed: int) -> None:
    chosen = random.Random(seed)
    for _ in range(KILLS):
        # An epoch takes some tens of milliseconds.
        live(lake.kind, lake.home, chosen.uniform(0, 0.25))
    live(lake.kind, lake.home, None)
    view = lake.view()
    wanted = proof.Wanted("orders", complete=True)
    reports = proof.verify(view, wanted, Filled(), lambda *_: None)
    assert [(each.rows, each.findings) for each in reports] == [(EPOCHS * ROWS, [])] * TASKS
    assert [commit.epoch.number for commit in view.commits] == list(range(EPOCHS))
    named = {Path(file.path).name for file in view.files}
    assert {Path(path).name for path in lake.data_files()} == named, "files that no commit names"


def test_a_table_is_whole_and_without_orphans_when_its_driver_is_killed(lake: Lake) -> None:
    survive(lake, 1)


@pytest.mark.endurance
@pytest.mark.parametrize("seed", range(100, 100 + MANY_RUNS))
def test_a_table_is_whole_and_without_orphans_in_many_runs(lake: Lake, seed: int) -> None:
    survive(lake, seed)
