"""Runs blocking requests to the cluster in threads, beside the event loop.

A `Cluster` belongs to one thread, so every thread opens its own connections.
"""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Concatenate, ParamSpec, TypeVar

from headrace.admin.errors import AdminError, InvalidRequest, NotFound
from headrace.client.cluster import Cluster
from headrace.client.config import ClientConfig
from headrace.client.errors import ClientError, Unreachable, UnsupportedVersion
from headrace.errors import ErrorCode, KafkaError
from headrace.service.errors import HttpError

P = ParamSpec("P")
T = TypeVar("T")

THREADS = 4

_STATUS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: 404,
    ErrorCode.GROUP_ID_NOT_FOUND: 404,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: 403,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: 403,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: 403,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: 403,
    ErrorCode.REQUEST_TIMED_OUT: 504,
}
"""HTTP status by error code of the cluster; 422 for all others."""


class ClusterThreads:
    """A small pool of threads, each with its own connections to the same cluster."""

    def __init__(self, config: ClientConfig) -> None:
        self.config = config
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="console-cluster")
        self._local = threading.local()
        self._clusters: list[Cluster] = []

    async def run(
        self, function: Callable[Concatenate[Cluster, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """What `function(cluster, ...)` returns; errors of the cluster become HttpErrors."""

        def call() -> T:
            return function(self._cluster(), *args, **kwargs)

        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, call)
        except (AdminError, KafkaError, ClientError) as error:
            raise http_error(error) from error

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        for cluster in self._clusters:
            cluster.close()

    def _cluster(self) -> Cluster:
        found: Cluster | None = getattr(self._local, "cluster", None)
        if found is None:
            found = self._local.cluster = Cluster(self.config)
            self._clusters.append(found)
        return found


def http_error(error: AdminError | KafkaError | ClientError) -> HttpError:
    """The response for an error of the cluster; the message is the cluster's."""
    if isinstance(error, AdminError):
        status = 404 if isinstance(error, NotFound) else 422
        status = 400 if isinstance(error, InvalidRequest) else status
        return HttpError(status, f"{error.message}. {error.hint}" if error.hint else error.message)
    if isinstance(error, KafkaError):
        status = _STATUS.get(error.code, 422)
        return HttpError(status, str(error), details={"kafka_error": error.code.name})
    if isinstance(error, UnsupportedVersion):
        return HttpError(501, f"Not available on this cluster: {error}")
    if isinstance(error, Unreachable):
        return HttpError(503, f"The cluster cannot be reached: {error}")
    return HttpError(502, str(error))
