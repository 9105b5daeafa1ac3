"""What the JDBC sink and source need of a database, with plain SQL where that is enough.

`dialect_of` finds the dialect for a JDBC URL. Each is in a module of its own, which imports its
driver when it connects.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar
from urllib.parse import parse_qsl, unquote, urlsplit

import pyarrow as pa

from headrace.connect.plugin import OptionError

ROWS_A_FETCH = 10_000


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column of a table or a query."""

    name: str
    type: str
    """As the database calls it."""
    arrow: pa.DataType
    nullable: bool = True
    key: int = 0
    """Its place in the primary key from 1 on, or 0."""
    counts: bool = False
    """The database gives each new row the next number."""
    defaults: bool = False


@dataclass(frozen=True, slots=True)
class TableName:
    """A table, with its schema or database if that is known."""

    name: str
    schema: str = ""

    @classmethod
    def parse(cls, text: str) -> "TableName":
        parts = [part.strip('"`') for part in text.split(".")]
        return cls(parts[-1], parts[-2] if len(parts) > 1 else "")

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}" if self.schema else self.name


class Refusal(Enum):
    """What an error of the database means."""

    ROW = "a row cannot be stored, and never will"
    PERMANENT = "a table, a column, a right or a login is missing"
    PASSING = "it may work at the next attempt"


@dataclass(frozen=True, slots=True)
class ServerLogin:
    """Where a database is and who uses it."""

    host: str
    port: int
    name: str
    user: str
    password: str = field(repr=False)
    parameters: Mapping[str, str] = field(default_factory=dict)


class Dialect(ABC):
    """One database, in its dialect of SQL. Holds no connection."""

    placeholder: ClassVar[str] = "%s"
    quotes: ClassVar[str] = '"'
    default_port: ClassVar[int] = 0

    def __init__(self, login: ServerLogin) -> None:
        self.login = login

    @abstractmethod
    def connect(self) -> Any:
        """A DB-API connection without autocommit."""

    @abstractmethod
    def columns(self, connection: Any, table: TableName) -> Sequence[TableColumn]:
        """The columns of a table in their order; none if there is no such table."""

    @abstractmethod
    def query_columns(self, connection: Any, query: str) -> Sequence[TableColumn]:
        """The columns of a query."""

    @abstractmethod
    def tables(self, connection: Any, kinds: Sequence[str]) -> Sequence[TableName]:
        """All tables of the user, of the kinds TABLE and VIEW."""

    @abstractmethod
    def column_type(self, kind: pa.DataType, is_key: bool) -> str:
        """The type for a new column."""

    @abstractmethod
    def refusal(self, error: Exception) -> Refusal:
        """What this error of the driver means."""

    @abstractmethod
    def upsert_clause(self, columns: Sequence[str], keys: Sequence[str]) -> str:
        """What follows an INSERT so that it replaces rows with the same key."""

    @abstractmethod
    def now(self, connection: Any) -> Any:
        """The time of the database, as a datetime without a zone in UTC."""

    def unique_keys(self, connection: Any, table: TableName) -> Sequence[set[str]] | None:
        """The columns of each unique key; None if the database refuses upserts without one."""
        return None

    def quoted(self, name: str) -> str:
        return self.quotes + name.replace(self.quotes, self.quotes * 2) + self.quotes

    def quoted_table(self, table: TableName) -> str:
        schema = f"{self.quoted(table.schema)}." if table.schema else ""
        return schema + self.quoted(table.name)

    def listed(self, columns: Sequence[str]) -> str:
        return ", ".join(map(self.quoted, columns))

    def parameter(self, value: object) -> object:
        """A value as the driver takes it."""
        return value

    def value(self, value: Any, kind: pa.DataType) -> Any:
        """A value of the driver as Arrow takes it."""
        return value

    def expression(self, column: TableColumn) -> str:
        """How a column is selected."""
        return self.quoted(column.name)

    def ordered(self, column: TableColumn) -> str:
        """How a column is compared with a parameter; times have their order."""
        return self.quoted(column.name)

    def create(
        self, connection: Any, table: TableName, schema: pa.Schema, keys: Sequence[str]
    ) -> None:
        lines = [_definition(self, item, item.name in keys) for item in schema]
        if keys:
            lines.append(f"PRIMARY KEY ({self.listed(keys)})")
        name = self.quoted_table(table)
        run(connection, f"CREATE TABLE IF NOT EXISTS {name} ({', '.join(lines)})")
        connection.commit()

    def add_columns(self, connection: Any, table: TableName, fields: Sequence[pa.Field]) -> None:
        for item in fields:
            line = _definition(self, item, False)
            run(connection, f"ALTER TABLE {self.quoted_table(table)} ADD COLUMN {line}")
        connection.commit()

    def insert(self, connection: Any, table: TableName, rows: pa.Table) -> None:
        _run_many(self, connection, _insert(self, table, rows.column_names), rows)

    def upsert(
        self, connection: Any, table: TableName, rows: pa.Table, keys: Sequence[str]
    ) -> None:
        clause = self.upsert_clause(rows.column_names, keys)
        _run_many(self, connection, f"{_insert(self, table, rows.column_names)} {clause}", rows)

    def update(
        self, connection: Any, table: TableName, rows: pa.Table, keys: Sequence[str]
    ) -> None:
        others = [name for name in rows.column_names if name not in keys]
        changes = ", ".join(f"{self.quoted(name)} = {self.placeholder}" for name in others)
        statement = f"UPDATE {self.quoted_table(table)} SET {changes} WHERE {_equal(self, keys)}"
        _run_many(self, connection, statement, rows.select([*others, *keys]))

    def delete(self, connection: Any, table: TableName, keys: pa.Table) -> None:
        where = _equal(self, keys.column_names)
        _run_many(self, connection, f"DELETE FROM {self.quoted_table(table)} WHERE {where}", keys)

    def select(
        self,
        connection: Any,
        query: str,
        parameters: Sequence[object],
        columns: Sequence[TableColumn],
    ) -> Iterator[pa.RecordBatch]:
        """The rows of a query with these columns."""
        cursor = connection.cursor()
        try:
            cursor.execute(query, [self.parameter(value) for value in parameters])
            while rows := cursor.fetchmany(ROWS_A_FETCH):
                arrays = [
                    pa.array([self.value(value, column.arrow) for value in values], column.arrow)
                    for column, values in zip(columns, zip(*rows, strict=True), strict=True)
                ]
                yield pa.RecordBatch.from_arrays(arrays, [column.name for column in columns])
        finally:
            cursor.close()

    def fetch(
        self, connection: Any, query: str, parameters: Sequence[object] = ()
    ) -> Sequence[Sequence[Any]]:
        """All rows of a small query."""
        cursor = connection.cursor()
        try:
            cursor.execute(query, [self.parameter(value) for value in parameters])
            found: Sequence[Sequence[Any]] = cursor.fetchall()
            return found
        finally:
            cursor.close()


