"""Background work of a coordinator on the event loop, between its start and its stop."""

import asyncio
import logging
from collections.abc import Callable, Coroutine

logger = logging.getLogger(__name__)


class CoordinatorTasks:
    """Tasks that end with the coordinator."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def are_running(self) -> bool:
        """Whether the coordinator is started, so that tasks may be spawned."""
        return self._loop is not None

    def start(self) -> None:
        """Allow tasks; needs a running event loop."""
        self._loop = asyncio.get_running_loop()

    def stop(self) -> None:
        """Cancel all tasks."""
        for task in self._tasks:
            task.cancel()
        self._loop = None

    def spawn(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Run a coroutine."""
        assert self._loop is not None, "the coordinator is started"
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def repeat(self, interval_ms: int, work: Callable[[], None]) -> None:
        """Call a function at this interval."""
        self.spawn(_repeat(interval_ms / 1000, work))


async def _repeat(interval_s: float, work: Callable[[], None]) -> None:
    while True:
        await asyncio.sleep(interval_s)
        try:
            work()
        except Exception:
            logger.exception("recurring work of a coordinator failed; it is tried again")
