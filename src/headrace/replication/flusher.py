"""Group fsync: acknowledgements that wait for the disk share one flush.

Partitions that request a flush while one is running are part of the next one, so a slow disk leads
to larger groups, not longer queues.
"""

import asyncio
import contextlib
import logging
from concurrent.futures import Executor

from headrace.errors import ErrorCode, KafkaError
from headrace.replication.partition import Partition

logger = logging.getLogger(__name__)


class Flusher:
    """Flushes partitions' logs on a worker thread and commits what has reached the disk."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._wanted: dict[Partition, None] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin with flushes that were requested before the event loop ran."""
        if self._wanted and self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    def request(self, partition: Partition) -> None:
        """Schedule a flush of everything appended to `partition` so far."""
        self._wanted[partition] = None
        with contextlib.suppress(RuntimeError):  # no event loop yet: `start` follows
            self.start()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while self._wanted:
            group, self._wanted = list(self._wanted), {}
            outcomes = await loop.run_in_executor(self._executor, _flush_all, group)
            for partition, outcome in zip(group, outcomes, strict=True):
                try:
                    if isinstance(outcome, KafkaError):
                        logger.error("cannot flush %s: %s", partition.name, outcome)
                        partition.replica.waiters.fail(outcome)
                    else:
                        partition.flushed(outcome)
                except Exception:  # one partition's problem: others wait for their flushes
                    logger.exception("committing what was flushed of %s failed", partition.name)
        self._task = None


def _flush_all(group: list[Partition]) -> list[int | KafkaError]:
    return [flush_log(partition) for partition in group]


def flush_log(partition: Partition) -> int | KafkaError:
    """Flush a partition's log; the flushed offset or the error. Runs in a worker thread."""
    try:
        while True:
            log = partition.replica.log
            try:
                return log.flush()
            except KafkaError as error:
                if (
                    partition.replica.log is log
                ):  # otherwise the log was moved to another data folder
                    return error
    except KafkaError as error:
        return error  # it has been moved to another broker
    except OSError as error:
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
