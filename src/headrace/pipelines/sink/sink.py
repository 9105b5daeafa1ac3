"""The Spark sink `headrace`: writes rows to topics, at least once or exactly once.

At least once: a task writes with an idempotent producer. A task or an epoch that Spark runs again
writes its rows again.

Exactly once: a task writes in a transaction and leaves it open; the driver decides about all tasks
of the epoch together, in the ledger, and then commits them. A replayed epoch finds the decision in
the ledger: its transactions are committed if they are not yet, and nothing is added. Only if the
brokers aborted a decided transaction meanwhile (its timeout passed) is that task's part written
again, which requires that a replay gives a task the same rows.
"""

import contextlib
import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from headrace.client import producing
from headrace.client.cluster import Cluster
from headrace.client.errors import ClientError
from headrace.client.producing import ProducerIdentity
from headrace.client.transactions import describe_transactions
from headrace.errors import ErrorCode, KafkaError
from headrace.pipelines.sink import epoch as epochs
from headrace.pipelines.sink.columns import PartitionRecords, RowSorter, check_schema
from headrace.pipelines.sink.encoding import Stamp, cuts, encode
from headrace.pipelines.sink.epoch import Epoch
from headrace.pipelines.sink.ledger import (
    ONGOING,
    Ledger,
    LedgerEntry,
    LedgerError,
    Page,
    check_history,
)
from headrace.pipelines.sink.options import SinkOptionError, SinkOptions, parse_options
from headrace.pipelines.sink.output_modes import COMPLETE_REFUSED, OVERWRITE_REFUSED
from headrace.pipelines.sink.producer import BatchProducer
from headrace.pipelines.topics import ready_topic
from headrace.pipelines.tracing import epoch_span
from headrace.pipelines.worker_memory import modules_frozen_after
from headrace.pipelines.worker_socket import SentToTasks
from headrace.types import TopicPartition

# Rows are gathered to this size before they are sorted by partition and encoded.
CHUNK_BYTES = 4 << 20
ABORT_S = 5.0

# What follows if transactions were lost.
REPLAYED = "Run the query again: it writes the missing rows"
WHOLE = "None of the rows are in the topic: run the write again"
PARTIAL = "The rows of the other tasks are in the topic, and a second write would add them again"


@dataclass(frozen=True, slots=True)
class TaskDone(WriterCommitMessage):  # type: ignore[misc]
    """The result of a task for the driver; `entry` is None without an open transaction."""

    epoch: Epoch
    task: int
    records: int
    entry: LedgerEntry | None
    started_ns: int = field(default=0, compare=False)
    """When the task began, in nanoseconds since 1970."""


