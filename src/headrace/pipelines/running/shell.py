"""The start-up script of `headrace spark shell`: PySpark's own shell with listeners."""

import atexit
import os

from headrace.pipelines.cluster_client import BOOTSTRAP_VARIABLE
from headrace.pipelines.running.listener import watch_sessions
from headrace.pipelines.running.partition_columns import hand_on_partition_columns

_listeners = watch_sessions()
hand_on_partition_columns()

from pyspark.shell import *  # noqa: E402, F403

bootstrap = os.environ[BOOTSTRAP_VARIABLE]
print(f"The cluster is {bootstrap}; its address is in 'bootstrap'. For example:")
print(
    "  spark.read.format('headrace').option('kafka.bootstrap.servers', bootstrap)"
    ".option('subscribe', 'TOPIC').load().show()"
)


def _last_words() -> None:
    for listener in _listeners:
        listener.wait_for_ends(1)


atexit.register(_last_words)
