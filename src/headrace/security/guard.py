"""Permissions of a broker's clients under the current ACLs.

`Guard` has the current authorizer. Each connection has `Permissions`, which cache decisions until
the ACLs change, so that a repeated request costs one lookup in a dictionary. A denial is decided
again each time, because the audit log includes the rule.
"""

from headrace.errors import SettingError
from headrace.security.acls import AclOperation, ResourceType
from headrace.security.audit import Audit
from headrace.security.authorizer import Authorizer
from headrace.security.state import SecurityState

REMEMBERED = 10_000
"""How many decisions a connection caches; with more names the cache is cleared."""


def parse_super_users(text: str) -> frozenset[str]:
    """The principals in `super.users`; SettingError if one is not of the form User:name."""
    found = frozenset(one.strip() for one in text.split(";") if one.strip())
    for one in sorted(found):
        kind, colon, name = one.partition(":")
        if not (kind and colon and name):
            raise SettingError(
                f"super.users: '{one}' is not a principal; expected User:name;User:name"
            )
    return found


class Guard:
    """Creates the permissions of connections; one per broker with an authorizer."""

    def __init__(
        self,
        state: SecurityState,
        super_users: frozenset[str],
        audit: Audit,
        *,
        allow_without_acl: bool,
    ) -> None:
        self.audit = audit
        self._super_users = super_users
        self._allow_without_acl = allow_without_acl
        self._acls = state.acls
        self.authorizer = self._make()

    def follow(self, state: SecurityState) -> None:
        """Use the ACLs of this state from now on."""
        if state.acls is not self._acls:
            self._acls = state.acls
            self.authorizer = self._make()

    def permissions(self, principal: str, host: str, listener: str) -> "Permissions":
        """The permissions of one client."""
        return Permissions(self, principal, host, listener)

    def _make(self) -> Authorizer:
        return Authorizer(self._acls, self._super_users, allow_without_acl=self._allow_without_acl)


class Permissions:
    """The permissions of one client."""

    __slots__ = (
        "_authorizer", "_guard", "_host", "_known", "_listener", "_principal", "_readable",
        "_writable",
    )  # fmt: skip

    def __init__(self, guard: Guard, principal: str, host: str, listener: str) -> None:
        self._guard = guard
        self._principal = principal
        self._host = host
        self._listener = listener
        self._authorizer = guard.authorizer
        self._known: dict[tuple[AclOperation, ResourceType, str], bool] = {}
        self._writable: set[str] = set()
        self._readable: set[str] = set()

    def may_write(self, topic: str) -> bool:
        """Like `allows`, for Produce: an allowed topic costs one lookup in a set."""
        if topic in self._writable and self._guard.authorizer is self._authorizer:
            return True
        return self._remember(AclOperation.WRITE, topic)

    def may_read(self, topic: str) -> bool:
        """Like `allows`, for Fetch."""
        if topic in self._readable and self._guard.authorizer is self._authorizer:
            return True
        return self._remember(AclOperation.READ, topic)

    def _remember(self, operation: AclOperation, topic: str) -> bool:
        allowed = self.allows(operation, ResourceType.TOPIC, topic)
        if allowed and not self._guard.audit.log_allowed:
            topics = self._writable if operation is AclOperation.WRITE else self._readable
            if len(topics) >= REMEMBERED:
                topics.clear()
            topics.add(topic)
        return allowed

    def allows(
        self, operation: AclOperation, kind: ResourceType, name: str, silent: bool = False
    ) -> bool:
        """Whether the client may perform the operation; a denial is audited unless silent."""
        self._follow()
        known = self._known.get((operation, kind, name))
        if known or (silent and known is not None):
            return known
        return self._decide(operation, kind, name, silent)

    def _decide(self, operation: AclOperation, kind: ResourceType, name: str, silent: bool) -> bool:
        """Like `allows`, without the cache."""
        audit = self._guard.audit
        allowed, rule, _ = self._authorizer.decide(
            self._principal, self._host, operation, kind, name
        )
        if not silent and (audit.log_allowed or not allowed):
            audit.decided(
                self._principal, self._host, self._listener, operation, kind, name, allowed, rule
            )
        if allowed and audit.log_allowed:
            return True  # Not cached, because the next request is an event too.
        if len(self._known) >= REMEMBERED:
            self._known.clear()
        self._known[operation, kind, name] = allowed
        return allowed

    def allows_any(self, operation: AclOperation, kind: ResourceType) -> bool:
        """Whether the client may perform the operation on any resource of this type."""
        self._follow()
        audit = self._guard.audit
        allowed = self._authorizer.allows_any(self._principal, self._host, operation, kind)
        if audit.log_allowed or not allowed:
            rule = f"ACLs allow it on {'some' if allowed else 'no'} {kind.name}"
            audit.decided(
                self._principal, self._host, self._listener, operation, kind, None, allowed, rule
            )
        return allowed

    def _follow(self) -> None:
        authorizer = self._guard.authorizer
        if authorizer is not self._authorizer:
            self._authorizer = authorizer
            self._known = {}
            self._writable = set()
            self._readable = set()
