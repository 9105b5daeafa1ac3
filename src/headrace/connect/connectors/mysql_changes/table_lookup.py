"""Looks up tables, columns and character sets of a server of MySQL or MariaDB."""

from collections.abc import Mapping, Sequence
from typing import Any

from headrace.connect.connectors.jdbc.dialects import TableName
from headrace.connect.connectors.jdbc.mysql import Mysql
from headrace.connect.connectors.mysql_changes.table_maps import KnownColumn, KnownTable

_NO_SUCH_COLUMN = 1054


def tables_with_engines(database: Mysql, connection: Any) -> Sequence[tuple[TableName, str]]:
    """The tables of all databases."""
    found = database.fetch(
        connection,
        "SELECT table_schema, table_name, engine FROM information_schema.tables "
        "WHERE table_type = 'BASE TABLE' ORDER BY 1, 2",
    )
    return [(TableName(name, schema), engine or "") for schema, name, engine in found]


def known_table(
    database: Mysql, connection: Any, table: TableName, charsets: Mapping[int, str]
) -> KnownTable:
    ((version,),) = database.fetch(connection, "SELECT VERSION()")
    columns = database.fetch(
        connection,
        "SELECT column_name, column_type, character_set_name FROM information_schema.columns "
        "WHERE table_schema = %s AND table_name = %s ORDER BY ordinal_position",
        [table.schema, table.name],
    )
    known = [KnownColumn(name, kind, charset or "binary") for name, kind, charset in columns]
    return KnownTable(table.schema, table.name, known, charsets, "mariadb" in version.lower())


def server_charsets(database: Mysql, connection: Any) -> Mapping[int, str]:
    """The character set of each collation, by the collation's number."""
    import pymysql

    table = "collation_character_set_applicability"
    try:
        # MariaDB has several numbers for one collation from 10.10 on, and only here.
        found = database.fetch(
            connection, f"SELECT id, character_set_name FROM information_schema.{table}"
        )
    except pymysql.err.MySQLError as error:
        if error.args[0] != _NO_SUCH_COLUMN:
            raise
        found = database.fetch(
            connection, "SELECT id, character_set_name FROM information_schema.collations"
        )
    return {int(number): charset for number, charset in found if number is not None}
