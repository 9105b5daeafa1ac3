"""A driver that fills a table, epoch by epoch, as Spark's does, and can be killed at any moment.

What Spark does that matters here, in Spark's order: the tasks of an epoch write their files, the
sink commits, and only then a note says that the epoch is done.
"""

from multiprocessing.synchronize import Event
from pathlib import Path

from headrace.pipelines.sink.epoch import Epoch
from tests.pipelines.lake.lakes import Lake, PlainFiles, rows

EPOCHS = 12
TASKS = 3
ROWS = 20


def drive(kind: str, folder: Path, begins: Event) -> None:
    """From the first epoch on that is not noted as done, to the end."""
    table = PlainFiles(folder) if kind == "parquet" else Lake(kind, folder)
    sink = table.sink()
    notes = folder / "checkpoint"
    notes.mkdir(exist_ok=True)
    begins.set()
    for number in range(len(list(notes.iterdir())), EPOCHS):
        offsets = range(number * ROWS, (number + 1) * ROWS)
        files = [sink.write(Epoch("query", number), iter([rows(offsets, t)])) for t in range(TASKS)]
        sink.commit(files)
        (notes / str(number)).touch()
