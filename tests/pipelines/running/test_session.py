"""Settings and environment of a Spark program, and their precedence."""

import os
import shlex
import sys
from pathlib import Path

import pytest

import headrace
from headrace.pipelines.running import session
from headrace.pipelines.running.session import Launch

HERE = Launch("app", "broker:9092", "local[3]", "/checkpoints/app")
SOURCE = str(Path(headrace.__file__).parents[1])


def submitted(launch: Launch) -> dict[str, str]:
    """The settings as spark-submit will read them."""
    words = shlex.split(session.environment(launch, {})["PYSPARK_SUBMIT_ARGS"])
    assert words[:2] == ["--master", launch.master]
    assert words[-1] == "pyspark-shell"
    pairs = words[2:-1]
    assert set(pairs[::2]) == {"--conf"}
    return dict(pair.split("=", 1) for pair in pairs[1::2])


def test_checkpoints_state_store_and_metrics_are_set() -> None:
    found = submitted(HERE)
    assert found["spark.sql.streaming.checkpointLocation"] == "/checkpoints/app"
    assert found["spark.sql.streaming.stateStore.providerClass"].endswith(
        "RocksDBStateStoreProvider"
    )
    assert found["spark.sql.streaming.metricsEnabled"] == "true"
    assert found["spark.metrics.conf.*.sink.prometheusServlet.path"] == "/metrics/prometheus"


def test_settings_of_the_user_override_ours() -> None:
    launch = Launch(
        "app", "b:1", "local", "/c", {"spark.sql.shuffle.partitions": "7", "spark.x": "a b"}
    )
    found = submitted(launch)
    assert found["spark.sql.shuffle.partitions"] == "7"
    assert found["spark.x"] == "a b"


def test_options_of_the_users_java_stand_beside_ours() -> None:
    launch = Launch("app", "b:1", "local", "/c", {"spark.driver.extraJavaOptions": "-Xss4m"})
    options = submitted(launch)["spark.driver.extraJavaOptions"].split()
    assert "-Xss4m" in options
    assert any(option.startswith("-Dlog4j2.configurationFile=file:/") for option in options)


def test_the_workers_python_is_this_one() -> None:
    made = session.environment(HERE, {"PYSPARK_PYTHON": "/usr/bin/python2", "HOME": "/h"})
    assert made["PYSPARK_PYTHON"] == made["PYSPARK_DRIVER_PYTHON"] == sys.executable
    assert made["HEADRACE_BOOTSTRAP"] == "broker:9092"
    assert made["HOME"] == "/h"


def test_modules_beside_the_program_and_our_own_are_found_by_workers() -> None:
    launch = Launch("app", "b:1", "spark://h:7077", "/c", folders=(Path("/programs"),))
    made = session.environment(launch, {"PYTHONPATH": f"/mine{os.pathsep}/programs"})
    assert made["PYTHONPATH"].split(os.pathsep) == ["/programs", SOURCE, "/mine"]
    # Executors of a cluster do not inherit the driver's environment.
    found = submitted(launch)
    assert found["spark.executorEnv.PYTHONPATH"].split(os.pathsep) == ["/programs", SOURCE]
    assert found["spark.executorEnv.HEADRACE_BOOTSTRAP"] == "b:1"


def test_an_installed_package_is_not_put_before_the_standard_library(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("site.getsitepackages", lambda: [SOURCE])
    assert session.environment(HERE, {})["PYTHONPATH"] == ""


@pytest.mark.parametrize(
    ("master", "cores"),
    [
        ("local", 1),
        ("local[3]", 3),
        ("local[3,2]", 3),
        ("local[*]", os.cpu_count()),
        ("local[?]", 1),
    ],
)
def test_a_laptop_gets_as_many_shuffle_partitions_as_tasks_run_at_once(
    master: str, cores: int
) -> None:
    found = submitted(Launch("app", "b:1", master, "/c"))
    assert found["spark.sql.shuffle.partitions"] == str(cores)
    assert found["spark.driver.bindAddress"] == "127.0.0.1"


def test_a_cluster_keeps_its_own_shuffle_partitions_and_addresses() -> None:
    found = submitted(Launch("app", "b:1", "spark://h:7077", "/c"))
    assert "spark.sql.shuffle.partitions" not in found
    assert "spark.driver.bindAddress" not in found


def test_the_log_settings_are_shipped() -> None:
    assert "rootLogger.level" in session.LOG_SETTINGS.read_text()
