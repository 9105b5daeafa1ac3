"""Reads one statement."""

from collections.abc import Mapping
from dataclasses import replace

from headrace.sql.language.datatypes import NO_TYPES, read_type
from headrace.sql.language.definitions import (
    AlterSystem,
    AssertSchema,
    AssertTopic,
    CompareReplay,
    DefineVariable,
    DescribeReplay,
    DropConnector,
    DropFunction,
    DropReplay,
    DropType,
    RollbackReplay,
    RunScript,
    SetProperty,
    SpoolOutput,
    SwitchReplay,
    UndefineVariable,
    UnsetProperty,
)
from headrace.sql.language.errors import SqlError, did_you_mean
from headrace.sql.language.grammar.create_parsing import read_create
from headrace.sql.language.grammar.literals import value_of
from headrace.sql.language.grammar.properties import (
    QUERY_PROPERTIES,
    SWITCH_PROPERTIES,
    read_properties,
    read_scalar,
)
from headrace.sql.language.grammar.reading import TokenReader
from headrace.sql.language.grammar.select_parsing import read_select, read_values
from headrace.sql.language.grammar.tokens import SqlToken, TokenKind
from headrace.sql.language.statements import (
    AlterSource,
    CreateAs,
    DescribeConnector,
    DescribeFunction,
    DescribeSource,
    DropSource,
    ExplainQuery,
    InsertSelect,
    InsertValues,
    ListObjects,
    PauseQuery,
    PrintTopic,
    ResumeQuery,
    SelectStatement,
    Statement,
    TerminateQuery,
)
from headrace.sql.sources import SqlColumn

HEADS = (
    "SELECT", "CREATE", "INSERT", "DROP", "ALTER", "LIST", "SHOW", "DESCRIBE", "EXPLAIN", "PRINT",
    "TERMINATE", "PAUSE", "RESUME", "SET", "UNSET", "DEFINE", "UNDEFINE", "ASSERT", "RUN", "SPOOL",
    "COMPARE", "SWITCH", "ROLLBACK", "WITH",
)  # fmt: skip
"""The first words of statements."""
LISTED = ("STREAMS", "TABLES", "TOPICS", "QUERIES", "PROPERTIES", "FUNCTIONS", "TYPES",
          "VARIABLES", "CONNECTORS", "REPLAYS")  # fmt: skip
EXTENDABLE = ("STREAMS", "TABLES", "TOPICS", "ALL TOPICS", "QUERIES")


def parse(statement: str, types: Mapping[str, str] = NO_TYPES) -> Statement:
    """The statement. Raises SqlError for everything else.

    `types` are those of CREATE TYPE, as Spark's DDL by name in lower case.
    """
    reader = TokenReader(statement)
    if reader.current.kind is TokenKind.END:
        raise SqlError("The statement is empty.")
    found = _read(reader, types)
    reader.end()
    return found


def _read(reader: TokenReader, types: Mapping[str, str]) -> Statement:
    first = reader.current
    match first.upper:
        case "SELECT" | "WITH" | "(":
            return SelectStatement(reader.text, read_select(reader, types))
        case "CREATE":
            return read_create(reader, types)
        case "INSERT":
            return _insert(reader, types)
        case "DROP":
            return _drop(reader)
        case "ALTER":
            return _alter(reader, types)
        case "LIST" | "SHOW":
            return _list(reader)
        case "DESCRIBE":
            return _describe(reader)
        case "EXPLAIN":
            return _explain(reader, types)
        case "PRINT":
            return _print(reader)
        case "TERMINATE" | "PAUSE" | "RESUME":
            return _query_control(reader)
        case "SET" | "UNSET" | "DEFINE" | "UNDEFINE" | "RUN" | "SPOOL":
            return _session(reader)
        case "ASSERT":
            return _assert(reader)
        case "COMPARE" | "SWITCH" | "ROLLBACK":
            return _replay(reader)
    raise first.error(
        f"No statement begins with {first}."
        + (did_you_mean(first.text, HEADS) or f" A statement begins with {', '.join(HEADS)}.")
    )


def _insert(reader: TokenReader, types: Mapping[str, str]) -> Statement:
    reader.expect("INSERT", "INTO")
    target = reader.name("the name of a stream or table")
    columns = _names(reader) if reader.sees("(") and not _is_query(reader) else ()
    if columns or reader.sees("VALUES"):
        place = reader.current
        values = tuple(value_of(each) for each in read_values(reader, types))
        if columns and len(columns) != len(values):
            raise place.error(f"There are {len(columns)} columns and {len(values)} values.")
        return InsertValues(reader.text, target, columns, values)
    properties: Mapping[str, str] = {}
    if reader.sees("WITH", "("):
        reader.next()
        properties = read_properties(reader, QUERY_PROPERTIES, "INSERT INTO ... SELECT")
    if not reader.sees("SELECT"):
        raise reader.unexpected("VALUES or SELECT")
    return InsertSelect(reader.text, target, read_select(reader, types), properties)


