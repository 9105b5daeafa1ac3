"""All statements. `parsing.parse` makes them; the server carries them out.

Names are as they were written, without quotes; they are compared without regard to case. Every
statement has its text. Properties of WITH have names in lower case, and values as text.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.sql.language.definitions import (
    AlterSystem,
    AssertSchema,
    AssertTopic,
    CompareReplay,
    CreateConnector,
    CreateFunction,
    CreateReplay,
    CreateType,
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
from headrace.sql.language.select import Select
from headrace.sql.sources import SqlColumn


@dataclass(frozen=True, slots=True)
class CreateSource:
    """CREATE STREAM|TABLE over a topic. `declaring.declared_source` makes a Source of it."""

    text: str
    name: str
    is_table: bool
    columns: tuple[SqlColumn, ...]
    """Empty if they are those of the schemas in the registry."""
    properties: Mapping[str, str]
    or_replace: bool = False
    if_not_exists: bool = False
    read_only: bool = False
    """CREATE SOURCE STREAM|TABLE."""


@dataclass(frozen=True, slots=True)
class CreateAs:
    """CREATE STREAM|TABLE AS SELECT."""

    text: str
    name: str
    is_table: bool
    properties: Mapping[str, str]
    select: Select
    or_replace: bool = False
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class InsertSelect:
    """INSERT INTO ... SELECT."""

    text: str
    target: str
    select: Select
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class InsertValues:
    """INSERT INTO ... VALUES, with one row."""

    text: str
    target: str
    columns: tuple[str, ...]
    """Empty: the columns of the target, in order."""
    values: tuple[object, ...]
    """None, bool, int, float, Decimal, str, bytes, date, time, datetime, list and dict."""


@dataclass(frozen=True, slots=True)
class SelectStatement:
    """A query of its own: a push query if it has EMIT, else a pull query."""

    text: str
    select: Select


@dataclass(frozen=True, slots=True)
class DropSource:
    """DROP STREAM|TABLE."""

    text: str
    name: str
    is_table: bool
    if_exists: bool = False
    delete_topic: bool = False


@dataclass(frozen=True, slots=True)
class AlterSource:
    """ALTER STREAM|TABLE ... ADD COLUMN."""

    text: str
    name: str
    is_table: bool
    columns: tuple[SqlColumn, ...]


@dataclass(frozen=True, slots=True)
class TerminateQuery:
    """TERMINATE."""

    text: str
    query: str | None
    """None: ALL."""


@dataclass(frozen=True, slots=True)
class PauseQuery:
    """PAUSE."""

    text: str
    query: str | None
    """None: ALL."""


@dataclass(frozen=True, slots=True)
class ResumeQuery:
    """RESUME."""

    text: str
    query: str | None
    """None: ALL."""


@dataclass(frozen=True, slots=True)
class ListObjects:
    """LIST and SHOW."""

    text: str
    kind: str
    """STREAMS, TABLES, TOPICS, ALL TOPICS, QUERIES, PROPERTIES, FUNCTIONS, TYPES, VARIABLES,
    CONNECTORS, SOURCE CONNECTORS, SINK CONNECTORS, CONNECTOR PLUGINS or REPLAYS."""
    extended: bool = False


@dataclass(frozen=True, slots=True)
class DescribeSource:
    """DESCRIBE of a stream or table."""

    text: str
    name: str
    extended: bool = False


@dataclass(frozen=True, slots=True)
class DescribeFunction:
    """DESCRIBE FUNCTION."""

    text: str
    name: str


@dataclass(frozen=True, slots=True)
class DescribeConnector:
    """DESCRIBE CONNECTOR."""

    text: str
    name: str


@dataclass(frozen=True, slots=True)
class ExplainQuery:
    """EXPLAIN of a running query, or of a statement that would make one."""

    text: str
    query: str | None = None
    statement: "CreateAs | InsertSelect | SelectStatement | None" = None


@dataclass(frozen=True, slots=True)
class PrintTopic:
    """PRINT: the records of a topic, without a stream over it."""

    text: str
    topic: str
    from_beginning: bool = False
    interval: int = 1
    """Every how many records one is printed."""
    limit: int | None = None


Statement = (
    AlterSource | AlterSystem | AssertSchema | AssertTopic | CompareReplay | CreateAs
    | CreateConnector | CreateFunction | CreateReplay | CreateSource | CreateType | DefineVariable
    | DescribeConnector | DescribeFunction | DescribeReplay | DescribeSource | DropConnector
    | DropFunction | DropReplay | DropSource | DropType | ExplainQuery | InsertSelect | InsertValues
    | ListObjects | PauseQuery | PrintTopic | ResumeQuery | RollbackReplay | RunScript
    | SelectStatement | SetProperty | SpoolOutput | SwitchReplay | TerminateQuery | UndefineVariable
    | UnsetProperty
)  # fmt: skip

__all__ = [
    "AlterSource", "AlterSystem", "AssertSchema", "AssertTopic", "CompareReplay", "CreateAs",
    "CreateConnector", "CreateFunction", "CreateReplay", "CreateSource", "CreateType",
    "DefineVariable", "DescribeConnector", "DescribeFunction", "DescribeReplay", "DescribeSource",
    "DropConnector", "DropFunction", "DropReplay", "DropSource", "DropType", "ExplainQuery",
    "InsertSelect", "InsertValues", "ListObjects", "PauseQuery", "PrintTopic", "ResumeQuery",
    "RollbackReplay", "RunScript", "Select", "SelectStatement", "SetProperty", "SpoolOutput",
    "Statement", "SwitchReplay", "TerminateQuery", "UndefineVariable", "UnsetProperty",
]  # fmt: skip
