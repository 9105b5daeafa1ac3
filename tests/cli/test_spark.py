"""`headrace spark`: programs run with their configuration, and their queries are shown.

Spark starts slowly, so the program of a test does several things.
"""

import json
import os
import signal
import subprocess
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from deltalake import DeltaTable

from headrace.pipelines.running import progress
from headrace.pipelines.running.progress import Query
from headrace.pipelines.running.progress_topic import Publisher
from tests.cli.conftest import Run, command, execute
from tests.support import spark as support

STREAM = """
import json, os, sys, urllib.request
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
query = (
    spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
    .groupBy("value").count()
    .writeStream.queryName("counts").outputMode("update").format("noop").start()
)
while query.lastProgress is None or query.lastProgress["batchId"] < 1:
    query.awaitTermination(0.2)
metrics = urllib.request.urlopen(spark.sparkContext.uiWebUrl + "/metrics/prometheus").read()
import neighbour
worker = spark.sparkContext.parallelize([0], 1).map(lambda _: neighbour.where()).first()
print(json.dumps({
    "words": sys.argv[1:],
    "bootstrap": os.environ["HEADRACE_BOOTSTRAP"],
    "master": spark.sparkContext.master,
    "name": spark.sparkContext.appName,
    "conf": spark.conf.get("spark.sql.shuffle.partitions"),
    "worker": worker,
    "metrics": metrics.decode(),
}), flush=True)
query.awaitTermination()
"""
# Two copies of a topic, one after the other.
COPIES = """
import os, sys
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
for name in ("first", "second"):
    records = (
        spark.readStream.format("headrace").option("subscribe", sys.argv[1])
        .option("kafka.bootstrap.servers", os.environ["HEADRACE_BOOTSTRAP"])
        .option("startingOffsets", "earliest").load()
    )
    writer = records.writeStream.format("headrace-delta").queryName(name).partitionBy("partition")
    writer.trigger(availableNow=True).start(f"lake/{name}").awaitTermination()
print("process", os.getpid(), flush=True)
"""
# The process of a stream's source that is started as the second one ends at once, as if the machine
# had been too busy to start it within Spark's ten seconds.
LATE = """
import os, pathlib, sys

if any("python_streaming_source_runner" in word for word in sys.orig_argv):
    log = pathlib.Path(__file__).with_name("starts.txt")
    with log.open("a") as file:
        file.write("start\\n")
    if log.read_text().count("start") == 2:
        os._exit(1)
"""
NEIGHBOUR = """
import sys

def where():
    return sys.executable
"""


@pytest.fixture
def needs_spark() -> None:
    if reason := support.missing():
        pytest.skip(reason)


@pytest.fixture
def program(tmp_path: Path) -> Path:
    (tmp_path / "neighbour.py").write_text(NEIGHBOUR)
    path = tmp_path / "stream.py"
    path.write_text(STREAM)
    return path


@pytest.fixture
def started(program: Path, bootstrap: str) -> Iterator["subprocess.Popen[str]"]:
    words = ["spark", "run", program.name, "--master", "local[2]", "--bootstrap", bootstrap]
    words += ["--conf", "spark.sql.shuffle.partitions=3", "--conf", "spark.ui.enabled=true"]
    words += ["--", "--day", "2026-01-31"]
    process = subprocess.Popen(
        command(*words),
        cwd=program.parent,
        stdout=subprocess.PIPE,
        stderr=(program.parent / "errors.txt").open("w"),
        text=True,
    )
    yield process
    process.kill()
    process.wait()


