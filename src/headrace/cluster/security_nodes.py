"""Users, ACLs, quotas and tokens as nodes of the store.

`/users/<name>`, `/acls/<type>:<pattern>:<name>` with all entries of that resource,
`/quotas/<entity>` and `/tokens/<id>`; names are percent-encoded. `/login_secret` is a random secret
of the cluster, created by the first broker with logins.
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from headrace.cluster.store import Conflict, Create, Store, StoreNode
from headrace.security.state import (
    NOTHING,
    SecurityState,
    dump_acls,
    dump_quotas,
    dump_token,
    dump_user,
    entity_node,
    load_acls,
    load_quotas,
    load_token,
    load_user,
    resource_node,
)

_LOGIN_SECRET = "/login_secret"


class _Kind(NamedTuple):
    """One of the four kinds of nodes: the part of the state it holds, and its form."""

    parent: str
    part: str
    name: Callable[[Any], str]
    dump: Callable[[Any, Any], Mapping[str, object]]
    load: Callable[[Mapping[str, Any]], tuple[Any, Any]]


_KINDS = (
    _Kind("/users", "users", str, dump_user, load_user),
    _Kind("/acls", "acls", resource_node, dump_acls, load_acls),
    _Kind("/quotas", "quotas", entity_node, dump_quotas, load_quotas),
    _Kind("/tokens", "tokens", str, lambda _id, token: dump_token(token), load_token),
)


class SecurityNodes:
    """Reads the nodes; returns the same state object while none has changed."""

    def __init__(self) -> None:
        self._state = NOTHING
        self._nodes: dict[str, dict[str, StoreNode]] = {kind.parent: {} for kind in _KINDS}

    def read(self, store: Store, versions: dict[str, int]) -> SecurityState:
        """The state; notes the version of each node."""
        changed: dict[str, Mapping[Any, Any]] = {}
        for kind in _KINDS:
            nodes = store.children(kind.parent)
            for name, node in nodes.items():
                versions[f"{kind.parent}/{name}"] = node.version
            if nodes != self._nodes[kind.parent]:
                changed[kind.part] = _loaded(kind, nodes)
                self._nodes[kind.parent] = nodes
        if changed:
            parts = {kind.part: getattr(self._state, kind.part) for kind in _KINDS}
            self._state = SecurityState(**{**parts, **changed})
        return self._state


def _loaded(kind: _Kind, nodes: Mapping[str, StoreNode]) -> dict[Any, Any]:
    contents = json.loads(b"[" + b",".join(node.value for node in nodes.values()) + b"]")
    return dict(kind.load(content) for content in contents)


def changed_nodes(old: SecurityState, new: SecurityState) -> Iterator[tuple[str, bytes | None]]:
    """The path and the new value of each node that differs; None if a node is deleted."""
    for kind in _KINDS:
        before, after = getattr(old, kind.part), getattr(new, kind.part)
        if before is after:
            continue
        for key in {**before, **after}:
            if key not in after:
                yield _path(kind, key), None
            elif before.get(key) != after[key]:
                value = json.dumps(kind.dump(key, after[key]), separators=(",", ":"))
                yield _path(kind, key), value.encode()


def _path(kind: _Kind, key: object) -> str:
    from urllib.parse import quote  # imported lazily: a broker without such nodes starts faster

    name = quote(kind.name(key), safe=":").replace(".", "%2E")
    return f"{kind.parent}/{name}"


def login_secret(store: Store) -> bytes:
    """The secret from which the challenges of unknown users are derived; created if missing."""
    node = store.get(_LOGIN_SECRET)
    if node is None:
        made = json.dumps({"secret": os.urandom(32).hex()}).encode()
        with suppress(Conflict):  # another broker was faster
            store.commit([Create(_LOGIN_SECRET, made)])
        node = store.get(_LOGIN_SECRET)
    assert node is not None, "the login secret is never deleted"
    return bytes.fromhex(json.loads(node.value)["secret"])
