"""A query that copies a topic, and ways to kill what it runs on at a chosen moment.

    python -m tests.pipelines.fire FOLDER BOOTSTRAP SOURCE RECORDS_AN_EPOCH '{"FORMAT": {options}}'

is a driver of its own, with a query for each of the sinks; it ends when all have copied the source.
"""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from headrace.client import groups
from headrace.client.cluster import Cluster
from headrace.client.config import ClientConfig, parse_bootstrap
from headrace.client.errors import ClientError
from headrace.errors import KafkaError
from headrace.testing.running import RunningBroker

EPOCHS = 8
STARTS = 8
# On a machine with ten times the work of its cores an executor takes minutes to be replaced.
PATIENCE_S = 300.0
LOOK_S = 0.01
# What ends a driver that nobody killed, and is Spark's own; any supervisor would start it again.
# Spark waits ten seconds for a Python process to start, whatever else the machine does; and with
# two queries in a session it may change a collection while it serializes it for a task.
SPARK_GAVE_UP = (
    "Python worker failed to connect back",
    "Task serialization failed: java.lang.IllegalStateException: Illegal size",
)
# What an epoch passes through: tasks write, the sink has decided, the checkpoint knows of its end.
# Each with how long it takes on a quiet machine, over which the kills are spread.
PHASES_S = {"writing": 0.25, "decided": 0.1, "over": 0.1}

Sinks = Mapping[str, Mapping[str, str]]


def checkpoint(folder: Path, sink: str) -> Path:
    return folder / f"checkpoint-{sink}"


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
    writer = frame.writeStream.format(sink)
    writer = writer.option("checkpointLocation", str(checkpoint(folder, sink)))
    for name, value in options.items():
        writer = writer.option(name, value)
    query: StreamingQuery = writer.trigger(availableNow=True).start()
    return query


def looks(query: StreamingQuery) -> Iterator[None]:
    """Ends with the query, and raises what ended it."""
    deadline = time.monotonic() + PATIENCE_S
    while query.isActive:
        assert time.monotonic() < deadline, f"the query hangs: {query.lastProgress}"
        yield None
    query.awaitTermination(1)


@dataclass(frozen=True, slots=True, order=True)
class Moment:
    """A point in the life of a query; `phase` is a place in PHASES_S."""

    epoch: int
    phase: int

    def __str__(self) -> str:
        return f"epoch {self.epoch} {list(PHASES_S)[self.phase]}"


class Watch:
    """How far a query is, seen from outside: by its checkpoint and by the ledger of its sink."""

    def __init__(self, checkpoint: Path, bootstrap: str) -> None:
        self._checkpoint = checkpoint
        self._config = ClientConfig(
            parse_bootstrap(bootstrap), request_timeout_s=2, connect_timeout_s=2
        )

    def now(self) -> Moment:
        begun, done = (_last(self._checkpoint / each) for each in ("offsets", "commits"))
        if begun == done:
            return Moment(begun, 2)
        return Moment(begun, 1 if self._decided() >= begun else 0)

    def _decided(self) -> int:
        """The newest epoch in the ledger; a table has none, and its decisions are not seen.

        Not by librdkafka: its admin client aborts the whole process when the answer to a request
        that it has given up comes late (its issue 4605), as it does from brokers that are killed.
        """
        query = json.loads((self._checkpoint / "metadata").read_text())["id"]
        try:
            with Cluster(self._config) as cluster:
                found = groups.committed_offsets(
                    cluster, f"headrace-sink.{query}", stable=False, timeout_s=0
                )
        except (ClientError, KafkaError):
            return -1
        return max((each.offset - 1 for each in found.values()), default=-1)


def _last(folder: Path) -> int:
    names = (each.name for each in folder.iterdir()) if folder.is_dir() else ()
    return max((int(name) for name in names if name.isdigit()), default=-1)


@dataclass(frozen=True, slots=True)
class Kill:
    """What was killed, and when: as drawn, and as seen the moment before."""

    what: str
    drawn: str
    seen: str


