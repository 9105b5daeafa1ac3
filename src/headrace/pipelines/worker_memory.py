"""Garbage collection in Spark's Python workers.

Spark's worker collects garbage after every task, before the next one, and each of these collections
visits every object of every loaded module. With PyArrow, pandas and our modules that takes tens of
milliseconds of CPU time, many times as long as a task with a few hundred records.
"""

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager

REUSED = "SPARK_REUSE_WORKER"
"""Set in workers that are reused for several tasks."""

_frozen = False


@contextmanager
def modules_frozen_after() -> Iterator[None]:
    """A context for the work of a task: after the first task of a worker, when all modules are
    loaded, all existing objects are excluded from later collections."""
    global _frozen
    try:
        yield
    finally:
        if not _frozen and REUSED in os.environ:
            _frozen = True
            gc.collect()
            gc.freeze()
