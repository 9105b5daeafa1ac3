"""Writes a chunk of dead letters: through their connector, and those that are kept to the end.

Everything is written under the number of the chunk in its run, so that a chunk that is written
again after a crash changes nothing: a sink gets the same generation, epoch and tasks, a table the
same query and epoch, and topics are written in transactions with a ledger.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headrace.client.cluster import Cluster
from headrace.client.config import client_config
from headrace.client.groups import delete_groups, list_groups
from headrace.connect.converters.reading import source_options
from headrace.connect.host.dead_letters import PREFIX, VALUE_CONVERTER, WRITERS, letter_sink
from headrace.connect.host.letters.queue import AT, PLACE, LetterQueue, header
from headrace.connect.host.letters.run_state import LetterRunState, Offsets, Ranges, within
from headrace.connect.host.outcomes import EpochOutcome, run
from headrace.connect.host.refusals import ATTEMPT, LETTER_ID, result_of
from headrace.connect.host.sink_query import epoch_writer
from headrace.connect.host.source_letters import JSON_OPTIONS, LETTER_VALUE, with_letters
from headrace.connect.host.source_query import stream_records
from headrace.connect.host.table_query import table_writer
from headrace.connect.plugin import Source, TableSink
from headrace.pipelines.sink.epoch import EPOCH_ID, QUERY_ID, Epoch, task_number
from headrace.pipelines.sink.options import parse_options
from headrace.pipelines.sink.sink import TopicSink


@dataclass(slots=True)
class Chunks:
    """The chunks of one run."""

    queue: LetterQueue
    state: LetterRunState

    def write(self) -> None:
        """Write the chunk that the state names. It can be called again after an error."""
        state = self.state
        assert state.chunk is not None, "a chunk is being written"
        outcome = EpochOutcome()
        taken = self._in_chunk(state.taken)
        if taken and state.order.action == "replay":
            self._replay(taken, outcome)
        kept = self._in_chunk(state.kept)
        if kept:
            self._keep(kept)
        outcome.log(self.queue.work.name)
        state.written += outcome.written
        state.failed += outcome.failed
        state.discarded += len(taken) if state.order.action == "discard" else 0
        state.kept_letters += len(kept)

    def _in_chunk(self, ranges: Ranges) -> list[tuple[int, int]]:
        """Partition and offset of each letter of the ranges that is in the chunk."""
        state = self.state
        assert state.chunk is not None, "a chunk is being written"
        return [
            (at, offset)
            for at, stop in state.chunk.items()
            for first, last in within(ranges.get(at, ()), state.position[at], stop)
            for offset in range(first, last + 1)
        ]

    def _rows(self, places: list[tuple[int, int]], **options: str) -> DataFrame:
        state = self.state
        assert state.chunk is not None, "a chunk is being written"
        rows = self.queue.rows(state.position, state.chunk, **options)
        if len(places) == _size(state.position, state.chunk):
            return rows
        schema = f"{AT} int, {PLACE} bigint"
        chosen = self.queue.spark.createDataFrame(places, schema)
        return rows.join(F.broadcast(chosen), [AT, PLACE], "left_semi")

    # -------------------------------------------------------------------------------------- kept

    def _keep(self, places: list[tuple[int, int]]) -> None:
        rows = self._rows(places).select("key", "value", "headers")
        kafka = self.queue.settings.kafka_options()
        sink = letter_sink(self.queue.topic, kafka, once=True)
        task = TopicWork(sink, Epoch(f"{self.state.run}-kept", self.state.number))
        sink.commit(run(rows, task).messages, ledger=True)

    # ------------------------------------------------------------------------------------ replays

    def _replay(self, places: list[tuple[int, int]], outcome: EpochOutcome) -> None:
        work = self.queue.work
        if issubclass(work.plugin_class(), Source):
            self._to_topics(places, outcome)
        else:
            self._to_target(places, outcome)

    def _to_target(self, places: list[tuple[int, int]], outcome: EpochOutcome) -> None:
        queue, state = self.queue, self.state
        work, settings = queue.work, queue.settings
        letters = letter_sink(queue.topic, settings.kafka_options(), once=True)

        def ended(part: EpochOutcome) -> None:
            letters.commit(part.letters, ledger=True)
            outcome.written += part.written
            outcome.failed += part.failed
            outcome.examples += part.examples

        rows = _original(self._rows(places, **typed_options(queue)), queue.default_topic)
        context = queue.spark.sparkContext
        context.setLocalProperty(QUERY_ID, state.run)
        context.setLocalProperty(EPOCH_ID, str(state.number))
        if issubclass(work.plugin_class(), TableSink):
            records, write = table_writer(rows, work, settings, ended, state.run)
        else:
            generation = state.started_ms
            records, write = epoch_writer(rows, work, settings, generation, ended, state.run)
        write(records, state.number)

    def _to_topics(self, places: list[tuple[int, int]], outcome: EpochOutcome) -> None:
        queue, state = self.queue, self.state
        records = _source_records(self._rows(places), queue)
        options = {
            **queue.settings.kafka_options(),
            "delivery": "exactly-once",
            "ledger": "new",
            "ledgerTopic": queue.settings.offsets_topic,
            "transactionalIdPrefix": WRITERS,
        }
        sink = TopicSink(parse_options(options), records.schema)
        done = run(records, TopicWork(sink, Epoch(state.run, state.number), queue.topic))
        sink.commit(done.messages, ledger=True)
        outcome.written += done.written
        outcome.failed += done.failed

    def forget(self) -> None:
        """Delete the groups of the run's ledgers, after its end."""
        with Cluster(client_config(dict(self.queue.settings.client))) as cluster:
            found, _ = list_groups(cluster)
            own = [
                each.name for each in found if each.name.startswith(f"{WRITERS}.{self.state.run}")
            ]
            if own:
                delete_groups(cluster, own)


