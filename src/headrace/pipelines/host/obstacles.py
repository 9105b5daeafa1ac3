"""Why a query that is at work does not get on: a suspended Python process, or a cluster that does
not respond.

Spark notices neither: it waits for the process, and the client tries again. The driver looks for
both while a query is slow, in a thread of its own, so that usual epochs cost nothing.
"""

import dataclasses
import threading
from collections.abc import Iterator
from pathlib import Path

from headrace.client.cluster import Cluster
from headrace.client.config import ClientConfig
from headrace.client.errors import ClientError
from headrace.errors import KafkaError

SLOW_S = 0.75
"""After this time at work without the end of an epoch a query counts as slow."""
LOOK_S = 0.5
RESPONDS_WITHIN_S = 1.5

_PROCESSES = Path("/proc")
_SUSPENDED = "T"


class Obstacles:
    """What keeps the queries of this driver from their work."""

    def __init__(self, client: ClientConfig, workers: int) -> None:
        """`workers` is the process below which Spark's Python processes are."""
        self.problem: str | None = None
        self._client = dataclasses.replace(
            client,
            connect_timeout_s=RESPONDS_WITHIN_S,
            request_timeout_s=RESPONDS_WITHIN_S,
            total_timeout_s=RESPONDS_WITHIN_S,
        )
        self._workers = workers
        self._cluster: Cluster | None = None
        self._slow = threading.Event()
        threading.Thread(target=self._look_for_ever, daemon=True, name="obstacles").start()

    def looked(self, slow: bool) -> None:
        """Called again and again with whether a query is slow."""
        if slow:
            self._slow.set()
        else:
            self._slow.clear()
            self.problem = None

    def _look_for_ever(self) -> None:
        pause = threading.Event()
        while True:
            self._slow.wait()
            self.problem = self._find()
            pause.wait(LOOK_S)

    def _find(self) -> str | None:
        suspended = next(_suspended_below(self._workers), None)
        if suspended is not None:
            return f"the Python process {suspended} of Spark is suspended"
        try:
            if self._cluster is None:
                self._cluster = Cluster(self._client)
            self._cluster.metadata(())
        except (ClientError, KafkaError, OSError) as error:
            if self._cluster is not None:
                self._cluster.close()
            self._cluster = None
            return f"the Kafka cluster does not respond: {error}"
        return None


def _suspended_below(parent: int) -> Iterator[int]:
    """The suspended processes among a process and its descendants; none without /proc."""
    pending = [parent]
    while pending:
        process = pending.pop()
        folder = _PROCESSES / str(process)
        try:
            # The name before the state is in parentheses, and may contain some.
            state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
            for thread in (folder / "task").iterdir():
                pending += map(int, (thread / "children").read_text().split())
        except OSError:
            continue  # it has ended, or this system has no such files
        if state == _SUSPENDED:
            yield process