@pytest.mark.spark
@pytest.mark.usefixtures("needs_spark")
def test_a_program_runs_with_all_set_up_and_its_query_is_seen_until_its_end(
    started: "subprocess.Popen[str]", program: Path, bootstrap: str, run: Run
) -> None:
    assert started.stdout is not None
    line = started.stdout.readline()
    assert line, (program.parent / "errors.txt").read_text()
    told = json.loads(line)
    assert told["words"] == ["--day", "2026-01-31"]
    assert (told["bootstrap"], told["master"], told["name"]) == (bootstrap, "local[2]", "stream")
    assert told["conf"] == "3"
    # A worker is this Python, and imports what stands beside the program.
    assert told["worker"] == command()[0]
    # Spark's own numbers, and ours.
    assert "metrics_stream_driver_spark_streaming_counts_inputRate_total_Value" in told["metrics"]
    assert "headrace_counts_rows_total_Value" in told["metrics"]
    # The checkpoint is under the root that was set up.
    assert (program.parent / "checkpoints" / "stream" / "counts" / "offsets").is_dir()

    shown = [each for each in run("spark", "queries", "--json").rows() if each["name"] == "counts"]
    assert [(each["application"], each["state"]) for each in shown] == [("stream", "running")]
    assert shown[0]["rows_total"] == 10 * (shown[0]["batch"] + 1)  # type: ignore[operator]
    assert shown[0]["state_rows"] == shown[0]["rows_total"]
    assert shown[0]["batch_ms"]

    started.send_signal(signal.SIGTERM)
    assert started.wait(60) == 128 + signal.SIGTERM
    rows = run("spark", "queries", "--all", "--json").rows()
    ended = [each for each in rows if each["id"] == shown[0]["id"]]
    assert [each["state"] for each in ended] == ["stopped"]


UPDATING = """
import os
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
query = (
    spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
    .groupBy("value").count().selectExpr("string(value) as key", "string(count) as value")
    .writeStream.queryName(os.environ["QUERY_NAME"]).outputMode("update")
    .format("headrace").option("topic", "nowhere").start()
)
query.awaitTermination()
"""


@pytest.mark.spark
@pytest.mark.usefixtures("needs_spark")
def test_an_output_mode_that_spark_refuses_is_explained(
    tmp_path: Path, bootstrap: str, run: Run
) -> None:
    program, name = tmp_path / "updating.py", f"q-{uuid.uuid4().hex[:8]}"
    program.write_text(UPDATING)
    words = ["spark", "run", str(program), "--master", "local[1]", "--bootstrap", bootstrap]
    done = execute(*words, "--checkpoints", str(tmp_path / "c"), env={"QUERY_NAME": name})
    assert done.code == 1
    assert "headrace does not support Update mode" in done.err
    assert '.outputMode("update").foreachBatch(' in done.err
    rows = run("spark", "queries", "--all", "--json").rows()
    (failed,) = [each for each in rows if each["name"] == name]
    assert ".foreachBatch(" in str(failed["error"])