@dataclass(slots=True)
class Fire:
    """Kills one thing at moments of a run that a seed decides."""

    broker: RunningBroker
    seed: int
    kills: int = 1
    done: list[Kill] = field(default_factory=list)
    _chosen: random.Random = field(init=False)
    _moments: list[Moment] = field(init=False)

    def __post_init__(self) -> None:
        self._chosen = random.Random(self.seed)
        numbers = sorted(self._chosen.sample(range(EPOCHS - 2), self.kills))
        self._moments = [Moment(each, self._chosen.randrange(len(PHASES_S))) for each in numbers]

    @property
    def over(self) -> bool:
        return not self._moments

    def due(self, watch: Watch) -> bool:
        """Whether somebody is to be killed now."""
        if self.over or watch.now() < self._moments[0]:
            return False
        time.sleep(self._chosen.uniform(0, list(PHASES_S.values())[self._moments[0].phase]))
        return True

    def kill(self, victim: str, watch: Watch, driver: int = 0) -> None:
        """A driver with all below it; a process of Spark's below this one; or the broker, which
        comes back with what it has on disk."""
        seen = watch.now()
        if victim == "driver":
            os.killpg(driver, signal.SIGKILL)
            what = victim
        elif victim == "broker":
            self.broker.kill()
            self.broker.start()
            what = victim
        else:
            what = self._kill_one(victim)
        self.done.append(Kill(what, str(self._moments.pop(0)), str(seen)))

    def _kill_one(self, victim: str) -> str:
        while True:
            victims = executors() if victim == "executor" else python_workers()
            assert victims, f"Spark has no {victim}"
            number = self._chosen.choice(sorted(victims))
            # It may have ended by itself meanwhile; that would be no kill.
            with contextlib.suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
                return f"{victim} {victims[number]}".strip()

    def told(self) -> list[dict[str, str]]:
        return [asdict(each) for each in self.done]


@contextlib.contextmanager
def noted(
    name: str, seed: int, targets: Sequence[str], kills: Callable[[], object]
) -> Iterator[None]:
    """A line for this run in the log, if HEADRACE_FIRE_LOG names one."""
    began, passed = time.monotonic(), False
    try:
        yield
        passed = True
    finally:
        told = {
            "test": name,
            "seed": seed,
            "passed": passed,
            "seconds": round(time.monotonic() - began, 1),
            "sinks": targets,
            "kills": kills(),
        }
        print(json.dumps(told))
        if path := os.environ.get("HEADRACE_FIRE_LOG"):
            with Path(path).open("a") as log:
                log.write(json.dumps(told) + "\n")


def python_workers() -> dict[int, str]:
    """Python processes that Spark has forked or started: they read, write, plan or commit."""
    return {
        number: words[-1].rpartition(".")[2]
        for number, words in below().items()
        if "java" not in words[0] and any("pyspark" in word for word in words)
    }


def executors() -> dict[int, str]:
    """The executors of a session in `local-cluster`, each a Java of its own."""
    name = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
    return {number: "" for number, words in below().items() if name in words}


def below(parent: int | None = None) -> dict[int, list[str]]:
    """The processes that `parent` has started, and those that they have; with their words.

    Without `parent` those of this process.
    """
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                above = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            children.setdefault(above, []).append(int(entry.name))
    found: dict[int, list[str]] = {}
    waiting = [os.getpid() if parent is None else parent]
    while waiting:
        for child in children.get(waiting.pop(), []):
            waiting.append(child)
            try:
                found[child] = Path(f"/proc/{child}/cmdline").read_text().rstrip("\0").split("\0")
            except OSError:
                continue
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

    def run(self, fire: Fire | None, watch: Watch) -> bool:
        """True if it came to its end; with `fire` it is killed with everything below it."""
        for _ in range(STARTS):
            if (done := self._live(fire, watch)) is not None:
                return done
        raise AssertionError(f"{STARTS} starts were not enough: {self._log.read_text()[-3000:]}")

    def _live(self, fire: Fire | None, watch: Watch) -> bool | None:
        """None if Spark gave up for reasons of its own."""
        with self._log.open("w") as log:
            process = subprocess.Popen(
                self._command, stdout=log, stderr=log, start_new_session=True
            )
        killed = False
        try:
            while process.poll() is None and not killed:
                if fire is not None and fire.due(watch):
                    fire.kill("driver", watch, process.pid)
                    killed = True
                time.sleep(LOOK_S)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if killed or process.returncode == 0:
            return not killed
        said = self._log.read_text()
        gave_up = any(reason in said for reason in SPARK_GAVE_UP)
        assert gave_up, f"the driver ended by itself:\n{said[-3000:]}"
        return None


def main(folder: str, bootstrap: str, source: str, size: str, sinks: str) -> None:
    from tests.support.spark import local_spark

    spark = local_spark(Path(folder))
    running = [
        start(spark, Path(folder), bootstrap, source, sink, options, int(size))
        for sink, options in json.loads(sinks).items()
    ]
    for query in running:
        query.awaitTermination()
    # Nobody needs Spark to end in good order.
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
