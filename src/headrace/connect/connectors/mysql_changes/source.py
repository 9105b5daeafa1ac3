"""The source of changes of tables of MySQL and MariaDB.

Every table is a partition that reads the binary log for itself. The offset is a position between
two transactions, so that a range is the same whenever it is read. The rows before the first
position are read without locks: a query gives the rows of now, and the changes since the position
are undone in them.
"""

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.connect.connectors.jdbc.connecting import as_option_error, connected
from headrace.connect.plugin import (
    REQUIRED,
    Option,
    OptionError,
    Password,
    PermanentError,
    Source,
    SourceOffset,
    SourcePartition,
    SourceStream,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.connect.connectors.jdbc.mysql import Mysql
    from headrace.connect.connectors.mysql_changes.binlog import BinlogPosition
    from headrace.connect.connectors.mysql_changes.events import BinlogTableEvents

RANGE_BYTES = 16 * 2**20
"""A range ends after so many bytes of the log, so that a connector that is far behind moves on."""
_NEEDED = {
    "log_bin": "ON",
    "binlog_format": "ROW",
    "binlog_row_image": "FULL",
    "log_bin_compress": "OFF",
    "binlog_transaction_compression": "OFF",
    "binlog_row_value_options": "",
}
"""Variables of the server, of which each version has some."""
_SYSTEM = ("information_schema", "mysql", "performance_schema", "sys")


class SearchedRange(NamedTuple):
    """A part of the log in which a table has no changes."""

    start: "BinlogPosition"
    reached: "BinlogPosition"
    end_of_log: "BinlogPosition"
    """When it was searched."""


class MySqlChanges(Source):
    """Reads the changes of tables of MySQL or MariaDB, first all rows and then the binary log,
    exactly once."""

    aliases = (
        "io.debezium.connector.mysql.MySqlConnector",
        "io.debezium.connector.mariadb.MariaDbConnector",
    )
    ignored = (
        "connect.timeout.ms",
        "database.server.id",
        "heartbeat.interval.ms",
        "include.schema.changes",
        "max.batch.size",
        "max.queue.size",
        "schema.history.internal.kafka.bootstrap.servers",
        "schema.history.internal.kafka.topic",
        "snapshot.fetch.size",
        "snapshot.locking.mode",
    )
    options = (
        Option("database.hostname", str, REQUIRED, "The server.", importance="high"),
        Option("database.port", int, 3306, "Its port.", importance="high"),
        Option("database.user", str, REQUIRED, "A user with the rights SELECT, REPLICATION SLAVE "
               "and REPLICATION CLIENT.", importance="high"),
        Option("database.password", Password, "", "Its password.", importance="high"),
        Option("topic.prefix", str, REQUIRED, "The first part of the topics' names.",
               importance="high"),
        Option("database.include.list", list[str], [], "The databases as regular expressions; "
               "all by default.", importance="high"),
        Option("database.exclude.list", list[str], [], "Databases that are not read."),
        Option("table.include.list", list[str], [], "The tables as regular expressions, such as "
               "shop.orders; all by default.", importance="high"),
        Option("table.exclude.list", list[str], [], "Tables that are not read."),
        Option("column.include.list", list[str], [], "The columns as regular expressions, such as "
               "shop.orders.price; all by default. The key is always read."),
        Option("column.exclude.list", list[str], [], "Columns that are not read."),
        Option("snapshot.mode", str, "initial", "Whether all rows are read first, or nothing but "
               "these.", ("initial", "initial_only", "no_data", "never", "schema_only")),
        Option("tombstones.on.delete", bool, True, "Whether a deletion is followed by a null."),
        Option("decimal.handling.mode", str, "precise", "The type of decimals in events.",
               ("precise", "double", "string")),
        Option("time.precision.mode", str, "", "The type of times in events, as Debezium has it; "
               "by default dates, timestamps and texts of times.",
               ("adaptive_time_microseconds", "connect")),
    )  # fmt: skip

    database_hostname: str
    database_port: int
    database_user: str
    database_password: str
    topic_prefix: str
    database_include_list: Sequence[str]
    database_exclude_list: Sequence[str]
    table_include_list: Sequence[str]
    table_exclude_list: Sequence[str]
    column_include_list: Sequence[str]
    column_exclude_list: Sequence[str]
    snapshot_mode: str
    tombstones_on_delete: bool
    decimal_handling_mode: str
    time_precision_mode: str

    def __init__(self, config: Mapping[str, str]) -> None:
        super().__init__(config)
        self._tables: Mapping[str, BinlogTableEvents] | None = None
        self._searched: dict[str, SearchedRange] = {}

    def check(self) -> None:
        from headrace.connect.connectors.mysql_changes.binlog import current_position, events_from

        database = self._database()
        with as_option_error("database.hostname"), connected(database) as connection:
            names = ", ".join(f"'{name}'" for name in _NEEDED)
            found = database.fetch(
                connection, f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({names})"
            )
            wrong = [
                f"{name}={value} instead of {_NEEDED[name] or 'nothing'}"
                for name, value in found
                if value.upper() != _NEEDED[name]
            ]
            if wrong:
                raise OptionError(
                    "database.hostname", f"The server's settings do not fit: {', '.join(wrong)}."
                )
            self._found(database, connection)
            # This shows whether the user may read the log.
            for _ in events_from(connection, current_position(database, connection)):
                break

    def streams(self) -> Sequence[SourceStream]:
        from headrace.connect.connectors.ddl import ddl

        return [
            SourceStream(
                f"{self.topic_prefix}.{name}",
                ddl(events.envelope.schema),
                [{"server": self.topic_prefix, "table": name}],
                ["key"] if events.envelope.keys else [],
                "value",
            )
            for name, events in self._all_tables().items()
        ]

    def latest(
        self, partition: SourcePartition, start: SourceOffset | None, limit: int
    ) -> SourceOffset | None:
        from headrace.connect.connectors.mysql_changes.binlog import (
            BinlogPosition,
            current_position,
            events_from,
        )
        from headrace.connect.connectors.mysql_changes.transactions import TransactionReader

        database = self._database()
        name = str(partition["table"])
        with connected(database) as connection:
            end_of_log = current_position(database, connection)
            if start is None:
                now_ms = time.time_ns() // 1_000_000
                return {"file": end_of_log.file, "pos": end_of_log.pos, "ts_ms": now_ms}
            begin = position = BinlogPosition.of(start)
            searched = self._searched.get(name)
            if searched is not None and searched.start == position:
                if searched.end_of_log == end_of_log:
                    return start
                begin = searched.reached
            reader = TransactionReader(self._events(partition).table)
            count = 0
            for transaction in reader.read(events_from(connection, begin)):
                count += sum(1 for _ in transaction.changes())
                if count >= limit or _is_far(position, transaction.end):
                    break
        reached = reader.boundary or begin
        if count or _is_far(position, reached):
            return {"file": reached.file, "pos": reached.pos}
        self._searched[name] = SearchedRange(position, reached, end_of_log)
        return start

    def read(
        self, partition: SourcePartition, start: SourceOffset | None, end: SourceOffset
    ) -> "Iterator[pa.RecordBatch]":
        from headrace.connect.connectors.mysql_changes.binlog import BinlogPosition, events_from
        from headrace.connect.connectors.mysql_changes.transactions import TransactionReader

        events = self._events(partition)
        if start is None:
            if self.snapshot_mode.startswith("initial"):
                yield from self._snapshot(events, end)
            return
        with connected(self._database()) as connection:
            reader = TransactionReader(events.table)
            log = events_from(connection, BinlogPosition.of(start))
            found = reader.read_until(log, BinlogPosition.of(end))
            yield from events.changes(change for each in found for change in each.changes())

    def is_finished(self, partition: SourcePartition, start: SourceOffset | None) -> bool:
        return self.snapshot_mode == "initial_only" and start is not None

    def _snapshot(
        self, events: "BinlogTableEvents", end: SourceOffset
    ) -> "Iterator[pa.RecordBatch]":
        """The rows as they were at the position of `end`, whenever they are read."""
        import pyarrow as pa

        from headrace.connect.connectors.jdbc.dialects import TableName, run
        from headrace.connect.connectors.mysql_changes.binlog import BinlogPosition, events_from
        from headrace.connect.connectors.mysql_changes.events import PastRows
        from headrace.connect.connectors.mysql_changes.transactions import TransactionReader

        position = BinlogPosition.of(end)
        time_ms = int(str(end["ts_ms"]))
        database, table = events.database, events.table
        source = TableName(table.name, table.database)
        with connected(database) as connection:
            run(connection, "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            run(connection, "START TRANSACTION WITH CONSISTENT SNAPSHOT")
            # A transaction is in the log before its rows are visible, so that this part of the
            # log has all changes between the position and the snapshot.
            with connected(database) as second:
                log = TransactionReader(table).read(events_from(second, position))
                past = PastRows(events, (change for each in log for change in each.changes()))
            names = ", ".join(map(database.expression, events.columns))
            order = database.listed([column.name for column in events.envelope.keys])
            query = f"SELECT {names} FROM {database.quoted_table(source)}"
            if order:
                query += f" ORDER BY {order}"
            for batch in database.select(connection, query, [], events.columns):
                rows = past.kept(pa.StructArray.from_arrays(batch.columns, batch.schema.names))
                if len(rows):
                    yield events.snapshot(rows, position, time_ms)
        rows = past.others()
        if len(rows):
            yield events.snapshot(rows, position, time_ms)

    def _database(self) -> "Mysql":
        from headrace.connect.connectors.jdbc.dialects import ServerLogin
        from headrace.connect.connectors.jdbc.mysql import Mysql

        return Mysql(
            ServerLogin(
                self.database_hostname,
                self.database_port,
                "",
                self.database_user,
                self.database_password,
            )
        )

    def _all_tables(self) -> "Mapping[str, BinlogTableEvents]":
        """The tables by their names; looked up once, because the host counts on it."""
        if self._tables is None:
            database = self._database()
            with connected(database) as connection:
                self._tables = self._found(database, connection)
        return self._tables

    def _events(self, partition: SourcePartition) -> "BinlogTableEvents":
        name = str(partition["table"])
        if name not in self._all_tables():
            raise PermanentError(f"the table {name} is not read any more; delete its offset")
        return self._all_tables()[name]

    def _found(self, database: "Mysql", connection: Any) -> "Mapping[str, BinlogTableEvents]":
        from headrace.connect.connectors.change_events import with_decimals
        from headrace.connect.connectors.event_times import time_encodings
        from headrace.connect.connectors.mysql_changes.events import BinlogTableEvents
        from headrace.connect.connectors.mysql_changes.table_lookup import (
            known_table,
            server_charsets,
            tables_with_engines,
        )

        wanted = [
            (table, engine)
            for table, engine in tables_with_engines(database, connection)
            if self._is_wanted(table.schema, str(table))
        ]
        if not wanted:
            raise PermanentError(
                "the server has no table that database.include.list and table.include.list name"
            )
        if self.snapshot_mode.startswith("initial"):
            others = [f"{table} ({engine})" for table, engine in wanted if engine != "InnoDB"]
            if others:
                raise PermanentError(
                    "a snapshot needs tables of InnoDB, but there are "
                    f"{', '.join(others)}: leave them out, or set snapshot.mode=no_data"
                )
        charsets = server_charsets(database, connection)
        found = {}
        for table, _ in wanted:
            known = [
                column
                for column in database.columns(connection, table)
                if column.key or self._is_column_wanted(f"{table}.{column.name}")
            ]
            columns = with_decimals(known, "decimal", self.decimal_handling_mode)
            found[str(table)] = BinlogTableEvents(
                self.topic_prefix,
                known_table(database, connection, table, charsets),
                columns,
                self.tombstones_on_delete,
                time_encodings(columns, self.time_precision_mode, 0, True),
                database,
            )
        return found

    def _is_wanted(self, database: str, table: str) -> bool:
        return (
            database not in _SYSTEM
            and _is_listed(self.database_include_list, self.database_exclude_list, database)
            and _is_listed(self.table_include_list, self.table_exclude_list, table)
        )

    def _is_column_wanted(self, column: str) -> bool:
        return _is_listed(self.column_include_list, self.column_exclude_list, column)


def _is_far(start: "BinlogPosition", reached: "BinlogPosition") -> bool:
    return reached.file != start.file or reached.pos - start.pos > RANGE_BYTES


def _is_listed(included: Sequence[str], excluded: Sequence[str], name: str) -> bool:
    def is_in(patterns: Sequence[str]) -> bool:
        return any(re.fullmatch(pattern, name, re.IGNORECASE) for pattern in patterns)

    return (not included or is_in(included)) and not is_in(excluded)
