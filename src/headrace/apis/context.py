"""What every handler is given: the broker's parts, and who is asking."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.clock import Clock
from headrace.cluster.metadata import Metadata
from headrace.replication.replicas import Replicas
from headrace.settings import Settings

if TYPE_CHECKING:
    from headrace.coordination.runtime import Coordinator


@dataclass(slots=True)
class Services:
    """The parts of this broker that handlers work with; built once, by the server."""

    node_id: int
    settings: Settings
    clock: Clock
    metadata: Metadata
    replicas: Replicas
    make_groups: Callable[[], Coordinator]
    """Builds the coordinator of groups: at the first request that needs it, because it takes
    longer to load than the rest of the broker takes to start."""
    _groups: Coordinator | None = field(default=None, init=False)

    @property
    def groups(self) -> Coordinator:
        """The coordinator of this broker's groups."""
        if self._groups is None:
            self._groups = self.make_groups()
        return self._groups

    @property
    def has_groups(self) -> bool:
        """Whether anybody has asked for the coordinator yet."""
        return self._groups is not None


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sent the request, and in which version of its API."""

    version: int
    client_id: str
    address: str

    @property
    def host(self) -> str:
        """The client's address without its port, as groups show it."""
        return "/" + self.address.rsplit(":", 1)[0]
