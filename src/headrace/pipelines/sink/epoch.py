"""The query and the epoch of a task, which identify its work."""

import re
import uuid
from dataclasses import dataclass, field

QUERY_ID = "sql.streaming.queryId"
EPOCH_ID = "streaming.sql.batchId"
# Spark runs the jobs of a query in a group with the id of its run.
RUN_ID = "spark.jobGroup.id"
LONGEST_NAME = 200
# The ledger adds these endings to the name of a query.
_RESERVED_ENDING = re.compile(r"\.(more-)?[0-9]+$")


@dataclass(frozen=True, slots=True)
class Epoch:
    """One micro-batch of one query; a batch job is a query with the single epoch 0."""

    query: str
    number: int
    run: uuid.UUID | None = field(default=None, compare=False)
    """The run of the query, from its start to its end, that writes the epoch; None if unknown."""


def batch_job() -> Epoch:
    """The epoch of a batch write: every run is a new query."""
    return Epoch(str(uuid.uuid4()), 0)


def of_options(query: str, number: str, topic: str) -> Epoch:
    """The epoch that a batch write names; ValueError says what is wrong with the names.

    The topic is part of the name, so that one query may write an epoch to several topics. It is the
    first part because it has no colon: different pairs have different names.
    """
    if not query or len(query) > LONGEST_NAME or not query.isprintable():
        raise ValueError(f"query={query!r}: expected 1 to {LONGEST_NAME} printable characters")
    if _RESERVED_ENDING.search(query):
        raise ValueError(f"query={query}: the name must not end in a dot and a number")
    if not (number.isascii() and number.isdigit()) or int(number) >= (1 << 63) - 1:
        raise ValueError(f"epoch={number}: expected the number that foreachBatch passes")
    return Epoch(f"{topic}:{query}", int(number))


def of_stream() -> Epoch:
    """The epoch of the streaming task that runs in this Python worker."""
    from pyspark import TaskContext

    task = TaskContext.get()
    query = task and task.getLocalProperty(QUERY_ID)
    number = task and task.getLocalProperty(EPOCH_ID)
    if not query or number is None:
        raise RuntimeError(
            f"Spark did not pass the epoch of this task ({QUERY_ID}={query!r}, "
            f"{EPOCH_ID}={number!r}); without it a replayed epoch cannot be recognised"
        )
    return Epoch(str(query), int(number))


def run_of_query() -> uuid.UUID | None:
    """The run of the streaming query in whose `foreachBatch` this task writes, if it is known.

    A program may have a job group of its own; only a group that can be a run is taken for one.
    """
    from pyspark import TaskContext

    task = TaskContext.get()
    group = task and task.getLocalProperty(RUN_ID)
    if not group or group == task.getLocalProperty(QUERY_ID):
        return None
    try:
        return uuid.UUID(group)
    except ValueError:
        return None


def task_number() -> int:
    """The index of this task among the tasks of its stage."""
    from pyspark import TaskContext

    task = TaskContext.get()
    return 0 if task is None else int(task.partitionId())
