"""A driver as the service sees it: a child process, and requests to it. Imports no PySpark."""

import asyncio
import contextlib
import itertools
import json
import os
import socket
import sys
from collections.abc import Callable, Mapping
from typing import Any

LONGEST_LINE = 16 << 20
ENDS_WITHIN_S = 10.0
JAVA_ENDED, JAVA_KILLED = 70, 71
"""Exit statuses if Java has ended; the second after SIGKILL, which no query sends."""


class DriverGone(Exception):
    """The driver has ended, or does not respond in time."""


class DriverProcess:
    """One driver from its start to its end."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        on_event: Callable[[dict[str, Any]], None] | None,
    ) -> None:
        self._process = process
        self._writer = writer
        self._on_event = on_event
        self._numbers = itertools.count()
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._receiving = asyncio.create_task(self._receive(reader))

    @classmethod
    async def start(
        cls,
        module: str,
        settings: Mapping[str, Any],
        on_event: Callable[[dict[str, Any]], None] | None = None,
    ) -> "DriverProcess":
        """Start the process, which runs a module that calls `driver_loop.run`.

        It responds within a second; Spark takes longer. `on_event` is called with the messages that
        it sends on its own.
        """
        ours, theirs = socket.socketpair()
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                module,
                str(theirs.fileno()),
                pass_fds=(theirs.fileno(),),
                stdin=asyncio.subprocess.DEVNULL,
                env=dict(os.environ),
                # A signal of the terminal must reach the service only, which ends its drivers.
                start_new_session=True,
            )
        finally:
            theirs.close()
        reader, writer = await asyncio.open_unix_connection(sock=ours, limit=LONGEST_LINE)
        # Not as arguments of the process, which others can see.
        writer.write(json.dumps(settings).encode() + b"\n")
        return cls(process, reader, writer, on_event)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def status(self) -> int | None:
        """The exit status, if it has ended."""
        return self._process.returncode

    async def ask(self, message: Mapping[str, object], timeout_s: float) -> dict[str, Any]:
        """The response to a message; DriverGone if there is none in time."""
        if self.status is not None:
            # Its connection may be closed, which is a RuntimeError in some event loops.
            raise DriverGone(f"the Spark driver ended with status {self.status}")
        number = next(self._numbers)
        waiting = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            self._writer.write(json.dumps({"id": number, **message}).encode() + b"\n")
            answer: dict[str, Any] = await asyncio.wait_for(waiting, timeout_s)
        except (TimeoutError, OSError) as error:
            raise DriverGone(f"the Spark driver did not respond within {timeout_s:g} s") from error
        finally:
            self._waiting.pop(number, None)
        if "error" in answer:
            raise DriverGone(f"the Spark driver failed: {answer['error']}")
        return answer

    async def _receive(self, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(OSError, ValueError):
            while line := await reader.readline():
                answer = json.loads(line)
                if "id" not in answer:
                    if self._on_event is not None:
                        self._on_event(answer)
                    continue
                waiting = self._waiting.get(answer.pop("id"))
                if waiting is not None and not waiting.done():
                    waiting.set_result(answer)
        status = await self._process.wait()
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(DriverGone(f"the Spark driver ended with status {status}"))

    async def close(self) -> None:
        """Stop its queries, which then log no errors, and end it."""
        with contextlib.suppress(DriverGone):
            await self.ask({"do": "stop all"}, ENDS_WITHIN_S)
        await self.end()

    async def end(self) -> None:
        """Kill it. Its queries continue from their checkpoints in the next one."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()
        self._writer.close()
        await self._receiving
