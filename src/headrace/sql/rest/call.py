"""A request to the SQL server: its engine, its statements and its session."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headrace.admin.sql_client import ROLE_HEADER
from headrace.bounded_json import BadJson, parse_json
from headrace.security.roles import ROLE_NAMES, Role
from headrace.service.errors import HttpError
from headrace.service.request import BODY_CONTAINERS, Request
from headrace.sql.errors import BAD_REQUEST, StatementRefused, bad_request
from headrace.sql.execution.executor import Executor, StatementFailure
from headrace.sql.execution.inserting import RowInserter
from headrace.sql.execution.querying import SelectQueries
from headrace.sql.execution.session import Session
from headrace.sql.language import statements as sql
from headrace.sql.server import SqlServer

READING = (
    sql.ListObjects,
    sql.DescribeSource,
    sql.DescribeReplay,
    sql.DescribeFunction,
    sql.DescribeConnector,
    sql.ExplainQuery,
    sql.AssertTopic,
    sql.AssertSchema,
    sql.SetProperty,
    sql.UnsetProperty,
    sql.DefineVariable,
    sql.UndefineVariable,
)
"""Statements for which the role `read` is enough."""
ADMINISTRATIVE = (sql.CreateFunction, sql.AlterSystem)
"""Statements that need the role `admin`: their code runs in the server."""


@dataclass(frozen=True, slots=True)
class SqlEngine:
    """The parts that handlers use."""

    server: SqlServer
    executor: Executor
    inserter: RowInserter
    queries: SelectQueries


class SqlCall(Request):
    """What handlers get."""

    __slots__ = ("engine",)

    def __init__(
        self,
        engine: SqlEngine,
        method: str,
        path: Mapping[str, str],
        query: Mapping[str, Sequence[str]],
        headers: Mapping[bytes, bytes],
    ) -> None:
        super().__init__(method, path, query, headers)
        self.engine = engine

    def fields(self) -> dict[str, object]:
        """The body, which must be an object."""
        try:
            body = parse_json(self.body.decode() or "{}", BODY_CONTAINERS)
        except (UnicodeDecodeError, BadJson) as error:
            raise bad_request(f"The body is not JSON: {error}") from None
        if not isinstance(body, dict):
            raise bad_request("The body must be a JSON object")
        return body

    def text_field(self, fields: Mapping[str, object], *names: str) -> str:
        """The first of these fields that the body has; it must be a text."""
        for name in names:
            if name in fields:
                found = fields[name]
                if not isinstance(found, str):
                    raise bad_request(f"The field {name} must be a text")
                return found
        raise bad_request(f"The body has no field {names[0]}")

    def session(self, fields: Mapping[str, object]) -> Session:
        """Properties and variables of the request; HttpError 400 if one is unknown."""
        given: dict[str, Mapping[str, object]] = {}
        for name in ("streamsProperties", "properties", "sessionVariables"):
            found = fields.get(name) or {}
            if not isinstance(found, dict):
                raise bad_request(f"The field {name} must be an object")
            given[name] = found
        properties = {**given["streamsProperties"], **given["properties"]}
        try:
            return Session.of(properties, given["sessionVariables"])
        except StatementRefused as error:
            raise bad_request(error.message) from None

    def parse(self, text: str, session: Session) -> list[sql.Statement]:
        """The statements of a request, which the client may carry out; HttpError."""
        try:
            found = self.engine.executor.parse(text, session)
        except StatementFailure as failure:
            raise statement_error(failure) from None
        if not found:
            raise bad_request("The request has no statement")
        for each in found:
            self._check_role(each)
        return found

    def _check_role(self, statement: sql.Statement) -> None:
        role = self._limited_role()
        if role is None:
            return
        needed = Role.WRITE
        if isinstance(statement, (*READING, sql.SelectStatement, sql.PrintTopic)):
            needed = Role.READ
        elif isinstance(statement, ADMINISTRATIVE):
            needed = Role.ADMIN
        if role < needed:
            raise HttpError(
                403,
                f"HTTP 403 Forbidden: {self.principal} has the role {role.name.lower()}, and "
                f"this statement needs the role {needed.name.lower()}: {statement.text}",
                code=40300,
                details={"@type": "generic_error"},
            )

    def _limited_role(self) -> Role | None:
        """The role of the client, or a lower one that it asks for on behalf of its own user."""
        asked = self.headers.get(ROLE_HEADER.encode(), b"").decode("latin-1").upper()
        limit = Role.__members__.get(asked)
        if asked and limit is None:
            raise bad_request(f"The header {ROLE_HEADER} must be one of {', '.join(ROLE_NAMES)}")
        if limit is None or (self.role is not None and self.role < limit):
            return self.role
        return limit


def statement_error(failure: StatementFailure) -> HttpError:
    """The response to a request of which a statement failed."""
    code = failure.error.code
    if code == BAD_REQUEST:
        return bad_request(failure.error.message)
    return HttpError(
        code // 100,
        failure.error.message,
        code=code,
        details={
            "@type": "statement_error",
            "statementText": failure.statement,
            "entities": list(failure.done),
        },
    )
