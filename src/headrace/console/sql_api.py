"""Continuous SQL: streams, tables and queries of a SQL server, and statements that users run.

A request has one statement, so that each has a line of its own in the audit log. Statements that
change something have a route of their own, which needs another role.
"""

from collections.abc import Mapping

from headrace.console.console_request import ConsoleRequest, text_map
from headrace.console.sql.sql_server import Entity
from headrace.console.sql.statements import (
    SqlStatement,
    StatementKind,
    quoted_name,
    read_statement,
)
from headrace.security.principals import ANONYMOUS
from headrace.security.roles import Role
from headrace.service.errors import HttpError

ACTIONS = {"pause": "PAUSE", "resume": "RESUME", "terminate": "TERMINATE"}
MOST_IN_SESSION = 100


async def get_server(request: ConsoleRequest) -> object:
    """The server, and the functions that can be completed."""
    found = await request.console.sql.info()
    return {
        "version": str(found.get("version", "")),
        "service": str(found.get("ksqlServiceId", "")),
        "status": str(found.get("serverStatus", "")),
        "functions": [str(each.get("name")) for each in found["functions"]],
    }


async def list_sources(request: ConsoleRequest) -> object:
    """Streams and tables with their columns."""
    rows, described, warnings = await request.console.sql.sources()
    columns = {
        each["sourceDescription"]["name"]: each["sourceDescription"]["fields"]
        for each in described
        if "sourceDescription" in each
    }
    return {
        "sources": [{**row, "fields": columns.get(row["name"])} for row in rows],
        "warnings": warnings,
    }


async def get_source(request: ConsoleRequest) -> object:
    """What DESCRIBE ... EXTENDED says of a stream or table."""
    text = f"DESCRIBE {quoted_name(request.path['name'])} EXTENDED;"
    return await _first(request, text)


async def list_queries(request: ConsoleRequest) -> object:
    """Queries with state, rates and lag."""
    found = await request.console.sql.queries()
    return {
        "queries": found.get("queries", []),
        "warnings": [str(each["message"]) for each in found.get("warnings", ())],
    }


async def get_query(request: ConsoleRequest) -> object:
    """What EXPLAIN says of a query that runs."""
    return await _first(request, f"EXPLAIN {quoted_name(request.path['query'])};")


async def act(request: ConsoleRequest) -> object:
    """Pauses, resumes or terminates a query."""
    action, query = request.path["action"], request.path["query"]
    if action not in ACTIONS:
        raise HttpError(404, f"The action must be one of {', '.join(ACTIONS)}")
    await request.console.sql.run(f"{ACTIONS[action]} {quoted_name(query)};", {}, "write")
    return {"id": query}


async def read(request: ConsoleRequest) -> object:
    """The results of a statement that changes nothing and returns no rows."""
    statement = read_statement(request.field("sql"))
    if statement.kind not in (StatementKind.READ, StatementKind.SESSION):
        raise HttpError(400, "Only LIST, SHOW, DESCRIBE, EXPLAIN and SET are sent to this path")
    return await _results(request, statement, Role.READ)


async def change(request: ConsoleRequest) -> object:
    """The results of a statement that changes something."""
    statement = read_statement(request.field("sql"))
    role = request.role or Role.ADMIN
    if statement.kind is StatementKind.QUERY:
        raise HttpError(400, "SELECT and PRINT are not sent to this path")
    if statement.kind is StatementKind.CODE and role < Role.ADMIN:
        raise HttpError(
            403,
            f"HTTP 403 Forbidden: {request.principal} has the role {role.name.lower()}, and this "
            "statement needs the role admin: its code runs in the SQL server",
        )
    _check_masks(request, statement)
    return await _results(request, statement, role)


async def start_rows(request: ConsoleRequest) -> object:
    """Starts a SELECT or PRINT; its rows are asked for by its id."""
    statement = read_statement(request.field("sql"))
    if statement.kind is not StatementKind.QUERY:
        raise HttpError(400, "Only SELECT and PRINT are sent to this path")
    _check_masks(request, statement)
    query = await request.console.sql.query(
        _session(request), statement, _properties(request), request.principal or ANONYMOUS
    )
    return {"id": query.id, "columns": query.columns(), "is_push": statement.is_endless}


async def take_rows(request: ConsoleRequest) -> object:
    """The rows that came since the last request."""
    owner = request.principal or ANONYMOUS
    return request.console.sql.running.take(request.path["id"], owner)


async def end_rows(request: ConsoleRequest) -> object:
    """Ends a query."""
    request.console.sql.running.end(request.path["id"], request.principal or ANONYMOUS)
    return {}


async def _first(request: ConsoleRequest, text: str) -> Entity:
    found = await request.console.sql.run(text, {}, "read")
    if not found:
        raise HttpError(502, "the SQL server returned no result")
    return found[0]


async def _results(request: ConsoleRequest, statement: SqlStatement, role: Role) -> object:
    text = f"{_session(request)}{statement.text};"
    found = await request.console.sql.run(text, _properties(request), role.name.lower())
    return {"results": list(found)}


def _session(request: ConsoleRequest) -> str:
    """The SET and DEFINE statements before this one."""
    given = request.fields().get("session", [])
    if not isinstance(given, list) or len(given) > MOST_IN_SESSION:
        raise HttpError(400, f"session must be a list of up to {MOST_IN_SESSION} statements")
    texts = []
    for each in given:
        statement = read_statement(each) if isinstance(each, str) else None
        if statement is None or statement.kind is not StatementKind.SESSION:
            raise HttpError(400, "session may have SET, UNSET, DEFINE and UNDEFINE only")
        texts.append(f"{statement.text};\n")
    return "".join(texts)


def _properties(request: ConsoleRequest) -> Mapping[str, str]:
    return text_map("properties", request.fields().get("properties", {}))


def _check_masks(request: ConsoleRequest, statement: SqlStatement) -> None:
    """Columns of a result have other names than the fields of masks."""
    if statement.reads_records and request.console.options.masks.masks:
        raise HttpError(
            403,
            "HTTP 403 Forbidden: this console hides fields (console.masks), and fields of results "
            "cannot be hidden. Use `headrace sql`",
        )
