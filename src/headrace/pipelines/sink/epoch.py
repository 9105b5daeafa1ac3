"""The query and the epoch of a task, which identify its work."""

import uuid
from dataclasses import dataclass

QUERY_ID = "sql.streaming.queryId"
EPOCH_ID = "streaming.sql.batchId"


@dataclass(frozen=True, slots=True)
class Epoch:
    """One micro-batch of one query; a batch job is a query with the single epoch 0."""

    query: str
    number: int


def batch_job() -> Epoch:
    """The epoch of a batch write: every run is a new query."""
    return Epoch(str(uuid.uuid4()), 0)


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


def task_number() -> int:
    """The index of this task among the tasks of its stage."""
    from pyspark import TaskContext

    task = TaskContext.get()
    return 0 if task is None else int(task.partitionId())
