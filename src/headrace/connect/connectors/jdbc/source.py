"""The JDBC source: reads tables and queries."""

import datetime
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from headrace.connect.connectors.jdbc.connecting import (
    CONNECTION,
    IGNORED,
    as_option_error,
    connected,
)
from headrace.connect.plugin import (
    REQUIRED,
    Option,
    OptionError,
    PermanentError,
    Source,
    SourceOffset,
    SourcePartition,
    SourceStream,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.connect.connectors.jdbc.dialects import Dialect, TableColumn, TableName
    from headrace.connect.connectors.jdbc.positions import ReadOrder, RowPosition

MODES = ("bulk", "incrementing", "timestamp", "timestamp+incrementing")
NUMERIC = ("none", "precision_only", "best_fit", "best_fit_eager_double")
POLL = "poll"
"""The offset of mode=bulk: how often the table was read."""


@dataclass(frozen=True, slots=True)
class TableReading:
    """A table or a query that is read."""

    topic: str
    partition: SourcePartition
    origin: str
    """What stands behind FROM."""
    columns: Sequence["TableColumn"]


class JdbcSource(Source):
    """Reads tables or a query of PostgreSQL, MariaDB, MySQL or SQLite.

    Exactly once for rows that are only added, by `mode=incrementing` or a timestamp. Rows that
    change are read again when their timestamp does. `mode=bulk` reads everything at every poll.
    """

    aliases = (
        "io.confluent.connect.jdbc.JdbcSourceConnector",
        "io.aiven.connect.jdbc.JdbcSourceConnector",
    )
    ignored = (
        *IGNORED,
        "batch.max.rows",
        "catalog.pattern",
        "table.poll.interval.ms",
        "transaction.isolation.mode",
    )
    options = (
        *CONNECTION,
        Option("mode", str, REQUIRED, "How new rows are found.", MODES, "high", "Mode"),
        Option(
            "incrementing.column.name",
            str,
            "",
            "The column that only grows; by default the one that the database counts up.",
            group="Mode",
        ),
        Option(
            "timestamp.column.name",
            list[str],
            [],
            "The column with the time of the last change; of several, the first that is not null.",
            group="Mode",
        ),
        Option(
            "timestamp.initial", int, None, "Begin after this time, in milliseconds since 1970."
        ),
        Option(
            "timestamp.delay.interval.ms",
            int,
            0,
            "How old rows must be, so that transactions that still run are not missed.",
            importance="high",
        ),
        Option("validate.non.null", bool, True, "Refuse columns for the mode that may be null."),
        Option("table.whitelist", list[str], [], "The tables; all by default.", group="Tables"),
        Option("table.include.list", list[str], [], "The same.", group="Tables"),
        Option("table.blacklist", list[str], [], "Tables that are not read.", group="Tables"),
        Option("table.exclude.list", list[str], [], "The same.", group="Tables"),
        Option("table.types", list[str], ["TABLE"], "TABLE, VIEW or both.", group="Tables"),
        Option("schema.pattern", str, "", "The schema of the tables.", group="Tables"),
        Option("query", str, "", "A query that is read instead of tables.", group="Tables"),
        Option("query.suffix", str, "", "What is added to every query.", group="Tables"),
        Option(
            "topic.prefix",
            str,
            REQUIRED,
            "Before the name of a table; the whole topic of a query.",
            importance="high",
        ),
        Option("poll.interval.ms", int, 5000, "How often mode=bulk reads.", importance="high"),
        Option("numeric.mapping", str, "none", "Which decimals become other numbers.", NUMERIC),
        Option("db.timezone", str, "UTC", "The zone of times that have none."),
    )

    connection_url: str
    connection_user: str
    connection_password: str
    mode: str
    incrementing_column_name: str
    timestamp_column_name: Sequence[str]
    timestamp_initial: int | None
    timestamp_delay_interval_ms: int
    validate_non_null: bool
    table_whitelist: Sequence[str]
    table_include_list: Sequence[str]
    table_blacklist: Sequence[str]
    table_exclude_list: Sequence[str]
    table_types: Sequence[str]
    schema_pattern: str
    query: str
    query_suffix: str
    topic_prefix: str
    poll_interval_ms: int
    numeric_mapping: str
    db_timezone: str

    def __init__(self, config: Mapping[str, str]) -> None:
        super().__init__(config)
        if "timestamp" in self.mode and not self.timestamp_column_name:
            raise OptionError("timestamp.column.name", f"mode={self.mode} needs it.")
        if self.query and "incrementing" in self.mode and not self.incrementing_column_name:
            raise OptionError(
                "incrementing.column.name", f"A query with mode={self.mode} needs it."
            )
        if self.query and self._included:
            raise OptionError("query", "Set either a query or a list of tables.")
        try:
            self._zone = ZoneInfo(self.db_timezone)
        except (ZoneInfoNotFoundError, ValueError):
            raise OptionError("db.timezone", f"Unknown time zone {self.db_timezone}.") from None
        self.once = self.mode != "bulk"
        self._readings: Sequence[TableReading] | None = None
        self._polled: dict[str, float] = {}

    @property
    def _included(self) -> Sequence[str]:
        return [*self.table_whitelist, *self.table_include_list]

    def check(self) -> None:
        database = self._database()
        with as_option_error("connection.url"), connected(database) as connection:
            readings = self._found(database, connection)
            for reading in readings:
                order = self._order(database, reading)
                if order.times and all(column.nullable for column in order.times):
                    self._refuse_null(reading, order.times[0], "timestamp.column.name")
                if order.number is not None and order.number.nullable:
                    self._refuse_null(reading, order.number, "incrementing.column.name")

    def _refuse_null(self, reading: TableReading, column: "TableColumn", option: str) -> None:
        # Nothing is known about the columns of a query.
        if self.validate_non_null and not self.query:
            raise OptionError(
                option,
                f"The column {column.name} of {reading.origin} may be null, and such rows are not "
                "read: add NOT NULL, or set validate.non.null=false.",
            )

    def streams(self) -> Sequence[SourceStream]:
        from headrace.connect.connectors.ddl import columns_ddl, ddl_type

        return [
            SourceStream(
                reading.topic,
                columns_ddl(
                    (column.name, ddl_type(_mapped(column.arrow, self.numeric_mapping)))
                    for column in reading.columns
                ),
                [reading.partition],
            )
            for reading in self._all_readings()
        ]

    def latest(
        self, partition: SourcePartition, start: SourceOffset | None, limit: int
    ) -> SourceOffset | None:
        from headrace.connect.connectors.jdbc.positions import RowPosition

        if self.mode == "bulk":
            return self._next_poll(partition, start)
        database = self._database()
        reading = self._reading(partition)
        order = self._order(database, reading)
        with connected(database) as connection:
            found = self._last(
                connection, order, reading, self._begin(RowPosition.of(start)), limit
            )
        return start if found is None else found.offset

    def read(
        self, partition: SourcePartition, start: SourceOffset | None, end: SourceOffset
    ) -> "Iterator[pa.RecordBatch]":
        from headrace.connect.connectors.jdbc.positions import RowPosition

        database = self._database()
        reading = self._reading(partition)
        order = self._order(database, reading)
        conditions: list[str] = []
        parameters: list[object] = []
        if self.mode != "bulk":
            begin = self._begin(RowPosition.of(start))
            conditions, parameters = order.between(begin, RowPosition.of(end))
        columns = ", ".join(database.expression(column) for column in reading.columns)
        query = _joined(
            f"SELECT {columns} FROM {reading.origin}",
            conditions,
            _order_by(order.expressions()),
            self.query_suffix,
        )
        with connected(database) as connection:
            try:
                for batch in database.select(connection, query, parameters, reading.columns):
                    yield self._mapped_batch(batch)
            except ValueError as error:  # Arrow's
                raise PermanentError(
                    f"a value of {reading.origin} has no counterpart in its type: {error}; leave "
                    "the column out, or convert it with the option query"
                ) from error

    def _begin(self, start: "RowPosition | None") -> "RowPosition | None":
        from headrace.connect.connectors.jdbc.positions import RowPosition

        if start is None and self.timestamp_initial is not None:
            return RowPosition.of({"timestamp": self.timestamp_initial})
        return start

    def _next_poll(
        self, partition: SourcePartition, start: SourceOffset | None
    ) -> SourceOffset | None:
        now, name = time.monotonic(), str(partition)
        if now - self._polled.get(name, float("-inf")) < self.poll_interval_ms / 1000:
            return start
        self._polled[name] = now
        return {POLL: int(str(start[POLL])) + 1 if start and POLL in start else 1}

    def _last(
        self,
        connection: Any,
        order: "ReadOrder",
        reading: TableReading,
        start: "RowPosition | None",
        limit: int,
    ) -> "RowPosition | None":
        """The position of the row at the limit, or of the last row; None if nothing is new."""
        database = order.database
        conditions, parameters = order.between(start, None)
        names = order.expressions()
        if order.times:
            delay = datetime.timedelta(milliseconds=self.timestamp_delay_interval_ms)
            now = database.now(connection).replace(tzinfo=datetime.UTC)
            more, values = order.before(now - delay)
            conditions, parameters = conditions + more, parameters + values
        conditions.append(f"{names[-1]} IS NOT NULL")
        for direction, offset in (("", limit - 1), (" DESC", 0)):
            query = _joined(
                f"SELECT {', '.join(names)} FROM {reading.origin}",
                conditions,
                _order_by([name + direction for name in names]),
                f"LIMIT 1 OFFSET {offset}",
            )
            if rows := database.fetch(connection, query, parameters):
                return order.position(rows[0])
        return None

    def _database(self) -> "Dialect":
        from headrace.connect.connectors.jdbc.dialects import dialect_of

        return dialect_of(self.connection_url, self.connection_user, self.connection_password)

    def _all_readings(self) -> Sequence[TableReading]:
        """What is read; looked up once, because the host counts on it."""
        if self._readings is None:
            database = self._database()
            with connected(database) as connection:
                self._readings = self._found(database, connection)
        return self._readings

    def _reading(self, partition: SourcePartition) -> TableReading:
        for reading in self._all_readings():
            if dict(reading.partition) == dict(partition):
                return reading
        raise PermanentError(f"{partition} is not read any more; delete its offset")

    def _found(self, database: "Dialect", connection: Any) -> Sequence[TableReading]:
        if self.query:
            columns = database.query_columns(connection, self.query)
            return [
                TableReading(self.topic_prefix, {"query": "query"}, f"({self.query}) q", columns)
            ]
        tables = [
            table
            for table in database.tables(connection, self.table_types)
            if self.schema_pattern in ("", "%", table.schema) and self._is_wanted(table)
        ]
        missing = [
            name for name in self._included if not any(_is_named(table, name) for table in tables)
        ]
        if missing or not tables:
            names = ", ".join(missing) or "any table"
            raise PermanentError(f"the database {database.login.name} does not have {names}")
        return [
            TableReading(
                f"{self.topic_prefix}{table.name}",
                {"protocol": "1", "table": str(table)},
                database.quoted_table(table),
                database.columns(connection, table),
            )
            for table in tables
        ]

    def _is_wanted(self, table: "TableName") -> bool:
        excluded = [*self.table_blacklist, *self.table_exclude_list]
        if any(_is_named(table, name) for name in excluded):
            return False
        return not self._included or any(_is_named(table, name) for name in self._included)

    def _order(self, database: "Dialect", reading: TableReading) -> "ReadOrder":
        from headrace.connect.connectors.jdbc.positions import ReadOrder

        columns = {column.name: column for column in reading.columns}

        def named(name: str, option: str) -> "TableColumn":
            if name not in columns:
                listed = ", ".join(columns)
                raise OptionError(option, f"{reading.origin} has no column {name}, only {listed}.")
            return columns[name]

        times: list[TableColumn] = []
        number = None
        if "timestamp" in self.mode:
            times = [named(name, "timestamp.column.name") for name in self.timestamp_column_name]
        if "incrementing" in self.mode:
            counted = [column.name for column in reading.columns if column.counts]
            name = self.incrementing_column_name or (counted[0] if len(counted) == 1 else "")
            number = named(name, "incrementing.column.name")
        return ReadOrder(database, times, number, self._zone)

    def _mapped_batch(self, batch: "pa.RecordBatch") -> "pa.RecordBatch":
        import pyarrow as pa

        if self.numeric_mapping == "none":
            return batch
        arrays = [
            column.cast(_mapped(column.type, self.numeric_mapping)) for column in batch.columns
        ]
        return pa.RecordBatch.from_arrays(arrays, batch.schema.names)


def _is_named(table: "TableName", name: str) -> bool:
    """`users`, `public.users` and `shop.public.users` name the same table."""
    parts = [part.strip('"`') for part in name.split(".")]
    if parts[-1] != table.name:
        return False
    return len(parts) == 1 or not table.schema or parts[-2] == table.schema


def _joined(select: str, conditions: Sequence[str], *rest: str) -> str:
    where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
    return " ".join(part for part in (select, where, *rest) if part)


def _order_by(names: Sequence[str]) -> str:
    return f"ORDER BY {', '.join(names)}" if names else ""


def _mapped(kind: "pa.DataType", mapping: str) -> "pa.DataType":
    """The type of a decimal by the option numeric.mapping."""
    import pyarrow as pa

    if mapping == "none" or not pa.types.is_decimal(kind):
        return kind
    if kind.scale == 0 and kind.precision < 19:
        sizes = ((3, pa.int8()), (5, pa.int16()), (10, pa.int32()), (19, pa.int64()))
        return next(size for digits, size in sizes if kind.precision < digits)
    if kind.scale > 0 and (
        mapping == "best_fit_eager_double" or (mapping == "best_fit" and kind.precision < 19)
    ):
        return pa.float64()
    return kind
