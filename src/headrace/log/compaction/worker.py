"""The compaction process: reads jobs as lines from one pipe and writes answers to another.

The broker starts it when there is a job and closes its input when there is none. It has a low
priority, and it ends with its broker: two processes that write the same files would damage them.
"""

import gc
import os
import signal
import sys

from headrace.disk import RealDisk
from headrace.log.compaction.compaction import compact
from headrace.log.compaction.job import decode_job, encode_answer
from headrace.portable import end_with

_NICENESS = 10


def main(parent: int) -> None:
    """Serve until the input ends."""
    end_with(parent, signal.SIGKILL)
    os.nice(_NICENESS)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to the broker too
    gc.freeze()
    answers = sys.stdout.buffer
    for line in sys.stdin.buffer:
        for answer in compact(decode_job(line), RealDisk()):
            answers.write(encode_answer(answer))
            answers.flush()


if __name__ == "__main__":
    main(int(sys.argv[1]))