@pytest.mark.spark
@pytest.mark.usefixtures("needs_spark")
def test_a_program_whose_python_process_is_late_goes_on_from_its_checkpoints(
    tmp_path: Path, bootstrap: str, topic: str, run: Run
) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(50):
        producer.produce(topic, b"%d" % number)
    assert producer.flush(60) == 0
    (tmp_path / "copies.py").write_text(COPIES)
    (tmp_path / "sitecustomize.py").write_text(LATE)
    words = ["spark", "run", "copies.py", "--master", "local[2]", "--bootstrap", bootstrap]
    process = subprocess.Popen(
        command(*words, "--", topic),
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    # The process is the same in all lives, and so is what sends it signals.
    assert out.strip() == f"process {process.pid}"
    reason = "Python worker failed to connect back"
    assert err.count(f"{reason}; restarting the program from its checkpoints in 1 s") == 1
    rows = run("spark", "queries", "--all", "--json").rows()
    ours = {each["name"]: each for each in rows if each["application"] == "copies"}
    assert {name: each["restarts"] for name, each in ours.items()} == {"first": 1, "second": 1}
    assert {each["restart_reason"] for each in ours.values()} == {reason}
    shown = " ".join(run("spark", "queries", "--all").text.split())
    assert f"1: {reason}" in shown
    for name in ("first", "second"):
        table = DeltaTable(str(tmp_path / "lake" / name))
        assert table.metadata().partition_columns == ["partition"]
        verified = run("lake", "verify", str(tmp_path / "lake" / name), "-t", topic, "--complete")
        assert verified.code == 0, verified.text


def test_nothing_is_started_by_a_dry_run_and_all_is_shown(program: Path, here: Run) -> None:
    shown = here("spark", "run", str(program), "--dry-run", "-b", "b:1", "--", "x").document()
    assert shown["command"][-2:] == [str(program), "x"]  # type: ignore[index]
    assert shown["environment"]["HEADRACE_BOOTSTRAP"] == "b:1"  # type: ignore[index]
    assert shown["settings"]["spark.app.name"] == "stream"  # type: ignore[index]


def test_a_program_that_is_not_there_is_not_found(here: Run, tmp_path: Path) -> None:
    done = here("spark", "run", str(tmp_path / "nothing.py"))
    assert done.code == 4
    assert "nothing.py" in done.err


def test_without_java_an_error_says_what_to_install(program: Path, tmp_path: Path) -> None:
    environment = {"PATH": str(tmp_path), "JAVA_HOME": ""}
    done = execute("spark", "run", str(program), env=environment)
    assert done.code == 1
    assert "No Java was found" in done.err
    assert "Java 17 or 21" in done.err
    assert "Traceback" not in done.err


def test_an_old_java_is_refused_before_spark_is_started(program: Path, tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    java.chmod(0o755)
    done = execute("spark", "shell", env={"JAVA_HOME": str(tmp_path)})
    assert done.code == 1
    assert "Java 11" in done.err


# ------------------------------------------------------------------------------------ queries


@pytest.fixture
def published(bootstrap: str) -> tuple[Query, Query]:
    """A query that runs and one that failed."""
    now = time.time_ns() // 1_000_000
    runs, failed = (
        Query(uuid.uuid4().hex, "run", f"q-{uuid.uuid4().hex[:6]}", "shop", "l-1", now, now)
        for _ in range(2)
    )
    sources = [{"endOffset": {"t": {"0": 5}}, "latestOffset": {"t": {"0": 1239}}}]
    report = {"runId": "run", "timestamp": "2026-01-31T12:00:00Z", "batchId": 7, "sources": sources}
    runs = progress.advanced(runs, report)
    failed = progress.ended(failed, now, "boom\n  at line 1")
    publisher = Publisher(bootstrap, {})
    publisher.publish(runs)
    publisher.publish(failed)
    publisher.flush(60)
    return runs, failed


def test_running_queries_are_listed_with_their_lag(
    published: tuple[Query, Query], run: Run
) -> None:
    runs, failed = published
    shown = run("spark", "queries")
    assert shown.code == 0
    line = next(line for line in shown.text.splitlines() if str(runs.name) in line)
    assert "1,234" in line
    assert str(failed.name) not in shown.text


def test_a_failure_is_listed_with_its_reason_when_all_are_asked_for(
    published: tuple[Query, Query], run: Run
) -> None:
    found = {each["id"]: each for each in run("spark", "queries", "--all", "--json").rows()}
    _, failed = published
    assert (found[failed.id]["state"], found[failed.id]["error"]) == ("failed", "boom")


def test_watching_shows_every_change_until_interrupted(
    published: tuple[Query, Query], bootstrap: str
) -> None:
    runs, _ = published
    process = subprocess.Popen(
        command("spark", "queries", "--watch", "--json", "-b", bootstrap),
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        lines = (json.loads(line) for line in process.stdout)
        assert next(each for each in lines if each["id"] == runs.id)["state"] == "running"
        publisher = Publisher(bootstrap, {})
        publisher.publish(progress.ended(runs, runs.time_ms + 1, None))
        publisher.flush(60)
        assert next(each for each in lines if each["id"] == runs.id)["state"] == "stopped"
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()


# ---------------------------------------------------------------------------------- pipelines


def test_init_writes_a_project_that_names_the_topic_and_refuses_to_overwrite(
    here: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made = here("spark", "pipelines", "init", "shop", "--topic", "orders")
    assert made.code == 0
    files = made.text.split()
    assert all(Path(name).is_file() for name in files)
    assert "headrace.topic: orders" in Path("shop/spark-pipeline.yml").read_text()
    again = here("spark", "pipelines", "init", "shop")
    assert again.code == 1
    assert "shop exists already" in again.err


def test_a_pipeline_without_a_project_says_how_to_make_one(
    here: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = here("spark", "pipelines", "run")
    assert done.code == 4
    assert "headrace spark pipelines init" in done.err


def test_the_command_line_alone_does_not_load_spark() -> None:
    modules = (
        "headrace.cli.spark.spark, headrace.cli.spark.query_view, "
        "headrace.pipelines.running.session"
    )
    code = f"import sys, {modules}; sys.exit('pyspark' in sys.modules)"
    done = subprocess.run([command()[0], "-c", code], env=dict(os.environ), check=False)
    assert done.returncode == 0
