"""The store calls of a starting broker, which are repeated until the store responds.

A metadata store that stalls or is not running yet does not end the broker: it waits, logs that it
waits, and ends cleanly on a signal. Permanent errors, such as a malformed address, are raised
immediately. After the start `replication.py` handles failures of the store.
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
        """The result of `call`, which is repeated while the store does not respond.

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
                    logger.warning("cannot %s yet: %s; retrying", what, error)
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
        """Handle signals during the calls only; in between, a signal ends the process at once."""
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
    """Whether the same call may succeed later: no response, or a conflict with other brokers."""
    if isinstance(error, KafkaError) and error.code is ErrorCode.REQUEST_TIMED_OUT:
        return True
    return isinstance(error, StoreUnreachable) or isinstance(error.__cause__, StoreUnreachable)
