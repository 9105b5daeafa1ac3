"""What a Spark program finds set up when `headrace spark` starts it: settings and environment.

Decisions only: nothing is started here and PySpark is not imported. What we set are defaults; what
the user gives with `--conf` comes after them, and what the program itself sets comes last.
"""

import os
import shlex
import site
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import headrace
from headrace.pipelines.cluster_client import BOOTSTRAP_VARIABLE

STATE_STORE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
PROMETHEUS = "org.apache.spark.metrics.sink.PrometheusServlet"
LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")

# Read inside the program: by the listener, and by the program itself.
CLIENT_CONFIG_VARIABLE = "HEADRACE_CLIENT_CONFIG"
# How often in a row the driver may start itself again after a failure of the machine.
MAX_RESTARTS_VARIABLE = "HEADRACE_SPARK_RESTARTS"
# What it tells its next life; a new program begins without.
RESTARTED_VARIABLE = "HEADRACE_SPARK_RESTARTED"


@dataclass(frozen=True, slots=True)
class Launch:
    """One Spark program to be started."""

    name: str
    bootstrap: str
    master: str
    checkpoints: str
    # What `--conf` said.
    chosen: Mapping[str, str] = field(default_factory=dict)
    client_config: str | None = None
    # Where the program's own modules are.
    folders: tuple[Path, ...] = ()
    restarts: int = 0

    @property
    def local(self) -> bool:
        """Whether driver and executors are one process on this machine."""
        return self.master.startswith("local")


def settings(launch: Launch, environment: Mapping[str, str]) -> dict[str, str]:
    """All Spark settings of the program: ours, and over them the user's."""
    ours = {
        "spark.app.name": launch.name,
        "spark.sql.streaming.checkpointLocation": launch.checkpoints,
        # The default keeps all state on the heap; transformWithState works with this one only.
        "spark.sql.streaming.stateStore.providerClass": STATE_STORE,
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # http://DRIVER:4040/metrics/prometheus: Spark's own metrics and the listener's.
        "spark.sql.streaming.metricsEnabled": "true",
        "spark.metrics.conf.*.sink.prometheusServlet.class": PROMETHEUS,
        "spark.metrics.conf.*.sink.prometheusServlet.path": "/metrics/prometheus",
        # Names that stay the same from one run to the next.
        "spark.metrics.namespace": "${spark.app.name}",
    }
    if launch.local:
        # A machine whose name leads nowhere would stop Spark before it begins.
        ours["spark.driver.host"] = "127.0.0.1"
        ours["spark.driver.bindAddress"] = "127.0.0.1"
        # 200 tasks for each shuffle are for clusters.
        ours["spark.sql.shuffle.partitions"] = str(local_cores(launch.master))
    else:
        ours[f"spark.executorEnv.{BOOTSTRAP_VARIABLE}"] = launch.bootstrap
        ours["spark.executorEnv.PYTHONPATH"] = python_path(launch, environment)
    return ours | dict(launch.chosen)


def local_cores(master: str) -> int:
    """How many tasks run at once on `local`, `local[3]`, `local[*]` or `local[3,2]`."""
    inside = master.partition("[")[2].rstrip("]").partition(",")[0].strip()
    if inside.isdecimal():
        return max(int(inside), 1)
    return (os.cpu_count() or 1) if inside == "*" else 1


def environment(launch: Launch, inherited: Mapping[str, str]) -> dict[str, str]:
    """The environment in which the driver runs, and with it its Java and its local workers."""
    made = dict(inherited)
    # Another Python on the workers would miss our package, or be another version.
    made["PYSPARK_PYTHON"] = made["PYSPARK_DRIVER_PYTHON"] = sys.executable
    made["PYTHONPATH"] = python_path(launch, inherited)
    made[BOOTSTRAP_VARIABLE] = launch.bootstrap
    made[MAX_RESTARTS_VARIABLE] = str(launch.restarts)
    made.pop(RESTARTED_VARIABLE, None)
    if launch.client_config:
        made[CLIENT_CONFIG_VARIABLE] = str(Path(launch.client_config).resolve())
    # Where declarative pipelines look, which have their session from Spark Connect.
    made["MASTER"] = launch.master
    made["PYSPARK_SUBMIT_ARGS"] = submit_words(launch, inherited)
    return made


def submit_words(launch: Launch, inherited: Mapping[str, str]) -> str:
    """What PySpark hands to spark-submit when it starts its Java."""
    words = ["--master", launch.master]
    found = settings(launch, inherited)
    # Spark takes options of the driver's Java only here: it is running when settings are read.
    log = f"-Dlog4j2.configurationFile=file:{LOG_SETTINGS}"
    found["spark.driver.extraJavaOptions"] = " ".join(
        filter(None, (log, found.get("spark.driver.extraJavaOptions")))
    )
    for name, value in found.items():
        words += ["--conf", f"{name}={value}"]
    return shlex.join([*words, "pyspark-shell"])


def python_path(launch: Launch, inherited: Mapping[str, str]) -> str:
    """PYTHONPATH for driver and workers: our package where it is not installed, the program's."""
    folders = [str(folder) for folder in launch.folders]
    source = str(Path(headrace.__file__).parents[1])
    # Site-packages come by themselves, and in front of the standard library they would do harm.
    if source not in site.getsitepackages():
        folders.append(source)
    folders += [word for word in inherited.get("PYTHONPATH", "").split(os.pathsep) if word]
    return os.pathsep.join(dict.fromkeys(folders))
