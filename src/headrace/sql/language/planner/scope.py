"""The streams and tables of a SELECT, and what names in it stand for."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from sqlglot import exp

from headrace.sql.language.datatypes import element_type, struct_fields
from headrace.sql.language.errors import SqlError, did_you_mean
from headrace.sql.language.grammar.select_parsing import place_of
from headrace.sql.language.planner.function_rewriting import RewriteContext, rewritten
from headrace.sql.language.select import SourceRef
from headrace.sql.plans import (
    ROWOFFSET,
    ROWPARTITION,
    ROWTIME,
    WINDOWEND,
    WINDOWSTART,
)
from headrace.sql.sources import SqlSource

ROWKEY = "ROWKEY"
"""The key of a join that has no column for it: of FULL JOINs, and of joins by expressions."""
PSEUDO_TYPES = {
    ROWTIME: "bigint",
    ROWPARTITION: "int",
    ROWOFFSET: "bigint",
    WINDOWSTART: "bigint",
    WINDOWEND: "bigint",
}


def quoted(name: str, table: str | None = None) -> exp.Column:
    """A column in Spark's SQL."""
    return exp.column(name, table=table, quoted=True)


@dataclass(frozen=True, slots=True)
class Relation:
    """A stream or table in FROM or JOIN, and where its columns are in the plan's SQL."""

    alias: str
    source: SqlSource
    view: str | None
    """None: names in the SQL have no view before them."""
    prefix: str = ""
    """Before the names of columns: those of a state join have one."""

    def at(self, column: str) -> exp.Column:
        return quoted(self.prefix + column, self.view)

    def column_names(self) -> list[str]:
        return [column.name for column in self.source.columns]

    def pseudo(self, name: str) -> str | None:
        """The pseudo column with this name, if rows have it."""
        upper = name.upper()
        if upper in (WINDOWSTART, WINDOWEND):
            return upper if self.source.window else None
        return upper if upper in PSEUDO_TYPES else None


@dataclass(frozen=True, slots=True)
class Found:
    """What a name stands for."""

    expression: exp.Expr
    type: str | None
    name: str
    """As the source has it; of a field, the field's name."""
    relation: Relation | None = None
    """Of a column; None for fields, and for names that are no columns."""


@dataclass(frozen=True, slots=True)
class SelectScope:
    """All relations of a SELECT."""

    relations: tuple[Relation, ...]
    special: Mapping[str, Found] = field(default_factory=dict)
    """Names without a relation, in upper case: ROWKEY, or the bounds of the WINDOW clause."""
    others: frozenset[str] = frozenset()
    """Names that Spark resolves, in lower case: those of LATERAL VIEW."""
    order: exp.Expr | None = None
    """See `RewriteContext`."""

    def relation(self, alias: str) -> Relation | None:
        wanted = alias.casefold()
        return next((each for each in self.relations if each.alias.casefold() == wanted), None)

    def find(self, node: exp.Expr) -> Found | None:
        """A column, or a field of one; None if the expression is neither. Raises SqlError."""
        parts = _parts(node)
        if parts is None:
            return None
        relation = self.relation(parts[0]) if len(parts) > 1 else None
        if relation is not None:
            found = _column(relation, parts[1])
            if found is not None:
                return self._field(node, found, parts[2:])
        found = self._unqualified(node, parts[0])
        if found is not None:
            return self._field(node, found, parts[1:])
        if parts[0].casefold() in self.others:
            return Found(node.copy(), None, parts[-1])
        raise self._unknown(node, parts, relation)

    def _unqualified(self, node: exp.Expr, name: str) -> Found | None:
        if name.upper() in self.special:
            return self.special[name.upper()]
        found = [
            column for relation in self.relations if (column := _column(relation, name)) is not None
        ]
        if len(found) > 1:
            choices = " or ".join(
                f"{each.relation.alias}.{each.name}" for each in found if each.relation
            )
            raise SqlError(f"{name} is ambiguous: write {choices}.", *place_of(node))
        return found[0] if found else None

    def _field(self, node: exp.Expr, found: Found, path: list[str]) -> Found:
        for name in path:
            fields = struct_fields(found.type) if found.type else {}
            if fields is None:
                raise SqlError(
                    f"{found.name} has no fields: its type is {found.type}.", *place_of(node)
                )
            by_name = {each.casefold(): each for each in fields}
            known = by_name.get(name.casefold())
            if fields and known is None:
                raise SqlError(
                    f"{found.name} has no field {name}; it has {', '.join(fields)}."
                    + did_you_mean(name, fields),
                    *place_of(node),
                )
            inner = exp.Dot(
                this=found.expression, expression=exp.to_identifier(known or name, quoted=True)
            )
            found = Found(inner, fields[known] if known else None, known or name)
        return found

    def _unknown(self, node: exp.Expr, parts: list[str], relation: Relation | None) -> SqlError:
        name = parts[1] if relation else parts[0]
        relations = [relation] if relation else list(self.relations)
        known = [column for each in relations for column in each.column_names()]
        if name.upper() in (WINDOWSTART, WINDOWEND):
            message = f"{name.upper()} needs a WINDOW clause, or a source with windowed keys."
        elif name.upper() == ROWKEY:
            message = "ROWKEY is only the key of a JOIN."
        else:
            where = " and ".join(each.alias for each in relations)
            message = (
                f"There is no column {name} in {where}. Columns: {', '.join(known)}."
                + did_you_mean(name, [*known, *PSEUDO_TYPES])
            )
        return SqlError(message, *place_of(node))

    def type_of(self, node: exp.Expr) -> str | None:
        """The type of a column, a field or an element; None if it is not known."""
        if isinstance(node, exp.Paren):
            return self.type_of(node.this)
        if isinstance(node, exp.Bracket):
            outer = self.type_of(node.this)
            return element_type(outer) if outer else None
        found = self.find(node)
        return found.type if found else None

    def spark(self, node: exp.Expr) -> exp.Expr:
        """The expression in Spark's SQL over the views."""
        root = exp.Paren(this=rewritten(with_milliseconds(node), self._context()))
        for each in list(_references(root)):
            found = self.find(each)
            if found is not None:
                each.replace(found.expression.copy())
        result: exp.Expr = root.this
        result.pop()
        return result

    def _context(self) -> RewriteContext:
        return RewriteContext(self._known_type, self.order)

    def _known_type(self, node: exp.Expr) -> str | None:
        try:
            return self.type_of(node)
        except SqlError:
            return None  # the name is looked up again, and the error raised, where it is used


