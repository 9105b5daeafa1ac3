"""The runs over dead letters in this driver, one for each connector at a time."""

import logging
import threading
from collections.abc import Callable
from pathlib import Path

from headrace.connect.host.failures import failure_of
from headrace.connect.host.letters.chunks import Chunks
from headrace.connect.host.letters.queue import LetterQueue
from headrace.connect.host.letters.run_state import (
    FAILED,
    FINISHED,
    RUNNING,
    STOPPED,
    LetterRunState,
    load,
)
from headrace.connect.letter_orders import LetterOrder, LettersRefused
from headrace.pipelines.host.retries import FailureKind

TRIES = 10
FIRST_WAIT_S, LONGEST_WAIT_S = 1.0, 60.0

log = logging.getLogger(__name__)


class LetterRun(threading.Thread):
    """One run, in a thread of its own."""

    def __init__(
        self, queue: LetterQueue, state: LetterRunState, path: Path, prepare: Callable[[], None]
    ):
        super().__init__(name=f"dead letters of {queue.work.name}", daemon=True)
        self._queue = queue
        self._path = path
        self._prepare = prepare
        self._stopping = threading.Event()
        self.state = state
        self.problem: str | None = None
        """Why it waits before it tries again."""

    def report(self) -> dict[str, object]:
        return {**self.state.report(), "error": self.state.error or self.problem}

    def stop(self) -> None:
        """End it after the present chunk; returns then."""
        self._stopping.set()
        self.join()

    def run(self) -> None:
        try:
            self._prepare()
            ended = self._run()
        except BaseException as error:
            log.warning(
                "the run over dead letters of %s failed", self._queue.work.name, exc_info=True
            )
            self.state.error = failure_of(error).sentence
            # The stored state is still that of a run: the same order continues it.
            self.state.state = FAILED
            return
        self.state.state = ended
        if ended == STOPPED:
            # The stored state is that of a run: another driver may continue it.
            return
        self.state.save(self._path)
        try:
            Chunks(self._queue, self.state).forget()
        except Exception:
            log.warning("groups of a finished run are left", exc_info=True)

    def _run(self) -> str:
        state = self.state
        while not self._stopping.is_set():
            chunk = state.next_chunk()
            if chunk is None:
                return FINISHED
            state.chunk = chunk
            state.save(self._path)
            if not self._written():
                return STOPPED
            self._queue.commit(chunk)
            state.chunk_ended()
            state.save(self._path)
        return STOPPED

    def _written(self) -> bool:
        """Write the chunk, again after errors that can pass; False if the run is stopped."""
        wait = FIRST_WAIT_S
        for tries in range(1, TRIES + 1):
            try:
                Chunks(self._queue, self.state).write()
                self.problem = None
                return True
            except Exception as error:
                failure = failure_of(error)
                if failure.kind is FailureKind.PERMANENT or tries == TRIES:
                    raise
                log.warning("dead letters of %s: %s", self._queue.work.name, failure.sentence)
                self.problem = failure.sentence
            if self._stopping.wait(wait):
                return False
            wait = min(2 * wait, LONGEST_WAIT_S)
        raise AssertionError("the last try returns or raises")


class LetterRuns:
    """The newest run of each connector."""

    def __init__(self, path: Callable[[str], Path], prepare: Callable[[], None]) -> None:
        """`path` is that of the state of a connector's run. `prepare` is called in the thread of
        each run, before it uses Spark."""
        self._path = path
        self._prepare = prepare
        self._runs: dict[str, LetterRun] = {}
        self._lock = threading.Lock()

    def start(self, queue: LetterQueue, order: LetterOrder) -> dict[str, object]:
        """Begin a run, or continue one that was interrupted; LettersRefused if another one runs."""
        name = queue.work.name
        path = self._path(name)
        with self._lock:
            running = self._runs.get(name)
            if running is not None and running.is_alive():
                if running.state.order == order:
                    return running.report()
                raise LettersRefused(f"A run over the dead letters of {name} is under way", 409)
            state = load(path)
            if state is None or state.state != RUNNING:
                state = queue.plan(order)
                state.save(path)
            elif state.order != order:
                raise LettersRefused(
                    f"An earlier run over the dead letters of {name} was interrupted. Finish it "
                    f"first, with the same options: {state.order.described()}",
                    409,
                )
            run = self._runs[name] = LetterRun(queue, state, path, self._prepare)
            run.start()
        return run.report()

    def leave(self, name: str) -> None:
        """End the run of a connector, so that another driver can continue it."""
        run = self._runs.get(name)
        if run is not None:
            run.stop()

    def stop(self, name: str) -> None:
        """End the run of a connector and give it up, or one that was interrupted.

        Returns when it writes nothing more. Letters of a chunk that failed may be written again by
        the next run.
        """
        with self._lock:
            self.leave(name)
            path = self._path(name)
            state = load(path)
            if state is not None and state.state == RUNNING:
                state.state = STOPPED
                state.save(path)

    def report(self) -> dict[str, object]:
        return {name: run.report() for name, run in list(self._runs.items())}
