"""The handler of all connections: dispatch, or the one that counts requests while there are quotas.

While no client has a quota, connections call dispatch directly, so that quotas cost nothing. Quotas
may be set and removed while connections are open.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from headrace.broker.build import BrokerParts
from headrace.broker.connection import HandleFrame, Handler
from headrace.cluster.image import Image
from headrace.security.state import QuotaEntity, Quotas
from headrace.settings import Settings

if TYPE_CHECKING:
    from headrace.broker.quotas.throttling import Throttling

_IP = "ip"


class Serving:
    """Selects the handler of requests according to the cluster's quotas."""

    def __init__(self, handler: Handler, parts: BrokerParts, settings: Settings) -> None:
        self.handle: HandleFrame = handler.handle
        self._unlimited = handler
        self._parts = parts
        self._settings = settings
        self._throttling: Throttling | None = None
        self._follow({}, parts.metadata.image.security.quotas)
        parts.metadata.listeners.append(self._image_changed)

    def _image_changed(self, old: Image, new: Image) -> None:
        if old.security is not new.security:
            self._follow(old.security.quotas, new.security.quotas)

    def _follow(self, old: Mapping[QuotaEntity, Quotas], new: Mapping[QuotaEntity, Quotas]) -> None:
        """Apply changed quotas."""
        if old == new:
            return
        of_clients = {entity: values for entity, values in new.items() if entity[0][0] != _IP}
        if self._throttling is None and not of_clients:
            return
        if self._throttling is None:
            # Imported here, so that a broker without quotas starts faster.
            from headrace.broker.quotas.throttling import Throttling

            parts = self._parts
            clock, metrics = parts.services.clock, parts.metrics
            self._throttling = Throttling(
                self._unlimited, self._settings, clock, metrics, parts.connections
            )
        self._throttling.quotas = of_clients
        self._switch(self._throttling.handle if of_clients else self._unlimited.handle)

    def _switch(self, after: HandleFrame) -> None:
        before, self.handle = self.handle, after
        for connection in self._parts.connections:
            connection.switch_handler(before, after)
            connection.caller.throttle_ms = 0
