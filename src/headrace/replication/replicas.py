"""All partitions of this broker, found by name or by topic id, kept in step with the image."""

import asyncio
import logging
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future
from itertools import islice

from headrace.clock import Clock
from headrace.cluster.image import Image, Topic
from headrace.errors import ErrorCode, KafkaError
from headrace.log.directories import LogDirectories
from headrace.log.directory import LogDirectory
from headrace.log.log import Log
from headrace.replication.flusher import Flusher
from headrace.replication.moves import Moves
from headrace.replication.partition import Partition
from headrace.replication.replica import LocalReplica
from headrace.replication.schema_ids import SchemaIds
from headrace.replication.traffic import Traffic
from headrace.settings import LogSettings, Settings, log_settings
from headrace.types import Offset, TopicPartition

logger = logging.getLogger(__name__)

_FOLDERS_AT_ONCE = 50
"""Folders created without a yield to other requests: about ten milliseconds of work."""


class Replicas:
    """The partitions that this broker holds, and what they share."""

    def __init__(
        self,
        node_id: int,
        settings: Settings,
        directories: LogDirectories,
        executor: Executor,
        clock: Clock,
    ) -> None:
        self.by_key: dict[bytes, list[Partition]] = {}
        """A topic's partitions by its name in UTF-8 and by the bytes of its id."""
        self.node_id = node_id
        self.followers_serve = bool(settings.text("replica.selector.class"))
        self.changed: list[LocalReplica] = []
        """Those with watchers that have changed since waiting fetches were last woken."""
        self.followed: dict[Partition, None] = {}
        """The replicas here that another broker leads."""
        self.shared_out: dict[Partition, None] = {}
        """The partitions that this broker leads and others follow."""
        self.isr_wanted: dict[Partition, None] = {}
        """Those with a follower that has caught up but is not in the ISR yet."""
        self.on_roles: Callable[[], None] = _nothing
        """Called when partitions are added, removed, or change their leader."""
        self.on_isr: Callable[[], None] = _nothing
        """Called when `isr_wanted` changes."""
        self.unfit: dict[Partition, None] = {}
        """Those with an offline replica here: a data folder has failed."""
        self.stepped_down = False
        """Whether this broker may have lost its registration, and leads nothing until it knows."""
        self.on_unfit: Callable[[], None] = _nothing
        """Called when `unfit` changes."""
        self.damaged: dict[Partition, Offset] = {}
        """Those whose log is damaged, and an offset in the segment that is; see `damage.py`."""
        self.on_damaged: Callable[[], None] = _nothing
        """Called when `damaged` changes."""
        self._clock = clock
        self._high_watermarks: dict[TopicPartition, int] = {}
        self.directories = directories
        self.max_decompressed_bytes = settings.integer("headrace.max.decompressed.bytes")
        self.schema_ids = SchemaIds(
            settings.text("headrace.schemas.topic"),
            self.topic,
            lambda: self.max_decompressed_bytes,
        )
        self.traffic = Traffic(settings.integer("headrace.metrics.topics.max"))
        self._settings = settings
        self._executor = executor
        self._flusher = Flusher(executor)
        self.moves = Moves(directories, executor, lambda: self.settings_now, self.flush_later)
        self.settings_now = settings
        """The broker's settings with the changes that were made while it runs."""
        self._saving = threading.Lock()
        self._without_folder: dict[Partition, None] = {}
        # Partitions that must be in a folder that was offline at the start.
        self._out_of_reach: set[Partition] = set()

    # ----------------------------------------------------------------------------- finding

    def partition(self, topic: str, index: int) -> Partition:
        """The partition, if this broker leads it; otherwise the error that a client needs."""
        partitions = self.by_key.get(topic.encode())
        if partitions is None or not 0 <= index < len(partitions):
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {topic}-{index} here"
            )
        partition = partitions[index]
        if not partition.leads:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{topic}-{index} is not led by this broker"
            )
        return partition

    def topic(self, topic: str) -> list[Partition]:
        """All partitions of a topic; none if there is no such topic."""
        return self.by_key.get(topic.encode(), [])

    def all_partitions(self) -> list[Partition]:
        """The partitions of all topics of which this broker has a replica."""
        topics = {id(partitions): partitions for partitions in self.by_key.values()}
        return [
            partition
            for partitions in topics.values()
            for partition in partitions
            if partition.hosted
        ]

    def holds_records(self, partition: Partition) -> bool:
        """Whether there is anything in the partition's folder, without opening the log."""
        return self.directories.holds_records(partition.name)

    # ------------------------------------------------------------------- following the image

    def apply(self, old: Image, new: Image) -> None:
        """Create, change and delete partitions until they match the new image."""
        if old.broker_configs is not new.broker_configs:
            self._use_broker_configs(new)
        for name in _names_that_differ(old, new):
            before, after = old.topics.get(name), new.topics.get(name)
            if before is not None and (after is None or after.id != before.id):
                self._remove(before)
            if after is not None:
                self._place(after)
        if old.brokers is not new.brokers:
            self._let_in_started(old, new)
        self.on_roles()

    def _let_in_started(self, old: Image, new: Image) -> None:
        """Add followers to the ISR that fetched before their registration was in the image.

        If they have nothing more to fetch, no later fetch triggers this.
        """
        started = {
            one.id: one.epoch
            for one in new.brokers.values()
            if one.id not in old.brokers or old.brokers[one.id].epoch != one.epoch
        }
        for partition in self.shared_out if started else ():
            leadership = partition.leadership
            if leadership is not None and any(
                leadership.followers[one].epoch == started.get(one)
                for one in leadership.joining(partition.replica.high_watermark)
            ):
                self.isr_due(partition)

    def load(self, image: Image) -> None:
        """Prepare every partition in the image; after a crash, recover each log first."""
        self._use_broker_configs(image)
        for directory in self.directories.healthy:
            self._high_watermarks.update(directory.read_high_watermarks())
        for topic in image.topics.values():
            self._place(topic, known=True)
        self.directories.recover(self._settings_for, _report_recovery, self._is_replicated)
        for work in self.directories.take_leftovers():
            self._in_background(work)

    def start(self) -> None:
        """Begin the work that needs the running event loop."""
        self._flusher.start()

    def _settings_for(self, partition: TopicPartition) -> LogSettings:
        for known in self.topic(partition.topic)[partition.partition :]:
            return known.settings
        return log_settings(self.settings_now, {})

    def _is_replicated(self, partition: TopicPartition) -> bool:
        known = self.topic(partition.topic)[partition.partition : partition.partition + 1]
        return any(one.replicas > 1 for one in known)

    def _use_broker_configs(self, image: Image) -> None:
        changes: dict[str, str | None] = {}
        changes.update(image.broker_configs.get("", {}))
        changes.update(image.broker_configs.get(str(self.node_id), {}))
        self.settings_now = self._settings.replace(changes)
        now = self.settings_now
        self.directories.threads = now.integer("num.recovery.threads.per.data.dir")
        self.max_decompressed_bytes = now.integer("headrace.max.decompressed.bytes")
        for topic in image.topics.values():
            partitions = self.by_key.get(topic.id.bytes)
            if partitions is not None:
                settings = log_settings(self.settings_now, topic.configs)
                for partition in partitions:
                    partition.use_settings(settings)

    def _place(self, topic: Topic, *, known: bool = False) -> None:
        settings = log_settings(self.settings_now, topic.configs)
        partitions = self.by_key.get(topic.id.bytes)
        if partitions is None:
            partitions = self.by_key[topic.id.bytes] = self.by_key[topic.name.encode()] = []
        for partition, state in zip(partitions, topic.partitions, strict=False):
            partition.use_settings(settings)
            partition.use_state(state)
            self._note_role(partition, known)
        for index in range(len(partitions), len(topic.partitions)):
            name = TopicPartition(topic.name, index)
            partition = Partition(name, topic.id, settings, topic.partitions[index], self)
            partitions.append(partition)
            self._note_role(partition, known)
        if len(self._without_folder) <= _FOLDERS_AT_ONCE:
            self.make_folders()

    def _note_role(self, partition: Partition, known: bool) -> None:
        """Update the sets of leaders, followers and partitions without a folder."""
        self._note(self.followed, partition, partition.hosted and not partition.leads)
        self._note(self.shared_out, partition, partition.leadership is not None)
        has_folder = self.directories.has(partition.name)
        if not partition.hosted:
            self._without_folder.pop(partition, None)
            if has_folder:
                self._in_background(self.directories.delete(partition.name))
        elif not has_folder and partition not in self._out_of_reach:
            if known and len(self.directories.healthy) < len(self.directories.all):
                self._out_of_reach.add(partition)
            else:
                self._without_folder[partition] = None

    def _note(self, where: dict[Partition, None], partition: Partition, there: bool) -> None:
        if there:
            where[partition] = None
        else:
            where.pop(partition, None)

    def _remove(self, topic: Topic) -> None:
        self.by_key.pop(topic.name.encode(), None)
        self.traffic.forget(topic.name)
        removals = []
        for partition in self.by_key.pop(topic.id.bytes, ()):
            partition.close()
            for noted in (
                self._without_folder, self.followed, self.shared_out, self.isr_wanted, self.unfit,
                self.damaged,
            ):  # fmt: skip
                noted.pop(partition, None)
            self._out_of_reach.discard(partition)
            if self.directories.has(partition.name):
                removals.append(self.directories.delete(partition.name))
        self._in_background(self.directories.sync_names)
        for removal in removals:
            self._in_background(removal)

    # ------------------------------------------------------------ what partitions ask of us

    def open_log(self, partition: Partition) -> Log:
        """The partition's log, from its folder."""
        if not partition.hosted:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, f"this broker has no replica of {partition.name}"
            )
        self._without_folder.pop(partition, None)
        if self.directories.has(partition.name):
            log = self.directories.get(partition.name, partition.settings, partition.replicas > 1)
            for first, _ in log.holes[:1]:
                self.found_damaged(partition, first)
            return log
        if partition in self._out_of_reach:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"{partition.name} is in none of the data folders that could be opened",
            )
        return self.directories.create(partition.name, partition.topic_id, partition.settings)

    def known_high_watermark(self, name: TopicPartition) -> int:
        """The checkpointed high watermark."""
        return self._high_watermarks.get(name, 0)

    def now_ms(self) -> int:
        """A monotonic clock, to measure the lag of followers."""
        return int(self._clock.monotonic() * 1000)

    def isr_due(self, partition: Partition) -> None:
        """A follower of this partition can be added to the ISR."""
        self.isr_wanted[partition] = None
        self.on_isr()

    def save_high_watermarks(self) -> None:
        """Checkpoint the high watermarks of replicated partitions. Runs in a worker thread."""
        with self._saving:  # serialised, so that the last write has the newest values
            offsets: dict[LogDirectory, dict[TopicPartition, int]] = {}
            for partition in [*self.shared_out, *self.followed]:
                home = self.directories.home_of(partition.name)
                if (
                    home is not None
                    and home.offline is None
                    and partition.replica.opened is not None
                ):
                    offsets.setdefault(home, {})[partition.name] = partition.replica.committed
            for home, known in offsets.items():
                try:
                    home.write_high_watermarks(known)
                except KafkaError as error:
                    logger.error("%s; it is tried again", error.message)

    def _in_background(self, work: Callable[[], None]) -> None:
        """Run it in a worker thread; errors are logged."""
        self._executor.submit(work).add_done_callback(_log_failure)

    def step_down(self) -> None:
        """Stop leading all partitions, until `use_again`."""
        self.stepped_down = True
        for partition in self.all_partitions():
            partition.step_down()

    def use_again(self, image: Image) -> None:
        """Apply the roles in the image again, after `step_down`."""
        self.stepped_down = False
        for topic in image.topics.values():
            self._place(topic)

    def try_to_lead(self, partition: Partition, image: Image) -> None:
        """Lead a partition whose log could not be opened before, if it is still this broker's."""
        topic = image.topics.get(partition.name.topic)
        if topic is not None and topic.id == partition.topic_id and not self.stepped_down:
            partition.use_state(topic.partitions[partition.name.partition])
            self._note_role(partition, known=False)
            self.on_roles()

    @property
    def lacks_folders(self) -> bool:
        """Whether there are partitions that have no folder yet."""
        return bool(self._without_folder)

    def make_folders(self, at_most: int = _FOLDERS_AT_ONCE) -> None:
        """Create some of the folders that new partitions lack; the rest at the next call.

        Creating the folders of ten thousand partitions takes seconds, and must not block other
        requests. A partition that is used earlier creates its own.
        """
        for partition in list(islice(self._without_folder, at_most)):
            try:
                self.open_log(partition)
            except KafkaError as error:
                # The first use of the partition tries again and reports the error.
                logger.error("no folder for %s yet: %s", partition.name, error.message)

    def directory_failed(self, directory: LogDirectory) -> None:
        """Fail requests that wait for partitions in this folder, which is offline now."""
        directory.release_files()
        error = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{directory.path} is offline")
        for name in directory.partitions():
            for partition in self.topic(name.topic)[name.partition : name.partition + 1]:
                partition.replica.waiters.fail(error)
                partition.replica.notify()
                if partition.replicas > 1:
                    self.cannot_serve(partition)

    def cannot_serve(self, partition: Partition) -> None:
        """Report this replica as offline, so that another broker leads."""
        self.unfit[partition] = None
        self.on_unfit()

    def found_damaged(self, partition: Partition, offset: Offset) -> None:
        """Report damage at this offset, so that it is fetched from another replica."""
        if partition.replicas > 1:
            self.damaged[partition] = min(offset, self.damaged.get(partition, offset))
            self.on_damaged()

    def resume_moves(self) -> None:
        """Continue moves between data folders; needs a running event loop."""
        self.moves.resume(lambda name: next(iter(self.topic(name.topic)[name.partition :]), None))

    async def save_start_offsets(self) -> None:
        """Write the log start offsets of all logs to disk; KafkaError if that fails."""
        loop = asyncio.get_running_loop()
        for directory in self.directories.healthy:
            await loop.run_in_executor(self._executor, directory.checkpoint)

    def flush_later(self, partition: Partition) -> None:
        """Flush when the current flush is done, then commit."""
        self._flusher.request(partition)


def _nothing() -> None:
    """Does nothing: the default callback."""


def _log_failure(done: "Future[None]") -> None:
    error = None if done.cancelled() else done.exception()
    if error is not None:
        logger.error("work in the background failed: %s", error, exc_info=error)


def _names_that_differ(old: Image, new: Image) -> Iterable[str]:
    for name, topic in new.topics.items():
        if old.topics.get(name) is not topic:
            yield name
    for name in old.topics:
        if name not in new.topics:
            yield name


def _report_recovery(partition: TopicPartition, done: int, total: int) -> None:
    if done == total or done % 1000 == 0:
        logger.info("checked %d of %d logs after an unclean stop", done, total)
