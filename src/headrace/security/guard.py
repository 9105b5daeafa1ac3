"""What the clients of a broker may do, as the cluster's ACLs are now.

`Guard` has the authorizer of the moment. Each connection has `Permissions`: what was asked before
is remembered until the ACLs change, so a request that repeats costs one look into a dictionary.
"""

from headrace.errors import SettingError
from headrace.security.acls import AclOperation, ResourceType
from headrace.security.authorizer import Authorizer
from headrace.security.state import SecurityState

REMEMBERED = 10_000
"""How many answers a connection remembers; a client that asks about more names starts again."""


def parse_super_users(text: str) -> frozenset[str]:
    """The principals in `super.users`; SettingError if one is not of the form User:name."""
    found = frozenset(one.strip() for one in text.split(";") if one.strip())
    for one in sorted(found):
        kind, colon, name = one.partition(":")
        if not (kind and colon and name):
            raise SettingError(
                f"super.users: '{one}' is no principal; expected is User:name;User:name"
            )
    return found


class Guard:
    """Makes the permissions of connections; one per broker that has an authorizer."""

    def __init__(
        self, state: SecurityState, super_users: frozenset[str], *, allow_without_acl: bool
    ) -> None:
        self._super_users = super_users
        self._allow_without_acl = allow_without_acl
        self._acls = state.acls
        self.authorizer = self._make()

    def follow(self, state: SecurityState) -> None:
        """Decide by these ACLs from now on."""
        if state.acls is not self._acls:
            self._acls = state.acls
            self.authorizer = self._make()

    def permissions(self, principal: str, host: str) -> "Permissions":
        """Those of one client."""
        return Permissions(self, principal, host)

    def _make(self) -> Authorizer:
        return Authorizer(self._acls, self._super_users, allow_without_acl=self._allow_without_acl)


class Permissions:
    """What one client may do."""

    __slots__ = ("_authorizer", "_guard", "_host", "_known", "_principal")

    def __init__(self, guard: Guard, principal: str, host: str) -> None:
        self._guard = guard
        self._principal = principal
        self._host = host
        self._authorizer = guard.authorizer
        self._known: dict[tuple[AclOperation, ResourceType, str], bool] = {}

    def allows(self, operation: AclOperation, kind: ResourceType, name: str) -> bool:
        """Whether the client may do it now."""
        self._follow()
        key = (operation, kind, name)
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= REMEMBERED:
                self._known.clear()
            known = self._authorizer.allows(self._principal, self._host, *key)
            self._known[key] = known
        return known

    def allows_any(self, operation: AclOperation, kind: ResourceType) -> bool:
        """Whether there is a resource of this type on which the client may do it."""
        self._follow()
        return self._authorizer.allows_any(self._principal, self._host, operation, kind)

    def _follow(self) -> None:
        authorizer = self._guard.authorizer
        if authorizer is not self._authorizer:
            self._authorizer = authorizer
            self._known = {}
