"""The source: `spark.read` and `spark.readStream` of the format `headrace`.

The driver requests the start and end offsets of partitions; a task fetches a range of offsets from
the partition's leader as whole record batches and decodes each response at once into Arrow.
"""

import logging
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace

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
from headrace.errors import ErrorCode, KafkaError
from headrace.pipelines.source.arrow import record_batch
from headrace.pipelines.source.group import QueryGroup
from headrace.pipelines.source.held_streams import StreamHold
from headrace.pipelines.source.kept_clusters import task_cluster
from headrace.pipelines.source.options import SourceOptions
from headrace.pipelines.source.positions import find_partitions, resolve_end, resolve_start
from headrace.pipelines.source.ranges import (
    OffsetRange,
    Stored,
    StreamOffset,
    bounded,
    from_stored,
    gather,
    limited,
    split,
    to_stored,
)
from headrace.pipelines.tracing import EpochSpan
from headrace.pipelines.typed.reading import TypedReading, TypedTopic
from headrace.pipelines.worker_memory import modules_frozen_after
from headrace.pipelines.worker_socket import SentToTasks
from headrace.types import TopicPartition, decode_uuid
from headrace.wire.batch_columns import decode

SETTLING_S = 5.0
"""How long a partition's end may be before an offset that was read already: a broker that has
just restarted may not know the high watermark yet. The same applies to a topic's id: a broker
may not know yet that the topic was deleted and created again."""
GONE = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
"""The errors of brokers for a deleted topic."""

log = logging.getLogger(__name__)


class RangesPartition(InputPartition):  # type: ignore[misc]
    """One task's ranges."""

    def __init__(self, ranges: tuple[OffsetRange, ...]) -> None:
        self.ranges = ranges


def read_ranges(
    options: SourceOptions, ranges: tuple[OffsetRange, ...], topic: TypedTopic | None = None
) -> Iterator[pa.RecordBatch]:
    """The records of several ranges as Arrow, one response of the broker at a time."""
    typed = TypedReading(topic) if topic is not None else None
    with modules_frozen_after(), task_cluster(options.client) as cluster:
        for each in ranges:
            yield from _read_range(cluster, options, each, typed)


def _read_range(
    cluster: Cluster, options: SourceOptions, range_: OffsetRange, typed: TypedReading | None
) -> Iterator[pa.RecordBatch]:
    partition, start, stop, topic_id = range_
    plan = FetchPlan(
        partition,
        options.isolation,
        options.fetch_bytes,
        options.fetch_wait_ms,
        options.fetch_min_bytes,
        None if topic_id is None else decode_uuid(topic_id),
    )
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
            if error.code in GONE:
                report_loss(
                    options,
                    f"{partition} was deleted: the offsets {start} to {stop} are not read",
                )
                return
            raise KafkaError(error.code, f"reading {partition}: {error}") from error


def report_loss(options: SourceOptions, what: str, then: str = "continues without them") -> None:
    """Fail the query, or log a warning and continue, according to `failOnDataLoss`."""
    if options.fail_on_data_loss:
        raise ClientError(
            f"{what}. To accept that, set failOnDataLoss=false: the query then {then}"
        )
    log.warning("%s. The query %s, because failOnDataLoss=false", what, then)


class BatchReader(SentToTasks, DataSourceReader):  # type: ignore[misc]
    """`spark.read`."""

    def __init__(self, options: SourceOptions, topic: TypedTopic | None = None) -> None:
        self._options = options
        self._topic = topic

    def partitions(self) -> list[RangesPartition]:
        options = self._options
        with Cluster(options.client) as cluster:
            found = find_partitions(cluster, options.selection, all_must_exist=True)
            start = resolve_start(cluster, options, found.partitions)
            end = resolve_end(cluster, options, found.partitions)
        return plan_tasks(options, start, StreamOffset(end, found.topic_ids))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # Spark replaces an empty list of partitions by one InputPartition(None).
        if not isinstance(partition, RangesPartition):
            return iter(())
        return read_ranges(self._options, partition.ranges, self._topic)


def plan_tasks(
    options: SourceOptions, start: Mapping[TopicPartition, int], end: StreamOffset
) -> list[RangesPartition]:
    """The tasks for the records between two sets of offsets."""
    ranges = [
        OffsetRange(at, start[at], stop, end.topic_ids.get(at.topic))
        for at, stop in sorted(end.offsets.items())
        if stop > start[at]
    ]
    pieces = split(ranges, options.min_partitions, options.max_records_per_partition)
    tasks = [(each,) for each in pieces] if options.min_partitions else gather(pieces)
    return [RangesPartition(each) for each in tasks]


