"""An event loop whose time is a number, and processes in it that can be stopped dead.

Nothing waits: when no callback is ready, the clock jumps to the next timer. There are no threads
and no sockets, so a run depends on nothing but its seed. Each broker and client is a `Process`;
what it starts (tasks, timers, work for threads) belongs to it by its context, and ends with it.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextvars import Context, ContextVar, copy_context
from random import Random
from typing import Any

_PROCESS: ContextVar["Process | None"] = ContextVar("process", default=None)
_START_MS = 1_700_000_000_000


def current_process() -> "Process | None":
    """Whose turn it is."""
    return _PROCESS.get()


class SimulatedLoop(asyncio.BaseEventLoop):
    """Runs callbacks in the order of their times; `after_callback` hears of each."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        self._clock_resolution = 1e-9
        self._selector = self
        self.tasks: list[asyncio.Task[Any]] = []
        """All of them, for good: the end of an abandoned one must not come in the middle."""
        self.after_step: Callable[[], bool] = lambda: False
        """Whether it has made anything ready."""
        self.after_callback: Callable[[Process], None] = lambda process: None
        self.failures: list[dict[str, Any]] = []
        self.world = Context()

    def time(self) -> float:
        return self._now

    def select(self, timeout: float | None) -> list[object]:
        """What asyncio takes for the wait for sockets: the time passes at once."""
        if not self.after_step() and timeout:
            self._now += timeout
        assert timeout is not None, "nothing will ever happen"
        return []

    def _process_events(self, _events: list[object]) -> None: ...

    def _write_to_self(self) -> None: ...

    def create_task(self, coro: Any, **options: Any) -> asyncio.Task[Any]:
        task = super().create_task(coro, **options)
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        self.tasks.append(task)
        return task

    def _call_soon(self, callback: Any, args: Any, context: Any) -> Any:
        return super()._call_soon(*self._guarded(callback, args, context))  # type: ignore[misc]

    def call_at(  # type: ignore[override]
        self, when: float, callback: Any, *args: Any, context: Any = None
    ) -> Any:
        callback, args, context = self._guarded(callback, args, context)
        return super().call_at(when, callback, *args, context=context)

    def _guarded(self, callback: Any, args: Any, context: Context | None) -> Any:
        context = copy_context() if context is None else context
        process = context.get(_PROCESS)
        if process is None:
            return callback, args, context
        return process.run, (callback, args), context

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self.failures.append(context)

    def later(self, delay_s: float, work: Callable[[], None]) -> None:
        """Something that happens to the world, whoever caused it."""
        self.call_at(self._now + delay_s, work, context=self.world)


class Process:
    """Something that can be killed, and stopped for a while."""

    def __init__(self, loop: SimulatedLoop, name: str) -> None:
        self.loop = loop
        self.name = name
        self.alive = True
        self.paused = False
        self._held: list[tuple[Callable[..., object], tuple[object, ...]]] = []
        self.context = loop.world.copy()
        self.context.run(_PROCESS.set, self)

    def run(self, callback: Callable[..., object], args: tuple[object, ...]) -> None:
        """Do what the process has to do next, if it is there to do it."""
        if self.paused:
            self._held.append((callback, args))
        elif self.alive:
            callback(*args)
            self.loop.after_callback(self)

    def soon(self, callback: Callable[..., object], *args: object) -> None:
        """Have the process do something, whoever asks for it."""
        if self.alive:
            self.loop.call_soon(callback, *args, context=self.context)

    def start(self, coroutine: Any) -> asyncio.Task[Any]:
        """A task of the process."""
        return self.context.copy().run(self.loop.create_task, coroutine)

    def kill(self) -> None:
        """It does nothing more, ever."""
        self.alive = False
        self._held.clear()

    def pause(self) -> None:
        """It does nothing until `resume`."""
        self.paused = True

    def resume(self) -> None:
        """It goes on, with everything that was due meanwhile, in its order."""
        self.paused = False
        held, self._held = self._held, []
        for callback, args in held:
            self.soon(callback, *args)


class Threads(Executor):
    """Worker threads of a process: what they do happens at once, a moment later."""

    def __init__(self, process: Process, random: Random) -> None:
        self._process = process
        self._random = random

    def submit(self, work: Any, /, *args: Any, **options: Any) -> Future[Any]:
        future: Future[Any] = Future()

        def do() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(work(*args, **options))
            except Exception as error:
                future.set_exception(error)

        loop = self._process.loop
        when = loop.time() + self._random.expovariate(200)
        loop.call_at(when, do, context=self._process.context)
        return future


class SimulatedClock:
    """One machine's clock: steady with the loop's, but for the wall time, which may jump."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop
        self.skew_ms = 0

    def now_ms(self) -> int:
        return _START_MS + int(self._loop.time() * 1000) + self.skew_ms

    def monotonic(self) -> float:
        return self._loop.time()
