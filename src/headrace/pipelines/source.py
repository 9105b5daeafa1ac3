"""The source: `spark.read` and `spark.readStream` of the format `headrace`.

The driver asks the cluster where partitions begin and end; a task fetches a range of offsets from
the partition's leader as whole record batches and decodes each answer at once into Arrow.
"""

import logging
import time
from collections.abc import Iterator, Mapping

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from headrace.client.cluster import Cluster
from headrace.client.errors import ClientError
from headrace.client.fetching import DataLoss, FetchPlan, fetch_range
from headrace.client.offsets import EARLIEST, LATEST, list_offsets
from headrace.errors import KafkaError
from headrace.pipelines.arrow import record_batch
from headrace.pipelines.group import QueryGroup
from headrace.pipelines.options import SourceOptions
from headrace.pipelines.positions import find_partitions, resolve_end, resolve_start
from headrace.pipelines.ranges import (
    OffsetRange,
    Stored,
    from_stored,
    limited,
    split,
    to_stored,
)
from headrace.pipelines.typed.reading import TypedReading, TypedTopic
from headrace.types import TopicPartition
from headrace.wire.batch_columns import decode

SETTLING_S = 5.0
"""How long a partition's end may lie before an offset that was seen already: a broker that has
just restarted may not know yet how far its log was committed."""

log = logging.getLogger(__name__)


class RangePartition(InputPartition):  # type: ignore[misc]
    """One task's range."""

    def __init__(self, range_: OffsetRange) -> None:
        self.range = range_


def read_range(
    options: SourceOptions, range_: OffsetRange, topic: TypedTopic | None = None
) -> Iterator[pa.RecordBatch]:
    """The records of a range as Arrow, an answer of the broker at a time."""
    partition, start, stop = range_
    typed = TypedReading(topic) if topic is not None else None
    plan = FetchPlan(
        partition,
        options.isolation,
        options.fetch_bytes,
        options.fetch_wait_ms,
        options.fetch_min_bytes,
    )
    with Cluster(options.client) as cluster:
        while start < stop:
            try:
                for fetched in fetch_range(cluster, plan, start, stop):
                    for columns in decode(
                        fetched.data,
                        fetched.positions,
                        start,
                        stop,
                        fetched.aborted,
                        check_crcs=options.check_crcs,
                    ):
                        found = typed.columns(columns) if typed is not None else {}
                        yield record_batch(columns, partition, options.columns, found)
                return
            except DataLoss as loss:
                report_loss(options, str(loss))
                start = loss.resume_at
            except KafkaError as error:
                raise KafkaError(error.code, f"reading {partition}: {error}") from error


def report_loss(options: SourceOptions, what: str) -> None:
    """Fails the query, or warns and lets it go on, as `failOnDataLoss` says."""
    if options.fail_on_data_loss:
        raise ClientError(
            f"{what}. If that is accepted, set failOnDataLoss=false and the query goes on"
        )
    log.warning("%s; going on, because failOnDataLoss=false", what)