def run(connection: Any, statement: str) -> None:
    """Run a statement without rows."""
    cursor = connection.cursor()
    try:
        cursor.execute(statement)
    finally:
        cursor.close()


def _run_many(dialect: Dialect, connection: Any, statement: str, rows: pa.Table) -> None:
    """Run a statement with each row as its parameters."""
    columns = [
        [dialect.parameter(value) for value in plain(column).to_pylist()] for column in rows.columns
    ]
    cursor = connection.cursor()
    try:
        cursor.executemany(statement, list(zip(*columns, strict=True)))
    finally:
        cursor.close()


def _insert(dialect: Dialect, table: TableName, columns: Sequence[str]) -> str:
    marks = ", ".join([dialect.placeholder] * len(columns))
    name = dialect.quoted_table(table)
    return f"INSERT INTO {name} ({dialect.listed(columns)}) VALUES ({marks})"


def _equal(dialect: Dialect, keys: Sequence[str]) -> str:
    return " AND ".join(f"{dialect.quoted(key)} = {dialect.placeholder}" for key in keys)


def _definition(dialect: Dialect, item: pa.Field, is_key: bool) -> str:
    null = " NOT NULL" if is_key else ""
    return f"{dialect.quoted(item.name)} {dialect.column_type(item.type, is_key)}{null}"


def plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column, with JSON for nested values."""
    if not pa.types.is_nested(column.type):
        return column
    if pa.types.is_map(column.type):
        found = [None if value is None else dict(value) for value in column.to_pylist()]
    else:
        found = column.to_pylist()
    texts = [None if value is None else json.dumps(value, default=_json) for value in found]
    return pa.chunked_array([pa.array(texts, pa.string())])


def _json(value: object) -> object:
    import base64

    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)


def dialect_of(url: str, user: str, password: str) -> Dialect:
    """The database of a JDBC URL; OptionError if there is no dialect for it."""
    from headrace.connect.connectors.jdbc.mysql import Mysql
    from headrace.connect.connectors.jdbc.postgresql import Postgresql
    from headrace.connect.connectors.jdbc.sqlite import Sqlite

    kinds: Mapping[str, type[Dialect]] = {
        "postgresql": Postgresql,
        "mysql": Mysql,
        "mariadb": Mysql,
        "sqlite": Sqlite,
    }
    scheme, _, rest = url.removeprefix("jdbc:").partition(":")
    if not url.startswith("jdbc:") or scheme not in kinds:
        known = ", ".join(f"jdbc:{name}:" for name in kinds)
        raise OptionError("connection.url", f"{url} is not supported: expected one of {known}")
    if scheme == "sqlite":
        return Sqlite(ServerLogin("", 0, rest.partition("?")[0], user, password))
    parts = urlsplit(f"{scheme}:{rest}")
    parameters = dict(parse_qsl(parts.query))
    try:
        port = parts.port
    except ValueError:
        raise OptionError("connection.url", f"{url} has no valid port") from None
    login = ServerLogin(
        parts.hostname or "localhost",
        port or kinds[scheme].default_port,
        unquote(parts.path.removeprefix("/")),
        user or parameters.get("user", ""),
        password or parameters.get("password", ""),
        parameters,
    )
    return kinds[scheme](login)
