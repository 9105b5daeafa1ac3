"""All partitions of this broker, found by name or by topic id, kept in step with the image."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future

from headrace.clock import Clock
from headrace.cluster.image import CLUSTER_DEFAULT, Image, Topic
from headrace.errors import ErrorCode, KafkaError
from headrace.log.directories import LogDirectories
from headrace.log.directory import LogDirectory
from headrace.replication.conversion import BatchConversion
from headrace.replication.flusher import Flusher
from headrace.replication.folders import ReplicaFolders
from headrace.replication.forks import ForkInProgress, Forks
from headrace.replication.high_watermarks import HighWatermarks
from headrace.replication.moves import Moves
from headrace.replication.partition import Partition
from headrace.replication.pending import PendingPartitions
from headrace.replication.replica import LocalReplica
from headrace.replication.schema_ids import SchemaIds
from headrace.replication.traffic import Traffic
from headrace.settings import LogSettings, Settings, log_settings
from headrace.types import TopicPartition, encode_uuid

logger = logging.getLogger(__name__)


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
        self.following: dict[Partition, None] = {}
        """The partitions with a replica here that another broker leads."""
        self.leading: dict[Partition, None] = {}
        """The partitions that this broker leads and others follow."""
        self.isr_expansions = PendingPartitions()
        """Those with a follower that has caught up but is not in the ISR yet."""
        self.offline_replicas = PendingPartitions()
        """Those with an offline replica here: a data folder has failed."""
        self.damaged = PendingPartitions()
        """Those whose log is damaged, with an offset in the segment that is; see `damage.py`."""
        self.on_roles: Callable[[], None] = _nothing
        """Called when partitions are added, removed, or change their leader."""
        self.stepped_down = False
        """Whether this broker may have lost its registration, and leads nothing until it knows."""
        self._clock = clock
        self.directories = directories
        self.forks = Forks(node_id, directories, executor, self._parent_of, self._continue_fork)
        self.folders = ReplicaFolders(directories, self.damaged, self.forks)
        self._image = Image()
        self.high_watermarks = HighWatermarks(directories)
        self.max_decompressed_bytes = settings.integer("headrace.max.decompressed.bytes")
        self.schema_ids = SchemaIds(
            settings.text("headrace.schemas.topic"),
            self.topic,
            lambda: self.max_decompressed_bytes,
        )
        self.traffic = Traffic(settings.integer("headrace.metrics.topics.max"))
        self._settings = settings
        self._executor = executor
        self.flusher = Flusher(executor)
        self.moves = Moves(directories, executor, lambda: self.settings_now, self.flusher.request)
        self.settings_now = settings
        """The broker's settings with the changes that were made while it runs."""

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

    # ------------------------------------------------------------------- following the image

    def apply(self, old: Image, new: Image) -> None:
        """Create, change and delete partitions until they match the new image."""
        self._image = new
        if old.broker_configs is not new.broker_configs:
            self._use_broker_configs(new)
        for name in _names_that_differ(old, new):
            before, after = old.topics.get(name), new.topics.get(name)
            if before is not None and (after is None or after.id != before.id):
                self._remove(before)
            if after is not None:
                self._apply_topic(after)
        if old.brokers is not new.brokers:
            self._expand_for_started(old, new)
        self.on_roles()

    def _expand_for_started(self, old: Image, new: Image) -> None:
        """Add followers to the ISR that fetched before their registration was in the image.

        If they have nothing more to fetch, no later fetch triggers this.
        """
        started = {
            one.id: one.epoch
            for one in new.brokers.values()
            if one.id not in old.brokers or old.brokers[one.id].epoch != one.epoch
        }
        for partition in self.leading if started else ():
            leadership = partition.leadership
            if leadership is not None and any(
                leadership.followers[one].epoch == started.get(one)
                for one in leadership.joining(partition.replica.high_watermark)
            ):
                self.isr_expansions.add(partition)

    def load(self, image: Image) -> None:
        """Prepare every partition in the image; after a crash, recover each log first."""
        self._image = image
        self._use_broker_configs(image)
        self.high_watermarks.load()
        for topic in image.topics.values():
            self._apply_topic(topic, existed=True)
        self.directories.recover(self._settings_for, _report_recovery, self._is_replicated)
        for work in self.directories.take_leftovers():
            self._in_background(work)

    def start(self) -> None:
        """Begin the work that needs the running event loop."""
        self.flusher.start()
        self.forks.start()

    def _settings_for(self, partition: TopicPartition) -> LogSettings:
        for known in self.topic(partition.topic)[partition.partition :]:
            return known.settings
        return log_settings(self.settings_now, {})

    def _is_replicated(self, partition: TopicPartition) -> bool:
        known = self.topic(partition.topic)[partition.partition : partition.partition + 1]
        return any(one.replicas > 1 for one in known)

    def _use_broker_configs(self, image: Image) -> None:
        of_all = image.broker_configs.get(CLUSTER_DEFAULT, {})
        own = image.broker_configs.get(str(self.node_id), {})
        self.settings_now = self._settings.with_dynamic({**of_all, **own})
        now = self.settings_now
        self.directories.threads = now.integer("num.recovery.threads.per.data.dir")
        self.max_decompressed_bytes = now.integer("headrace.max.decompressed.bytes")
        for topic in image.topics.values():
            partitions = self.by_key.get(topic.id.bytes)
            if partitions is not None:
                settings = log_settings(self.settings_now, topic.configs)
                conversion = BatchConversion(topic.name, settings, self)
                for partition in partitions:
                    partition.use_settings(settings, conversion)

    def _apply_topic(self, topic: Topic, *, existed: bool = False) -> None:
        settings = log_settings(self.settings_now, topic.configs)
        conversion = BatchConversion(topic.name, settings, self)
        partitions = self.by_key.get(topic.id.bytes)
        if partitions is None:
            partitions = self.by_key[topic.id.bytes] = self.by_key[topic.name.encode()] = []
        for partition, state in zip(partitions, topic.partitions, strict=False):
            partition.use_settings(settings, conversion)
            partition.use_state(state)
            self._note_role(partition, existed=existed)
        for index in range(len(partitions), len(topic.partitions)):
            name = TopicPartition(topic.name, index)
            state = topic.partitions[index]
            partition = Partition(name, topic.id, settings, state, self, conversion)
            partitions.append(partition)
            self._note_role(partition, existed=existed)
        self.folders.create_few()

    def _note_role(self, partition: Partition, *, existed: bool) -> None:
        """Update the sets of leaders and followers, and the partition's folder."""
        _include(self.following, partition, partition.hosted and not partition.leads)
        _include(self.leading, partition, partition.leadership is not None)
        if partition.hosted:
            self.folders.require(partition, existed=existed)
            return
        self.folders.release(partition)
        if self.directories.has(partition.name):
            self._in_background(self.directories.delete(partition.name))

    def _remove(self, topic: Topic) -> None:
        self.by_key.pop(topic.name.encode(), None)
        self.traffic.forget(topic.name)
        removals = []
        for partition in self.by_key.pop(topic.id.bytes, ()):
            partition.close()
            self.folders.forget(partition)
            for noted in (self.following, self.leading):
                noted.pop(partition, None)
            for pending in (self.isr_expansions, self.offline_replicas, self.damaged):
                pending.offsets.pop(partition, None)
            if self.directories.has(partition.name):
                removals.append(self.directories.delete(partition.name))
        self._in_background(self.directories.sync_names)
        for removal in removals:
            self._in_background(removal)

    # -------------------------------------------------------------- while the broker runs

    def now_ms(self) -> int:
        """A monotonic clock, to measure the lag of followers."""
        return int(self._clock.monotonic() * 1000)

    def save_high_watermarks(self) -> None:
        """Checkpoint the high watermarks of replicated partitions. Runs in a worker thread."""
        self.high_watermarks.save([*self.leading, *self.following])

    def _in_background(self, work: Callable[[], None]) -> None:
        """Run it in a worker thread; errors are logged."""
        self._executor.submit(work).add_done_callback(_log_failure)

    def step_down(self) -> None:
        """Stop leading all partitions, until `apply_again`."""
        self.stepped_down = True
        for partition in self.all_partitions():
            partition.step_down()

    def apply_again(self, image: Image) -> None:
        """Apply the roles in the image again, after `step_down`."""
        self.stepped_down = False
        for topic in image.topics.values():
            self._apply_topic(topic)

    def try_to_lead(self, partition: Partition, image: Image) -> None:
        """Lead a partition whose log could not be opened before, if it is still this broker's."""
        topic = image.topics.get(partition.name.topic)
        if topic is not None and topic.id == partition.topic_id and not self.stepped_down:
            partition.use_state(topic.partitions[partition.name.partition])
            self._note_role(partition, existed=False)
            self.on_roles()

    def _parent_of(self, fork: Partition) -> Partition | None:
        """The parent of a fork, if it is on this broker; ForkInProgress if it may be later."""
        name, settings = fork.name, fork.settings
        topic = self._image.topics.get(settings.fork_of)
        if topic is None or encode_uuid(topic.id) != settings.fork_of_id:
            return None
        partitions = self.by_key.get(topic.id.bytes, [])
        if name.partition >= len(partitions):
            raise ForkInProgress(name)  # the image is being applied
        parent = partitions[name.partition]
        return parent if parent.hosted else None

    def _continue_fork(self, partition: Partition) -> None:
        """A fork may be complete: open its log, and lead it if this broker is the leader."""
        try:
            self.folders.open_log(partition)
        except ForkInProgress:
            return
        except KafkaError as error:
            logger.error("the fork %s is not complete: %s", partition.name, error.message)
            self.forks.look_later(partition)
            return
        self.try_to_lead(partition, self._image)

    def directory_failed(self, directory: LogDirectory) -> None:
        """Fail requests that wait for partitions in this folder, which is offline now."""
        directory.release_files()
        error = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{directory.path} is offline")
        for name in directory.partitions():
            for partition in self.topic(name.topic)[name.partition : name.partition + 1]:
                partition.replica.waiters.fail(error)
                partition.replica.notify()
                self.offline_replicas.add(partition)

    def resume_moves(self) -> None:
        """Continue moves between data folders; needs a running event loop."""
        self.moves.resume(lambda name: next(iter(self.topic(name.topic)[name.partition :]), None))

    async def save_start_offsets(self) -> None:
        """Write the log start offsets of all logs to disk; KafkaError if that fails."""
        loop = asyncio.get_running_loop()
        for directory in self.directories.healthy:
            await loop.run_in_executor(self._executor, directory.checkpoint)


def _include(where: dict[Partition, None], partition: Partition, there: bool) -> None:
    if there:
        where[partition] = None
    else:
        where.pop(partition, None)


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
