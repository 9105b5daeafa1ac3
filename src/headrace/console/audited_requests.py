"""Audit lines of requests: which client asked for what, and with which result.

The route table names the requests that are audited. Contents of records, passwords and values of
settings that may be secret are never written.
"""

from collections.abc import Awaitable, Callable, Mapping

from headrace.console.console_request import ConsoleRequest
from headrace.console.sql.statements import read_statement
from headrace.security.audit import Audit
from headrace.security.principals import ANONYMOUS
from headrace.security.roles import Role
from headrace.service.errors import HttpError

Handler = Callable[[ConsoleRequest], Awaitable[object]]

QUERY = ("from", "to", "at", "partitions", "limit", "kind", "q", "left", "target", "all")
FIELDS: Mapping[str, tuple[str, ...]] = {
    "POST /api/topics": ("name", "partitions", "replication_factor", "configs"),
    "PATCH /api/topics/{topic}/configs": ("set", "delete"),
    "PATCH /api/topics/{topic}/partitions": ("partitions",),
    "POST /api/topics/{topic}/records": ("partition", "like"),
    "POST /api/dead-letters/{topic}/plan": ("target", "cause", "from_beginning"),
    "POST /api/dead-letters/{topic}/send": ("target", "cause", "from_beginning", "rate"),
    "POST /api/dead-letters/{topic}/{partition}/{offset}": ("target",),
    "POST /api/groups/{group}/reset": ("changes",),
    "POST /api/schemas/{subject}": ("type",),
    "PUT /api/schemas/{subject}/compatibility": ("compatibility",),
    "POST /api/connectors": ("name",),
    "PUT /api/reassignments/{topic}/{partition}": ("replicas",),
    "PUT /api/client-metrics/{name}": ("metrics", "interval_ms", "match"),
    "POST /api/held-partitions/abort": ("topic", "partition", "producer_id"),
    "POST /api/acls": (
        "type", "pattern", "name", "principal", "host", "operation", "permission",
    ),
    "POST /api/acls/delete": (
        "type", "pattern", "name", "principal", "host", "operation", "permission",
    ),
    "PATCH /api/quotas": ("entity", "set", "remove"),
}  # fmt: skip
"""Fields of the body that are written, by method and path."""
NAMES: Mapping[str, tuple[str, ...]] = {
    "PATCH /api/brokers/{broker}/configs": ("set", "delete"),
    "POST /api/connectors": ("configs",),
    "PUT /api/connectors/{name}/configs": ("configs",),
}
"""Fields of which only the names of settings are written, because values may be secret."""
STATEMENTS = ("POST /api/sql/statements", "POST /api/sql/rows", "POST /api/sql/changes")
"""Requests whose field `sql` is written without values of rows, settings and code."""
RESULTS = ("partition", "offset", "id", "deleted", "refused")
"""Fields of the response that are written."""
MOST_CHARACTERS = 500
MOST_ITEMS = 100


def audited(method: str, pattern: str, handler: Handler, event: str) -> Handler:
    """A handler that writes a line for each request, whether it succeeds or fails."""

    async def handle(request: ConsoleRequest) -> object:
        fields = {**_asked(method, pattern, request), "result": "unknown"}
        try:
            answer = await handler(request)
        except HttpError as error:
            fields |= {"result": "failed", "status": error.status, "reason": _short(error.message)}
            raise
        except Exception as error:
            fields |= {"result": "failed", "status": 500, "reason": type(error).__name__}
            raise
        else:
            fields |= {"result": "done", **_result(answer)}
        finally:
            # A request that its client gave up keeps the result unknown.
            request.audit.changed(AuditedClient(request), event, fields)
        return answer

    return handle


def write_forbidden(audit: Audit, request: ConsoleRequest, pattern: str, needed: Role) -> None:
    """Writes that the role of a client did not suffice. The body was not read."""
    fields = {"method": request.method, "path": pattern, **request.path, "result": "forbidden"}
    fields["needed_role"] = needed.name.lower()
    audit.changed(AuditedClient(request), "console_denied", fields)


class AuditedClient:
    """The sender of a request in the words of the audit log."""

    listener = "console"

    def __init__(self, request: ConsoleRequest) -> None:
        self.address = request.client
        self.principal = request.principal or ANONYMOUS


def _asked(method: str, pattern: str, request: ConsoleRequest) -> dict[str, object]:
    found: dict[str, object] = {"method": method, "path": pattern, **request.path}
    query = {name: _short(request.text(name)) for name in QUERY if name in request.query}
    body = _body(f"{method} {pattern}", request) if request.body else {}
    # Apart from the names above, because a field of the body may be named like one of them.
    return {**found, "request": {**query, **body}} if query or body else found


def _body(route: str, request: ConsoleRequest) -> dict[str, object]:
    try:
        body = request.fields()
    except HttpError:
        return {}
    found = {name: _short(body[name]) for name in FIELDS.get(route, ()) if name in body}
    for name in NAMES.get(route, ()):
        if name in body:
            settings = body[name]
            found[name] = _short(list(settings) if isinstance(settings, dict) else settings)
    if route in STATEMENTS:
        found["sql"] = _statement(body.get("sql"))
    return found


def _statement(text: object) -> object:
    try:
        return _short(read_statement(text).shown) if isinstance(text, str) else ""
    except HttpError:
        # What cannot be read may have a password anywhere.
        return ""


def _result(answer: object) -> dict[str, object]:
    if not isinstance(answer, dict):
        return {}
    found = {name: _short(answer[name]) for name in RESULTS if answer.get(name) is not None}
    return {"answer": found} if found else {}


def _short(value: object) -> object:
    """A value of bounded size; what was left out is counted."""
    if isinstance(value, str):
        left = len(value) - MOST_CHARACTERS
        return value if left <= 0 else f"{value[:MOST_CHARACTERS]}... ({left} more characters)"
    if isinstance(value, list):
        left = len(value) - MOST_ITEMS
        found = [_short(each) for each in value[:MOST_ITEMS]]
        return found if left <= 0 else [*found, f"{left} more"]
    if isinstance(value, dict):
        left = len(value) - MOST_ITEMS
        named = {_cut(name): _short(value[name]) for name in list(value)[:MOST_ITEMS]}
        return named if left <= 0 else {**named, "...": f"{left} more"}
    return value


def _cut(name: object) -> str:
    return str(name)[:MOST_CHARACTERS]
