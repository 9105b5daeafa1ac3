"""The records of a task that fail: counted, and stored as dead letters before the task ends."""

import pickle
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.connect.error_handling import ErrorHandling
from headrace.connect.host.dead_letters import DeadLetterTopic, RefusedRecord, ReplayEpoch
from headrace.connect.host.work import ConnectorWork
from headrace.connect.plugin import PermanentError

EXAMPLES = 10
"""How many failed records of a task are logged."""
RESULT = "written bigint, failed bigint, examples array<string>, done binary"
"""What a task reports to the driver."""
_RESULT = pa.schema(
    [
        ("written", pa.int64()),
        ("failed", pa.int64()),
        ("examples", pa.list_(pa.string())),
        ("done", pa.binary()),
    ]
)
ATTEMPT, LETTER_ID = "_attempt", "_letter_id"
"""Columns of records that are replayed: how often they have failed, and the id of the letter."""


class Refusals:
    """The failed records of one task."""

    def __init__(
        self,
        work: ConnectorWork,
        task: int,
        kafka: Mapping[str, str],
        epoch: ReplayEpoch | None = None,
    ) -> None:
        self._work = work
        self._task = task
        self._kafka = kafka
        self._epoch = epoch
        self._handling = ErrorHandling.of(work.config)
        self._letters: list[RefusedRecord] = []
        self.count = 0
        self._examples: list[str] = []

    def take_out(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The records of a batch without an `_error`; the others are added."""
        if "_error" not in batch.schema.names:
            return batch
        failed = pc.is_valid(batch.column("_error"))
        if not pc.any(failed).as_py():
            return batch
        bad = batch.filter(failed)
        self.add(bad, bad.column("_error").to_pylist(), bad.column("_stage").to_pylist())
        return batch.filter(pc.invert(failed))

    def add(self, batch: pa.RecordBatch, reasons: Sequence[str], stages: Sequence[str]) -> None:
        """Add records; PermanentError if the connector does not tolerate any."""
        letters = [
            _letter(row, reason, stage)
            for row, reason, stage in zip(batch.to_pylist(), reasons, stages, strict=True)
        ]
        if not self._handling.tolerant:
            first = letters[0]
            raise PermanentError(
                f"the record at offset {first.offset} of {first.topic}-{first.partition} failed "
                f"({first.stage}): {first.error}. Set errors.tolerance=all to go on without such "
                "records, and errors.deadletterqueue.topic.name to keep them"
            )
        self.count += len(letters)
        if self._handling.topic is not None:
            self._letters += letters
        if self._handling.logs:
            room = EXAMPLES - len(self._examples)
            self._examples += [self._example(each) for each in letters[:room]]

    def _example(self, letter: RefusedRecord) -> str:
        if not self._handling.logs_positions:
            return f"{letter.stage}: {letter.error}"
        where = f"{letter.topic}-{letter.partition}, offset {letter.offset}"
        return f"{where}, {letter.stage}: {letter.error}"

    def stored(self, written: int, message: object = None) -> pa.RecordBatch:
        """Store the dead letters; returns the result of the task.

        Called before the records of the task are committed, so that no letter is forgotten.
        `message` is for the driver, if it commits them.
        """
        letters = None
        if self._handling.topic is not None and (self._letters or self._epoch is not None):
            topic = DeadLetterTopic(self._work, self._task, self._kafka, self._epoch)
            letters = topic.write(self._letters)
        return result_of(written, self.count, self._examples, message, letters)


def result_of(
    written: int,
    failed: int,
    examples: Sequence[str] = (),
    message: object = None,
    letters: object = None,
) -> pa.RecordBatch:
    """The result of a task."""
    done = pickle.dumps((message, letters))
    row = {"written": written, "failed": failed, "examples": list(examples), "done": done}
    return pa.RecordBatch.from_pylist([row], schema=_RESULT)


def _letter(row: Mapping[str, Any], reason: str, stage: str) -> RefusedRecord:
    raw = row.get("_raw") or {}
    return RefusedRecord(
        row["topic"],
        row["partition"],
        row["offset"],
        raw.get("key"),
        raw.get("value"),
        row.get("headers") or (),
        stage,
        reason,
        row.get(ATTEMPT) or 0,
        row.get(LETTER_ID),
    )