def _is_query(reader: TokenReader) -> bool:
    return reader.tokens[reader.at + 1].upper in ("SELECT", "WITH")


def _names(reader: TokenReader) -> tuple[str, ...]:
    """`(a, b)`."""
    reader.expect("(")
    names = [reader.name("the name of a column")]
    while reader.accept(","):
        names.append(reader.name("the name of a column"))
    reader.expect(")")
    return tuple(names)


def _drop(reader: TokenReader) -> Statement:
    reader.expect("DROP")
    what = reader.expect_any("STREAM", "TABLE", "TYPE", "FUNCTION", "CONNECTOR", "REPLAY")
    if_exists = reader.accept("IF", "EXISTS")
    name = reader.name_or_string(f"the name of the {what.lower()}")
    match what:
        case "TYPE":
            return DropType(reader.text, name, if_exists)
        case "FUNCTION":
            return DropFunction(reader.text, name, if_exists)
        case "CONNECTOR":
            return DropConnector(reader.text, name, if_exists)
        case "REPLAY":
            return DropReplay(reader.text, name, if_exists, reader.accept("DELETE", "TOPIC"))
    delete_topic = reader.accept("DELETE", "TOPIC")
    return DropSource(reader.text, name, what == "TABLE", if_exists, delete_topic)


def _alter(reader: TokenReader, types: Mapping[str, str]) -> Statement:
    reader.expect("ALTER")
    what = reader.expect_any("STREAM", "TABLE", "SYSTEM")
    if what == "SYSTEM":
        name = reader.string("the name of the setting")
        reader.expect("=")
        return AlterSystem(reader.text, name, reader.string("the value"))
    source = reader.name(f"the name of the {what.lower()}")
    columns = []
    while True:
        reader.expect("ADD")
        reader.accept("COLUMN")
        columns.append(SqlColumn(reader.name("the name of a column"), read_type(reader, types)))
        if not reader.accept(","):
            break
    return AlterSource(reader.text, source, what == "TABLE", tuple(columns))


def _list(reader: TokenReader) -> Statement:
    reader.next()
    place = reader.current
    if reader.accept("CONNECTOR"):
        reader.expect("PLUGINS")
        return ListObjects(reader.text, "CONNECTOR PLUGINS")
    if side := reader.accept_any("SOURCE", "SINK"):
        reader.expect("CONNECTORS")
        return ListObjects(reader.text, f"{side} CONNECTORS")
    if reader.accept("ALL"):
        reader.expect("TOPICS")
        kind = "ALL TOPICS"
    else:
        kind = reader.expect_any(*LISTED)
    extended = reader.accept("EXTENDED")
    if extended and kind not in EXTENDABLE:
        raise place.error(f"EXTENDED is not possible for {kind}.")
    return ListObjects(reader.text, kind, extended)


def _describe(reader: TokenReader) -> Statement:
    reader.expect("DESCRIBE")
    if kind := reader.accept_any("STREAMS", "TABLES"):
        reader.accept("EXTENDED")
        return ListObjects(reader.text, kind, extended=True)
    for word, statement in (
        ("FUNCTION", DescribeFunction),
        ("CONNECTOR", DescribeConnector),
        ("REPLAY", DescribeReplay),
    ):
        if reader.sees(word) and not _is_last(reader):
            reader.next()
            return statement(reader.text, reader.name_or_string(f"the name of a {word.lower()}"))
    extended = reader.accept("EXTENDED")
    name = reader.name("the name of a stream or table")
    return DescribeSource(reader.text, name, reader.accept("EXTENDED") or extended)


def _is_last(reader: TokenReader) -> bool:
    """Nothing follows the current token, so it is a name."""
    following = reader.tokens[reader.at + 1]
    return following.kind is TokenKind.END or following.text == ";"


def _explain(reader: TokenReader, types: Mapping[str, str]) -> Statement:
    reader.expect("EXPLAIN")
    place = reader.current
    if reader.is_name() and _is_last(reader):
        return ExplainQuery(reader.text, query=reader.next().value)
    if place.upper in ("SELECT", "CREATE", "INSERT", "WITH", "("):
        rest = _inner(reader, place)
        found = parse(rest, types)
        reader.at = len(reader.tokens) - 1
        if isinstance(found, CreateAs | InsertSelect | SelectStatement):
            return ExplainQuery(reader.text, statement=replace(found, text=found.text.lstrip()))
    raise place.error(
        "EXPLAIN takes the id of a query (see LIST QUERIES), a SELECT, CREATE ... AS SELECT or"
        " INSERT INTO ... SELECT."
    )


