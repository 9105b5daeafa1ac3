"""Programs that are started with the Python of an environment which is not activated."""

import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import uuid
import venv
from pathlib import Path

import pytest
from confluent_kafka import Producer
from deltalake import DeltaTable

from headrace import pyspark_import
from headrace.pipelines.running import requirements
from headrace.testing.running import RunningBroker
from tests.support import spark as support
from tests.support.topics import create_topic

ROOT = Path(__file__).parents[1]
PTH = ROOT / "src" / "headrace-pyspark.pth"
HERE = str(Path(sys.executable).parent)
PROGRAM = """
import sys
from pyspark.sql import SparkSession

bootstrap, topic, folder = sys.argv[1:]
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
builder = builder.config("spark.driver.bindAddress", "127.0.0.1")
spark = builder.config("spark.driver.host", "127.0.0.1").getOrCreate()
reader = spark.read.format("headrace").option("kafka.bootstrap.servers", bootstrap)
print("records:", reader.option("subscribe", topic).load().count())
rates = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 6).load()
query = (
    rates.selectExpr("value as id", "value % 3 as kind")
    .writeStream.partitionBy("kind").format("headrace-delta")
    .option("checkpointLocation", folder + "/checkpoint").start(folder + "/table")
)
while query.isActive and query.lastProgress is None:
    query.awaitTermination(0.2)
query.stop()
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment into which Headrace and PySpark are installed."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    # As an editable installation has it; in the order in which Python reads these files.
    installed = (path for path in sys.path if path.endswith("site-packages"))
    lines = [str(ROOT / "src"), *installed, sysconfig.get_path("purelib")]
    (packages / "_headrace.pth").write_text("\n".join(lines))
    shutil.copy(PTH, packages)
    return folder / "bin" / "python"


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Nothing is activated, and `python3` is one that has nothing."""
    tools = tmp_path_factory.mktemp("tools")
    other = tools / "python3"
    other.write_text("#!/bin/sh\necho 'this is another Python' >&2\nexit 1\n")
    other.chmod(0o755)
    names = ("HOME", "JAVA_HOME", "SPARK_LAUNCHER_OPTS", "SPARK_SUBMIT_OPTS")
    kept = {name: os.environ[name] for name in names if name in os.environ}
    java = os.path.dirname(shutil.which("java") or "")
    return {**kept, "PATH": f"{tools}:{java}:/usr/bin:/bin", "SPARK_LOCAL_IP": "127.0.0.1"}


def run(
    python: Path, environment: dict[str, str], *words: str
) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [str(python), *words], env=environment, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def folder(
    headrace: RunningBroker,
    python: Path,
    environment: dict[str, str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """Where a program has written what it printed, and a table."""
    if reason := support.missing():
        pytest.skip(reason)
    topic = create_topic(headrace.bootstrap_servers, f"p-{uuid.uuid4().hex[:8]}")
    producer = Producer({"bootstrap.servers": headrace.bootstrap_servers})
    for _ in range(3):
        producer.produce(topic, b"x")
    assert producer.flush(60) == 0
    folder = tmp_path_factory.mktemp("program")
    program = folder / "app.py"
    program.write_text(PROGRAM)
    done = run(python, environment, str(program), headrace.bootstrap_servers, topic, str(folder))
    assert done.returncode == 0, done.stderr
    (folder / "printed.txt").write_text(done.stdout)
    return folder


@pytest.mark.spark
def test_a_program_needs_no_activated_environment(folder: Path) -> None:
    assert "records: 3" in (folder / "printed.txt").read_text()


@pytest.mark.spark
def test_partition_by_reaches_a_lake_sink_in_any_program(folder: Path) -> None:
    table = DeltaTable(str(folder / "table"))
    assert table.metadata().partition_columns == ["kind"]
    assert table.to_pyarrow_table().num_rows >= 6


SHOW = "import sys; {}; import os; print(os.environ.get('PYSPARK_PYTHON'), 'typing' in sys.modules)"


@pytest.mark.parametrize(
    ("code", "more", "expected"),
    [
        ("import pyspark", {}, "THIS"),
        ("pass", {}, "None False"),
        ("import pyspark", {"PYSPARK_PYTHON": "mine"}, "mine"),
        ("import pyspark", {"PYSPARK_DRIVER_PYTHON": "mine"}, "None"),
        ("import pyspark", {"PYSPARK_GATEWAY_PORT": "1"}, "None"),
        ("import pyspark", {"SPARK_ENV_LOADED": "1"}, "None"),
    ],
)
def test_only_an_import_of_pyspark_sets_something_and_never_over_the_users_choice(
    python: Path, environment: dict[str, str], code: str, more: dict[str, str], expected: str
) -> None:
    done = run(python, environment | more, "-c", SHOW.format(code))
    assert done.stdout.startswith(expected.replace("THIS", str(python))), done.stderr


def test_an_activated_environment_is_left_as_it_is() -> None:
    active = {"PATH": os.pathsep.join([HERE, os.environ["PATH"]])}
    pyspark_import.prepare(active)
    assert "PYSPARK_PYTHON" not in active


def test_without_java_the_import_of_pyspark_says_what_to_install(
    python: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    nothing = environment | {"PATH": str(tmp_path), "JAVA_HOME": ""}
    done = run(python, nothing, "-c", "import pyspark")
    assert requirements.INSTALL_JAVA in done.stderr
    assert done.returncode == 0
    connected = run(python, nothing | {"SPARK_REMOTE": "sc://host"}, "-c", "import pyspark")
    assert connected.stderr == ""


def test_the_wheel_has_the_file_that_python_reads_at_its_start() -> None:
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    included = build["targets"]["wheel"]["force-include"]
    assert included == {str(PTH.relative_to(ROOT)): PTH.name}
    assert PTH.read_text() == f"import {pyspark_import.__name__}\n"
