"""A query that copies a topic, and ways to kill what it runs on.

    python -m tests.pipelines.fire FOLDER BOOTSTRAP SOURCE RECORDS_AN_EPOCH '{"FORMAT": {options}}'

is a driver of its own, with a query for each of the sinks. It prints a line for every epoch that
one of them has done, and `end` when all have copied the source.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from headrace.testing.running import RunningBroker

EPOCHS = 8
STARTS = 8
PATIENCE_S = 90.0
LOOK_S = 0.02
# Spark waits ten seconds for a Python process to start, whatever else the machine does.
TOO_BUSY = "Python worker failed to connect back"

Sinks = Mapping[str, Mapping[str, str]]


def start(
    spark: SparkSession,
    folder: Path,
    bootstrap: str,
    source: str,
    sink: str,
    options: Mapping[str, str],
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
    checkpoint = str(folder / f"checkpoint-{sink}")
    writer = frame.writeStream.format(sink).option("checkpointLocation", checkpoint)
    for name, value in options.items():
        writer = writer.option(name, value)
    query: StreamingQuery = writer.trigger(availableNow=True).start()
    return query


def epochs(query: StreamingQuery) -> Iterator[int | None]:
    """At each look the number of an epoch that is done since the last one, or None; ends with the
    query, and raises what ended it."""
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
        yield None


class Fire:
    """Kills one thing at random moments of a run, decided by a seed."""

    def __init__(self, broker: RunningBroker, seed: int, kills: int = 1) -> None:
        self._chosen = random.Random(seed)
        self._broker = broker
        self._after_epochs = sorted(self._chosen.sample(range(EPOCHS - 2), kills))

    @property
    def over(self) -> bool:
        return not self._after_epochs

    def wait(self, epoch: int) -> bool:
        """Whether somebody is to be killed after this epoch; returns at the moment for it."""
        if self.over or epoch < self._after_epochs[0]:
            return False
        del self._after_epochs[0]
        time.sleep(self._chosen.uniform(0, 0.5))
        return True

    def kill_worker(self) -> None:
        """A Python process of Spark's: one that reads, writes, plans or commits."""
        victims = python_workers()
        assert victims, "Spark has no Python workers"
        os.kill(self._chosen.choice(victims), signal.SIGKILL)

    def kill_broker(self) -> None:
        """The broker, which comes back with what it has on disk."""
        self._broker.kill()
        self._broker.start()


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
    """The queries as a program of its own, with its own Spark."""

    def __init__(
        self, folder: Path, bootstrap: str, source: str, records_an_epoch: int, sinks: Sinks
    ) -> None:
        self._command = [
            sys.executable, "-m", "tests.pipelines.fire", str(folder), bootstrap, source,
            str(records_an_epoch), json.dumps(sinks),
        ]  # fmt: skip
        self._log = folder / "driver.txt"

    def run(self, fire: Fire | None) -> bool:
        """True if it came to its end; with `fire` it is killed with everything below it."""
        for _ in range(STARTS):
            if (done := self._live(fire)) is not None:
                return done
        raise AssertionError(f"{STARTS} starts were not enough: {TOO_BUSY}")

    def _live(self, fire: Fire | None) -> bool | None:
        """None if Spark gave up because this machine is too busy."""
        with self._log.open("w") as log:
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
                    return False
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            process.stdout.close()
        said = self._log.read_text()
        assert TOO_BUSY in said, f"the driver ended by itself:\n{said[-3000:]}"
        return None


def main(folder: str, bootstrap: str, source: str, size: str, sinks: str) -> None:
    from tests.support.spark import local_spark

    spark = local_spark(Path(folder))
    running = [
        epochs(start(spark, Path(folder), bootstrap, source, sink, options, int(size)))
        for sink, options in json.loads(sinks).items()
    ]
    while running:
        for query in list(running):
            try:
                number = next(query)
            except StopIteration:
                running.remove(query)
                continue
            if number is not None:
                print(number, flush=True)
        time.sleep(LOOK_S)
    print("end", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