def relations_of(
    references: Iterable[SourceRef],
    sources: Callable[[str], SqlSource | None],
    known: Iterable[str],
) -> tuple[Relation, ...]:
    """The relations of a SELECT. Raises SqlError for unknown sources and equal aliases."""
    relations: list[Relation] = []
    for reference in references:
        source = sources(reference.name)
        if source is None:
            raise SqlError(
                f"There is no stream or table {reference.name}."
                + did_you_mean(reference.name, known),
                reference.line,
                reference.column,
            )
        if any(each.alias.casefold() == reference.alias.casefold() for each in relations):
            raise SqlError(
                f"{reference.alias} is there twice: give one of them another alias.",
                reference.line,
                reference.column,
            )
        relations.append(Relation(reference.alias, source, _view(reference.alias, relations)))
    return tuple(relations)


def _view(alias: str, others: Iterable[Relation]) -> str:
    """A name for a view: Spark takes few characters in names of sources."""
    plain = re.sub(r"\W", "_", alias, flags=re.ASCII)
    taken = {(each.view or "").casefold() for each in others}
    while plain.casefold() in taken:
        plain += "_"
    return plain


def _column(relation: Relation, name: str) -> Found | None:
    column = relation.source.column(name)
    if column is not None:
        return Found(relation.at(column.name), column.type, column.name, relation)
    pseudo = relation.pseudo(name)
    if pseudo is not None:
        return Found(relation.at(pseudo), PSEUDO_TYPES[pseudo], pseudo, relation)
    return None


def _parts(node: exp.Expr) -> list[str] | None:
    """The names of `a.b.c`; None if the expression is something else."""
    if isinstance(node, exp.Column) and isinstance(node.this, exp.Identifier):
        return [part.name for part in node.parts]
    if isinstance(node, exp.Dot) and isinstance(node.expression, exp.Identifier):
        outer = _parts(node.this)
        return None if outer is None else [*outer, node.expression.name]
    return None


def _references(root: exp.Expr) -> Iterator[exp.Expr]:
    """The outermost names in an expression: `a.b.c` is one."""
    for each in root.walk(prune=lambda node: _parts(node) is not None):
        if _parts(each) is not None:
            yield each


_COMPARISONS = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE)
_MILLISECONDS = (ROWTIME, WINDOWSTART, WINDOWEND)
_PARTIAL_TIME = re.compile(
    r"(\d{4})(?:-(\d{1,2}))?(?:-(\d{1,2}))?(?:T(\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{1,3}))?)?)?"
    r"(Z|[+-]\d{2}:?\d{2})?"
)


def with_milliseconds(node: exp.Expr) -> exp.Expr:
    """ROWTIME and the bounds of windows are numbers; strings that they are compared with, too."""
    result = node.copy()
    for each in result.walk():
        if isinstance(each, _COMPARISONS):
            compared = [each.this, each.expression]
        elif isinstance(each, exp.Between):
            compared = [each.this, each.args["low"], each.args["high"]]
        else:
            continue
        if any(_is_milliseconds(part) for part in compared):
            for part in compared:
                if isinstance(part, exp.Literal) and part.is_string:
                    part.replace(exp.Literal.number(milliseconds(part.name)))
    return result


def _is_milliseconds(node: exp.Expr) -> bool:
    parts = _parts(node)
    return parts is not None and parts[-1].upper() in _MILLISECONDS


def milliseconds(text: str) -> int:
    """A point in time as ksqlDB writes it, `yyyy-MM-dd'T'HH:mm:ss.SSS`; the end may be missing."""
    found = _PARTIAL_TIME.fullmatch(text.strip().replace(" ", "T", 1))
    if found is None:
        raise SqlError(f"{text!r} is no time. Write it as in '2026-01-31T12:00:00.000'.")
    year, month, day, hour, minute, second, fraction, zone = found.groups()
    try:
        moment = datetime.fromisoformat(
            f"{year}-{int(month or 1):02}-{int(day or 1):02}T{int(hour or 0):02}:"
            f"{int(minute or 0):02}:{int(second or 0):02}.{(fraction or '0').ljust(3, '0')}"
            + (zone or "+00:00")
        )
    except ValueError as error:
        raise SqlError(f"{text!r} is no time: {error}.") from None
    return round((moment - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1_000)
