"""Requests to other brokers of the cluster, over pooled connections."""

import asyncio
from typing import TYPE_CHECKING

from headrace.client.errors import ClientError, Unreachable
from headrace.cluster.metadata import Metadata
from headrace.errors import ErrorCode, KafkaError
from headrace.types import BrokerId

if TYPE_CHECKING:
    from headrace.client.aio import AsyncConnection, Connect
    from headrace.client.protocol import Message

_CONNECT_TIMEOUT_S = 5.0
_KEPT = 4
"""Idle connections to one broker that stay open."""


class Peers:
    """Sends requests to other brokers; each request in flight has its own connection."""

    def __init__(
        self,
        metadata: Metadata,
        node_id: BrokerId,
        timeout_s: float,
        connect: "Connect | None" = None,
    ) -> None:
        self._metadata = metadata
        self._client_id = f"broker-{node_id}"
        self._timeout_s = timeout_s
        self._connect_to = connect
        self._idle: dict[tuple[str, int], list[AsyncConnection]] = {}

    async def ask(self, broker: BrokerId, request: object, shape: "type[Message]") -> "Message":
        """The response of a broker; a retriable KafkaError if there is none."""
        known = self._metadata.image.brokers.get(broker)
        if known is None:
            raise KafkaError(
                ErrorCode.BROKER_NOT_AVAILABLE, f"broker {broker} is not in the cluster just now"
            )
        address = (known.host, known.port)
        idle = self._idle.setdefault(address, [])
        fresh = not idle
        try:
            peer = idle.pop() if idle else await self._connect(*address)
            try:
                answer = await peer.ask(request, shape)
            except (ClientError, asyncio.CancelledError):
                peer.close()
                raise
        except Unreachable as error:
            if not fresh:
                # A stale idle connection: the broker has restarted since.
                for each in idle:
                    each.close()
                idle.clear()
                return await self.ask(broker, request, shape)
            raise KafkaError(
                ErrorCode.NETWORK_EXCEPTION, f"broker {broker} does not answer: {error}"
            ) from error
        except ClientError as error:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, str(error)) from error
        if len(idle) < _KEPT:
            idle.append(peer)
        else:
            peer.close()
        return answer

    def close(self) -> None:
        """Close all connections."""
        for idle in self._idle.values():
            for peer in idle:
                peer.close()
        self._idle.clear()

    async def _connect(self, host: str, port: int) -> "AsyncConnection":
        if self._connect_to is None:
            # Imported here: a single broker starts faster without it.
            from headrace.client.aio import AsyncConnection

            self._connect_to = AsyncConnection.connect
        timeout_s = min(self._timeout_s, _CONNECT_TIMEOUT_S)
        peer = await self._connect_to(host, port, self._client_id, timeout_s)
        peer.timeout_s = self._timeout_s
        return peer
