"""When a query that has failed is tried again."""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

FIRST_WAIT_S = 1.0
LONGEST_WAIT_S = 60.0
PERMANENT_WAIT_S = 600.0
HEALTHY_S = 600.0
"""After this time without a failure the waits begin again at the first."""
UNKNOWN_TRIES = 10


class FailureKind(StrEnum):
    """What to do after an error."""

    PASSING = "passing"
    """Try again for as long as it takes."""
    PERMANENT = "permanent"
    UNKNOWN = "unknown"
    """Try again a few times."""


def back_off(failures: int) -> float:
    """The wait after this many failures in a row: doubling, with jitter."""
    wait = min(FIRST_WAIT_S * 2.0 ** min(failures - 1, 10), LONGEST_WAIT_S)
    return float(wait * random.uniform(0.8, 1.2))


@dataclass(slots=True)
class WantedQuery:
    """A query that should run, and its failures."""

    name: str
    start_message: Mapping[str, object]
    """What the driver is sent to start it."""
    failures: int = 0
    restarts: int = 0
    failed_at: float = 0.0
    next_try: float | None = None
    """If it waits: when it is started again, by the event loop's clock."""
    sentence: str | None = None
    trace: str | None = None
    permanent: bool = False
    ran: bool = False
    sent: bool = False

    def fail(self, sentence: str, trace: str | None, kind: FailureKind, now: float) -> None:
        """Note a failure, and when to try again."""
        if now - self.failed_at > HEALTHY_S:
            self.failures = 0
        self.failures += 1
        self.failed_at = now
        self.sentence, self.trace = sentence, trace
        self.permanent = kind is FailureKind.PERMANENT or (
            kind is FailureKind.UNKNOWN and self.failures > UNKNOWN_TRIES
        )
        wait = PERMANENT_WAIT_S if self.permanent else back_off(self.failures)
        self.next_try = now + wait
        self.sent = False

    @property
    def error(self) -> str | None:
        """The last failure with its traceback, until the query runs again."""
        if self.sentence is None:
            return None
        return self.sentence if not self.trace else f"{self.sentence}\n{self.trace}"
