"""The store calls of a broker that starts: repeated until the store answers.

A metadata store that stalls or is not there yet is no reason to end: the broker waits, logs that it
waits, and ends cleanly if it is told to stop meanwhile. Errors that do not pass by themselves, such
as a malformed address, are raised at once. A broker that runs has `replication.py` for this.
"""

import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TypeVar

from headrace.cluster.store import StoreError, StoreUnreachable
from headrace.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

_RETRY_S = 1.0
_POLL_S = 0.05
_SIGNALS = (signal.SIGTERM, signal.SIGINT)

_Result = TypeVar("_Result")


class StoppedWhileStarting(Exception):
    """SIGTERM or SIGINT came while the broker waited for its metadata store."""


class StoreCalls:
    """Makes the store calls of one start."""

    def __init__(self) -> None:
        # A plain flag: setting a threading.Event in a signal handler may deadlock its own waiter.
        self._stop_requested = False

    def stop_requested(self) -> bool:
        """Whether a signal to stop came during one of the calls."""
        return self._stop_requested

    def make(self, what: str, call: Callable[[], _Result]) -> _Result:
        """The result of `call`, which is repeated for as long as the store does not answer.

        `what` completes "cannot ... yet". StoppedWhileStarting if a signal to stop comes.
        """
        with self._listening():
            while True:
                try:
                    result = call()
                except (StoreError, KafkaError) as error:
                    self._check_not_stopped()
                    if not _may_pass(error):
                        raise
                    logger.warning("cannot %s yet: %s; trying again", what, error)
                    self._wait()
                else:
                    self._check_not_stopped()
                    return result

    def _wait(self) -> None:
        until = time.monotonic() + _RETRY_S
        while time.monotonic() < until:
            self._check_not_stopped()
            time.sleep(_POLL_S)

    def _check_not_stopped(self) -> None:
        if self._stop_requested:
            raise StoppedWhileStarting

    @contextmanager
    def _listening(self) -> Iterator[None]:
        """Only during the calls: work on files in between ends at once, as after a crash."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self._signalled) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _signalled(self, _number: int, _frame: FrameType | None) -> None:
        self._stop_requested = True


def _may_pass(error: StoreError | KafkaError) -> bool:
    """Whether the same call may succeed later: no answer, or other brokers were faster."""
    if isinstance(error, KafkaError) and error.code is ErrorCode.REQUEST_TIMED_OUT:
        return True
    return isinstance(error, StoreUnreachable) or isinstance(error.__cause__, StoreUnreachable)
