"""The logs of forks on this broker, which worker threads build from the parents' replicas.

Every broker builds its replica of a fork from its own replica of the parent, so no records are
sent. A replica whose parent is not here, or does not have all records below the cut, begins empty
and fetches from the leader. Until a log is complete, requests for it get NOT_LEADER_OR_FOLLOWER,
which makes clients try again.
"""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import suppress
from typing import TYPE_CHECKING

from headrace.errors import ErrorCode, KafkaError
from headrace.log.data_folder import remove_tree
from headrace.log.directories import LogDirectories
from headrace.log.log import Log
from headrace.types import BrokerId, TopicPartition

if TYPE_CHECKING:
    from headrace.log.forks.build import BuiltFork
    from headrace.replication.partition import Partition

logger = logging.getLogger(__name__)

_AGAIN_S = 0.2
"""The delay before a parent that does not have all records below the cut is looked at again."""


class ForkInProgress(KafkaError):
    """The log of a fork is not complete yet."""

    def __init__(self, name: TopicPartition) -> None:
        super().__init__(
            ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{name} is a fork that is not complete yet"
        )


class Forks:
    """Builds the logs of forks, and gives them their names when they are complete."""

    def __init__(
        self,
        node_id: BrokerId,
        directories: LogDirectories,
        executor: Executor,
        parent_of: "Callable[[Partition], Partition | None]",
        on_progress: "Callable[[Partition], None]",
    ) -> None:
        """`parent_of` finds the parent's partition on this broker, or None if it has none.

        `on_progress` is called when a fork that was refused with ForkInProgress may be complete.
        """
        self._node_id = node_id
        self._directories = directories
        self._executor = executor
        self._parent_of = parent_of
        self._on_progress = on_progress
        self._jobs: dict[Partition, Future[BuiltFork]] = {}
        self._waiting: dict[Partition, None] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self) -> None:
        """Begin; needs a running event loop. Until then all topics may not be known."""
        self._loop = asyncio.get_running_loop()
        for partition in [*self._waiting]:
            self._look(partition)

    def forget(self, partition: "Partition") -> None:
        """The topic was deleted."""
        self._waiting.pop(partition, None)
        job = self._jobs.pop(partition, None)
        if job is not None:
            job.add_done_callback(_discard)

    def open_log(self, partition: "Partition") -> Log | None:
        """The log of a fork that has no folder yet; None if it has to begin without records.

        ForkInProgress while it is built.
        """
        job = self._jobs.get(partition)
        if job is None:
            return self._begin(partition)
        if not job.done():
            raise ForkInProgress(partition.name)
        del self._jobs[partition]
        built = _result(job, partition.name)
        if built is None:
            return self._begin(partition)
        self._directories.adopt_fork(partition.name, built)
        built.log.use_settings(partition.settings)
        logger.info(
            "%s is a fork of %s: it begins with the offsets %d to %d", partition.name,
            partition.settings.fork_of, built.log.start_offset, built.log.end_offset - 1,
        )  # fmt: skip
        return built.log

    def _begin(self, partition: "Partition") -> Log | None:
        # Imported here, so that brokers without forks start faster.
        from headrace.log.forks.build import build_fork
        from headrace.log.forks.plan import plan_fork

        name, settings = partition.name, partition.settings
        if self._loop is None:
            self._waiting[partition] = None
            raise ForkInProgress(name)
        plan = home = None
        try:
            parent = self._parent_of(partition)
            if parent is None:
                return self._empty(partition)
            plan = plan_fork(parent.replica.log, settings.fork_offset(name.partition))
            home = self._directories.home_of(parent.name)
        except ForkInProgress:
            self.look_later(partition)
            raise
        except KafkaError as error:
            logger.error("cannot build the fork %s yet: %s", name, error.message)
        if plan is None or home is None:
            if partition.leader != self._node_id:
                return None
            self.look_later(partition)
            raise ForkInProgress(name)
        with suppress(RuntimeError):  # the broker stops
            job = self._executor.submit(build_fork, plan, home, name, partition.topic_id, settings)
            self._jobs[partition] = job
            job.add_done_callback(lambda _: self._look_soon(partition))
        raise ForkInProgress(name)

    def _empty(self, partition: "Partition") -> Log | None:
        """The log of a fork whose parent is gone: the leader's is empty at the cut."""
        if partition.leader != self._node_id:
            return None
        log = self._directories.create(partition.name, partition.topic_id, partition.settings)
        log.restart_at(partition.settings.fork_offset(partition.name.partition))
        logger.error(
            "%s has no records of %s, which was deleted before the fork was complete",
            partition.name, partition.settings.fork_of,
        )  # fmt: skip
        return log

    def look_later(self, partition: "Partition") -> None:
        """Try again after a delay."""
        if partition not in self._waiting and self._loop is not None:
            self._waiting[partition] = None
            self._loop.call_later(_AGAIN_S, self._look, partition)

    def _look_soon(self, partition: "Partition") -> None:
        """A job has ended. Runs in a worker thread."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the event loop has ended
                self._loop.call_soon_threadsafe(self._look, partition)

    def _look(self, partition: "Partition") -> None:
        self._waiting.pop(partition, None)
        if not partition.closed:
            self._on_progress(partition)


def _result(job: "Future[BuiltFork]", name: TopicPartition) -> "BuiltFork | None":
    """The complete fork; None if the parent has changed. KafkaError if the disk failed."""
    from headrace.log.forks.build import ParentChanged

    try:
        return job.result()
    except ParentChanged as change:
        logger.info("the fork %s is built again: its parent has changed: %s", name, change)
        return None


def _discard(job: "Future[BuiltFork]") -> None:
    """Remove a fork that is not wanted any more."""
    if not job.cancelled() and job.exception() is None:
        built = job.result()
        built.log.abandon("its topic was deleted")
        with suppress(OSError):  # the next start removes it
            remove_tree(built.directory.disk, built.folder)
