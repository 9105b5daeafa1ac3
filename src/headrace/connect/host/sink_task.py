"""A task of a sink connector: writes its part of an epoch with the plug-in."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from headrace.connect.host.dead_letters import TASK_PUT, ReplayEpoch
from headrace.connect.host.refusals import Refusals
from headrace.connect.host.work import ConnectorWork
from headrace.connect.plugin import RecordError, Sink, SinkTask
from headrace.pipelines.sink.epoch import task_number

RECORD_COLUMNS = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")


@dataclass(frozen=True, slots=True)
class SinkWork:
    """What each task of an epoch does. Picklable; called by Spark with the task's batches."""

    work: ConnectorWork
    epoch: int
    generation: int
    kafka: Mapping[str, str] = field(repr=False)
    """The client's properties as options of our sink, for dead letters."""
    part: int = 0
    replay: ReplayEpoch | None = None
    """If the records are dead letters."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        number = task_number()
        sink = self.work.connector()
        assert isinstance(sink, Sink)
        sink.open(SinkTask(self.work.name, number, self.epoch, self.generation, self.part))
        writing = TaskWriting(sink, Refusals(self.work, number, self.kafka, self.replay))
        try:
            for batch in batches:
                writing.write(batch)
            result = writing.refusals.stored(writing.written)
            sink.close()
        except BaseException:
            sink.abandon()
            raise
        yield result


class TaskWriting:
    """The batches of one task, with the records that fail taken out."""

    def __init__(self, sink: Sink, refusals: Refusals) -> None:
        self._sink = sink
        self.refusals = refusals
        self.written = 0

    def write(self, batch: pa.RecordBatch) -> None:
        batch = self.refusals.take_out(batch)
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
            reasons = [error.rows[row] for row in rows]
            self.refusals.add(batch.take(pa.array(rows)), reasons, [TASK_PUT] * len(rows))
            keep = [row for row in range(batch.num_rows) if row not in error.rows]
            if keep:
                self._put(batch.take(pa.array(keep)))
        elif batch.num_rows == 1:
            self.refusals.add(batch, [str(error)], [TASK_PUT])
        else:
            half = batch.num_rows // 2
            self._put(batch.slice(0, half))
            self._put(batch.slice(half))
