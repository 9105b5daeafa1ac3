"""The JDBC sink: writes records into tables."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.connect.connectors.jdbc.connecting import (
    CONNECTION,
    IGNORED,
    as_option_error,
    connected,
    is_refusal,
    sentence,
    translated,
)
from headrace.connect.plugin import (
    Option,
    OptionError,
    Password,
    PermanentError,
    RecordError,
    Sink,
    SinkTask,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.connect.connectors.jdbc.dialects import Dialect, TableColumn, TableName
    from headrace.connect.connectors.jdbc.rows import RowRule, TableChanges

MODES = ("insert", "upsert", "update")
KEY_MODES = ("none", "kafka", "record_key", "record_value")
REFUSED_AT_ONCE = 100
"""How many refused records are looked for before they are reported."""


class JdbcSink(Sink):
    """Writes records into tables of PostgreSQL, MariaDB, MySQL or SQLite, at least once.

    With `insert.mode=upsert` a record that is written twice is there once.
    """

    aliases: ClassVar[Sequence[str]] = (
        "io.confluent.connect.jdbc.JdbcSinkConnector",
        "io.aiven.connect.jdbc.JdbcSinkConnector",
    )
    ignored: ClassVar[Sequence[str]] = (*IGNORED, "batch.size", "table.types")
    options: ClassVar[Sequence[Option]] = (
        *CONNECTION,
        Option("insert.mode", str, "insert", "How rows are written.", MODES, "high", "Writes"),
        Option(
            "pk.mode", str, "none", "Where the primary key comes from.", KEY_MODES, "high", "Keys"
        ),
        Option("pk.fields", list[str], [], "The columns of the primary key.", group="Keys"),
        Option(
            "delete.enabled",
            bool,
            False,
            "Whether a null value deletes the row of its key; needs pk.mode=record_key.",
            group="Writes",
        ),
        Option("auto.create", bool, False, "Whether missing tables are created.", group="DDL"),
        Option("auto.evolve", bool, False, "Whether missing columns are added.", group="DDL"),
        Option("table.name.format", str, "${topic}", "The table of a topic.", group="Data mapping"),
        Option(
            "fields.whitelist",
            list[str],
            [],
            "The fields of the value that are columns; all by default.",
            group="Data mapping",
        ),
        Option("db.timezone", str, "UTC", "The zone of times.", ("UTC",), "low"),
    )

    connection_url: str
    connection_user: str
    connection_password: str
    insert_mode: str
    pk_mode: str
    pk_fields: Sequence[str]
    delete_enabled: bool
    auto_create: bool
    auto_evolve: bool
    table_name_format: str
    fields_whitelist: Sequence[str]

    def __init__(self, config: Mapping[str, str]) -> None:
        super().__init__(config)
        self._connection: Any = None
        self._fitting: set[tuple[str, Any]] = set()
        """The tables with schemas of rows that fit."""
        self._validate()

    def _validate(self) -> None:
        if self.insert_mode != "insert" and self.pk_mode == "none":
            raise OptionError(
                "pk.mode", f"insert.mode={self.insert_mode} needs another pk.mode than none."
            )
        if self.delete_enabled and self.pk_mode != "record_key":
            raise OptionError("pk.mode", "delete.enabled=true needs pk.mode=record_key.")
        if self.pk_mode == "kafka" and len(self.pk_fields) not in (0, 3):
            raise OptionError(
                "pk.fields",
                "pk.mode=kafka needs three names, for topic, partition and offset, or none.",
            )

    def check(self) -> None:
        database = self._database()
        with as_option_error("connection.url"), connected(database) as connection:
            for topic in self.config.get("topics", "").replace(",", " ").split():
                table = self._table(topic)
                found = [column.name for column in database.columns(connection, table)]
                if not found and not self.auto_create:
                    raise OptionError(
                        "table.name.format",
                        f"The table {table} does not exist: create it, or set auto.create=true.",
                    )
                missing = [name for name in self.pk_fields if name not in found]
                if found and missing and self.pk_mode != "none" and not self.auto_evolve:
                    raise OptionError(
                        "pk.fields", f"The table {table} has no column {', '.join(missing)}."
                    )

    def columns(self, topic: str) -> str | None:
        from headrace.connect.connectors.ddl import columns_ddl, ddl_type

        database = self._database()
        with connected(database) as connection:
            found = database.columns(connection, self._table(topic))
        return columns_ddl((column.name, ddl_type(column.arrow)) for column in found) or None

    def open(self, task: SinkTask) -> None:
        database = self._database()
        with translated(database):
            self._connection = database.connect()

    def write(self, batch: "pa.RecordBatch") -> None:
        import pyarrow.compute as pc

        database = self._database()
        try:
            with translated(database):
                parts = [
                    self._part(database, topic, batch)
                    for topic in pc.unique(batch.column("topic")).to_pylist()
                ]
                # Before anything is written, because some databases end the transaction.
                for part in parts:
                    if part.found.written:
                        self._fit(database, part.table, part.found)
                for part in parts:
                    self._write_part(part)
                self._connection.commit()
        except Exception:
            self._roll_back()
            raise

    def close(self) -> None:
        self.abandon()

    def abandon(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _roll_back(self) -> None:
        # A lost connection has lost its transaction, too.
        with contextlib.suppress(Exception):
            self._connection.rollback()

    def _database(self) -> "Dialect":
        from headrace.connect.connectors.jdbc.dialects import dialect_of

        return dialect_of(self.connection_url, self.connection_user, self.connection_password)

    def _table(self, topic: str) -> "TableName":
        from headrace.connect.connectors.jdbc.dialects import TableName

        return TableName.parse(self.table_name_format.replace("${topic}", topic))

    def _rule(self) -> "RowRule":
        from headrace.connect.connectors.jdbc.rows import RowRule

        return RowRule(
            self.pk_mode,
            self.pk_fields,
            self.insert_mode,
            self.delete_enabled,
            self.fields_whitelist,
        )

    def _part(self, database: "Dialect", topic: str, batch: "pa.RecordBatch") -> "_TablePart":
        import pyarrow.compute as pc

        from headrace.connect.connectors.jdbc.rows import changes

        rows = pc.indices_nonzero(pc.equal(batch.column("topic"), topic))
        numbers = rows.to_pylist()
        try:
            found = changes(batch.take(rows), self._rule())
        except RecordError as error:
            raise _renumbered(error.rows, numbers) from None
        table = self._table(topic)
        return _TablePart(database, self._connection, table, found, self.insert_mode, numbers)

    def _write_part(self, part: "_TablePart") -> None:
        from headrace.connect.connectors.jdbc.dialects import Refusal, run

        found = part.found
        run(part.connection, "SAVEPOINT whole")
        try:
            part.delete(found.deleted)
            part.write(found.written)
        except Exception as error:
            if not is_refusal(part.database, error, Refusal.ROW):
                raise
            run(part.connection, "ROLLBACK TO SAVEPOINT whole")
            refused = part.refused(part.delete, found.deleted)
            refused |= part.refused(part.write, found.written)
            if not refused:
                raise
            raise _renumbered(refused, part.numbers) from error

    def _fit(self, database: "Dialect", table: "TableName", found: "TableChanges") -> None:
        """Create or change the table so that it has the columns, if that is wished."""
        schema = found.rows.schema
        if (str(table), schema) in self._fitting:
            return
        present = self._columns(database, table, schema, found.keys)
        names = {column.name for column in present}
        missing = [field for field in schema if field.name not in names]
        if missing and self.auto_evolve:
            failure = self._change(lambda: database.add_columns(self._connection, table, missing))
            names = {column.name for column in database.columns(self._connection, table)}
            missing = [field for field in missing if field.name not in names]
            if missing and failure:
                raise failure
        if missing:
            listed = ", ".join(field.name for field in missing)
            raise PermanentError(
                f"the table {table} has no column {listed}; add it, set auto.evolve=true, or list "
                "the fields for the table in fields.whitelist"
            )
        required = [
            column.name
            for column in present
            if not column.nullable and not column.defaults and not column.counts
            and column.name not in schema.names
        ]  # fmt: skip
        if required and self.insert_mode != "update":
            raise PermanentError(
                f"the column {', '.join(required)} of the table {table} must not be null, but the "
                "records do not have it"
            )
        unique = database.unique_keys(self._connection, table)
        if self.insert_mode == "upsert" and unique is not None and set(found.keys) not in unique:
            raise PermanentError(
                f"the table {table} has no unique key of the columns {', '.join(found.keys)}, so "
                "that upserts would add rows; create it, or change pk.fields"
            )
        self._fitting.add((str(table), schema))

    def _columns(
        self, database: "Dialect", table: "TableName", schema: "pa.Schema", keys: Sequence[str]
    ) -> Sequence["TableColumn"]:
        """The columns of the table, which is created if that is wished."""
        present = database.columns(self._connection, table)
        if present:
            return present
        if not self.auto_create:
            raise PermanentError(
                f"the table {table} does not exist; create it, or set auto.create=true"
            )
        failure = self._change(lambda: database.create(self._connection, table, schema, keys))
        present = database.columns(self._connection, table)
        if failure and not present:
            raise failure
        return present

    def _change(self, change: Callable[[], None]) -> Exception | None:
        """Change a table; it may fail because another task does the same at this moment."""
        try:
            change()
        except Exception as error:
            self._roll_back()
            return error
        return None


def _renumbered(refused: Mapping[int, str], numbers: Sequence[int]) -> RecordError:
    return RecordError({numbers[row]: why for row, why in refused.items()})


@dataclass(frozen=True, slots=True)
class _TablePart:
    """The records of a batch for one table, written within a transaction."""

    database: "Dialect"
    connection: Any
    table: "TableName"
    found: "TableChanges"
    mode: str
    numbers: Sequence[int]
    """The rows of these records in the whole batch."""

    def delete(self, rows: Sequence[int]) -> None:
        if rows:
            keys = self.found.rows.select(list(self.found.keys)).take(list(rows))
            self.database.delete(self.connection, self.table, keys)

    def write(self, rows: Sequence[int]) -> None:
        if not rows:
            return
        everything = self.found.rows
        taken = everything if len(rows) == len(everything) else everything.take(list(rows))
        if self.mode == "insert":
            self.database.insert(self.connection, self.table, taken)
        elif self.mode == "upsert":
            self.database.upsert(self.connection, self.table, taken, self.found.keys)
        else:
            self.database.update(self.connection, self.table, taken, self.found.keys)

    def refused(self, work: Callable[[Sequence[int]], None], rows: Sequence[int]) -> dict[int, str]:
        """The rows that the database refuses, found by halves, with its reasons."""
        from headrace.connect.connectors.jdbc.dialects import Refusal, run

        found: dict[int, str] = {}
        waiting = [list(rows)] if rows else []
        while waiting and len(found) < REFUSED_AT_ONCE:
            some = waiting.pop()
            run(self.connection, "SAVEPOINT part")
            try:
                work(some)
            except Exception as error:
                if not is_refusal(self.database, error, Refusal.ROW):
                    raise
                run(self.connection, "ROLLBACK TO SAVEPOINT part")
                if len(some) == 1:
                    found[some[0]] = sentence(error)
                else:
                    half = len(some) // 2
                    waiting += [some[half:], some[:half]]
        return found


class DebeziumJdbcSink(JdbcSink):
    """The JDBC sink with the options of Debezium's; takes its change events as they are."""

    aliases = ("io.debezium.connector.jdbc.JdbcSinkConnector",)
    ignored = (
        *IGNORED,
        "batch.size",
        "connection.pool.acquire_increment",
        "connection.pool.max_size",
        "connection.pool.min_size",
        "connection.pool.timeout",
        "connection.provider",
        "flush.max.retries",
        "flush.retry.delay.ms",
        "quote.identifiers",
        "use.reduction.buffer",
    )
    options = (
        CONNECTION[0],
        Option("connection.username", str, "", "The user.", importance="high"),
        Option("connection.password", Password, "", "Its password.", importance="high"),
        Option("insert.mode", str, "insert", "How rows are written.", MODES, "high"),
        Option(
            "primary.key.mode", str, "none", "Where the primary key comes from.", KEY_MODES, "high"
        ),
        Option("primary.key.fields", list[str], [], "The columns of the primary key."),
        Option("delete.enabled", bool, False, "Whether deletions delete rows."),
        Option("truncate.enabled", bool, False, "Not supported.", ("false",)),
        Option(
            "schema.evolution",
            str,
            "none",
            "Whether missing tables and columns are created.",
            ("none", "basic"),
        ),
        Option("collection.name.format", str, "", "The table of a topic."),
        Option("table.name.format", str, "${topic}", "The same, with its older name."),
        Option("field.include.list", list[str], [], "The fields that are columns."),
        Option("use.time.zone", str, "UTC", "The zone of times.", ("UTC",), "low"),
        Option("database.time_zone", str, "UTC", "The same, older.", ("UTC",), "low"),
    )

    connection_username: str
    primary_key_mode: str
    primary_key_fields: Sequence[str]
    schema_evolution: str
    collection_name_format: str
    field_include_list: Sequence[str]

    def _validate(self) -> None:
        self.connection_user = self.connection_username
        self.pk_mode, self.pk_fields = self.primary_key_mode, self.primary_key_fields
        self.auto_create = self.auto_evolve = self.schema_evolution == "basic"
        self.table_name_format = self.collection_name_format or self.table_name_format
        self.fields_whitelist = [name.rpartition(":")[2] for name in self.field_include_list]
        super()._validate()

    def _table(self, topic: str) -> "TableName":
        return super()._table(topic.replace(".", "_"))

    def _rule(self) -> "RowRule":
        return replace(super()._rule(), ignores_tombstones=True, unwraps=True)
