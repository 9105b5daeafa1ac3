"""What the broker does on its own: checkpoints, flushes that settings ask for, idle connections."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor

from headrace.broker.connection import Connection
from headrace.replication.replicas import Replicas
from headrace.settings import Settings

logger = logging.getLogger(__name__)


class Background:
    """Recurring work; started with the server and stopped before the logs close."""

    def __init__(
        self,
        settings: Settings,
        replicas: Replicas,
        connections: set[Connection],
        executor: Executor,
    ) -> None:
        self._settings = settings
        self._replicas = replicas
        self._connections = connections
        self._executor = executor
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin; needs a running event loop."""
        checkpoint_ms = self._settings.integer("log.flush.offset.checkpoint.interval.ms")
        flush_ms = self._settings.integer("log.flush.scheduler.interval.ms")
        idle_ms = self._settings.integer("connections.max.idle.ms")
        self._every(checkpoint_ms, self._checkpoint)
        self._every(min(flush_ms, 3_600_000), self._flush)
        if idle_ms > 0:
            self._every(max(idle_ms // 2, 1), self._close_idle)

    def stop(self) -> None:
        """End all recurring work."""
        for task in self._tasks:
            task.cancel()

    def _every(self, interval_ms: int, work: Callable[[], Awaitable[None]]) -> None:
        async def repeat() -> None:
            while True:
                await asyncio.sleep(interval_ms / 1000)
                try:
                    await work()
                except Exception:
                    logger.exception("background work failed; it is tried again later")

        self._tasks.append(asyncio.get_running_loop().create_task(repeat()))

    async def _checkpoint(self) -> None:
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._executor, self._replicas.directory.checkpoint)

    async def _flush(self) -> None:
        loop = asyncio.get_running_loop()
        for log in self._replicas.directory.logs_to_flush():
            await loop.run_in_executor(self._executor, log.flush)

    async def _close_idle(self) -> None:
        for connection in list(self._connections):
            if connection.active:
                connection.active = False
            else:
                logger.info("closing %s: idle (connections.max.idle.ms)", connection.address)
                connection.close()