class TopicSink:
    """The common part of both writers. Picklable: it is sent to the tasks."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        typed = options.typed
        names = {part.part for part in typed.parts} if typed is not None else set()
        check_schema(schema, options.topic, frozenset(names))
        if options.exactly_once and options.ledger_topic is None:
            raise SinkOptionError(
                "delivery=exactly-once stores its ledger with a topic: set the option topic, or, "
                "if topics come from the column, set ledgerTopic to an existing topic"
            )
        self._options = options
        self._typed = None
        if typed is not None:
            # Imported here, because the formats take a third of a second to import.
            from headrace.pipelines.typed.writing import prepare

            self._typed = prepare(typed, schema)
        self._ledger = Ledger(
            options.prefix, options.ledger_topic or "", options.transaction_ms, options.owner
        )

    @property
    def epoch(self) -> Epoch | None:
        """The epoch that the options name, if any."""
        return self._options.epoch

    # ------------------------------------------------------------------------------- in a task

    def write(
        self, epoch: Epoch, task: int, batches: Iterator[pa.RecordBatch], ledger: bool
    ) -> TaskDone:
        """Write all rows with the delivery guarantee of the options."""
        began = time.time_ns()
        return replace(self._write(epoch, task, batches, ledger), started_ns=began)

    def _write(
        self, epoch: Epoch, task: int, batches: Iterator[pa.RecordBatch], ledger: bool
    ) -> TaskDone:
        with modules_frozen_after(), Cluster(self._options.client) as cluster:
            if not self._options.exactly_once:
                identity = producing.init_producer(cluster)
                records = self._produce(cluster, identity, task, batches)
                return TaskDone(epoch, task, records, None)
            if ledger:
                ready_topic(cluster, self._ledger.topic)
                if self._decided(cluster, epoch, task):
                    return TaskDone(epoch, task, 0, None)
            return self._write_in_transaction(cluster, epoch, task, batches, ledger)

    def _decided(self, cluster: Cluster, epoch: Epoch, task: int) -> bool:
        """Whether this task's part of the epoch is in the topic; commits it if necessary."""
        page = self._ledger.read(cluster, epoch.query)
        check_history(page, epoch, self._options.prefix, begin_anew=self._options.begin_anew)
        if page is None or page.epoch < epoch.number:
            return False
        if page.epoch > epoch.number:
            raise LedgerError(
                f"epoch {epoch.number} of query {epoch.query} has ended: the ledger is at epoch "
                f"{page.epoch}; another driver runs this query, or its checkpoint was replaced by "
                "an older or a new one"
            )
        if page.run is not None and page.run == epoch.run:
            raise LedgerError(
                f"epoch {epoch.number} of query {epoch.query} has been written in this run of the "
                "query. A second write of an epoch to the same topic needs a name of its own in "
                'the option query, such as .option("query", f"{query}-late"). If this is another '
                "attempt after an error, restart the query: it completes the write"
            )
        if task < len(page.entries):
            name = self._ledger.task_id(epoch, task)
            return self._ledger.end(cluster, name, page.entries[task])
        # Fewer tasks wrote the epoch: this one adds nothing if all of theirs are committed.
        lost = _end_all(cluster, self._ledger, epoch, dict(enumerate(page.entries)))
        if lost:
            raise _other_tasks(epoch, page, lost)
        return True

    def _write_in_transaction(
        self,
        cluster: Cluster,
        epoch: Epoch,
        task: int,
        batches: Iterator[pa.RecordBatch],
        ledger: bool,
    ) -> TaskDone:
        name = self._ledger.task_id(epoch, task)
        try:
            identity = producing.init_producer(cluster, name, self._options.transaction_ms)
        except KafkaError as error:
            raise _explained(error, self._options) from error
        # From here on no older attempt can write or commit; check whether one has committed.
        if ledger and self._ledger.marked(cluster, identity, epoch.number):
            return TaskDone(epoch, task, 0, None)
        try:
            records = self._produce(cluster, identity, task, batches)
            if ledger:
                self._ledger.mark(cluster, identity, epoch.number)
        except BaseException:
            with contextlib.suppress(KafkaError, ClientError), _briefly(self._options) as again:
                producing.end_transaction(again, identity, commit=False)
            raise
        if not records and not ledger:
            # Brokers refuse to commit an empty transaction.
            return TaskDone(epoch, task, 0, None)
        entry = LedgerEntry(identity.producer_id, identity.epoch)
        return TaskDone(epoch, task, records, entry)

    def _produce(
        self,
        cluster: Cluster,
        identity: ProducerIdentity,
        task: int,
        batches: Iterator[pa.RecordBatch],
    ) -> int:
        options, counts = self._options, dict[str, int]()

        def partitions(topic: str) -> int:
            if topic not in counts:
                counts[topic] = ready_topic(cluster, topic)
            return counts[topic]

        sorter = RowSorter(options.topic, partitions, task)
        producer = BatchProducer(cluster, identity, options.in_flight)
        records = 0
        encoder = self._typed.encoder() if self._typed is not None else None
        try:
            for chunk in _chunks(batches):
                records += chunk.num_rows
                chunk = encoder.encode(chunk) if encoder is not None else chunk
                for layer in _layers(_encoded(sorter.shares(chunk), producer, options)):
                    producer.send(layer)
            producer.flush()
        finally:
            producer.close()
        return records

    # ----------------------------------------------------------------------------- in the driver

    def commit(
        self, messages: Sequence[TaskDone | None], ledger: bool, epoch: Epoch | None = None
    ) -> None:
        """Decide an epoch whose tasks are done, and commit their transactions.

        An epoch without tasks is decided too if the caller knows its name.
        """
        done = sorted(filter(None, messages), key=lambda message: message.task)
        epoch = done[0].epoch if done else epoch
        if epoch is None:
            return
        began = min((each.started_ns for each in done), default=time.time_ns())
        with epoch_span(self._options.tracing, "send", self._options.topic, began) as span:
            if span is not None:
                span.set("messaging.batch.message_count", sum(each.records for each in done))
                span.set("headrace.query", epoch.query)
                span.set("headrace.epoch", epoch.number)
            if self._options.exactly_once:
                self._commit_transactions(epoch, done, ledger)

    def _commit_transactions(self, epoch: Epoch, done: Sequence[TaskDone], ledger: bool) -> None:
        with Cluster(self._options.client) as cluster:
            if ledger:
                if not done:
                    ready_topic(cluster, self._ledger.topic)
                page = self._decide(cluster, epoch, done)
                open_tasks = dict(enumerate(page.entries))
            else:
                open_tasks = {each.task: each.entry for each in done if each.entry is not None}
                # No later run completes this write, so that nothing is committed if a part is lost.
                self._check_lost(epoch, _not_open(cluster, self._ledger, epoch, open_tasks), WHOLE)
            lost = _end_all(cluster, self._ledger, epoch, open_tasks)
        self._check_lost(epoch, lost, REPLAYED if ledger else PARTIAL)

    def _check_lost(self, epoch: Epoch, lost: Sequence[int], then: str) -> None:
        if lost:
            raise LedgerError(
                f"the transactions of tasks {list(lost)} of epoch {epoch.number} were lost before "
                "they could be committed: a later attempt of a task replaced them (speculation, a "
                "lost executor, or a request that the broker executed after its timeout), or "
                f"kafka.transaction.timeout.ms={self._options.transaction_ms} is shorter than the "
                f"epoch. {then}"
            )

    def _decide(self, cluster: Cluster, epoch: Epoch, done: Sequence[TaskDone]) -> Page:
        """The ledger's page for this epoch; it is written unless it is there and still valid."""
        driver = self._ledger.begin(cluster, epoch.query)
        page = self._ledger.read(cluster, epoch.query)
        check_history(page, epoch, self._options.prefix, begin_anew=self._options.begin_anew)
        if page is not None and page.epoch > epoch.number:
            raise LedgerError(
                f"another driver of query {epoch.query} is at epoch {page.epoch} already; this one "
                f"cannot commit epoch {epoch.number}"
            )
        if page is None or page.epoch < epoch.number:
            missing = [each.task for each in done if each.entry is None]
            if missing:
                raise LedgerError(
                    f"tasks {missing} of epoch {epoch.number} were committed by a run that is not "
                    f"in the ledger of query {epoch.query}; was the ledger deleted?"
                )
            entries = tuple(each.entry for each in done if each.entry is not None)
            decided = Page(epoch.number, entries, epoch.run)
        else:
            decided = _replaced(epoch, page, done)
            if decided == page:
                return page
        self._ledger.decide(cluster, driver, epoch.query, decided)
        return decided

    def abort(self, messages: Sequence[TaskDone | None]) -> None:
        """Abort the open transactions of an epoch's tasks, unless it is decided."""
        done = [message for message in messages if message is not None and message.entry]
        if not done:
            return
        epoch = done[0].epoch
        with contextlib.suppress(KafkaError, ClientError), _briefly(self._options) as cluster:
            page = self._ledger.read(cluster, epoch.query)
            if page is not None and page.epoch >= epoch.number:
                return
            for each in done:
                if each.entry is not None:
                    name = self._ledger.task_id(epoch, each.task)
                    producer = ProducerIdentity(
                        each.entry.producer_id, each.entry.producer_epoch, name
                    )
                    with contextlib.suppress(KafkaError):
                        producing.end_transaction(cluster, producer, commit=False)

    def abort_job(self, job: Epoch, tasks: int) -> None:
        """Abort all transactions of a write without a ledger, also those of unknown attempts."""
        if not self._options.exactly_once:
            return
        with contextlib.suppress(KafkaError, ClientError), _briefly(self._options) as cluster:
            for task in range(tasks):
                with contextlib.suppress(KafkaError):
                    producing.init_producer(cluster, self._ledger.task_id(job, task))


