"""The source of changes of PostgreSQL's tables.

Every table has a replication slot of its own. A range is read by peeking into the slot, which gives
the same changes until the slot is advanced, after the range is in the topic. The offset is the
position behind the last transaction that was read.
"""

import itertools
import logging
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

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

    from headrace.connect.connectors.jdbc.dialects import TableName
    from headrace.connect.connectors.jdbc.postgresql import Postgresql
    from headrace.connect.connectors.postgresql_changes.events import TableEvents

EVENTS_A_BATCH = 10_000
SKIPPED_BYTES = 16 * 2**20
"""After so many bytes without a change the slot is advanced all the same."""
_log = logging.getLogger(__name__)


class PostgresqlChanges(Source):
    """Reads the changes of tables of PostgreSQL, first all rows and then the log, exactly once.

    If the first read of all rows is interrupted and repeated, changes since the creation of the
    slot may be there twice: as rows and as changes.
    """

    aliases = ("io.debezium.connector.postgresql.PostgresConnector",)
    ignored = (
        "heartbeat.interval.ms",
        "max.batch.size",
        "max.queue.size",
        "snapshot.fetch.size",
        "status.update.interval.ms",
    )
    options = (
        Option("database.hostname", str, REQUIRED, "The server.", importance="high"),
        Option("database.port", int, 5432, "Its port.", importance="high"),
        Option("database.user", str, REQUIRED, "A user with the right REPLICATION.",
               importance="high"),
        Option("database.password", Password, "", "Its password.", importance="high"),
        Option("database.dbname", str, REQUIRED, "The database.", importance="high"),
        Option("database.sslmode", str, "prefer", "As libpq's."),
        Option("topic.prefix", str, REQUIRED, "The first part of the topics' names.",
               importance="high"),
        Option("table.include.list", list[str], [], "The tables as regular expressions, such as "
               "public.orders; all by default.", importance="high"),
        Option("table.exclude.list", list[str], [], "Tables that are not read."),
        Option("schema.include.list", list[str], [], "The schemas of the tables."),
        Option("plugin.name", str, "pgoutput", "The output plug-in.", ("pgoutput",)),
        Option("slot.name", str, "debezium", "The replication slot; with several tables, the "
               "beginning of the names of the slots."),
        Option("publication.name", str, "dbz_publication", "The publication."),
        Option("publication.autocreate.mode", str, "filtered", "Whether the publication is "
               "created.", ("all_tables", "disabled", "filtered")),
        Option("snapshot.mode", str, "initial", "Whether all rows are read first.",
               ("initial", "no_data", "never")),
        Option("tombstones.on.delete", bool, True, "Whether a deletion is followed by a null."),
        Option("decimal.handling.mode", str, "precise", "The type of decimals in events.",
               ("precise", "double", "string")),
        Option("time.precision.mode", str, "", "The type of times in events, as Debezium has it; "
               "by default dates, timestamps and texts of times.",
               ("adaptive", "adaptive_time_microseconds", "connect")),
        Option("max.slot.lag.bytes", int, 2**30, "Warn if a slot holds more than this."),
    )  # fmt: skip

    database_hostname: str
    database_port: int
    database_user: str
    database_password: str
    database_dbname: str
    database_sslmode: str
    topic_prefix: str
    table_include_list: Sequence[str]
    table_exclude_list: Sequence[str]
    schema_include_list: Sequence[str]
    slot_name: str
    publication_name: str
    publication_autocreate_mode: str
    snapshot_mode: str
    tombstones_on_delete: bool
    decimal_handling_mode: str
    time_precision_mode: str
    max_slot_lag_bytes: int

    def __init__(self, config: Mapping[str, str]) -> None:
        super().__init__(config)
        if not re.fullmatch(r"[a-z0-9_]{1,63}", self.slot_name):
            raise OptionError("slot.name", "Expected lower-case letters, digits and underscores.")
        self._tables: Mapping[str, TableEvents] | None = None
        self._exporters: dict[str, Any] = {}
        """By slot: the connection that keeps its snapshot until all rows are read."""

    def check(self) -> None:
        database = self._database()
        with as_option_error("database.hostname"), connected(database) as connection:
            ((level,),) = database.fetch(connection, "SHOW wal_level")
            if level != "logical":
                raise OptionError(
                    "database.hostname",
                    f"The server has wal_level={level}: set wal_level=logical and restart it.",
                )
            self._found(database, connection)

    def streams(self) -> Sequence[SourceStream]:
        from headrace.connect.connectors.ddl import ddl

        return [
            SourceStream(
                f"{self.topic_prefix}.{name}",
                ddl(events.schema),
                [{"server": self.topic_prefix, "table": name}],
                ["key"] if events.keys else [],
                "value",
            )
            for name, events in self._all_tables().items()
        ]

    def latest(
        self, partition: SourcePartition, start: SourceOffset | None, limit: int
    ) -> SourceOffset | None:
        database = self._database()
        slot = self._slot(partition)
        with connected(database) as connection:
            if start is None:
                return self._first(database, connection, slot)
            position = int(str(start["lsn"]))
            self._warn_of_lag(database, connection, slot)
            ((current,),) = database.fetch(
                connection, "SELECT pg_current_wal_lsn() - '0/0'::pg_lsn"
            )
            reached = self._reached(database, connection, slot, int(current), position, limit)
        if reached <= position:
            # What others write is skipped now and then, so that the server can forget it.
            reached = int(current) if current - position > SKIPPED_BYTES else position
        return {"lsn": reached} if reached > position else start

    def _reached(
        self,
        database: "Postgresql",
        connection: Any,
        slot: str,
        current: int,
        position: int,
        limit: int,
    ) -> int:
        """The end of the next transactions with about `limit` changes; 0 if there are none."""
        from headrace.connect.connectors.postgresql_changes.pgoutput import end_of

        while True:
            rows = database.fetch(
                connection,
                "SELECT place, data FROM (SELECT data, row_number() OVER () AS place FROM "
                f"{_PEEK}) changes ORDER BY place DESC LIMIT 1",
                [slot, _lsn_text(current), limit, self.publication_name],
            )
            if not rows:
                return 0
            count, last = rows[0]
            if end_of(bytes(last)) > position or count < limit:
                return end_of(bytes(last))
            # The slot is still behind the position, and these changes are known.
            limit *= 4

    def read(
        self, partition: SourcePartition, start: SourceOffset | None, end: SourceOffset
    ) -> "Iterator[pa.RecordBatch]":
        from headrace.connect.connectors.postgresql_changes.pgoutput import changes_of

        events = self._events(partition)
        if start is None:
            yield from self._snapshot(events, end)
            return
        database = self._database()
        with connected(database) as connection, connection.cursor(binary=True) as cursor:
            cursor.execute(
                f"SELECT (lsn - '0/0'::pg_lsn)::bigint, data FROM {_PEEK}",
                [
                    self._slot(partition),
                    _lsn_text(int(str(end["lsn"]))),
                    None,
                    self.publication_name,
                ],
            )
            table = events.table
            changes = changes_of(cursor, table.schema, table.name, int(str(start["lsn"])))
            for _, same in itertools.groupby(changes, key=lambda change: change.names):
                while some := list(itertools.islice(same, EVENTS_A_BATCH)):
                    yield events.changes(some)

    def commit(self, partition: SourcePartition, end: SourceOffset) -> None:
        slot = self._slot(partition)
        if slot in self._exporters:
            self._exporters.pop(slot).close()
        reached = _lsn_text(int(str(end["lsn"])))
        database = self._database()
        with connected(database) as connection:
            database.fetch(
                connection,
                "SELECT pg_replication_slot_advance(slot_name, %s::pg_lsn) "
                "FROM pg_replication_slots "
                "WHERE slot_name = %s AND confirmed_flush_lsn < %s::pg_lsn AND NOT active",
                [reached, slot, reached],
            )
            connection.commit()

    def _database(self) -> "Postgresql":
        from headrace.connect.connectors.jdbc.dialects import ServerLogin
        from headrace.connect.connectors.jdbc.postgresql import Postgresql

        return Postgresql(
            ServerLogin(
                self.database_hostname,
                self.database_port,
                self.database_dbname,
                self.database_user,
                self.database_password,
                {"sslmode": self.database_sslmode},
            )
        )

    def _all_tables(self) -> "Mapping[str, TableEvents]":
        """The tables by their names; looked up once, because the host counts on it."""
        if self._tables is None:
            database = self._database()
            with connected(database) as connection:
                self._tables = self._found(database, connection)
        return self._tables

    def _found(self, database: "Postgresql", connection: Any) -> "Mapping[str, TableEvents]":
        from headrace.connect.connectors.change_events import with_decimals
        from headrace.connect.connectors.event_times import time_encodings
        from headrace.connect.connectors.postgresql_changes.events import TableEvents

        tables = [
            table for table in database.tables(connection, ["TABLE"]) if self._is_wanted(table)
        ]
        if not tables:
            raise PermanentError(
                f"the database {self.database_dbname} has no table that table.include.list names"
            )
        found = {}
        for table in tables:
            known = database.columns(connection, table)
            columns = with_decimals(known, "numeric", self.decimal_handling_mode)
            found[str(table)] = TableEvents(
                self.topic_prefix,
                self.database_dbname,
                table,
                columns,
                self.tombstones_on_delete,
                time_encodings(columns, self.time_precision_mode, 6, False),
            )
        return found

    def _is_wanted(self, table: "TableName") -> bool:
        def is_in(patterns: Sequence[str], name: str) -> bool:
            return any(re.fullmatch(pattern, name, re.IGNORECASE) for pattern in patterns)

        if self.schema_include_list and not is_in(self.schema_include_list, table.schema):
            return False
        if is_in(self.table_exclude_list, str(table)):
            return False
        return not self.table_include_list or is_in(self.table_include_list, str(table))

    def _events(self, partition: SourcePartition) -> "TableEvents":
        name = str(partition["table"])
        if name not in self._all_tables():
            raise PermanentError(f"the table {name} is not read any more; delete its offset")
        return self._all_tables()[name]

    def _slot(self, partition: SourcePartition) -> str:
        if len(self._all_tables()) == 1:
            return self.slot_name
        name = re.sub(r"[^a-z0-9_]", "_", str(partition["table"]).lower())
        return f"{self.slot_name}_{name}"[:63]

    def _first(self, database: "Postgresql", connection: Any, slot: str) -> SourceOffset:
        """The offset at which the log begins, with the snapshot for the rows before it."""
        self._publish(database, connection)
        now_ms = time.time_ns() // 1_000_000
        found = database.fetch(
            connection,
            "SELECT confirmed_flush_lsn - '0/0'::pg_lsn FROM pg_replication_slots "
            "WHERE slot_name = %s",
            [slot],
        )
        if found:
            return {"lsn": int(found[0][0]), "snapshot": "", "ts_ms": now_ms}
        position, snapshot = self._create_slot(slot)
        return {"lsn": position, "snapshot": snapshot, "ts_ms": now_ms}

    def _create_slot(self, slot: str) -> tuple[int, str]:
        """Only the replication protocol exports the snapshot at which a slot begins."""
        import psycopg

        exporter = psycopg.connect(
            host=self.database_hostname,
            port=self.database_port,
            dbname=self.database_dbname,
            user=self.database_user,
            password=self.database_password or None,
            sslmode=self.database_sslmode,
            replication="database",
            autocommit=True,
        )
        command = f"CREATE_REPLICATION_SLOT {slot} LOGICAL pgoutput EXPORT_SNAPSHOT"
        made = exporter.pgconn.exec_(command.encode())
        if made.ntuples != 1:
            problem = made.error_message.decode(errors="replace").strip()
            exporter.close()
            raise PermanentError(f"the replication slot {slot} cannot be created: {problem}")
        position, snapshot = made.get_value(0, 1) or b"", made.get_value(0, 2) or b""
        self._exporters[slot] = exporter
        return _lsn_number(position.decode()), snapshot.decode()

    def _publish(self, database: "Postgresql", connection: Any) -> None:
        from headrace.connect.connectors.jdbc.dialects import run

        wanted = [events.table for events in self._all_tables().values()]
        found = database.fetch(
            connection, "SELECT 1 FROM pg_publication WHERE pubname = %s", [self.publication_name]
        )
        name = database.quoted(self.publication_name)
        if not found and self.publication_autocreate_mode != "disabled":
            listed = ", ".join(database.quoted_table(table) for table in wanted)
            every = self.publication_autocreate_mode == "all_tables"
            what = "ALL TABLES" if every else f"TABLE {listed}"
            run(connection, f"CREATE PUBLICATION {name} FOR {what}")
            connection.commit()
        published = database.fetch(
            connection,
            "SELECT schemaname || '.' || tablename FROM pg_publication_tables WHERE pubname = %s",
            [self.publication_name],
        )
        missing = {str(table) for table in wanted} - {table for (table,) in published}
        if missing:
            raise PermanentError(
                f"the publication {self.publication_name} does not have "
                f"{', '.join(sorted(missing))}; add it with ALTER PUBLICATION ... ADD TABLE"
            )

    def _snapshot(self, events: "TableEvents", end: SourceOffset) -> "Iterator[pa.RecordBatch]":
        import psycopg

        if self.snapshot_mode != "initial":
            return
        database = self._database()
        with connected(database) as connection:
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            snapshot = str(end.get("snapshot") or "")
            if snapshot:
                try:
                    connection.execute(f"SET TRANSACTION SNAPSHOT '{snapshot}'")
                except (psycopg.errors.InvalidParameterValue, psycopg.errors.UndefinedObject):
                    # The process that kept it has ended. The rows of now are read instead, and
                    # the log repeats some of their changes.
                    connection.rollback()
            names = database.listed([column.name for column in events.columns])
            query = f"SELECT {names} FROM {database.quoted_table(events.table)}"
            for batch in database.select(connection, query, [], events.columns):
                yield events.snapshot(batch, int(str(end["lsn"])), int(str(end["ts_ms"])))

    def _warn_of_lag(self, database: "Postgresql", connection: Any, slot: str) -> None:
        found = database.fetch(
            connection,
            "SELECT pg_current_wal_lsn() - restart_lsn FROM pg_replication_slots "
            "WHERE slot_name = %s",
            [slot],
        )
        if not found:
            raise PermanentError(
                f"the replication slot {slot} does not exist any more, so that changes are lost; "
                "reset the connector's offsets to read all rows again"
            )
        held = int(found[0][0] or 0)
        if held > self.max_slot_lag_bytes:
            _log.warning(
                "The replication slot %s holds %d bytes of PostgreSQL's write-ahead log", slot, held
            )


_PEEK = (
    "pg_logical_slot_peek_binary_changes(%s, %s::pg_lsn, %s::int, "
    "'proto_version', '1', 'publication_names', %s)"
)


def _lsn_text(number: int) -> str:
    return f"{number >> 32:X}/{number & 0xFFFFFFFF:X}"


def _lsn_number(text: str) -> int:
    high, _, low = text.partition("/")
    return (int(high, 16) << 32) + int(low, 16)
