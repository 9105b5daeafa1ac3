"""What a Python worker of Spark keeps between tasks.

Spark's worker collects garbage after every task, before it takes the next one, and each of these
collections visits every object of every module that is loaded. With PyArrow, pandas and our modules
that takes tens of milliseconds of CPU, many times as long as a task with a few hundred records.
"""

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager

REUSED = "SPARK_REUSE_WORKER"
"""Set in workers that take one task after the other."""

_frozen = False


@contextmanager
def modules_frozen_after() -> Iterator[None]:
    """Around the work of a task: after the first one of a worker, when all modules that tasks need
    are loaded, whatever is there by then is left out of later collections."""
    global _frozen
    try:
        yield
    finally:
        if not _frozen and REUSED in os.environ:
            _frozen = True
            gc.collect()
            gc.freeze()
