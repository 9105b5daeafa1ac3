"""Suggests ACLs for denied operations in audit logs."""

import json
import shlex
from collections.abc import Iterable
from typing import NamedTuple

_CLUSTER = "CLUSTER"
_OPTIONS = {
    "TOPIC": "--topic",
    "GROUP": "--group",
    "TRANSACTIONAL_ID": "--transactional-id",
    "DELEGATION_TOKEN": "--delegation-token",
    "USER": "--user-principal",
}


class Suggestion(NamedTuple):
    """Denied operations of one principal on one resource."""

    principal: str
    resource_type: str
    resource_name: str
    operations: tuple[str, ...]
    denied_by: str | None
    """The ACL that denies them; None if they are denied because no ACL allows them."""

    @property
    def command(self) -> str | None:
        """A command that adds the ACL; None if an ACL has to be removed first."""
        if self.denied_by is not None:
            return None
        words = ["headrace", "acls", "add", "--allow-principal", self.principal]
        for operation in self.operations:
            words += ["--operation", operation.lower().replace("_", "-")]
        if self.resource_type == _CLUSTER:
            words.append("--cluster")
        else:
            words += [_OPTIONS[self.resource_type], self.resource_name]
        return shlex.join(words)


def suggest(lines: Iterable[str]) -> list[Suggestion]:
    """Suggestions for the denials in an audit log; other lines are ignored."""
    found: dict[tuple[str, str, str, str | None], set[str]] = {}
    for line in lines:
        event = _denial(line)
        # A denial on any resource has no resource name, so no ACL can be suggested.
        if event is None or event["name"] is None:
            continue
        rule = str(event["rule"])
        denied_by = rule if rule.startswith("denied by the ACL") else None
        key = str(event["principal"]), str(event["resource"]), str(event["name"]), denied_by
        found.setdefault(key, set()).add(str(event["operation"]))
    return [
        Suggestion(principal, kind, name, tuple(sorted(operations)), denied_by)
        for (principal, kind, name, denied_by), operations in sorted(
            found.items(), key=lambda item: (*item[0][:3], item[0][3] or "")
        )
    ]


def _denial(line: str) -> dict[str, object] | None:
    try:
        event = json.loads(line)
    except ValueError:
        return None
    if not isinstance(event, dict) or event.get("event") != "denied":
        return None
    known = all(name in event for name in ("principal", "resource", "name", "operation", "rule"))
    return event if known and event["resource"] in {*_OPTIONS, _CLUSTER} else None