class BatchReader(DataSourceReader):  # type: ignore[misc]
    """`spark.read`."""

    def __init__(self, options: SourceOptions, topic: TypedTopic | None = None) -> None:
        self._options = options
        self._topic = topic

    def partitions(self) -> list[RangePartition]:
        options = self._options
        with Cluster(options.client) as cluster:
            found = find_partitions(cluster, options.selection, all_must_exist=True)
            start = resolve_start(cluster, options, found)
            end = resolve_end(cluster, options, found)
        return plan_tasks(options, start, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # Spark replaces an empty list of partitions by one InputPartition(None).
        if not isinstance(partition, RangePartition):
            return iter(())
        return read_range(self._options, partition.range, self._topic)


def plan_tasks(
    options: SourceOptions, start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]
) -> list[RangePartition]:
    """The tasks for what lies between two sets of offsets."""
    ranges = [OffsetRange(at, start[at], end[at]) for at in sorted(end) if end[at] > start[at]]
    pieces = split(ranges, options.min_partitions, options.max_records_per_partition)
    return [RangePartition(each) for each in pieces]


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """`spark.readStream`. Spark keeps one of it on the driver, and sends copies to tasks."""

    def __init__(self, options: SourceOptions, topic: TypedTopic | None = None) -> None:
        self._options = options
        self._topic = topic
        self._driver: _DriverSide | None = None

    def __getstate__(self) -> dict[str, object]:
        return {"_options": self._options, "_topic": self._topic, "_driver": None}

    def _on_driver(self) -> "_DriverSide":
        if self._driver is None:
            self._driver = _DriverSide(self._options)
        return self._driver

    def initialOffset(self) -> Stored:
        return to_stored(self._on_driver().initial())

    def getDefaultReadLimit(self) -> ReadLimit:
        options = self._options
        if options.max_offsets_per_trigger is not None:
            return ReadMaxRows(options.max_offsets_per_trigger)
        if options.min_offsets_per_trigger is not None:
            return ReadMinRows(options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._on_driver().fix_target()

    def latestOffset(self, start: Stored, limit: ReadLimit) -> Stored:
        everything = isinstance(limit, ReadAllAvailable)
        return to_stored(self._on_driver().advance(from_stored(start), everything))

    def reportLatestOffset(self) -> Stored:
        return to_stored(self._on_driver().latest())

    def partitions(self, start: Stored, end: Stored) -> list[RangePartition]:
        return self._on_driver().tasks(from_stored(start), from_stored(end))

    def read(self, partition: RangePartition) -> Iterator[pa.RecordBatch]:
        return read_range(self._options, partition.range, self._topic)

    def commit(self, end: Stored) -> None:
        self._on_driver().finished(from_stored(end))

    def stop(self) -> None:
        if self._driver is not None:
            self._driver.close()
            self._driver = None


class _DriverSide:
    """What the driver holds for a stream: the cluster, the target of an available-now run, the
    group."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._cluster = Cluster(options.client)
        self._target: dict[TopicPartition, int] | None = None
        self._latest: dict[TopicPartition, int] = {}
        self._earliest_of_new: dict[TopicPartition, int] = {}
        self._last_trigger = time.monotonic()
        self._initial: dict[TopicPartition, int] | None = None
        self._group = QueryGroup(options.client, options.group) if options.group else None

    def close(self) -> None:
        if self._group is not None:
            self._group.close()
        self._cluster.close()

    def initial(self) -> dict[TopicPartition, int]:
        found = find_partitions(self._cluster, self._options.selection, all_must_exist=True)
        self._initial = resolve_start(self._cluster, self._options, found)
        return self._initial

    def latest(self) -> dict[TopicPartition, int]:
        found = find_partitions(self._cluster, self._options.selection, all_must_exist=False)
        wanted = dict.fromkeys(found, LATEST)
        return list_offsets(self._cluster, wanted, self._options.isolation) if wanted else {}

    def fix_target(self) -> None:
        self._target = self.latest()

    def advance(
        self, start: dict[TopicPartition, int], everything: bool
    ) -> dict[TopicPartition, int]:
        """The end of the next epoch: what there is, within the limits."""
        end = self._target if self._target is not None else self._settled(start)
        end = dict(end)
        for at in sorted(start.keys() - end.keys()):
            report_loss(self._options, f"{at} was read up to {start[at]} and is gone now")
        for at in sorted(start.keys() & end.keys()):
            if end[at] < start[at]:
                report_loss(
                    self._options,
                    f"{at} ends at offset {end[at]}, and was read up to {start[at]} already: was "
                    "the topic deleted and created again?",
                )
        if self._group is not None:
            self._group.shows(end)
        if start != self._initial:
            self.finished(start)
        if everything:
            return end
        begin = start | self._beginning_of_new(start, end)
        if self._is_too_little(begin, end):
            return start
        self._last_trigger = time.monotonic()
        most = self._options.max_offsets_per_trigger
        return end if most is None else limited(begin, end, most)

    def tasks(
        self, start: dict[TopicPartition, int], end: dict[TopicPartition, int]
    ) -> list[RangePartition]:
        """An epoch's tasks. A partition that is new in it is read from its beginning."""
        return plan_tasks(self._options, start | self._beginning_of_new(start, end), end)

    def finished(self, end: dict[TopicPartition, int]) -> None:
        """An epoch is in the checkpoint. Spark says so when it has planned the next one; before
        that it asks what to read after it, which says the same, and is how the last one is known.
        """
        if self._group is not None:
            # An available-now run may end before the group has settled, and then it is too late.
            self._group.commit(end, wait=self._target is not None)

    def _beginning_of_new(
        self, start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        new = end.keys() - start.keys()
        unknown = new - self._earliest_of_new.keys()
        if unknown:
            found = list_offsets(self._cluster, dict.fromkeys(sorted(unknown), EARLIEST))
            for at, offset in found.items():
                if offset:
                    report_loss(
                        self._options,
                        f"{at} is new to this query and begins at offset {offset}: the records "
                        "before it were deleted unread",
                    )
            self._earliest_of_new |= found
        return {at: min(self._earliest_of_new[at], end[at]) for at in new}

    def _is_too_little(
        self, start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]
    ) -> bool:
        """Whether to wait for more records: fewer than the least, and not for too long yet."""
        least = self._options.min_offsets_per_trigger
        if least is None or self._target is not None:
            return False
        waited_s = time.monotonic() - self._last_trigger
        if waited_s >= self._options.max_trigger_delay_s:
            return False
        return sum(max(end[at] - start[at], 0) for at in end) < least

    def _settled(self, start: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The ends of all partitions, none before what was read already, if waiting helps."""
        deadline = time.monotonic() + SETTLING_S
        while True:
            end = self.latest()
            if start.keys() <= end.keys() and all(end[at] >= start[at] for at in start):
                return end
            if time.monotonic() > deadline:
                return end
            time.sleep(self._options.client.retry_backoff_s)
