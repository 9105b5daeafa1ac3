"""The arguments of handlers: the broker's parts, the client, and the request's context."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from headrace.apis.records.long_batches import LongBatches
from headrace.apis.records.waiting_fetches import WaitingFetches
from headrace.apis.request_errors import RequestErrors
from headrace.apis.slices import Slices
from headrace.clock import Clock
from headrace.cluster.metadata import Metadata
from headrace.replication.peers import Peers
from headrace.replication.replicas import Replicas
from headrace.security.acls import ANONYMOUS, AclOperation, ResourceType
from headrace.security.audit import Audit
from headrace.security.guard import Guard, Permissions
from headrace.security.state import StoredCredential
from headrace.settings import Settings

if TYPE_CHECKING:
    from headrace.apis.telemetry.client_metrics import ClientMetrics
    from headrace.coordination.group_runtime import GroupCoordinator
    from headrace.coordination.shares.shares import Shares
    from headrace.coordination.transaction_runtime import TransactionCoordinator
    from headrace.errors import KafkaError
    from headrace.security.listener_certificates import ListenerCertificates
    from headrace.wire.fast import FetchRequest
    from headrace.wire.steps import Steps


@dataclass(slots=True)
class Services:
    """The parts of this broker that handlers work with; built once, by the server."""

    node_id: int
    settings: Settings
    clock: Clock
    metadata: Metadata
    replicas: Replicas
    make_groups: Callable[[], GroupCoordinator]
    """Creates the group coordinator at the first request that needs it, because loading it takes
    longer than starting the rest of the broker."""
    make_transactions: Callable[[], TransactionCoordinator]
    """Creates the transaction coordinator, at the first request that needs it too."""
    make_shares: Callable[[], Shares]
    """Creates what serves share groups, likewise."""
    peers: Peers
    guard: Guard | None = None
    """Authorizes clients; None without an authorizer."""
    audit: Audit = field(default_factory=Audit)
    certificates: ListenerCertificates | None = None
    """The certificates of this broker's listeners; None without TLS."""
    slices: Slices = field(init=False)
    """Shares the event loop between requests that take long."""
    errors: RequestErrors = field(default_factory=RequestErrors, init=False)
    """Error codes in responses."""
    long_batches: LongBatches = field(init=False)
    waiting_fetches: WaitingFetches = field(init=False)
    _groups: GroupCoordinator | None = field(default=None, init=False)
    _transactions: TransactionCoordinator | None = field(default=None, init=False)
    _shares: Shares | None = field(default=None, init=False)
    _client_metrics: ClientMetrics | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.slices = Slices(self.clock.monotonic)
        self.long_batches = LongBatches(self.slices)
        self.waiting_fetches = WaitingFetches(self.replicas.changed)

    def admit(self, caller: Caller) -> None:
        """Set the permissions of a client's principal; called again after each login."""
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

    @property
    def shares(self) -> Shares:
        """What this broker does for share groups."""
        if self._shares is None:
            self._shares = self.make_shares()
        return self._shares

    @property
    def client_metrics(self) -> ClientMetrics:
        """The clients that push metrics to this broker."""
        if self._client_metrics is None:
            # Imported here: a broker to which no client pushes starts faster without.
            from headrace.apis.telemetry.client_metrics import ClientMetrics

            self._client_metrics = ClientMetrics(
                self.settings, self.clock, lambda: self.metadata.image.client_metrics
            )
        return self._client_metrics

    def render_client_metrics(self) -> Steps[str]:
        """The metrics that clients have pushed, for /metrics; nothing before a client has asked."""
        return "" if self._client_metrics is None else (yield from self._client_metrics.render())

    @property
    def transactions_if_started(self) -> TransactionCoordinator | None:
        """The same; None if nobody has asked for it yet."""
        return self._transactions

    def stop_coordinators(self) -> None:
        """Stop the coordinators that were created."""
        if self._shares is not None:
            self._shares.stop()
        if self._transactions is not None:
            self._transactions.stop()
        if self._groups is not None:
            self._groups.stop()


class ClientQuota(Protocol):
    """The quotas of one client on one connection, for handlers that measure a request's usage."""

    def cap(self, request: FetchRequest) -> FetchRequest:
        """The request of a consumer, limited to the bytes that its quota permits at once."""

    def withholds(self, response_bytes: int) -> bool:
        """Count the response to a consumer; whether its records have to be left out."""

    def take_mutations(self, partitions: int, strict: bool) -> KafkaError | None:
        """Count partitions to be created or deleted; the error if `strict` and over the quota."""

    def may_create(self, partitions: int) -> bool:
        """Count partitions of a topic that Metadata creates; False if over the quota.

        The client is not throttled: it did not ask for a new topic.
        """


@dataclass(slots=True, eq=False)
class Caller:
    """The client of one connection: its identity and its address.

    There is one object per connection, so that a request allocates none. The client id is not here:
    each request has its own, and only `RequestContext` reads it.
    """

    address: str
    """The client's address and port."""
    listener: str = "PLAINTEXT"
    """The name of the listener that accepted the connection."""
    principal: str = ANONYMOUS
    """The type and name of the client in ACLs and quotas, such as `User:alice`."""
    by_token: bool = False
    """Whether the client has authenticated with a delegation token."""
    credential: StoredCredential | None = None
    """The user or token of its login, if the cluster's metadata has it."""
    software_name: str = "unknown"
    """What the client calls its software in ApiVersions."""
    software_version: str = "unknown"
    throttle_ms: int = 0
    """The throttle time that all responses to this client carry."""
    permissions: Permissions | None = None
    """The client's permissions; None without an authorizer."""
    quota: ClientQuota | None = None
    """The client's quotas; None while the cluster has no client quotas."""
    fetch_quota: ClientQuota | None = None
    """The same object if it limits fetches, else None."""
    on_close: Callable[[Caller], None] | None = None
    """Called when the connection is closed; None if the client holds nothing on this broker."""

    def may(
        self, operation: AclOperation, kind: ResourceType, name: str, *, silent: bool = False
    ) -> bool:
        """Whether the client may perform the operation on the resource.

        A denial is audited. It is silent where the client did not name this resource, as in lists,
        or where another right is sufficient.
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
    """The context of a request, in addition to its fields."""

    version: int
    client_id: str
    caller: Caller
