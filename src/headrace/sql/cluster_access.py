"""Requests to the Kafka cluster from the event loop: they block, and so run in threads."""

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

from headrace.client.cluster import Cluster
from headrace.client.config import ClientConfig
from headrace.client.errors import ClientError
from headrace.errors import KafkaError
from headrace.sql.errors import SERVER_ERROR, StatementRefused

T = TypeVar("T")

MOST_IDLE = 4


class ClusterAccess:
    """Keeps connections for the next requests."""

    def __init__(self, config: ClientConfig) -> None:
        self.config = config
        self._idle: list[Cluster] = []
        self._lock = threading.Lock()
        self._is_closed = False

    async def ask(self, what: str, request: Callable[[Cluster], T]) -> T:
        """The result of a blocking request; StatementRefused if the cluster refuses it."""
        try:
            return await asyncio.to_thread(self._ask, request)
        except (KafkaError, ClientError) as error:
            code = SERVER_ERROR if isinstance(error, ClientError) else None
            message = f"{what} failed: {error}"
            raise StatementRefused(message, code) if code else StatementRefused(message) from error

    def _ask(self, request: Callable[[Cluster], T]) -> T:
        with self._lock:
            cluster = self._idle.pop() if self._idle else None
        if cluster is None:
            cluster = Cluster(self.config)
        try:
            found = request(cluster)
        except BaseException:
            cluster.close()
            raise
        with self._lock:
            if not self._is_closed and len(self._idle) < MOST_IDLE:
                self._idle.append(cluster)
                return found
        cluster.close()
        return found

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for cluster in idle:
            cluster.close()
