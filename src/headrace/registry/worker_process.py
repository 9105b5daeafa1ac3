"""The process that works on large schemas: tasks come in on one pipe, results go out on another.

Before each: its length, four bytes. A task that takes too much processor time ends the process,
whatever code it is in; the registry answers the request and starts another one. The process ends
when its input does.
"""

import logging
import os
import resource
import signal
import struct
import sys
from typing import BinaryIO

from headrace.registry import limits
from headrace.registry.failures import InvalidSchema, RegistryError
from headrace.registry.parsing import Parser
from headrace.registry.work import Result, decode_task, encode_result

log = logging.getLogger("headrace.registry")
LENGTH = struct.Struct(">I")


def main(cpu_s: float) -> None:
    """Serve until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to the registry too
    resource.setrlimit(resource.RLIMIT_DATA, (limits.WORK_MEMORY_BYTES, limits.WORK_MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    tasks = sys.stdin.buffer
    results = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # nothing that a library prints may come between the results
    parser = Parser()
    while head := tasks.read(LENGTH.size):
        raw = tasks.read(LENGTH.unpack(head)[0])
        # The kernel ends the process when the time is used up: there is no handler for the signal.
        signal.setitimer(signal.ITIMER_PROF, cpu_s)
        result = encode_result(_done(raw, parser))
        signal.setitimer(signal.ITIMER_PROF, 0)
        _send(results, result)


def _done(raw: bytes, parser: Parser) -> Result | RegistryError:
    try:
        return decode_task(raw).run(parser)
    except RegistryError as error:
        return error
    except MemoryError:
        return InvalidSchema(
            f"The schema takes more than {limits.WORK_MEMORY_BYTES >> 20} MB of memory to check; "
            "make it smaller or simpler"
        )
    except Exception as error:
        log.exception("a task failed")
        return RegistryError(50001, f"Internal error: {type(error).__name__}")


def _send(results: BinaryIO, result: bytes) -> None:
    results.write(LENGTH.pack(len(result)) + result)
    results.flush()


if __name__ == "__main__":
    main(float(sys.argv[1]))
