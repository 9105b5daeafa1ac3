"""PostgreSQL, by psycopg 3. Rows come and go as COPY in CSV, which Arrow writes and parses."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from headrace.connect.connectors.jdbc.dialects import (
    Dialect,
    Refusal,
    TableColumn,
    TableName,
    plain,
    run,
)

BLOCK_BYTES = 4 * 2**20
_TYPES = {
    "boolean": pa.bool_(),
    "smallint": pa.int16(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "oid": pa.int64(),
    "real": pa.float32(),
    "double precision": pa.float64(),
    "bytea": pa.binary(),
    "date": pa.date32(),
    "timestamp without time zone": pa.timestamp("us"),
    "timestamp with time zone": pa.timestamp("us", "UTC"),
}
_NEW = {
    pa.bool_(): "BOOLEAN",
    pa.int8(): "SMALLINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INTEGER",
    pa.int64(): "BIGINT",
    pa.uint8(): "SMALLINT",
    pa.uint16(): "INTEGER",
    pa.uint32(): "BIGINT",
    pa.uint64(): "NUMERIC(20)",
    pa.float32(): "REAL",
    pa.float64(): "DOUBLE PRECISION",
    pa.date32(): "DATE",
}
_COLUMNS = """
SELECT a.attname, format_type(a.atttypid, a.atttypmod), NOT a.attnotnull,
       coalesce(array_position(i.indkey::int2[], a.attnum), -1) + 1,
       a.attidentity <> '' OR coalesce(pg_get_expr(d.adbin, d.adrelid) LIKE 'nextval(%%', false),
       a.atthasdef OR a.attidentity <> ''
FROM pg_attribute a
LEFT JOIN pg_index i ON i.indrelid = a.attrelid AND i.indisprimary
LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum
"""
_TABLES = """
SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind = ANY(%s) AND n.nspname NOT IN ('pg_catalog', 'information_schema')
  AND n.nspname NOT LIKE 'pg\\_%%' ORDER BY 1, 2
