"""Whether a program is run again after a failure of the machine, and how.

The program holds its queries and waits for them, so a query alone cannot be replaced below it: the
whole driver is started again, in the same process id, and the queries go on from their checkpoints.
How often that was done, and why, passes from one life of the driver to the next in the environment.
"""

import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, NoReturn

from headrace.pipelines.running import environmental
from headrace.pipelines.running.session import MAX_RESTARTS_VARIABLE, RESTARTED_VARIABLE
from headrace.pipelines.running.starts import Starts

FIRST_WAIT_S = 1.0
LONGEST_WAIT_S = 60.0
# A driver that lived so long has recovered: its next failure is a first one.
RECOVERED_S = 600.0
JAVA_ENDS_WITHIN_S = 30.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Restarts:
    """What earlier lives of this driver have gone through."""

    # All since `headrace spark run` was called.
    count: int = 0
    # Without a recovery in between; this is what is bounded.
    in_a_row: int = 0
    reason: str | None = None

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> "Restarts":
        text = environment.get(RESTARTED_VARIABLE)
        return cls(**json.loads(text)) if text else cls()

    def after(self, reason: str, lived_s: float) -> "Restarts":
        """The state after one more failure."""
        in_a_row = 1 if lived_s >= RECOVERED_S else self.in_a_row + 1
        return Restarts(self.count + 1, in_a_row, reason)

    @property
    def wait_s(self) -> float:
        """How long to wait before this restart: twice as long as before the last."""
        return float(min(FIRST_WAIT_S * 2 ** max(self.in_a_row - 1, 0), LONGEST_WAIT_S))


class RestartedProgram:
    """A program in one of its lives."""

    def __init__(self, starts: Starts, environment: Mapping[str, str]) -> None:
        self._starts = starts
        self._limit = int(environment.get(MAX_RESTARTS_VARIABLE, "0"))
        self._so_far = Restarts.from_environment(environment)
        # As they were before the program could change them.
        self._environment = dict(environment)
        self._folder = os.getcwd()
        self._begun = time.monotonic()

    def next_life(self, error: BaseException) -> Restarts | None:
        """What to restart with if `error` ended the program; None if it is not to be restarted."""
        reason = environmental.reason(environmental.java_chain(error))
        if reason is None:
            return None
        why_not = self._why_not()
        following = self._so_far.after(reason, time.monotonic() - self._begun)
        if why_not is None and following.in_a_row > self._limit:
            why_not = f"it was restarted {self._so_far.in_a_row} times in a row (--restarts)"
        if why_not is not None:
            _log.warning("%s; the program is not restarted: %s", reason, why_not)
            return None
        _log.warning(
            "%s; the program is restarted from its checkpoints in %.0f s (restart %d of %d in a "
            "row)",
            reason,
            following.wait_s,
            following.in_a_row,
            self._limit,
        )
        return following

    def _why_not(self) -> str | None:
        if not self._starts.streaming:
            return "it has no streaming query, and a restart could repeat what it has written"
        if names := self._starts.without_checkpoint:
            return (
                f"the query {', '.join(names)} has no checkpoint that a restart would find, and "
                "could lose or repeat rows; give it a queryName or the option checkpointLocation"
            )
        return None

    def run_again(self, following: Restarts) -> NoReturn:
        """Become the driver again, with a new Java; the process keeps its id."""
        _end_java()
        time.sleep(following.wait_s)
        sys.stdout.flush()
        sys.stderr.flush()
        os.chdir(self._folder)
        environment = {**self._environment, RESTARTED_VARIABLE: json.dumps(asdict(following))}
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environment)


def _end_java() -> None:
    """Wait for Spark's Java to end, so that ports and locks are free for the next one."""
    from pyspark import SparkContext

    java: Any = getattr(SparkContext._gateway, "proc", None)
    if java is None:
        return
    # It ends by itself when its parent's end of the pipe is closed.
    java.stdin.close()
    try:
        java.wait(JAVA_ENDS_WITHIN_S)
    except subprocess.TimeoutExpired:
        java.kill()
        java.wait()