def _size(start: Offsets, end: Offsets) -> int:
    return sum(end[at] - start[at] for at in end)


def typed_options(queue: LetterQueue) -> dict[str, str]:
    """The options of the source for the converters, with the subjects of the original topic."""
    options = source_options(queue.work.config)
    for part in ("key", "value"):
        if f"{part}.format" in options and queue.default_topic is not None:
            options.setdefault(f"{part}.subject", f"{queue.default_topic}-{part}")
    return options


def _original(rows: DataFrame, default_topic: str | None) -> DataFrame:
    """Letters as the records that they were, as far as their headers tell."""
    own = F.filter("headers", lambda each: ~F.startswith(each["key"], F.lit(PREFIX)))
    unknown = F.lit(default_topic) if default_topic is not None else F.col("topic")
    new = {
        "topic": F.coalesce(header("topic"), unknown),
        "partition": F.coalesce(header("partition").try_cast("int"), F.col(AT)),
        "offset": F.coalesce(header("offset").try_cast("bigint"), F.col(PLACE)),
        **_about(),
    }
    return rows.withColumns(new).withColumn("headers", own).drop(AT, PLACE)


def _about() -> dict[str, Any]:
    return {ATTEMPT: header("attempt").try_cast("int"), LETTER_ID: header("id")}


def _source_records(rows: DataFrame, queue: LetterQueue) -> DataFrame:
    """Letters of a source as records of its topics, or as letters again."""
    source = queue.work.connector()
    assert isinstance(source, Source)
    streams = source.streams()
    named = F.coalesce(header("topic"), F.lit(streams[0].topic if len(streams) == 1 else ""))
    known = named.isin(*(stream.topic for stream in streams))
    stream_of = F.when(known, named).otherwise(F.lit(streams[0].topic))
    unknown = F.when(~known, F.concat(F.lit("the source has no stream for the topic "), named))
    letters = rows.select(
        stream_of.alias("__stream"),
        F.col("value").alias(LETTER_VALUE),
        unknown.alias("_error"),
        *(column.alias(name) for name, column in _about().items()),
    )
    frames = []
    for stream in streams:
        text = F.col(LETTER_VALUE).cast("string")
        parsed = letters.where(F.col("__stream") == stream.topic).withColumn(
            "value", F.from_json(text, stream.schema, JSON_OPTIONS)
        )
        no_row = F.when(F.col("value").isNull(), F.lit("value: not a row of the source"))
        parsed = parsed.withColumn("_error", F.coalesce("_error", no_row)).withColumn(
            "_stage", F.when(F.col("_error").isNotNull(), F.lit(VALUE_CONVERTER))
        )
        others = ("_error", "_stage", LETTER_VALUE, ATTEMPT, LETTER_ID)
        records = stream_records(parsed, queue.work.config, stream, *others)
        frames.append(
            with_letters(records, queue.work, stream.topic).select(
                "topic", F.col("key").cast("binary"), F.col("value").cast("binary"), "headers"
            )
        )
    return reduce(lambda one, other: one.unionByName(other), frames)


@dataclass(frozen=True, slots=True)
class TopicWork:
    """Writes rows to topics in a transaction that the driver commits. Picklable."""

    sink: TopicSink
    epoch: Epoch
    dead: str | None = None
    """The topic whose records count as failed."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        written = failed = 0

        def counted() -> Iterator[pa.RecordBatch]:
            nonlocal written, failed
            for batch in batches:
                dead = 0
                if self.dead is not None:
                    dead = pc.sum(pc.equal(batch.column("topic"), self.dead)).as_py() or 0
                written, failed = written + batch.num_rows - dead, failed + dead
                yield batch

        done = self.sink.write(self.epoch, task_number(), counted(), ledger=True)
        yield result_of(written, failed, message=done)
