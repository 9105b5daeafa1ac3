"""The worker process for large schemas: reads tasks from stdin, writes results to stdout.

Each message is preceded by its length in four bytes. A task that exceeds the CPU limit ends the
process; the registry answers the request with an error and starts another process. The process
ends when its stdin is closed.
"""

import logging
import os
import resource
import signal
import struct
import sys
from typing import BinaryIO

from headrace.registry import limits
from headrace.registry.failures import RegistryError, invalid_schema
from headrace.registry.parsing import Parser
from headrace.registry.work import Result, decode_task, encode_result

log = logging.getLogger("headrace.registry")
LENGTH = struct.Struct(">I")


def main(cpu_s: float) -> None:
    """Runs tasks until stdin is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a terminal reaches the registry too
    resource.setrlimit(resource.RLIMIT_DATA, (limits.WORK_MEMORY_BYTES, limits.WORK_MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    tasks = sys.stdin.buffer
    results = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # output that a library prints must not mix with results
    parser = Parser()
    while head := tasks.read(LENGTH.size):
        raw = tasks.read(LENGTH.unpack(head)[0])
        # SIGPROF has no handler: the kernel ends the process when the time is used up.
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
        return invalid_schema(
            f"The schema takes more than {limits.WORK_MEMORY_BYTES >> 20} MB of memory to check; "
            "make it smaller or simpler"
        )
    except Exception as error:
        log.exception("a schema task failed")
        return RegistryError(50001, f"Internal error: {type(error).__name__}")


def _send(results: BinaryIO, result: bytes) -> None:
    results.write(LENGTH.pack(len(result)) + result)
    results.flush()


if __name__ == "__main__":
    main(float(sys.argv[1]))
