"""The folders of this broker's replicas: opened, and created for new partitions."""

import logging
from itertools import islice

from headrace.errors import ErrorCode, KafkaError
from headrace.log.directories import LogDirectories
from headrace.log.log import Log
from headrace.replication.forks import ForkInProgress, Forks
from headrace.replication.partition import Partition
from headrace.replication.pending import PendingPartitions

logger = logging.getLogger(__name__)

FOLDERS_AT_ONCE = 50
"""Folders created without a yield to other requests: about ten milliseconds of work."""


class ReplicaFolders:
    """Opens the logs of replicas, and knows which replicas have no folder yet."""

    def __init__(
        self, directories: LogDirectories, damaged: PendingPartitions, forks: Forks
    ) -> None:
        self._directories = directories
        self._forks = forks
        self._damaged = damaged
        self._missing: dict[Partition, None] = {}
        # Partitions that must be in a data folder that was offline at the start.
        self._out_of_reach: set[Partition] = set()

    @property
    def any_missing(self) -> bool:
        """Whether there are partitions that have no folder yet."""
        return bool(self._missing)

    def require(self, partition: Partition, *, existed: bool) -> None:
        """Note that a partition needs a folder; `existed`: it had one at the last start."""
        if self._directories.has(partition.name) or partition in self._out_of_reach:
            return
        if existed and len(self._directories.healthy) < len(self._directories.all):
            self._out_of_reach.add(partition)
        else:
            self._missing[partition] = None

    def release(self, partition: Partition) -> None:
        """This broker has no replica of the partition any more."""
        self._missing.pop(partition, None)

    def forget(self, partition: Partition) -> None:
        """The topic was deleted."""
        self._missing.pop(partition, None)
        self._out_of_reach.discard(partition)
        self._forks.forget(partition)

    def open_log(self, partition: Partition) -> Log:
        """The partition's log; a new one if it has no folder yet.

        ForkInProgress while the log of a fork is built.
        """
        if not partition.hosted:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, f"this broker has no replica of {partition.name}"
            )
        self._missing.pop(partition, None)
        if self._directories.has(partition.name):
            log = self._directories.get(partition.name, partition.settings, partition.replicas > 1)
            for first, _ in log.holes[:1]:
                self._damaged.add(partition, first)
            return log
        if partition in self._out_of_reach:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"{partition.name} is in none of the data folders that could be opened",
            )
        if partition.settings.fork_offset(partition.name.partition):
            fork = self._forks.open_log(partition)
            if fork is not None:
                return fork
        return self._directories.create(partition.name, partition.topic_id, partition.settings)

    def create_some(self, at_most: int = FOLDERS_AT_ONCE) -> None:
        """Create some of the missing folders; the rest at the next call.

        Creating the folders of ten thousand partitions takes seconds, and must not block other
        requests. A partition that is used earlier creates its own.
        """
        for partition in list(islice(self._missing, at_most)):
            try:
                self.open_log(partition)
            except ForkInProgress:
                continue  # a worker builds it
            except KafkaError as error:
                # The first use of the partition tries again and reports the error.
                logger.error("no folder for %s yet: %s", partition.name, error.message)

    def create_few(self) -> None:
        """Create the missing folders at once if they are few."""
        if len(self._missing) <= FOLDERS_AT_ONCE:
            self.create_some()
