"""The results of an epoch's tasks, as the driver gets them."""

import logging
import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from headrace.connect.host.refusals import RESULT
from headrace.pipelines.sink.sink import TaskDone

log = logging.getLogger("headrace.connect.errors")


@dataclass(slots=True)
class EpochOutcome:
    """How many records were written and how many failed, and what the driver has to commit."""

    written: int = 0
    failed: int = 0
    examples: list[str] = field(default_factory=list)
    messages: list[Any] = field(default_factory=list)
    letters: list[TaskDone] = field(default_factory=list)
    """Open transactions with dead letters; only in replays."""

    def log(self, connector: str) -> None:
        """Log the failed records that the tasks have chosen (`errors.log.enable`)."""
        for each in self.examples:
            log.error("connector %s: a record failed: %s", connector, each)
        if self.examples and self.failed > len(self.examples):
            log.error("connector %s: %d records of the epoch failed", connector, self.failed)


def run(
    records: Any, task: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
) -> EpochOutcome:
    """Run a task for each partition of the records; raises the error of a task that failed."""
    outcome = EpochOutcome()
    for row in records.mapInArrow(task, RESULT).collect():
        outcome.written += row["written"]
        outcome.failed += row["failed"]
        outcome.examples += row["examples"]
        message, letters = pickle.loads(row["done"])
        if message is not None:
            outcome.messages.append(message)
        if letters is not None:
            outcome.letters.append(letters)
    return outcome
