"""Parts of all logins: refusals, a bounded worker thread, and HTTP's BASIC credentials."""

import asyncio
import base64
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

WAITING = 128
"""The limit of logins being checked or waiting in one worker; further logins are refused."""

_Result = TypeVar("_Result")


class LoginRefused(Exception):
    """The login failed. The message is for the broker's log, not for the client."""


class TooManyLogins(LoginRefused):
    """The login was not checked, because too many others wait."""


class LoginWorker:
    """Checks that take milliseconds, in a thread; a flood of logins is refused, not queued."""

    def __init__(self, checked: str, thread_name: str) -> None:
        """`checked` is for the message to refused logins, such as `passwords`."""
        self._checked = checked
        self._thread_name = thread_name
        self._waiting = 0
        self._executor: ThreadPoolExecutor | None = None

    async def run(self, compute: Callable[[], _Result]) -> _Result:
        """Compute in the thread; TooManyLogins if too many checks wait."""
        if self._waiting >= WAITING:
            raise TooManyLogins(f"too many {self._checked} are being checked")
        if self._executor is None:
            self._executor = ThreadPoolExecutor(1, thread_name_prefix=self._thread_name)
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._executor, compute)
        finally:
            self._waiting -= 1

    def close(self) -> None:
        """Stop the thread after its present check."""
        if self._executor is not None:
            self._executor.shutdown(wait=False, cancel_futures=True)


def parse_basic(credentials: bytes) -> tuple[str, str]:
    """User and password of an `Authorization: Basic` header (RFC 7617); ValueError if malformed."""
    text = base64.b64decode(credentials.strip(), validate=True).decode()
    name, colon, password = text.partition(":")
    if not colon or not name:
        raise ValueError("expected NAME:PASSWORD")
    return name, password
