"""Restarts of a program after environmental failures.

The program holds its queries and waits for them, so a single query cannot be replaced: the whole
driver is started again, with the same process id, and the queries continue from their checkpoints.
The number of restarts and the reason are passed to the next driver in the environment.
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
# After this time without a failure, the count of restarts in a row begins again.
RECOVERED_S = 600.0
JAVA_ENDS_WITHIN_S = 30.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Restarts:
    """The restarts of this driver so far."""

    # All restarts since `headrace spark run` was called.
    count: int = 0
    # Restarts in a row, without a recovery; this number is bounded.
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
        """The wait before this restart, which doubles each time."""
        return float(min(FIRST_WAIT_S * 2 ** max(self.in_a_row - 1, 0), LONGEST_WAIT_S))


class RestartedProgram:
    """A program that may be restarted."""

    def __init__(self, starts: Starts, environment: Mapping[str, str]) -> None:
        self._starts = starts
        self._limit = int(environment.get(MAX_RESTARTS_VARIABLE, "0"))
        self._so_far = Restarts.from_environment(environment)
        # The values before the program could change them.
        self._environment = dict(environment)
        self._folder = os.getcwd()
        self._begun = time.monotonic()

    def next_life(self, error: BaseException) -> Restarts | None:
        """The state for a restart after `error`; None if the program is not restarted."""
        reason = environmental.reason(environmental.java_chain(error))
        if reason is None:
            return None
        why_not = self._why_not()
        following = self._so_far.after(reason, time.monotonic() - self._begun)
        if why_not is None and following.in_a_row > self._limit:
            why_not = f"it was restarted {self._so_far.in_a_row} times in a row (--restarts)"
        if why_not is not None:
            _log.warning("%s; not restarting the program: %s", reason, why_not)
            return None
        _log.warning(
            "%s; restarting the program from its checkpoints in %.0f s (restart %d of %d in a row)",
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
                "could lose or repeat rows; set a queryName or the option checkpointLocation"
            )
        return None

    def run_again(self, following: Restarts) -> NoReturn:
        """Replace this process by a new driver with a new Java; the process id stays."""
        _end_java()
        time.sleep(following.wait_s)
        sys.stdout.flush()
        sys.stderr.flush()
        os.chdir(self._folder)
        environment = {**self._environment, RESTARTED_VARIABLE: json.dumps(asdict(following))}
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environment)


def _end_java() -> None:
    """Wait until Spark's Java has ended, so that its ports and locks are free."""
    from pyspark import SparkContext

    java: Any = getattr(SparkContext._gateway, "proc", None)
    if java is None:
        return
    # It ends when its parent's end of the pipe is closed.
    java.stdin.close()
    try:
        java.wait(JAVA_ENDS_WITHIN_S)
    except subprocess.TimeoutExpired:
        java.kill()
        java.wait()
