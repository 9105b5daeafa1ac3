"""Clusters that a Python worker keeps from one task of the source to the next.

A task of a streaming query often reads a few hundred records, which takes less time than to
connect, to negotiate versions, to log in and to look up leaders. So the next task with exactly the
same client configuration, credentials included, uses the cluster of a task that has succeeded. If
leaders or connections are out of date by then, the first error leads to new ones (`Cluster.renew`).
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from headrace.client.cluster import Cluster
from headrace.client.config import ClientConfig
from headrace.pipelines.worker_memory import REUSED

MAX_AGE_S = 60.0
"""How long a cluster is used. Then connections, logins, TLS files and leaders are new."""
MAX_CLUSTERS = 4
"""How many clusters a worker keeps; the oldest is closed for another one."""


class _Kept(NamedTuple):
    cluster: Cluster
    made_at: float


_kept: dict[ClientConfig, _Kept] = {}
# A process that a task forks must not use the connections of its parent.
os.register_at_fork(after_in_child=_kept.clear)


@contextmanager
def task_cluster(config: ClientConfig) -> Iterator[Cluster]:
    """A cluster for one task alone: the one that an earlier task has left, or a new one."""
    found = _kept.pop(config, None)
    if found is not None and time.monotonic() - found.made_at > MAX_AGE_S:
        found.cluster.close()
        found = None
    if found is None:
        found = _Kept(Cluster(config), time.monotonic())
    try:
        yield found.cluster
    except BaseException:
        found.cluster.close()
        raise
    _keep(config, found)


def _keep(config: ClientConfig, done: _Kept) -> None:
    # Two configurations are equal even if their TLS contexts differ. Spark's options make none.
    if REUSED not in os.environ or config in _kept or config.security.context is not None:
        done.cluster.close()
        return
    while len(_kept) >= MAX_CLUSTERS:
        _kept.pop(next(iter(_kept))).cluster.close()
    done.cluster.kept = True
    _kept[config] = done
