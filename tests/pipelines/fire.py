"""A query that copies a topic, and ways to kill what it runs on.

    python -m tests.pipelines.fire FOLDER BOOTSTRAP SOURCE FORMAT RECORDS_AN_EPOCH name=value...

is the query in a driver of its own:

it prints a line for every epoch that is done, and `end` when the source is copied.
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from headrace.testing.running import RunningBroker

EPOCHS = 8
STARTS = 8
PATIENCE_S = 90.0


def start(
    spark: SparkSession,
    folder: Path,
    bootstrap: str,
    source: str,
    sink: str,
    options: dict[str, str],
    records_an_epoch: int,
) -> StreamingQuery:
    """The query from its checkpoint on, to the end of the source as it is now."""
    frame = (
        spark.readStream.format("headrace")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", str(records_an_epoch))
        .load()
    )
    if sink in ("headrace", "kafka"):
        frame = frame.select("key", "value")
    writer = frame.writeStream.format(sink).option("checkpointLocation", str(folder / "checkpoint"))
    for name, value in options.items():
        writer = writer.option(name, value)
    query: StreamingQuery = writer.trigger(availableNow=True).start()
    return query


def epochs(query: StreamingQuery) -> Iterator[int]:
    """The number of each epoch when it is done, until the query ends; raises what ended it."""
    seen = -1
    deadline = time.monotonic() + PATIENCE_S
    while True:
        active = query.isActive
        last = query.lastProgress
        if last is not None and last["batchId"] > seen:
            seen = last["batchId"]
            yield seen
        if not active:
            query.awaitTermination(1)
            return
        assert time.monotonic() < deadline, f"the query hangs after epoch {seen}"
        time.sleep(0.02)


class Fire:
    """Kills one thing at one random moment of a run, decided by a seed."""

    def __init__(self, broker: RunningBroker, seed: int) -> None:
        chosen = random.Random(seed)
        self.broker = broker
        self.after_epoch = chosen.randrange(EPOCHS - 2)
        self.delay_s = chosen.uniform(0, 0.5)
        self._chosen = chosen
        self.hit = ""

    def wait(self, epoch: int) -> bool:
        """After which epoch, and how long after it."""
        if self.hit or epoch < self.after_epoch:
            return False
        time.sleep(self.delay_s)
        return True

    def kill_worker(self) -> None:
        """A Python process of Spark's: one that reads, writes, plans or commits."""
        victims = python_workers()
        assert victims, "Spark has no Python workers"
        victim = self._chosen.choice(victims)
        os.kill(victim, signal.SIGKILL)
        self.hit = f"worker {victim}"

    def kill_broker(self) -> None:
        """The broker, which comes back with what it has on disk."""
        self.broker.kill()
        self.broker.start()
        self.hit = "broker"


def python_workers() -> list[int]:
    """Python processes below this one that Spark has forked or started."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            parents.setdefault(parent, []).append(int(entry.name))
    found: list[int] = []
    waiting = [os.getpid()]
    while waiting:
        for child in parents.get(waiting.pop(), []):
            waiting.append(child)
            try:
                words = Path(f"/proc/{child}/cmdline").read_bytes()
            except OSError:
                continue
            if b"pyspark" in words and b"java" not in words.split(b"\0")[0]:
                found.append(child)
    return found


class Driver:
    """The query as a program of its own, with its own Spark."""

    def __init__(
        self,
        folder: Path,
        bootstrap: str,
        source: str,
        sink: str,
        options: dict[str, str],
        records_an_epoch: int,
    ) -> None:
        self._command = [
            sys.executable, "-m", "tests.pipelines.fire", str(folder), bootstrap, source, sink,
            str(records_an_epoch), *(f"{name}={value}" for name, value in options.items()),
        ]  # fmt: skip
        self._log = folder / "driver.txt"

    def run(self, fire: Fire | None) -> bool:
        """True if it came to its end; with `fire` it is killed with everything below it."""
        with self._log.open("a") as log:
            process = subprocess.Popen(
                self._command,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        assert process.stdout is not None
        try:
            for line in process.stdout:
                if line.strip() == "end":
                    return True
                if fire is not None and line.strip().isdigit() and fire.wait(int(line)):
                    fire.hit = "driver"
                    return False
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            process.stdout.close()
        raise AssertionError(f"the driver ended by itself:\n{self._log.read_text()[-3000:]}")


def main(words: list[str]) -> None:
    from tests.support.spark import local_spark

    folder, bootstrap, source, sink, size, *pairs = words
    options = dict(pair.split("=", 1) for pair in pairs)
    spark = local_spark(Path(folder))
    query = start(spark, Path(folder), bootstrap, source, sink, options, int(size))
    for number in epochs(query):
        print(number, flush=True)
    print("end", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
