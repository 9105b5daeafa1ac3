"""A task of a sink connector: writes its part of an epoch with the plug-in."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.connect.host.dead_letters import DeadLetterTopic, RefusedRecord
from headrace.connect.host.work import ConnectorWork
from headrace.connect.plugin import DEAD_LETTERS, PermanentError, RecordError, Sink, SinkTask

RECORD_COLUMNS = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
RESULT = "written bigint, dead bigint"
TASK_PUT = "TASK_PUT"


@dataclass(frozen=True, slots=True)
class SinkWork:
    """What each task of an epoch does. Picklable; called by Spark with the task's batches."""

    work: ConnectorWork
    epoch: int
    generation: int
    kafka: Mapping[str, str] = field(repr=False)
    """The client's properties as options of our sink, for dead letters."""
    part: int = 0

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        number = 0 if context is None else int(context.partitionId())
        sink = self.work.connector()
        assert isinstance(sink, Sink)
        sink.open(SinkTask(self.work.name, number, self.epoch, self.generation, self.part))
        writing = _Writing(sink, self._dead_letters(number), self._tolerant)
        try:
            for batch in batches:
                writing.write(batch)
            writing.finish()
            sink.close()
        except BaseException:
            sink.abandon()
            raise
        counts = {"written": [writing.written], "dead": [writing.dead]}
        yield pa.RecordBatch.from_pydict(counts)

    @property
    def _tolerant(self) -> bool:
        return self.work.config.get("errors.tolerance", "none") == "all"

    def _dead_letters(self, task: int) -> Callable[[], DeadLetterTopic] | None:
        topic = self.work.config.get(DEAD_LETTERS)
        if not topic:
            return None
        return lambda: DeadLetterTopic(topic, self.work.name, task, self.kafka)


class _Writing:
    """The batches of one task, with the records that fail taken out."""

    def __init__(
        self, sink: Sink, topic: Callable[[], DeadLetterTopic] | None, tolerant: bool
    ) -> None:
        self._sink = sink
        self._topic = topic
        self._tolerant = tolerant
        self._letters: list[RefusedRecord] = []
        self.written = 0
        self.dead = 0

    def write(self, batch: pa.RecordBatch) -> None:
        if "_error" in batch.schema.names:
            failed = pc.is_valid(batch.column("_error"))
            if pc.any(failed).as_py():
                bad = batch.filter(failed)
                reasons = bad.column("_error").to_pylist()
                self._refuse(bad, dict(enumerate(reasons)), bad.column("_stage").to_pylist())
                batch = batch.filter(pc.invert(failed))
        if batch.num_rows:
            self._put(batch)

    def _put(self, batch: pa.RecordBatch) -> None:
        try:
            self._sink.write(batch.select([n for n in RECORD_COLUMNS if n in batch.schema.names]))
        except RecordError as error:
            self._take_out(batch, error)
        else:
            self.written += batch.num_rows

    def _take_out(self, batch: pa.RecordBatch, error: RecordError) -> None:
        """Write the other records; without row numbers the record is found by halves."""
        if error.rows:
            rows = sorted(error.rows)
            bad = batch.take(pa.array(rows))
            reasons = {index: error.rows[row] for index, row in enumerate(rows)}
            self._refuse(bad, reasons, [TASK_PUT] * len(rows))
            keep = [row for row in range(batch.num_rows) if row not in error.rows]
            if keep:
                self._put(batch.take(pa.array(keep)))
        elif batch.num_rows == 1:
            self._refuse(batch, {0: str(error)}, [TASK_PUT])
        else:
            half = batch.num_rows // 2
            self._put(batch.slice(0, half))
            self._put(batch.slice(half))

    def _refuse(
        self, batch: pa.RecordBatch, reasons: Mapping[int, str], stages: Sequence[str]
    ) -> None:
        letters = [
            _letter(row, reasons[index], stages[index])
            for index, row in enumerate(batch.to_pylist())
        ]
        if not self._tolerant:
            first = letters[0]
            raise PermanentError(
                f"the record at offset {first.offset} of {first.topic}-{first.partition} failed "
                f"({first.stage}): {first.error}. Set errors.tolerance=all to go on without such "
                "records, and errors.deadletterqueue.topic.name to keep them"
            )
        self.dead += len(letters)
        self._letters += letters

    def finish(self) -> None:
        """Store the dead letters; before the sink is closed, so that none is forgotten."""
        if self._letters and self._topic is not None:
            self._topic().write(self._letters)


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
    )