def _inner(reader: TokenReader, place: SqlToken) -> str:
    """The rest of the text; what is before it is blank, so that places stay right."""
    before = reader.text[: place.start]
    return "".join("\n" if each == "\n" else " " for each in before) + reader.text[place.start :]


def _print(reader: TokenReader) -> Statement:
    reader.expect("PRINT")
    topic = reader.name_or_string("the name of a topic")
    from_beginning = reader.accept("FROM", "BEGINNING")
    interval, limit = 1, None
    if reader.accept_any("INTERVAL", "SAMPLE"):
        place = reader.current
        interval = reader.integer("the interval")
        if interval == 0:
            raise place.error("The interval is at least 1.")
    if reader.accept("LIMIT"):
        limit = reader.integer("the limit")
    return PrintTopic(reader.text, topic, from_beginning, interval, limit)


def _query_control(reader: TokenReader) -> Statement:
    what = reader.next().upper
    query = None if reader.accept("ALL") else reader.name_or_string("the id of a query, or ALL")
    match what:
        case "TERMINATE":
            return TerminateQuery(reader.text, query)
        case "PAUSE":
            return PauseQuery(reader.text, query)
    return ResumeQuery(reader.text, query)


def _session(reader: TokenReader) -> Statement:
    match reader.next().upper:
        case "SET":
            name = reader.string("the name of a setting")
            reader.expect("=")
            return SetProperty(reader.text, name, read_scalar(reader))
        case "UNSET":
            return UnsetProperty(reader.text, reader.string("the name of a setting"))
        case "DEFINE":
            name = reader.name("the name of a variable")
            reader.expect("=")
            return DefineVariable(reader.text, name, reader.string("the value"))
        case "UNDEFINE":
            return UndefineVariable(reader.text, reader.name("the name of a variable"))
        case "RUN":
            reader.expect("SCRIPT")
            return RunScript(reader.text, reader.string("the path of the script"))
    if reader.accept("OFF"):
        return SpoolOutput(reader.text, None)
    return SpoolOutput(reader.text, reader.string("the path of a file, or OFF"))


def _assert(reader: TokenReader) -> Statement:
    reader.expect("ASSERT")
    exists = not reader.accept("NOT", "EXISTS")
    if reader.expect_any("TOPIC", "SCHEMA") == "TOPIC":
        topic = reader.name_or_string("the name of a topic")
        properties: Mapping[str, str] = {}
        if reader.accept("WITH"):
            properties = {
                name.lower(): value
                for name, value in read_properties(reader, None, "ASSERT TOPIC").items()
            }
        return AssertTopic(reader.text, topic, exists, properties, _timeout(reader))
    place = reader.current
    subject = reader.name_or_string("a subject") if reader.accept("SUBJECT") else None
    schema_id = reader.integer("the id") if reader.accept("ID") else None
    if subject is None and schema_id is None:
        raise place.error("ASSERT SCHEMA needs SUBJECT 'name', ID number, or both.")
    return AssertSchema(reader.text, exists, subject, schema_id, _timeout(reader))


def _timeout(reader: TokenReader) -> int | None:
    return reader.duration_ms("the timeout") if reader.accept("TIMEOUT") else None


def _replay(reader: TokenReader) -> Statement:
    what = reader.next().upper
    name = reader.name("the name of a stream or table")
    match what:
        case "ROLLBACK":
            return RollbackReplay(reader.text, name)
        case "SWITCH":
            reader.expect("TO")
            replay = reader.name("the name of the replay")
            properties: Mapping[str, str] = {}
            if reader.accept("WITH"):
                properties = read_properties(reader, SWITCH_PROPERTIES, "SWITCH")
            return SwitchReplay(reader.text, name, replay, properties)
    reader.expect("WITH")
    other = reader.name("the name of a stream or table")
    ignore = _names(reader) if reader.accept("IGNORE") else ()
    tolerance: dict[str, float] = {}
    if reader.accept("TOLERANCE"):
        place = reader.current
        for column, allowed in read_properties(reader, None, "TOLERANCE").items():
            try:
                tolerance[column] = float(allowed)
            except ValueError:
                raise place.error(f"The tolerance of {column} is not a number.") from None
    return CompareReplay(reader.text, name, other, ignore, tolerance)