"""
_KINDS = {"TABLE": ["r", "p"], "VIEW": ["v", "m"], "PARTITIONED TABLE": ["p"]}
_LOGIN = re.compile(
    "authentication failed|role .* does not exist|database .* does not exist|no pg_hba.conf entry"
    "|no password supplied"
)


class Postgresql(Dialect):
    """PostgreSQL, from version 12 on."""

    default_port = 5432

    def connect(self) -> Any:
        import psycopg

        login = self.login
        wishes: dict[str, Any] = {
            "sslmode": login.parameters.get("sslmode"),
            "sslrootcert": login.parameters.get("sslrootcert"),
            "application_name": login.parameters.get("ApplicationName", "headrace"),
            "connect_timeout": login.parameters.get("connectTimeout", "10"),
        }
        connection = psycopg.connect(
            host=login.host,
            port=login.port,
            dbname=login.name or None,
            user=login.user or None,
            password=login.password or None,
            **{name: value for name, value in wishes.items() if value is not None},
        )
        connection.execute("SET TIME ZONE 'UTC'")
        connection.execute("SET DateStyle = 'ISO'")
        if schema := login.parameters.get("currentSchema"):
            connection.execute("SELECT set_config('search_path', %s, false)", [schema])
        connection.commit()
        return connection

    def columns(self, connection: Any, table: TableName) -> Sequence[TableColumn]:
        found = self.fetch(connection, _COLUMNS, [self.quoted_table(table)])
        return [
            TableColumn(name, kind, _arrow(kind), nullable, key, counts, defaults)
            for name, kind, nullable, key, counts, defaults in found
        ]

    def query_columns(self, connection: Any, query: str) -> Sequence[TableColumn]:
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT * FROM ({query}) q LIMIT 0")
            found = [
                (item.name, item.type_code, cursor.pgresult.fmod(place))
                for place, item in enumerate(cursor.description)
            ]
            cursor.execute(
                "SELECT format_type(o, m) FROM unnest(%s::oid[], %s::int[]) WITH ORDINALITY "
                "AS t(o, m, place) ORDER BY place",
                [[oid for _, oid, _ in found], [fmod for _, _, fmod in found]],
            )
            kinds = [kind for (kind,) in cursor.fetchall()]
        return [
            TableColumn(name, kind, _arrow(kind))
            for (name, _, _), kind in zip(found, kinds, strict=True)
        ]

    def tables(self, connection: Any, kinds: Sequence[str]) -> Sequence[TableName]:
        letters = [letter for kind in kinds for letter in _KINDS.get(kind.upper(), [])]
        return [
            TableName(name, schema) for schema, name in self.fetch(connection, _TABLES, [letters])
        ]

    def column_type(self, kind: pa.DataType, is_key: bool) -> str:
        if kind in _NEW:
            return _NEW[kind]
        if pa.types.is_decimal(kind):
            return f"NUMERIC({kind.precision},{kind.scale})"
        if pa.types.is_timestamp(kind):
            return "TIMESTAMP WITH TIME ZONE" if kind.tz else "TIMESTAMP"
        if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
            return "BYTEA"
        return "JSONB" if pa.types.is_nested(kind) else "TEXT"

    def refusal(self, error: Exception) -> Refusal:
        import psycopg

        state = getattr(error, "sqlstate", None) or ""
        if state[:2] in ("22", "23") or (not state and isinstance(error, psycopg.DataError)):
            return Refusal.ROW
        if state[:2] in ("28", "3D", "3F", "42", "0A") or (not state and _LOGIN.search(str(error))):
            return Refusal.PERMANENT
        return Refusal.PASSING

    def upsert_clause(self, columns: Sequence[str], keys: Sequence[str]) -> str:
        changes = ", ".join(
            f"{self.quoted(name)} = EXCLUDED.{self.quoted(name)}"
            for name in columns
            if name not in keys
        )
        action = f"UPDATE SET {changes}" if changes else "NOTHING"
        return f"ON CONFLICT ({self.listed(keys)}) DO {action}"

    def now(self, connection: Any) -> Any:
        return self.fetch(connection, "SELECT clock_timestamp() AT TIME ZONE 'UTC'")[0][0]

    def insert(self, connection: Any, table: TableName, rows: pa.Table) -> None:
        self._copy(connection, self.quoted_table(table), rows)

    def upsert(
        self, connection: Any, table: TableName, rows: pa.Table, keys: Sequence[str]
    ) -> None:
        names = self.listed(rows.column_names)
        staged = self._staged(connection, table, rows)
        run(
            connection,
            f"INSERT INTO {self.quoted_table(table)} ({names}) SELECT {names} FROM {staged} "
            + self.upsert_clause(rows.column_names, keys),
        )

    def update(
        self, connection: Any, table: TableName, rows: pa.Table, keys: Sequence[str]
    ) -> None:
        changes = ", ".join(
            f"{self.quoted(name)} = s.{self.quoted(name)}"
            for name in rows.column_names
            if name not in keys
        )
        staged = self._staged(connection, table, rows)
        run(
            connection,
            f"UPDATE {self.quoted_table(table)} t SET {changes} FROM {staged} s "
            f"WHERE {self._same(keys)}",
        )

    def delete(self, connection: Any, table: TableName, keys: pa.Table) -> None:
        staged = self._staged(connection, table, keys)
        same = self._same(keys.column_names)
        name = self.quoted_table(table)
        run(connection, f"DELETE FROM {name} t USING {staged} s WHERE {same}")

    def select(
        self,
        connection: Any,
        query: str,
        parameters: Sequence[object],
        columns: Sequence[TableColumn],
    ) -> Iterator[pa.RecordBatch]:
        with (
            connection.cursor() as cursor,
            cursor.copy(f"COPY ({query}) TO STDOUT (FORMAT csv)", parameters or None) as copy,
        ):
            rows: list[Any] = []
            size = 0
            for row in copy:
                rows.append(row)
                size += len(row)
                if size >= BLOCK_BYTES:
                    yield _parsed(b"".join(rows), columns)
                    rows, size = [], 0
            if rows:
                yield _parsed(b"".join(rows), columns)

    def _same(self, keys: Sequence[str]) -> str:
        return " AND ".join(f"t.{self.quoted(key)} = s.{self.quoted(key)}" for key in keys)

    def _staged(self, connection: Any, table: TableName, rows: pa.Table) -> str:
        """A temporary table with the rows, in the types of the table."""
        name = "headrace_staged"
        run(connection, f"DROP TABLE IF EXISTS pg_temp.{name}")
        run(
            connection,
            f"CREATE TEMPORARY TABLE {name} ON COMMIT DROP AS SELECT "
            f"{self.listed(rows.column_names)} FROM {self.quoted_table(table)} WITH NO DATA",
        )
        self._copy(connection, f"pg_temp.{name}", rows)
        return f"pg_temp.{name}"

    def _copy(self, connection: Any, target: str, rows: pa.Table) -> None:
        from pyarrow import csv

        columns = [_writable(plain(column)) for column in rows.columns]
        written = pa.BufferOutputStream()
        options = csv.WriteOptions(include_header=False)
        csv.write_csv(pa.table(columns, rows.column_names), written, options)
        statement = f"COPY {target} ({self.listed(rows.column_names)}) FROM STDIN (FORMAT csv)"
        with connection.cursor() as cursor, cursor.copy(statement) as copy:
            copy.write(memoryview(written.getvalue()))


def _writable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Bytes as PostgreSQL's text has them."""
    kind = column.type
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        texts = [None if value is None else f"\\x{value.hex()}" for value in column.to_pylist()]
        return pa.chunked_array([pa.array(texts, pa.string())])
    return column


def _arrow(kind: str) -> pa.DataType:
    """The Arrow type of a type as `format_type` names it; what has none is text."""
    # The precision of a time stands within its name: `timestamp(3) without time zone`.
    bare = re.sub(r"\(\d+\)", "", kind) if kind.startswith("time") else kind
    if bare in _TYPES:
        return _TYPES[bare]
    if number := re.fullmatch(r"numeric\((\d+),(-?\d+)\)", kind):
        precision, scale = int(number[1]), int(number[2])
        if precision <= 38 and 0 <= scale <= precision:
            return pa.decimal128(precision, scale)
    return pa.string()


def _parsed(block: bytes, columns: Sequence[TableColumn]) -> pa.RecordBatch:
    from pyarrow import csv

    names = [str(place) for place in range(len(columns))]  # names of a query may be there twice
    kinds = {
        name: pa.string() if column.arrow == pa.binary() else column.arrow
        for name, column in zip(names, columns, strict=True)
    }
    table = csv.read_csv(
        pa.BufferReader(block),
        csv.ReadOptions(column_names=names, block_size=len(block) + 1),
        csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
        csv.ConvertOptions(
            column_types=kinds,
            null_values=[""],
            true_values=["t"],
            false_values=["f"],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
    arrays = [
        _bytes(found) if column.arrow == pa.binary() else found.combine_chunks()
        for found, column in zip(table.columns, columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, [column.name for column in columns])


def _bytes(column: pa.ChunkedArray) -> pa.Array:
    texts = column.to_pylist()
    return pa.array(
        [None if text is None else bytes.fromhex(text[2:]) for text in texts], pa.binary()
    )
