"""Settings and environment of a Spark program under `headrace spark`.

Only decisions: nothing is started here and PySpark is not imported. Our settings are defaults; the
user's `--conf` overrides them, and the program's own settings override both.
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
from headrace.pipelines.replay_bounds import REPLAY_VARIABLE, ProgramVersion
from headrace.pipelines.running.holds import HOLD_FILE
from headrace.pipelines.source.held_streams import HOLD_VARIABLE

STATE_STORE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
PROMETHEUS = "org.apache.spark.metrics.sink.PrometheusServlet"
LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")

# Read in the program: by the listener, and by the program itself.
CLIENT_CONFIG_VARIABLE = "HEADRACE_CLIENT_CONFIG"
# The limit of restarts in a row after environmental failures.
MAX_RESTARTS_VARIABLE = "HEADRACE_SPARK_RESTARTS"
# The state of restarts for the next driver; a new program has none.
RESTARTED_VARIABLE = "HEADRACE_SPARK_RESTARTED"


@dataclass(frozen=True, slots=True)
class Launch:
    """One Spark program to be started."""

    name: str
    bootstrap: str
    master: str
    checkpoints: str
    # The settings of `--conf`.
    chosen: Mapping[str, str] = field(default_factory=dict)
    client_config: str | None = None
    # The folders of the program's own modules.
    folders: tuple[Path, ...] = ()
    restarts: int = 0
    # The version of a program that runs beside the original.
    version: ProgramVersion | None = None

    @property
    def local(self) -> bool:
        """Whether driver and executors are one process on this machine."""
        return self.master.startswith("local")


def settings(launch: Launch, environment: Mapping[str, str]) -> dict[str, str]:
    """All Spark settings of the program: ours, overridden by the user's."""
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
        # Names that do not change between runs.
        "spark.metrics.namespace": "${spark.app.name}",
    }
    if launch.local:
        # Spark does not start if the machine's name cannot be resolved.
        ours["spark.driver.host"] = "127.0.0.1"
        ours["spark.driver.bindAddress"] = "127.0.0.1"
        # Spark's default of 200 tasks per shuffle is for clusters.
        ours["spark.sql.shuffle.partitions"] = str(local_cores(launch.master))
    else:
        ours[f"spark.executorEnv.{BOOTSTRAP_VARIABLE}"] = launch.bootstrap
        ours["spark.executorEnv.PYTHONPATH"] = python_path(launch, environment)
    return ours | dict(launch.chosen)


def local_cores(master: str) -> int:
    """The number of concurrent tasks on `local`, `local[3]`, `local[*]` or `local[3,2]`."""
    inside = master.partition("[")[2].rstrip("]").partition(",")[0].strip()
    if inside.isdecimal():
        return max(int(inside), 1)
    return (os.cpu_count() or 1) if inside == "*" else 1


def environment(launch: Launch, inherited: Mapping[str, str]) -> dict[str, str]:
    """The environment of the driver, its Java and its local workers."""
    made = dict(inherited)
    # Another Python on the workers may lack our package, or have another version.
    made["PYSPARK_PYTHON"] = made["PYSPARK_DRIVER_PYTHON"] = sys.executable
    made["PYTHONPATH"] = python_path(launch, inherited)
    made[BOOTSTRAP_VARIABLE] = launch.bootstrap
    made[MAX_RESTARTS_VARIABLE] = str(launch.restarts)
    made.pop(RESTARTED_VARIABLE, None)
    if launch.client_config:
        made[CLIENT_CONFIG_VARIABLE] = str(Path(launch.client_config).resolve())
    made.pop(HOLD_VARIABLE, None)
    if "://" not in launch.checkpoints:
        made[HOLD_VARIABLE] = str(Path(launch.checkpoints, HOLD_FILE).absolute())
    made.pop(REPLAY_VARIABLE, None)
    if launch.version is not None:
        made[REPLAY_VARIABLE] = launch.version.to_text()
    # For declarative pipelines, whose session is one of Spark Connect.
    made["MASTER"] = launch.master
    made["PYSPARK_SUBMIT_ARGS"] = submit_words(launch, inherited)
    return made


def submit_words(launch: Launch, inherited: Mapping[str, str]) -> str:
    """The arguments that PySpark passes to spark-submit."""
    words = ["--master", launch.master]
    found = settings(launch, inherited)
    # Options of the driver's Java work only here: it is running when settings are read.
    log = f"-Dlog4j2.configurationFile=file:{LOG_SETTINGS}"
    found["spark.driver.extraJavaOptions"] = " ".join(
        filter(None, (log, found.get("spark.driver.extraJavaOptions")))
    )
    for name, value in found.items():
        words += ["--conf", f"{name}={value}"]
    return shlex.join([*words, "pyspark-shell"])


def python_path(launch: Launch, inherited: Mapping[str, str]) -> str:
    """PYTHONPATH for driver and workers: our package if not installed, the program's modules."""
    folders = [str(folder) for folder in launch.folders]
    source = str(Path(headrace.__file__).parents[1])
    # Site-packages are found anyway, and must not precede the standard library.
    if source not in site.getsitepackages():
        folders.append(source)
    folders += [word for word in inherited.get("PYTHONPATH", "").split(os.pathsep) if word]
    return os.pathsep.join(dict.fromkeys(folders))
