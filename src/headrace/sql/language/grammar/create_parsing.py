"""Reads CREATE statements."""

from collections.abc import Mapping

from headrace.sql.language.datatypes import read_type
from headrace.sql.language.definitions import (
    CreateConnector,
    CreateFunction,
    CreateReplay,
    CreateType,
)
from headrace.sql.language.grammar.properties import (
    CREATE_AS_PROPERTIES,
    CREATE_PROPERTIES,
    REPLAY_PROPERTIES,
    read_properties,
)
from headrace.sql.language.grammar.reading import TokenReader
from headrace.sql.language.grammar.select_parsing import read_select
from headrace.sql.language.grammar.tokens import SqlToken, TokenKind
from headrace.sql.language.statements import CreateAs, CreateSource, Statement
from headrace.sql.sources import ColumnRole, SqlColumn

CREATED = ("STREAM", "TABLE", "TYPE", "FUNCTION", "CONNECTOR", "REPLAY")
STARTS = ("EARLIEST", "LATEST", "NOW")
HEADERS_TYPE = "array<struct<KEY: string, VALUE: binary>>"


def read_create(reader: TokenReader, types: Mapping[str, str]) -> Statement:
    reader.expect("CREATE")
    replaced = reader.current
    or_replace = reader.accept("OR", "REPLACE")
    side_place = reader.current
    side = reader.accept_any("SOURCE", "SINK")
    what_place = reader.current
    what = reader.expect_any(*CREATED)
    if or_replace and what not in ("STREAM", "TABLE", "FUNCTION"):
        raise replaced.error(f"CREATE OR REPLACE is not possible for a {what}.")
    if side == "SINK" and what != "CONNECTOR":
        raise side_place.error(f"Expected CONNECTOR after SINK, found {what_place}.")
    match what:
        case "STREAM" | "TABLE":
            return _source(reader, types, what == "TABLE", or_replace, side)
        case "CONNECTOR":
            if side is None:
                raise what_place.error("Expected SOURCE or SINK before CONNECTOR.")
            return _connector(reader, side == "SOURCE")
        case _ if side:
            raise side_place.error(f"Expected STREAM, TABLE or CONNECTOR, found {what_place}.")
        case "TYPE":
            if_not_exists = reader.accept("IF", "NOT", "EXISTS")
            name = reader.name("the name of the type")
            reader.expect("AS")
            return CreateType(reader.text, name, read_type(reader, types), if_not_exists)
        case "FUNCTION":
            return _function(reader, types, or_replace)
    return _replay(reader, types)


def _source(
    reader: TokenReader,
    types: Mapping[str, str],
    is_table: bool,
    or_replace: bool,
    side: str | None,
) -> Statement:
    what = "TABLE" if is_table else "STREAM"
    if_not_exists = reader.accept("IF", "NOT", "EXISTS")
    name = reader.name(f"the name of the {what.lower()}")
    place = reader.current
    columns = read_columns(reader, types, is_table) if reader.sees("(") else ()
    has_properties = reader.accept("WITH")
    properties_at = reader.at
    known = {*CREATE_PROPERTIES, *CREATE_AS_PROPERTIES}
    properties = read_properties(reader, known, f"CREATE {what}") if has_properties else {}
    is_query = reader.accept("AS")
    if has_properties:
        # Which names are right is only known now that AS was seen or not.
        after, reader.at = reader.at, properties_at
        read_properties(
            reader,
            CREATE_AS_PROPERTIES if is_query else CREATE_PROPERTIES,
            f"CREATE {what} AS SELECT" if is_query else f"CREATE {what}",
        )
        reader.at = after
    if not is_query:
        return CreateSource(
            reader.text, name, is_table, columns, properties, or_replace, if_not_exists, bool(side)
        )
    if columns:
        raise place.error(
            f"CREATE {what} AS SELECT has no list of columns: they are those of the SELECT."
            " Use aliases (AS) and CAST."
        )
    if side:
        raise place.error(f"CREATE SOURCE {what} has no SELECT: it only reads a topic.")
    select = read_select(reader, types)
    return CreateAs(reader.text, name, is_table, properties, select, or_replace, if_not_exists)