class StreamReader(
    SentToTasks,
    DataSourceStreamReader,  # type: ignore[misc]
    SupportsTriggerAvailableNow,  # type: ignore[misc]
):
    """`spark.readStream`. Spark has one on the driver, and sends copies to tasks."""

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
        return to_stored(StreamOffset(self._on_driver().last_seen().offsets))

    def partitions(self, start: Stored, end: Stored) -> list[RangesPartition]:
        return self._on_driver().tasks(from_stored(start), from_stored(end))

    def read(self, partition: RangesPartition) -> Iterator[pa.RecordBatch]:
        return read_ranges(self._options, partition.ranges, self._topic)

    def commit(self, end: Stored) -> None:
        self._on_driver().finished(from_stored(end))

    def stop(self) -> None:
        if self._driver is not None:
            self._driver.close()
            self._driver = None


class _DriverSide:
    """The state of a stream on the driver: the cluster, the target of an available-now run, the
    group."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._cluster = Cluster(options.client)
        self._target: StreamOffset | None = None
        self._latest: StreamOffset | None = None
        self._earliest_of_new: dict[tuple[str | None, TopicPartition], int] = {}
        self._last_trigger = time.monotonic()
        self._initial: StreamOffset | None = None
        self._group = QueryGroup(options.client, options.group) if options.group else None
        self._hold = StreamHold(options.hold) if options.hold else None
        self._span: EpochSpan | None = None
        """The epoch that runs, if it is traced."""

    def close(self) -> None:
        self._end_span()
        if self._hold is not None:
            self._hold.close()
        if self._group is not None:
            self._group.close()
        self._cluster.close()

    def initial(self) -> StreamOffset:
        found = find_partitions(self._cluster, self._options.selection, all_must_exist=True)
        offsets = resolve_start(self._cluster, self._options, found.partitions)
        self._initial = StreamOffset(offsets, found.topic_ids)
        return self._initial

    def latest(self) -> StreamOffset:
        # If a topic is replaced between the two requests, tasks detect it, because they read by id.
        found = find_partitions(self._cluster, self._options.selection, all_must_exist=False)
        wanted = dict.fromkeys(found.partitions, LATEST)
        ends = list_offsets(self._cluster, wanted, self._options.isolation) if wanted else {}
        self._latest = StreamOffset(ends, found.topic_ids)
        return self._latest

    def last_seen(self) -> StreamOffset:
        """The ends of all partitions. Spark calls it right after `latestOffset`, which has them;
        an available-now run has those of its start."""
        return self.latest() if self._latest is None or self._target is not None else self._latest

    def fix_target(self) -> None:
        self._target = self.latest()

    def advance(self, start: StreamOffset, everything: bool) -> StreamOffset:
        """The end of the next epoch: all available records, within the limits."""
        self._end_span()
        end = self._target if self._target is not None else self._settled(start)
        self._report_changes(start, end)
        if self._group is not None:
            self._group.shows(end.offsets)
        if start != self._initial:
            self.finished(start)
        if self._options.ending.kind == "offsets":
            bounds = self._options.ending.each
            end = replace(end, offsets=bounded(start.offsets, end.offsets, bounds))
        if self._hold is not None:
            end = self._hold.end(start, end)
        if not everything:
            begin = self._begin(start, end)
            if self._is_too_little(begin, end.offsets):
                return start
            self._last_trigger = time.monotonic()
            most = self._options.max_offsets_per_trigger
            if most is not None:
                end = replace(end, offsets=limited(begin, end.offsets, most))
        if end.same_place(start):
            return start
        return replace(end, initial=start.offsets) if start == self._initial else end

    def tasks(self, start: StreamOffset, end: StreamOffset) -> list[RangesPartition]:
        """An epoch's tasks. A partition that is new in it is read from its beginning."""
        # Spark requests the initial offsets again when it replays the first epoch.
        if end.initial is not None and start == self._initial:
            start = StreamOffset(end.initial, end.topic_ids)
        begin = self._begin(start, end)
        if self._options.tracing:
            self._start_span(begin, end)
        return plan_tasks(self._options, begin, end)

    def _start_span(self, begin: Mapping[TopicPartition, int], end: StreamOffset) -> None:
        self._end_span()
        topics = {at.topic for at, stop in end.offsets.items() if stop > begin[at]}
        self._span = EpochSpan("poll", topics.pop() if len(topics) == 1 else None)
        count = sum(max(stop - begin[at], 0) for at, stop in end.offsets.items())
        self._span.set("messaging.batch.message_count", count)
        if self._options.group is not None:
            self._span.set("messaging.consumer.group.name", self._options.group.name)

    def _end_span(self) -> None:
        if self._span is not None:
            self._span.end()
            self._span = None

    def finished(self, end: StreamOffset) -> None:
        """An epoch is in the checkpoint. Spark reports it when it has planned the next one; before
        that it requests the next offsets, which means the same, and is the only sign of the last
        one.
        """
        if self._group is None or self._latest is None:
            return
        # The offsets of a deleted topic do not apply to a new one with its name.
        offsets = {
            at: offset
            for at, offset in end.offsets.items()
            if at in self._latest.offsets and end.same_topic(self._latest, at.topic)
        }
        # An available-now run may end before the group is stable, and then it is too late.
        self._group.commit(offsets, wait=self._target is not None)

    def _report_changes(self, start: StreamOffset, end: StreamOffset) -> None:
        """Report partitions, topics and ends of logs that no longer exist."""
        replaced = {each for each in end.topic_ids if not start.same_topic(end, each)}
        for topic in sorted(replaced):
            report_loss(
                self._options,
                f"topic {topic} was deleted and created again: the checkpoint has offsets of the "
                f"topic with id {start.topic_ids[topic]}, and the topic has id "
                f"{end.topic_ids[topic]} now, so that the offsets do not apply to it and records "
                "of the old topic that were not read are lost",
                "reads the new topic from its beginning",
            )
        for at, offset in sorted(start.offsets.items()):
            if at.topic in replaced:
                continue
            if at not in end.offsets:
                report_loss(
                    self._options, f"{at} was read up to {offset} and does not exist any more"
                )
            elif end.offsets[at] < offset:
                report_loss(
                    self._options,
                    f"{at} ends at offset {end.offsets[at]}, and was read up to {offset} already: "
                    "records were lost, or the topic was deleted and created again",
                    "continues at its end",
                )

    def _begin(self, start: StreamOffset, end: StreamOffset) -> dict[TopicPartition, int]:
        """The start offsets of an epoch, for each partition of its end."""
        known = {
            at: start.offsets[at]
            for at in end.offsets
            if at in start.offsets and start.same_topic(end, at.topic)
        }
        new = {(end.topic_ids.get(at.topic), at): at for at in end.offsets if at not in known}
        unknown = {at for key, at in new.items() if key not in self._earliest_of_new}
        if unknown:
            there = find_partitions(self._cluster, self._options.selection, all_must_exist=False)
            for at in sorted(unknown.difference(there.partitions)):
                report_loss(self._options, f"{at} was deleted before it was read")
            wanted = dict.fromkeys(sorted(unknown.intersection(there.partitions)), EARLIEST)
            found = list_offsets(self._cluster, wanted) if wanted else {}
            for at, offset in found.items():
                if offset:
                    report_loss(
                        self._options,
                        f"{at} is new to this query and begins at offset {offset}: the records "
                        "before it were deleted unread",
                    )
                self._earliest_of_new[end.topic_ids.get(at.topic), at] = offset
        beginnings = {
            at: min(self._earliest_of_new.get(key, end.offsets[at]), end.offsets[at])
            for key, at in new.items()
        }
        return known | beginnings

    def _is_too_little(
        self, start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]
    ) -> bool:
        """Whether to wait for more records: too few, and the maximum delay has not passed."""
        least = self._options.min_offsets_per_trigger
        if least is None or self._target is not None:
            return False
        waited_s = time.monotonic() - self._last_trigger
        if waited_s >= self._options.max_trigger_delay_s:
            return False
        return sum(max(end[at] - start[at], 0) for at in end) < least

    def _settled(self, start: StreamOffset) -> StreamOffset:
        """The ends of all partitions; waits for ends that are before offsets already read."""
        deadline = time.monotonic() + SETTLING_S
        while True:
            end = self.latest()
            if all(
                end.offsets.get(at, -1) >= offset and start.same_topic(end, at.topic)
                for at, offset in start.offsets.items()
            ):
                return end
            if time.monotonic() > deadline:
                return end
            time.sleep(self._options.client.retry_backoff_s)
