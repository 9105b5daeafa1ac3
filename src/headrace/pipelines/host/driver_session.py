"""The Spark session of a driver process. PySpark is imported when it starts."""

import logging
import os
import signal
import threading
from collections.abc import Mapping
from typing import Any

from headrace.pipelines.host.driver_process import JAVA_ENDED, JAVA_KILLED
from headrace.pipelines.host.fork_server import ForkServer
from headrace.pipelines.running import session

SPARK_SETTINGS = {
    "spark.scheduler.mode": "FAIR",
    # Times count in UTC, as those of Kafka Connect and ksqlDB do.
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Progress of epochs that is kept for each query.
    "spark.sql.streaming.numRecentProgressUpdates": "5",
}
"""The tasks of one query must not keep those of others waiting; without a web interface."""
log = logging.getLogger(__name__)


def start_session(
    name: str,
    bootstrap: str,
    master: str,
    folder: str,
    chosen: Mapping[str, str],
    workers: ForkServer,
) -> Any:
    """Start Spark with workers of the fork server. The process ends when Spark's Java does."""
    launch = session.Launch(name, bootstrap, master, folder, {**SPARK_SETTINGS, **chosen})
    os.environ.update(session.environment(launch, os.environ))
    os.environ.update(workers.environment())

    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.getOrCreate()
    # Its warnings are about epochs that take longer than the interval.
    spark.sparkContext.setLogLevel("ERROR")
    java: Any = getattr(SparkContext._gateway, "proc", None)
    if java is not None:
        threading.Thread(target=_end_with, args=(java,), daemon=True).start()
    return spark


def make_active(spark: Any) -> None:
    """Java looks up Python data sources in the session of its thread, and has one thread for each
    of ours."""
    from pyspark.sql import SparkSession

    of_java = SparkSession._get_j_spark_session_class(spark._jvm)
    of_java.setActiveSession(spark._jsparkSession)


def _end_with(java: Any) -> None:
    java.wait()
    log.error("Spark's Java has ended with status %s", java.returncode)
    os._exit(JAVA_KILLED if java.returncode == -signal.SIGKILL else JAVA_ENDED)
