"""A driver with a checkpoint and tasks, as Spark has them, that starts quickly and can be killed.

    python -m tests.pipelines.small_driver FOLDER BOOTSTRAP TOPIC RUN

Every run computes other rows: `epoch/task/row/run`. What Spark does that matters here, in Spark's
order: the tasks of an epoch, the sink's commit, and only then a note that the epoch is done.
"""

import sys
from pathlib import Path

import pyarrow as pa
from pyspark.sql.types import BinaryType, StructField, StructType

from headrace.pipelines.sink.epoch import Epoch
from headrace.pipelines.sink.options import parse_options
from headrace.pipelines.sink.sink import TopicSink

EPOCHS = 12
TASKS = 3
ROWS = 20
SCHEMA = StructType([StructField("value", BinaryType())])


def main(folder: Path, bootstrap: str, topic: str, run: str) -> None:
    options = {
        "kafka.bootstrap.servers": bootstrap,
        "kafka.retry.backoff.ms": "20",
        "kafka.batch.size": "200",
        "topic": topic,
        "delivery": "exactly-once",
    }
    sink = TopicSink(parse_options(options), SCHEMA)
    done = len(list(folder.glob("epoch-*")))
    print("begins", flush=True)
    for number in range(done, EPOCHS):
        epoch = Epoch("query", number)
        messages = [
            sink.write(epoch, task, iter([rows(number, task, run)]), ledger=True)
            for task in range(TASKS)
        ]
        sink.commit(messages, ledger=True)
        (folder / f"epoch-{number}").touch()
    print("end", flush=True)


def rows(epoch: int, task: int, run: str) -> pa.RecordBatch:
    values = [f"{epoch}/{task}/{row}/{run}".encode() for row in range(ROWS)]
    return pa.RecordBatch.from_pydict({"value": pa.array(values, pa.binary())})


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
