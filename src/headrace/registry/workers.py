"""The pool of worker processes for large schemas, as the event loop uses it.

Workers start when they are first needed and keep running. One that exceeds its CPU limit or
crashes is replaced.
"""

import asyncio
import logging
import signal
import struct
import sys
from asyncio.subprocess import PIPE, Process
from contextlib import suppress

from headrace.registry import limits
from headrace.registry.failures import RegistryError, invalid_schema
from headrace.registry.work import Result, Task, decode_result, encode_task

log = logging.getLogger("headrace.registry")
LENGTH = struct.Struct(">I")


class _Ended(Exception):
    """The worker ended before it returned a result."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class Workers:
    """Runs tasks in worker processes; tasks beyond the number of processes wait."""

    def __init__(
        self, processes: int = limits.WORKERS, cpu_s: float = limits.WORK_CPU_SECONDS
    ) -> None:
        self._cpu_s = cpu_s
        self._turns = asyncio.Semaphore(processes)
        self._all: set[Process] = set()
        self._free: list[Process] = []
        self.waiting = 0
        """Tasks that are not finished."""

    async def run(self, task: Task) -> Result:
        """The result; raises RegistryError if the task exceeds its limits."""
        if self.waiting >= limits.WAITING_TASKS:
            raise RegistryError(
                429, "Too many large schemas are being checked at the moment; try again later"
            )
        self.waiting += 1
        try:
            async with self._turns:
                return decode_result(await self._result(encode_task(task)))
        finally:
            self.waiting -= 1

    async def _result(self, task: bytes) -> bytes:
        # The process may have ended for another reason (killed, out of memory): try once more.
        for is_last in (False, True):
            try:
                return await self._ask(task)
            except _Ended as ended:
                if ended.code == -signal.SIGPROF:
                    raise invalid_schema(
                        f"The schema takes more than {self._cpu_s:g} s of processor time to "
                        "check; make it smaller or simpler"
                    ) from None
                log.error("a schema worker process ended with code %d", ended.code)
                if is_last:
                    raise invalid_schema(
                        f"The parser of this schema type crashes on the schema ({ended.code})"
                    ) from None
        raise AssertionError("the last attempt returns or raises")

    async def _ask(self, task: bytes) -> bytes:
        process = self._free.pop() if self._free else await self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(LENGTH.pack(len(task)) + task)
            await process.stdin.drain()
            (length,) = LENGTH.unpack(await process.stdout.readexactly(LENGTH.size))
            result = await process.stdout.readexactly(length)
        except (asyncio.IncompleteReadError, ConnectionError):
            code = await process.wait()
            await self._end(process)
            raise _Ended(code) from None
        except BaseException:
            # The request was cancelled; the pipe may contain part of a result.
            await self._end(process)
            raise
        self._free.append(process)
        return result

    async def _start(self) -> Process:
        command = (sys.executable, "-P", "-m", "headrace.registry.worker_process")
        process = await asyncio.create_subprocess_exec(
            *command, str(self._cpu_s), stdin=PIPE, stdout=PIPE
        )
        self._all.add(process)
        return process

    async def _end(self, process: Process) -> None:
        self._all.discard(process)
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
        await process.wait()

    async def stop(self) -> None:
        for process in list(self._all):
            await self._end(process)