class BatchWriter(SentToTasks, DataSourceArrowWriter):  # type: ignore[misc]
    """`df.write`: all or nothing with exactly-once.

    A write in `foreachBatch` that names its query and epoch is recorded in the ledger, and adds
    nothing if it is repeated. Every other write is a job of its own.
    """

    def __init__(self, sink: TopicSink) -> None:
        self._sink = sink
        self._ledger = sink.epoch is not None
        # Pickled into the function of the tasks and into the driver's commit, so that both have
        # the same name.
        self._epoch = sink.epoch or epochs.batch_job()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskDone:
        epoch = replace(self._epoch, run=epochs.run_of_query()) if self._ledger else self._epoch
        return self._sink.write(epoch, epochs.task_number(), iterator, self._ledger)

    def commit(self, messages: Sequence[TaskDone | None]) -> None:
        self._sink.commit(messages, self._ledger, self._epoch if self._ledger else None)

    def abort(self, messages: Sequence[TaskDone | None]) -> None:
        if self._ledger:
            self._sink.abort(messages)
        else:
            self._sink.abort_job(self._epoch, len(messages))


class StreamWriter(SentToTasks, DataSourceStreamArrowWriter):  # type: ignore[misc]
    """`df.writeStream`: the ledger knows which epochs are done."""

    def __init__(self, sink: TopicSink) -> None:
        self._sink = sink

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskDone:
        return self._sink.write(epochs.of_stream(), epochs.task_number(), iterator, ledger=True)

    def commit(self, messages: Sequence[TaskDone | None], batchId: int) -> None:
        self._sink.commit(messages, ledger=True)

    def abort(self, messages: Sequence[TaskDone | None], batchId: int) -> None:
        self._sink.abort(messages)


