"""The checkpointed high watermarks of replicated partitions: `replication-offset-checkpoint`."""

import logging
import threading
from collections.abc import Iterable

from headrace.errors import KafkaError
from headrace.log.directories import LogDirectories
from headrace.log.directory import LogDirectory
from headrace.replication.partition import Partition
from headrace.types import Offset, TopicPartition

logger = logging.getLogger(__name__)


class HighWatermarks:
    """The high watermarks that the last run saved, and the writing of new ones."""

    def __init__(self, directories: LogDirectories) -> None:
        self._directories = directories
        self._saved: dict[TopicPartition, Offset] = {}
        self._saving = threading.Lock()

    def load(self) -> None:
        """Read the checkpoints of all data folders."""
        for directory in self._directories.healthy:
            self._saved.update(directory.checkpoints.read_high_watermarks())

    def saved(self, partition: TopicPartition) -> Offset:
        """The high watermark at the last save before this start; 0 if there was none."""
        return self._saved.get(partition, 0)

    def save(self, partitions: Iterable[Partition]) -> None:
        """Write the high watermarks of these partitions. Runs in a worker thread."""
        with self._saving:  # serialised, so that the last write has the newest values
            offsets: dict[LogDirectory, dict[TopicPartition, Offset]] = {}
            for partition in partitions:
                home = self._directories.home_of(partition.name)
                replica = partition.replica
                if home is not None and home.offline is None and replica.opened is not None:
                    offsets.setdefault(home, {})[partition.name] = replica.committed
            for home, known in offsets.items():
                try:
                    home.checkpoints.write_high_watermarks(known)
                except KafkaError as error:
                    logger.error("%s; it is tried again", error.message)
