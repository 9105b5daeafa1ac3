"""What every handler is given: the broker's parts, and who sent the request."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from headrace.apis.records.long_batches import LongBatches
from headrace.apis.records.waiting_fetches import WaitingFetches
from headrace.apis.slices import Slices
from headrace.clock import Clock
from headrace.cluster.metadata import Metadata
from headrace.replication.peers import Peers
from headrace.replication.replicas import Replicas
from headrace.security.acls import ANONYMOUS, AclOperation, ResourceType
from headrace.security.audit import Audit
from headrace.security.guard import Guard, Permissions
from headrace.settings import Settings

if TYPE_CHECKING:
    from headrace.coordination.group_runtime import GroupCoordinator
    from headrace.coordination.transaction_runtime import TransactionCoordinator
    from headrace.errors import KafkaError
    from headrace.wire.fast import FetchRequest


@dataclass(slots=True)
class Services:
    """The parts of this broker that handlers work with; built once, by the server."""

    node_id: int
    settings: Settings
    clock: Clock
    metadata: Metadata
    replicas: Replicas
    make_groups: Callable[[], GroupCoordinator]
    """Builds the coordinator of groups: at the first request that needs it, because it takes
    longer to load than the rest of the broker takes to start."""
    make_transactions: Callable[[], TransactionCoordinator]
    """Likewise the coordinator of transactions."""
    peers: Peers
    guard: Guard | None = None
    """Decides what clients may do; None without an authorizer."""
    audit: Audit = field(default_factory=Audit)
    slices: Slices = field(init=False)
    """Shares the event loop between requests that take long."""
    long_batches: LongBatches = field(init=False)
    waiting_fetches: WaitingFetches = field(init=False)
    _groups: GroupCoordinator | None = field(default=None, init=False)
    _transactions: TransactionCoordinator | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.slices = Slices(self.clock.monotonic)
        self.long_batches = LongBatches(self.slices)
        self.waiting_fetches = WaitingFetches(self.replicas.changed)

    def admit(self, caller: Caller) -> None:
        """Let a client do what its principal may; called again when a login changes that."""
        if self.guard is not None:
            caller.permissions = self.guard.permissions(
                caller.principal, caller.ip, caller.listener
            )

    @property
    def groups(self) -> GroupCoordinator:
        """The coordinator of this broker's groups."""
        if self._groups is None:
            self._groups = self.make_groups()
        return self._groups

    @property
    def transactions(self) -> TransactionCoordinator:
        """The coordinator of this broker's transactional ids."""
        if self._transactions is None:
            self._transactions = self.make_transactions()
        return self._transactions

    def stop_coordinators(self) -> None:
        """Stop those that anybody has asked for."""
        if self._transactions is not None:
            self._transactions.stop()
        if self._groups is not None:
            self._groups.stop()


class ClientQuota(Protocol):
    """The quotas of one client on one connection, for handlers that know what a request uses."""

    def cap(self, request: FetchRequest) -> FetchRequest:
        """The request of a consumer, for as many bytes at most as fit into its quota at once."""

    def withholds(self, response_bytes: int) -> bool:
        """Count the response to a consumer; whether it has to be answered without records."""

    def take_mutations(self, partitions: int, strict: bool) -> KafkaError | None:
        """Count partitions to be created or deleted; why not, if that is strict."""


@dataclass(slots=True, eq=False)
class Caller:
    """The client of one connection: who it is, and where it comes from.

    There is one for each connection, so that a request costs none. The client id is not here: each
    request has its own, and it is read only where it is needed (`RequestContext`).
    """

    address: str
    """The client's address and port."""
    listener: str = "PLAINTEXT"
    """The name of the listener that accepted the connection."""
    principal: str = ANONYMOUS
    """The type and name that ACLs and quotas know the client by, such as `User:alice`."""
    by_token: bool = False
    """Whether the client has logged in by a delegation token."""
    throttle_ms: int = 0
    """How long the client has to wait before its next request: all responses say so."""
    permissions: Permissions | None = None
    """What the client may do; None without an authorizer."""
    quota: ClientQuota | None = None
    """What the client may use; None while the cluster has no quotas of clients."""
    fetch_quota: ClientQuota | None = None
    """The same if it limits fetches, else None."""

    def may(
        self, operation: AclOperation, kind: ResourceType, name: str, *, silent: bool = False
    ) -> bool:
        """Whether the client may do this with the resource of that name.

        A denial is audited. It is silent where the client does not ask for this resource, as in
        lists, or where another right is sufficient.
        """
        permissions = self.permissions
        return permissions is None or permissions.allows(operation, kind, name, silent)

    @property
    def ip(self) -> str:
        """The client's address without its port."""
        return self.address.rsplit(":", 1)[0]

    @property
    def host(self) -> str:
        """The client's address as groups show it."""
        return "/" + self.ip


@dataclass(frozen=True, slots=True)
class RequestContext:
    """What a handler knows of a request beside its fields."""

    version: int
    client_id: str
    caller: Caller