def make_sink(
    options: Mapping[str, str], schema: StructType, overwrite: bool, *, streaming: bool = False
) -> TopicSink:
    """The sink for Spark's options; a topic cannot be overwritten."""
    if overwrite:
        raise SinkOptionError(COMPLETE_REFUSED if streaming else OVERWRITE_REFUSED)
    parsed = parse_options(options)
    if streaming and parsed.epoch is not None:
        raise SinkOptionError(
            "the options query and epoch are for batch writes in foreachBatch; a stream has both "
            "from Spark: remove them"
        )
    return TopicSink(parsed, schema)


# --------------------------------------------------------------------------------- rows to requests


def _chunks(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Combine small batches, and split large ones."""
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        pieces = max(1, batch.nbytes // (4 * CHUNK_BYTES))
        step = -(-batch.num_rows // pieces) or 1
        for start in range(0, batch.num_rows, step):
            piece = batch.slice(start, step)
            held.append(piece)
            size += batch.nbytes // pieces
            if size >= CHUNK_BYTES:
                yield pa.concat_batches(held)
                held, size = [], 0
    if held:
        yield pa.concat_batches(held)


def _encoded(
    shares: Iterator[PartitionRecords], producer: BatchProducer, options: SinkOptions
) -> dict[TopicPartition, list[bytearray]]:
    identity = producer.identity
    stamp = Stamp(
        identity.producer_id,
        identity.epoch,
        identity.transactional_id is not None,
        options.codec,
        int(time.time() * 1000),
    )
    found: dict[TopicPartition, list[bytearray]] = {}
    for share in shares:
        columns = share.columns.slice(share.first, share.last)
        bounds = cuts(columns.sizes(), options.batch_bytes)
        counts = [end - start for start, end in itertools.pairwise(bounds)]
        sequences = [producer.sequence(share.partition, count) for count in counts]
        batches = found.setdefault(share.partition, [])
        batches.extend(encode(columns, bounds, stamp, sequences))
    return found


def _layers(
    batches: dict[TopicPartition, list[bytearray]],
) -> Iterator[dict[TopicPartition, bytearray]]:
    """One batch of each partition at a time, which is the limit of a request."""
    for index in range(max(map(len, batches.values()), default=0)):
        yield {each: parts[index] for each, parts in batches.items() if index < len(parts)}


# ------------------------------------------------------------------------------------ transactions


def _not_open(
    cluster: Cluster, ledger: Ledger, epoch: Epoch, entries: Mapping[int, LedgerEntry]
) -> list[int]:
    """The tasks whose transactions have ended or have another producer."""
    names = {task: ledger.task_id(epoch, task) for task in entries}
    found = describe_transactions(cluster, names.values())
    return [
        task
        for task, entry in entries.items()
        if (now := found.get(names[task])) is None
        or now.state != ONGOING
        or (now.producer_id, now.epoch) != (entry.producer_id, entry.producer_epoch)
    ]


def _end_all(
    cluster: Cluster, ledger: Ledger, epoch: Epoch, entries: Mapping[int, LedgerEntry]
) -> list[int]:
    """Commit the transactions of these tasks; returns the tasks with lost transactions."""
    return [
        task
        for task, entry in entries.items()
        if not ledger.end(cluster, ledger.task_id(epoch, task), entry)
    ]


def _replaced(epoch: Epoch, page: Page, done: Sequence[TaskDone]) -> Page:
    """The page with new entries for the tasks that wrote again; the others do not change."""
    again = {each.task: each.entry for each in done if each.entry is not None}
    if again and len(done) != len(page.entries):
        raise _other_tasks(epoch, page, sorted(again))
    entries = tuple(again.get(task) or entry for task, entry in enumerate(page.entries))
    return Page(page.epoch, entries, page.run)


def _other_tasks(epoch: Epoch, page: Page, lost: Sequence[int]) -> LedgerError:
    return LedgerError(
        f"epoch {epoch.number} of query {epoch.query} was decided with {len(page.entries)} tasks, "
        f"the brokers have aborted the transactions of tasks {list(lost)} since, and the replay "
        "has another number of tasks: it is unknown which rows are missing. Run the query with "
        "the same number of partitions as before"
    )


def _briefly(options: SinkOptions) -> Cluster:
    """A client with a short timeout for aborts, which only save readers a wait."""
    return Cluster(replace(options.client, total_timeout_s=ABORT_S))


def _explained(error: KafkaError, options: SinkOptions) -> Exception:
    if error.code == ErrorCode.INVALID_TRANSACTION_TIMEOUT:
        return SinkOptionError(
            f"kafka.transaction.timeout.ms={options.transaction_ms} is more than the brokers' "
            "transaction.max.timeout.ms; set a smaller value that is longer than an epoch"
        )
    return error
