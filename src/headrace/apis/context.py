"""What every handler is given: the broker's parts, and who is asking."""

from dataclasses import dataclass

from headrace.clock import Clock
from headrace.cluster.metadata import Metadata
from headrace.coordination.runtime import Coordinator
from headrace.replication.replicas import Replicas
from headrace.settings import Settings


@dataclass(slots=True)
class Services:
    """The parts of this broker that handlers work with; built once, by the server."""

    node_id: int
    settings: Settings
    clock: Clock
    metadata: Metadata
    replicas: Replicas
    groups: Coordinator


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
