"""Recurring work of the broker: checkpoints, flushes, retention, idle connections."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from typing import TYPE_CHECKING

from headrace.broker.clock_watch import ClockWatch
from headrace.broker.connection import ClientConnection
from headrace.broker.metrics.values import Metrics
from headrace.broker.receive_memory import ReceiveMemory
from headrace.broker.retention import Retention
from headrace.clock import Clock
from headrace.errors import KafkaError
from headrace.replication.replicas import Replicas
from headrace.settings import Settings

if TYPE_CHECKING:
    from headrace.broker.compaction import Compaction

logger = logging.getLogger(__name__)

_FOLDERS_PAUSE_S = 0.05
_FOLDERS_AT_ONCE = 5
"""Creating a folder takes a fraction of a millisecond, in which clients wait."""
_CLOCK_CHECK_MS = 1000
"""How often the wall clock is compared with the monotonic one."""
_OVERDUE_CHECK_MS = 1000
_FLUSH_CHECK_MS = 1000
"""How often logs are checked for a due flush: sealed segments, flush.messages, flush.ms."""


class Background:
    """Recurring work; started with the server and stopped before the logs close."""

    def __init__(
        self,
        settings: Settings,
        replicas: Replicas,
        connections: set[ClientConnection],
        memory: ReceiveMemory,
        executor: Executor,
        retention: Retention,
        clock: Clock,
        metrics: Metrics,
        clock_watch: ClockWatch,
    ) -> None:
        self._settings = settings
        self._replicas = replicas
        self._connections = connections
        self._memory = memory
        self._executor = executor
        self._retention = retention
        self._clock = clock
        self._metrics = metrics
        self._clock_watch = clock_watch
        self._compaction: Compaction | None = None
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin; needs a running event loop."""
        checkpoint_ms = self._settings.integer("log.flush.offset.checkpoint.interval.ms")
        idle_ms = self._settings.integer("connections.max.idle.ms")
        self.every(checkpoint_ms, self._checkpoint)
        self.every(_FLUSH_CHECK_MS, self._flush)
        self.every(_FLUSH_CHECK_MS, self._make_folders)
        self.every(_FLUSH_CHECK_MS, self._remove_dropped)
        self.every(_CLOCK_CHECK_MS, self._look_at_clock)
        self.every(_OVERDUE_CHECK_MS, self._close_overdue)
        self.every(self._settings.integer("log.retention.check.interval.ms"), self._retain)
        self.every(
            self._settings.integer("producer.id.expiration.check.interval.ms"),
            self._expire_producers,
        )
        self._replicas.resume_moves()
        if idle_ms > 0:
            self.every(idle_ms, self._close_idle)
        if self._settings.boolean("log.cleaner.enable"):
            self._tasks.append(asyncio.get_running_loop().create_task(self._compact()))

    def stop(self) -> None:
        """End all recurring work."""
        for task in self._tasks:
            task.cancel()
        self._replicas.moves.stop()
        if self._compaction is not None:
            self._compaction.stop()

    def every(self, interval_ms: int, work: Callable[[], Awaitable[None]]) -> None:
        """Repeat some work; needs a running event loop."""

        async def repeat() -> None:
            while True:
                await asyncio.sleep(interval_ms / 1000)
                try:
                    await work()
                except Exception:
                    logger.exception("background work failed; it will be retried")

        self._tasks.append(asyncio.get_running_loop().create_task(repeat()))

    async def _compact(self) -> None:
        while True:
            backoff_ms = self._replicas.settings_now.integer("log.cleaner.backoff.ms")
            await asyncio.sleep(backoff_ms / 1000)
            try:
                # Imported here, after the broker accepts requests, for a faster start.
                from headrace.broker.compaction import Compaction
            except OSError as error:  # such as EMFILE: an import opens files
                logger.error("cannot start compaction: %s; it will be retried", error)
            else:
                break
        self._compaction = Compaction(self._replicas, self._executor, self._clock, self._metrics)
        self._compaction.start()

    async def _checkpoint(self) -> None:
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._executor, self._replicas.directories.checkpoint)

    async def _flush(self) -> None:
        loop = asyncio.get_running_loop()
        directories = self._replicas.directories
        for log in directories.due_for_flush():
            try:
                await loop.run_in_executor(self._executor, log.flush)
            except Exception as error:  # the other logs are flushed
                known = isinstance(error, KafkaError)
                logger.error(
                    "cannot flush %s: %s", log.partition, error,
                    exc_info=None if known else error,
                )  # fmt: skip

    async def _retain(self) -> None:
        await self._retention.look()
        await self._remove_dropped()

    async def _remove_dropped(self) -> None:
        loop = asyncio.get_running_loop()
        for directory in self._replicas.directories.healthy:
            if directory.removal.waiting:
                await loop.run_in_executor(self._executor, directory.remove_dropped)

    async def _make_folders(self) -> None:
        while self._replicas.folders.any_missing:
            self._replicas.folders.create_some(_FOLDERS_AT_ONCE)
            await asyncio.sleep(_FOLDERS_PAUSE_S)

    async def _look_at_clock(self) -> None:
        self._clock_watch.look()

    async def _expire_producers(self) -> None:
        self._replicas.directories.expire_producers()

    async def _close_overdue(self) -> None:
        """Close connections whose slow frame holds memory that other connections wait for."""
        for connection in self._memory.overdue():
            logger.warning(
                "closing %s: its unfinished request uses memory that other connections wait for "
                "(queued.max.request.bytes)", connection.address,
            )  # fmt: skip
            connection.close()

    async def _close_idle(self) -> None:
        """Close connections that sent nothing since the last check and wait for no response."""
        for connection in list(self._connections):
            if connection.active or connection.waits:
                connection.active = False
            else:
                logger.info("closing %s: idle (connections.max.idle.ms)", connection.address)
                connection.close()
