"""`headrace spark replay`: two versions of a program, compared, switched and rolled back.

The story is that of `tests/sql/test_replays.py`: version 1 forgets that refunds are negative.
"""

import json
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import command
from tests.sql.replay_story import REFUNDED, OrderProducer
from tests.support import spark as support
from tests.support.committed import committed_records
from tests.support.topics import create_topic

WITHIN_S = 240.0
PROGRAM = """
from pyspark.sql import SparkSession, functions as F
from headrace.pipelines import write_epochs

spark = SparkSession.builder.getOrCreate()
orders = (
    spark.readStream.format("headrace").option("subscribe", "{orders}")
    .option("startingOffsets", "earliest").option("kafka.isolation.level", "read_committed")
    .option("group.id", "{orders}").option("maxOffsetsPerTrigger", 500).load()
)
row = F.from_json(F.col("value").cast("string"), "customer string, kind string, total double")
rows = orders.select(row.alias("o")).select("o.*")
amount = F.when(F.col("kind") == "refund", {refund}).otherwise(F.col("total"))
totals = rows.groupBy("customer").agg(F.count("*").alias("orders"), F.sum(amount).alias("total"))
records = totals.select(
    F.col("customer").alias("key"), F.to_json(F.struct("orders", "total")).alias("value")
)
records.writeStream.queryName("totals").outputMode("update").foreachBatch(
    write_epochs("{totals}")
).start().awaitTermination()
"""
COLUMNS = "customer STRING PRIMARY KEY, orders BIGINT, total DOUBLE"


class Programs:
    """Both versions as processes, which can be killed and started again."""

    def __init__(self, folder: Path, bootstrap: str) -> None:
        self.folder, self.bootstrap = folder, bootstrap
        name = f"p{uuid.uuid4().hex[:8]}"
        self.orders = create_topic(bootstrap, f"{name}-orders", 2)
        compacted = {"cleanup.policy": "compact"}
        self.totals = create_topic(bootstrap, f"{name}-totals", 2, compacted)
        self.new_totals = create_topic(bootstrap, f"{name}-totals.v2", 2, compacted)
        for file, refund in (("totals.py", 'F.col("total")'), ("fixed.py", '-F.col("total")')):
            text = PROGRAM.format(orders=self.orders, totals=self.totals, refund=refund)
            (folder / file).write_text(text)
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, version: str) -> None:
        words = ["spark", "run", "totals.py"]
        if version == "v2":
            words = ["spark", "replay", "run", "fixed.py", "--of", "totals", "--as", "v2"]
        words += ["--master", "local[2]", "--bootstrap", self.bootstrap]
        errors = (self.folder / f"errors-{version}.txt").open("a")
        self._running[version] = subprocess.Popen(
            command(*words), cwd=self.folder, stdout=errors, stderr=errors
        )

    def kill(self, version: str) -> None:
        self._running[version].kill()
        self._running[version].wait()

    def stop(self) -> None:
        for version in self._running:
            self.kill(version)

    def replay(self, *words: str, code: int = 0) -> str:
        done = subprocess.run(
            command("spark", "replay", *words), cwd=self.folder, capture_output=True, timeout=600
        )
        assert done.returncode == code, done.stderr.decode()[-3000:]
        return done.stdout.decode()

    def compare(self) -> Any:
        options = ["--columns", COLUMNS, "--bootstrap", self.bootstrap, "--master", "local[2]"]
        done = self.replay("compare", "totals", "v2", *options, "--json", code=1)
        (report,) = json.loads(done)
        return report

    def rows(self, topic: str) -> list[list[object]]:
        """The latest row of each customer; each change must be there once."""
        latest: dict[str, tuple[int, float]] = {}
        for key, value in committed_records(self.bootstrap, topic):
            row = json.loads(value)
            found = (row["orders"], row["total"])
            customer = key.decode()
            assert latest.get(customer, (0, 0.0))[0] < found[0], f"{topic}: {customer} twice"
            latest[customer] = found
        return [[name, *row] for name, row in sorted(latest.items())]

    def wait(self, look: Callable[[], Any], is_enough: Callable[[Any], bool]) -> Any:
        end = time.monotonic() + WITHIN_S
        while not is_enough(found := look()):
            assert time.monotonic() < end, (found, self._errors())
            time.sleep(0.5)
        return found

    def _errors(self) -> str:
        return "".join(each.read_text()[-2000:] for each in self.folder.glob("errors-*.txt"))


@pytest.fixture
def programs(tmp_path: Path, bootstrap: str) -> Iterator[Programs]:
    if reason := support.missing():
        pytest.skip(reason)
    found = Programs(tmp_path, bootstrap)
    yield found
    found.stop()


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_new_version_of_a_program_is_compared_switched_to_and_rolled_back(
    programs: Programs, bootstrap: str
) -> None:
    orders = OrderProducer(bootstrap, programs.orders, 100)
    orders.produce(2000)
    programs.start("v1")
    programs.start("v2")
    orders.start()
    try:
        programs.wait(lambda: programs.rows(programs.totals), lambda rows: len(rows) == 30)
        # A driver that is killed continues with its checkpoint.
        programs.kill("v2")
        programs.start("v2")
        programs.wait(lambda: programs.rows(programs.new_totals), lambda rows: len(rows) == 30)
        report = programs.compare()
        assert not report["equal"]
        differing = [each["key"]["customer"] for each in report["examples"]["different"]]
        assert differing == REFUNDED, "exactly the planted rows differ"
        assert (report["onlyLeft"], report["onlyRight"]) == (0, 0)
        done = programs.replay("switch", "totals", "v2")
        assert f"{programs.totals} -> {programs.new_totals}" in done
        held = programs.rows(programs.totals)
        # The old version is held, also after a restart, and the new one goes on.
        programs.kill("v1")
        programs.start("v1")
        count = sum(int(str(row[1])) for row in held)
        programs.wait(
            lambda: sum(int(str(row[1])) for row in programs.rows(programs.new_totals)),
            lambda found: found > count + 200,
        )
        assert programs.rows(programs.totals) == held
    finally:
        orders.stop()
    programs.wait(
        lambda: programs.rows(programs.new_totals), lambda rows: rows == orders.expected(2)
    )
    programs.replay("rollback", "totals", "v2")
    programs.wait(lambda: programs.rows(programs.totals), lambda rows: rows == orders.expected(1))
    rows = json.loads(programs.replay("status", "totals", "v2", "--json"))
    assert {(row["version"], row["state"]) for row in rows} == {("old", "runs"), ("new", "held")}
    at = {
        name: {row["partition"]: row["position"] for row in rows if row["version"] == name}
        for name in ("old", "new")
    }
    assert at["old"] == at["new"]