def read_columns(
    reader: TokenReader, types: Mapping[str, str], is_table: bool
) -> tuple[SqlColumn, ...]:
    """`(name type [KEY | PRIMARY KEY | HEADERS | HEADER('key')], ...)`."""
    reader.expect("(")
    columns: list[SqlColumn] = []
    seen: set[str] = set()
    while True:
        place = reader.current
        column = _column(reader, types, is_table)
        if column.name.casefold() in seen:
            raise place.error(f"The column {column.name} is there twice.")
        seen.add(column.name.casefold())
        columns.append(column)
        if not reader.accept(","):
            break
    reader.expect(")")
    return tuple(columns)


def _column(reader: TokenReader, types: Mapping[str, str], is_table: bool) -> SqlColumn:
    name = reader.name("the name of a column")
    type_name = read_type(reader, types)
    place = reader.current
    role, header = ColumnRole.VALUE, None
    if reader.accept("PRIMARY", "KEY"):
        if not is_table:
            raise place.error("A stream has KEY columns; PRIMARY KEY is for tables.")
        role = ColumnRole.KEY
    elif reader.accept("KEY"):
        if is_table:
            raise place.error("A table has PRIMARY KEY columns; KEY alone is for streams.")
        role = ColumnRole.KEY
    elif reader.accept("HEADERS"):
        role = ColumnRole.HEADER
        _check_header(place, name, type_name, HEADERS_TYPE)
    elif reader.accept("HEADER"):
        reader.expect("(")
        role, header = ColumnRole.HEADER, reader.string("the key of the header")
        reader.expect(")")
        _check_header(place, name, type_name, "binary")
    return SqlColumn(name, type_name, role, header)


def _check_header(place: SqlToken, name: str, found: str, expected: str) -> None:
    if found.lower() != expected.lower():
        written = {"binary": "BYTES"}.get(expected, "ARRAY<STRUCT<key STRING, value BYTES>>")
        raise place.error(f"The column {name} of headers has the type {written}.")


def _connector(reader: TokenReader, is_source: bool) -> Statement:
    if_not_exists = reader.accept("IF", "NOT", "EXISTS")
    name = reader.name_or_string("the name of the connector")
    reader.expect("WITH")
    properties = read_properties(reader, None, "the connector")
    return CreateConnector(reader.text, name, is_source, properties, if_not_exists)


def _function(reader: TokenReader, types: Mapping[str, str], or_replace: bool) -> Statement:
    """`CREATE FUNCTION f (x INT, ...) RETURNS INT LANGUAGE PYTHON [WITH (...)] AS $$...$$`."""
    if_not_exists = reader.accept("IF", "NOT", "EXISTS")
    name = reader.name("the name of the function")
    if reader.accept("(", ")"):
        parameters: tuple[SqlColumn, ...] = ()
    else:
        parameters = read_columns(reader, types, is_table=False)
    reader.expect("RETURNS")
    returns = read_type(reader, types)
    reader.expect("LANGUAGE")
    language = reader.expect_any("PYTHON")
    options: Mapping[str, str] = {}
    if reader.accept("WITH"):
        options = read_properties(reader, {"handler", "deterministic"}, "CREATE FUNCTION")
    reader.expect("AS")
    if reader.current.kind not in (TokenKind.BODY, TokenKind.STRING):
        raise reader.unexpected("the body between $$ and $$")
    body = reader.next().value
    return CreateFunction(
        reader.text, name, parameters, returns, language, body, options, or_replace, if_not_exists
    )


def _replay(reader: TokenReader, types: Mapping[str, str]) -> Statement:
    """`CREATE REPLAY new OF old [FROM start] [WITH (...)] [AS SELECT ...]`."""
    name = reader.name("the name of the replay")
    reader.expect("OF")
    original = reader.name("the name of a stream or table")
    start = "EARLIEST"
    if reader.accept("FROM"):
        is_time = reader.current.kind is TokenKind.STRING
        start = reader.next().value if is_time else reader.expect_any(*STARTS)
    properties: Mapping[str, str] = {}
    if reader.accept("WITH"):
        properties = read_properties(reader, REPLAY_PROPERTIES, "CREATE REPLAY")
    select = read_select(reader, types) if reader.accept("AS") else None
    return CreateReplay(reader.text, name, original, start, select, properties)
