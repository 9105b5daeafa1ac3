"""Statements about types, functions, connectors, replays, topics and the session.

Those about streams, tables and queries are in `statements.py`, which has all of them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.sql.language.select import Select
from headrace.sql.sources import SqlColumn


@dataclass(frozen=True, slots=True)
class CreateType:
    """CREATE TYPE: a name for a type."""

    text: str
    name: str
    type: str
    """Spark's DDL, in lower case."""
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class DropType:
    """DROP TYPE."""

    text: str
    name: str
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class CreateFunction:
    """CREATE FUNCTION: a function with a body in another language."""

    text: str
    name: str
    parameters: tuple[SqlColumn, ...]
    returns: str
    """Spark's DDL, in lower case."""
    language: str
    """In upper case: PYTHON."""
    body: str
    options: Mapping[str, str] = field(default_factory=dict)
    or_replace: bool = False
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class DropFunction:
    """DROP FUNCTION."""

    text: str
    name: str
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class CreateConnector:
    """CREATE SOURCE|SINK CONNECTOR."""

    text: str
    name: str
    is_source: bool
    properties: Mapping[str, str]
    """Names as they were written."""
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class DropConnector:
    """DROP CONNECTOR."""

    text: str
    name: str
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class SetProperty:
    """SET 'name' = 'value': a setting of the session."""

    text: str
    name: str
    value: str


@dataclass(frozen=True, slots=True)
class UnsetProperty:
    """UNSET 'name'."""

    text: str
    name: str


@dataclass(frozen=True, slots=True)
class DefineVariable:
    """DEFINE name = 'value'."""

    text: str
    name: str
    value: str


@dataclass(frozen=True, slots=True)
class UndefineVariable:
    """UNDEFINE name."""

    text: str
    name: str


@dataclass(frozen=True, slots=True)
class AlterSystem:
    """ALTER SYSTEM 'name' = 'value'."""

    text: str
    name: str
    value: str


@dataclass(frozen=True, slots=True)
class AssertTopic:
    """ASSERT [NOT EXISTS] TOPIC."""

    text: str
    topic: str
    exists: bool
    properties: Mapping[str, str]
    """Settings that the topic must have: `partitions`, `replicas`, or settings of the topic."""
    timeout_ms: int | None = None


@dataclass(frozen=True, slots=True)
class AssertSchema:
    """ASSERT [NOT EXISTS] SCHEMA, by subject, by id, or by both."""

    text: str
    exists: bool
    subject: str | None
    id: int | None
    timeout_ms: int | None = None


@dataclass(frozen=True, slots=True)
class RunScript:
    """RUN SCRIPT 'path': of the command line only."""

    text: str
    path: str


@dataclass(frozen=True, slots=True)
class SpoolOutput:
    """SPOOL 'path' and SPOOL OFF: the command line copies its output into a file."""

    text: str
    path: str | None
    """None: OFF."""


@dataclass(frozen=True, slots=True)
class CreateReplay:
    """CREATE REPLAY: a new version of a query, which runs beside the old one."""

    text: str
    name: str
    of: str
    start: str
    """EARLIEST, LATEST, NOW, or a point in time as it was written."""
    select: Select | None
    """None: the same query as that of the original."""
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DescribeReplay:
    """DESCRIBE REPLAY."""

    text: str
    name: str


@dataclass(frozen=True, slots=True)
class CompareReplay:
    """COMPARE: the differences between two results."""

    text: str
    left: str
    right: str
    ignore: tuple[str, ...] = ()
    tolerance: Mapping[str, float] = field(default_factory=dict)
    """By column: how far two numbers may be apart."""


@dataclass(frozen=True, slots=True)
class SwitchReplay:
    """SWITCH: the replay takes the name of the original."""

    text: str
    name: str
    replay: str
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RollbackReplay:
    """ROLLBACK: back to the version before the last SWITCH."""

    text: str
    name: str


@dataclass(frozen=True, slots=True)
class DropReplay:
    """DROP REPLAY."""

    text: str
    name: str
    if_exists: bool = False
    delete_topic: bool = False
