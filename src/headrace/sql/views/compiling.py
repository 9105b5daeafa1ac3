"""Pull queries as statements of SQLite, compiled once and run many times."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from headrace.sql.hosting import ResultColumn
from headrace.sql.plans import ROWOFFSET, ROWPARTITION, ROWTIME, WINDOWEND, WINDOWSTART
from headrace.sql.records.types import INTEGERS, ColumnType, parse_type
from headrace.sql.sources import SqlSource
from headrace.sql.views.pull_plans import PullPlan
from headrace.sql.views.spark_sql.queries import TableColumns, translate
from headrace.sql.views.spark_sql.typed import BIGINT, INT, NotAnswerable
from headrace.sql.views.storage import loading

Row = Sequence[object]
_LITERAL = re.compile(
    r'"(?:[^"]|"")*"|`(?:[^`]|``)*`|(?P<text>\'(?:[^\']|\'\')*\')|(?<![\w.])(?P<number>\d+)(?![\w.])'
)
_UNUSUAL = re.compile(r"--|/\*|\$")
"""Comments and variables: such a text is parsed."""
_LARGEST = 1 << 63


@dataclass(frozen=True, slots=True)
class CompiledQuery:
    """A statement of SQLite over the views of some tables."""

    sql: str
    tables: tuple[SqlSource, ...]
    """In the order of the schemas of the statement: `v0`, `v1` and so on."""
    names: tuple[str, ...]
    """The names of the tables in the query."""
    columns: tuple[ResultColumn, ...]
    load: Callable[[Row], list[object]]
    """Makes a row of the result of a row of SQLite."""
    key: Mapping[str, str | int]
    """Values of the key columns that the statement has as parameters, if it looks up one key."""
    is_lookup: bool
    """Whether the statement finds few rows by their key, whatever the size of the table."""


def compiled(plan: PullPlan) -> CompiledQuery:
    """The statement of a plan; raises NotAnswerable."""
    for source in plan.sources.values():
        if not source.is_table:
            raise NotAnswerable(f"{source.name} is a stream; views are of tables")
        if not source.keys:
            raise NotAnswerable(f"{source.name} has no primary key")
    tables = {
        name: TableColumns(f"v{number}.rows", table_columns(source))
        for number, (name, source) in enumerate(plan.sources.items())
    }
    found = _key_literals(plan)
    parameters = {id(node): f":k{number}" for number, node in enumerate(found.values())}
    made = translate(plan.query, tables, parameters)
    key = {
        f"k{number}": str(node.name) if node.is_string else int(node.name)
        for number, node in enumerate(found.values())
    }
    return CompiledQuery(
        made.sql,
        tuple(plan.sources.values()),
        tuple(plan.sources),
        tuple(ResultColumn(name, str(kind)) for name, kind in made.columns),
        result_loader(made.columns, made.computed),
        key,
        bool(key) and _has_few_rows(plan, found),
    )


def table_columns(source: SqlSource) -> list[tuple[str, ColumnType]]:
    """The columns of a source that queries can name, pseudo columns too."""
    columns = [(each.name, parse_type(each.type)) for each in source.columns]
    columns += [(ROWTIME, BIGINT), (ROWPARTITION, INT), (ROWOFFSET, BIGINT)]
    if source.window is not None:
        columns += [(WINDOWSTART, BIGINT), (WINDOWEND, BIGINT)]
    return columns


# ----------------------------------------------------------------------------------- look-ups


def _key_literals(plan: PullPlan) -> dict[str, exp.Literal]:
    """The literals that all key columns are compared with, if the query looks up a key."""
    query = plan.query
    if not isinstance(query, exp.Select) or len(plan.sources) != 1:
        return {}
    clauses = {name for name, value in query.args.items() if value}
    if not clauses <= {"expressions", "from_", "where", "limit"} or "where" not in clauses:
        return {}
    if any(isinstance(each, exp.Query) for each in query.walk() if each is not query):
        return {}
    (source,) = plan.sources.values()
    kinds = {each.name.casefold(): parse_type(each.type) for each in source.keys}
    if source.window is not None:
        kinds[WINDOWSTART.casefold()] = BIGINT
    found: dict[str, exp.Literal] = {}
    for each in query.args["where"].this.flatten() if _is_conjunction(query) else [_where(query)]:
        column, literal = _equality(each)
        if column in kinds and literal is not None and _fits(literal, kinds[column]):
            found.setdefault(column, literal)
    keys = {each.name.casefold() for each in source.keys}
    return found if keys <= found.keys() else {}


def _where(query: exp.Select) -> exp.Expr:
    node: exp.Expr = query.args["where"].this
    return node


def _is_conjunction(query: exp.Select) -> bool:
    return isinstance(_where(query), exp.And)


def _equality(node: exp.Expr) -> tuple[str, exp.Literal | None]:
    """The column and the literal of `column = literal`."""
    while isinstance(node, exp.Paren):
        node = node.this
    if isinstance(node, exp.EQ):
        for one, two in ((node.this, node.expression), (node.expression, node.this)):
            if isinstance(one, exp.Column) and isinstance(two, exp.Literal):
                return one.name.casefold(), two
    return "", None


def _fits(literal: exp.Literal, kind: ColumnType) -> bool:
    """Whether the literal is a value of the type without a conversion."""
    if kind.kind == "string":
        return bool(literal.is_string)
    name = str(literal.name)
    is_number = not literal.is_string and name.isdecimal()
    return kind.kind in INTEGERS and is_number and int(name) < _LARGEST


def _has_few_rows(plan: PullPlan, found: Mapping[str, exp.Literal]) -> bool:
    (source,) = plan.sources.values()
    return source.window is None or WINDOWSTART.casefold() in found


@dataclass(frozen=True, slots=True)
class Lifted:
    """The text of a statement apart from its literals."""

    skeleton: tuple[str, ...]
    """What is between the literals."""
    literals: tuple[str | int, ...]


def lifted(text: str) -> Lifted | None:
    """The literals of a statement; None if it has to be parsed to know them."""
    if _UNUSUAL.search(text):
        return None
    skeleton: list[str] = []
    literals: list[str | int] = []
    at = 0
    for found in _LITERAL.finditer(text):
        if found["text"] is not None:
            literals.append(found["text"][1:-1].replace("''", "'"))
            kind = "'"
        elif found["number"] is not None:
            literals.append(int(found["number"]))
            kind = "0"
        else:
            continue
        skeleton.append(text[at : found.start()] + kind)
        at = found.end()
    skeleton.append(text[at:])
    return Lifted(tuple(skeleton), tuple(literals))


# ------------------------------------------------------------------------------------- results


def result_loader(
    columns: Sequence[tuple[str, ColumnType]], computed: Sequence[bool]
) -> Callable[[Row], list[object]]:
    """Makes rows of the result of rows of SQLite with these columns, of which some are computed.

    NotAnswerable if an integer is larger than its type.
    """
    converts: list[tuple[int, Callable[[Any], Any]]] = []
    for place, ((_, kind), is_computed) in enumerate(zip(columns, computed, strict=True)):
        convert = loading(kind)
        if is_computed and kind.kind in INTEGERS:
            convert = _checked_integer(kind)
        if convert is not None:
            converts.append((place, convert))
    if not converts:
        return list

    def load(row: Row) -> list[object]:
        values = list(row)
        for place, convert in converts:
            if values[place] is not None:
                values[place] = convert(values[place])
        return values

    return load


def _checked_integer(kind: ColumnType) -> Callable[[Any], int]:
    limit = 1 << (8 * INTEGERS[kind.kind] - 1)

    def check(value: Any) -> int:
        if not isinstance(value, int) or not -limit <= value < limit:
            raise NotAnswerable(f"a result is larger than {kind}")
        return value

    return check
