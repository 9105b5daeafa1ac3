"""Expressions of a query, over the columns that are in scope."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TypeVar

from sqlglot import exp

from headrace.sql.records.types import ColumnType, InvalidType, parse_type
from headrace.sql.views.spark_sql.aggregates import AGGREGATES
from headrace.sql.views.spark_sql.casts import cast
from headrace.sql.views.spark_sql.moments import DAY, SECOND
from headrace.sql.views.spark_sql.operators import (
    arithmetic,
    comparable,
    comparison,
    condition,
    later,
    negated,
    whole_quotient,
)
from headrace.sql.views.spark_sql.scalar_functions import FUNCTIONS, choice, leaf, struct
from headrace.sql.views.spark_sql.typed import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    STRING,
    TIMESTAMP,
    VOID,
    NotAnswerable,
    Typed,
)

NOW = ":now"
"""The parameter with the time of the query, in microseconds."""
_ARITHMETIC: Mapping[type[exp.Expr], str] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.Mod: "%",
}
_COMPARISONS: Mapping[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.NullSafeEQ: "IS",
    exp.NullSafeNEQ: "IS NOT",
}
_UNITS = {
    "MICROSECOND": 1,
    "MILLISECOND": 1_000,
    "SECOND": SECOND,
    "MINUTE": 60 * SECOND,
    "HOUR": 3600 * SECOND,
    "DAY": DAY,
    "WEEK": 7 * DAY,
}
_MONTHS = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}
_NOW_FUNCTIONS = {"current_timestamp": TIMESTAMP, "now": TIMESTAMP, "current_date": DATE}
T = TypeVar("T")
_PLAIN_LABEL = re.compile(r"[A-Za-z0-9_ ]+")


@dataclass(frozen=True, slots=True)
class ScopeColumn:
    """A column that expressions can name."""

    relation: str
    name: str
    kind: ColumnType

    @property
    def typed(self) -> Typed:
        where = f"{quoted(self.relation)}." if self.relation else ""
        return Typed(f"{where}{quoted(self.name)}", self.kind, is_stored=True)


@dataclass(slots=True)
class Scope:
    """The columns of FROM, and those of the query around it."""

    columns: Sequence[ScopeColumn]
    outer: "Scope | None" = None
    groups: frozenset[str] | None = None
    """The texts of the expressions of GROUP BY; None: there is no grouping."""
    in_aggregate: bool = field(default=False)

    def find(self, names: Sequence[str]) -> tuple[Typed, Sequence[str]] | None:
        """The column that names begin with, and the names of fields after it."""
        lower = [name.casefold() for name in names]
        if len(names) > 1:
            found = self._of(lower[0], lower[1])
            if found is not None:
                return found, names[2:]
        found = self._of(None, lower[0])
        if found is not None:
            return found, names[1:]
        return None if self.outer is None else self.outer.find(names)

    def _of(self, relation: str | None, name: str) -> Typed | None:
        found = [
            each
            for each in self.columns
            if each.name.casefold() == name and relation in (None, each.relation.casefold())
        ]
        if len(found) > 1:
            raise NotAnswerable(f"{name} is ambiguous")
        return found[0].typed if found else None


def quoted(name: str) -> str:
    """A name in SQLite's quotes."""
    return '"' + name.replace('"', '""') + '"'


def text_literal(text: str) -> str:
    if "\0" in text:
        raise NotAnswerable("a text with a zero byte")
    return "'" + text.replace("'", "''") + "'"


def literal_type(text: str) -> Typed:
    """A number as it is written."""
    lower = text.lower()
    if "e" in lower:
        return Typed(repr(float(text)), DOUBLE, float(text))
    if "." in text:
        number = Decimal(text)
        digits = number.as_tuple()
        scale = max(0, -int(digits.exponent))
        kind = ColumnType("decimal", max(len(digits.digits), scale), scale)
        return Typed(text_literal(f"{number:f}"), kind, number)
    value = int(text)
    if value >= 1 << 63:
        raise NotAnswerable(f"{text} is larger than a bigint")
    return Typed(text, INT if value < 1 << 31 else BIGINT, value)


class Expressions:
    """Translates expressions in one scope. `subquery` translates queries inside of them."""

    def __init__(
        self,
        scope: Scope,
        subquery: Callable[[exp.Expr, Scope], tuple[str, Sequence[ColumnType]]],
        parameters: Mapping[int, str],
    ) -> None:
        self.scope = scope
        self.subquery = subquery
        self.parameters = parameters
        """Literals that are parameters: by the identity of their node."""

    def translate(self, node: exp.Expr) -> Typed:
        """The expression in SQLite's SQL; raises NotAnswerable."""
        scope = self.scope
        if scope.groups is None or scope.in_aggregate:
            return self._translated(node)
        # In a query with groups, an expression of GROUP BY is known as a whole.
        scope.in_aggregate = True
        try:
            whole = self._translated(node) if not _has_aggregate(node) else None
        finally:
            scope.in_aggregate = False
        if whole is not None and (whole.sql in scope.groups or not node.find(exp.Column)):
            return whole
        if isinstance(node, exp.Column):
            raise NotAnswerable(f"{node.name} is not in GROUP BY")
        return self._translated(node)

    def _translated(self, node: exp.Expr) -> Typed:
        kind = type(node)
        unknown = [
            name
            for name, value in node.args.items()
            if value and name not in _USUAL_PARTS and name not in _MORE_PARTS.get(kind, ())
        ]
        if unknown:
            raise NotAnswerable(f"a view has no {kind.__name__} with {unknown[0]}")
        if kind in _ARITHMETIC:
            return self._arithmetic(node, _ARITHMETIC[kind])
        if kind in _COMPARISONS:
            left, right = self.translate(node.this), self.translate(node.expression)
            return comparison(_COMPARISONS[kind], left, right)
        translate = _NODES.get(kind)
        if translate is None:
            raise NotAnswerable(f"a view has no {kind.__name__}")
        return translate(self, node)

    def field_of(self, value: Typed, name: str) -> Typed:
        if value.kind.kind != "struct":
            raise NotAnswerable(f"{name} of {value.kind}, which has no fields")
        found = [each for each in value.kind.fields if each[0].casefold() == name.casefold()]
        if len(found) != 1 or not _PLAIN_LABEL.fullmatch(found[0][0]):
            raise NotAnswerable(f"{value.kind} has no field {name}")
        label, kind = found[0]
        return leaf(f"json_extract({value.sql}, '$.\"{label}\"')", kind)

    def now(self, name: str) -> Typed:
        kind = _NOW_FUNCTIONS[name]
        return cast(Typed(NOW, TIMESTAMP), kind)

    def _arithmetic(self, node: exp.Expr, operator: str) -> Typed:
        left, right = node.this, node.expression
        if isinstance(right, exp.Interval) and operator in ("+", "-"):
            micros, months = _interval(right)
            sign = 1 if operator == "+" else -1
            return later(self.translate(left), sign * micros, sign * months)
        if isinstance(left, exp.Interval) and operator == "+":
            return later(self.translate(right), *_interval(left))
        return arithmetic(operator, self.translate(left), self.translate(right))

    def aggregate(self, node: exp.Expr, where: str) -> Typed:
        name = str(node.this).lower()
        if self.scope.in_aggregate or self.scope.groups is None:
            raise NotAnswerable(f"{name} is not possible here")
        arguments: list[exp.Expr] = node.expressions
        distinct = ""
        if len(arguments) == 1 and isinstance(arguments[0], exp.Distinct):
            distinct, arguments = "DISTINCT ", arguments[0].expressions
        if name == "count" and len(arguments) == 1 and isinstance(arguments[0], exp.Star):
            return Typed(f"count(*){where}", BIGINT)
        typed = self.inside(lambda: [self.translate(each) for each in arguments])
        return AGGREGATES[name](typed, distinct, where)

    def inside(self, translate: Callable[[], T]) -> T:
        """Inside of an aggregate, all columns are known."""
        self.scope.in_aggregate = True
        try:
            return translate()
        finally:
            self.scope.in_aggregate = False


# ------------------------------------------------------------------------------ nodes of sqlglot


def _column(of: Expressions, node: exp.Expr) -> Typed:
    names = [part.name for part in node.parts]  # type: ignore[attr-defined]
    found = of.scope.find(names)
    if found is None:
        if len(names) == 1 and names[0].lower() in _NOW_FUNCTIONS:
            return of.now(names[0].lower())
        raise NotAnswerable(f"there is no column {'.'.join(names)}")
    value, fields = found
    for name in fields:
        value = of.field_of(value, name)
    return value


def _dot(of: Expressions, node: exp.Expr) -> Typed:
    if not isinstance(node.expression, exp.Identifier):
        raise NotAnswerable("a name after a point is expected")
    return of.field_of(of.translate(node.this), node.expression.name)


def _literal(of: Expressions, node: exp.Expr) -> Typed:
    parameter = of.parameters.get(id(node))
    if parameter is not None:
        return Typed(parameter, STRING if node.is_string else BIGINT)
    if node.is_string:
        return Typed(text_literal(node.name), STRING, node.name)
    return literal_type(node.name)


def _hex(of: Expressions, node: exp.Expr) -> Typed:
    return Typed(f"x'{bytes.fromhex(node.name).hex()}'", BINARY)


def _boolean(of: Expressions, node: exp.Expr) -> Typed:
    return Typed("1" if node.this else "0", BOOLEAN, bool(node.this))


def _null(of: Expressions, node: exp.Expr) -> Typed:
    return Typed("NULL", VOID)


def _whole_quotient(of: Expressions, node: exp.Expr) -> Typed:
    return whole_quotient(of.translate(node.this), of.translate(node.expression))


def _paren(of: Expressions, node: exp.Expr) -> Typed:
    return of.translate(node.this)


def _negative(of: Expressions, node: exp.Expr) -> Typed:
    return negated(of.translate(node.this))


def _not(of: Expressions, node: exp.Expr) -> Typed:
    return Typed(f"(NOT {condition(of.translate(node.this))})", BOOLEAN)


def _and(of: Expressions, node: exp.Expr) -> Typed:
    return _joined(of, node, "AND")


def _or(of: Expressions, node: exp.Expr) -> Typed:
    return _joined(of, node, "OR")


def _joined(of: Expressions, node: exp.Expr, word: str) -> Typed:
    parts = (condition(of.translate(each)) for each in (node.this, node.expression))
    return Typed(f"({f' {word} '.join(parts)})", BOOLEAN)


def _is(of: Expressions, node: exp.Expr) -> Typed:
    value, other = of.translate(node.this), node.expression
    if isinstance(other, exp.Null):
        return Typed(f"({value.sql} IS NULL)", BOOLEAN)
    if isinstance(other, exp.Boolean) and value.kind == BOOLEAN:
        return Typed(f"({value.sql} IS {1 if other.this else 0})", BOOLEAN)
    raise NotAnswerable("IS with something else than NULL, TRUE or FALSE")


def _between(of: Expressions, node: exp.Expr) -> Typed:
    value = of.translate(node.this)
    low, high = (of.translate(node.args[name]) for name in ("low", "high"))
    over, under = comparison(">=", value, low), comparison("<=", value, high)
    return Typed(f"({over.sql} AND {under.sql})", BOOLEAN)


def _in(of: Expressions, node: exp.Expr) -> Typed:
    value = of.translate(node.this)
    query = node.args.get("query")
    if query is not None:
        sql, kinds = of.subquery(query.this, of.scope)
        if list(kinds) != [value.kind] or value.kind.kind == "decimal":
            raise NotAnswerable(f"IN of {value.kind} with a query of another type")
        return Typed(f"({value.sql} IN ({sql}))", BOOLEAN)
    if node.args.get("field") is not None or not node.expressions:
        raise NotAnswerable("IN without a list")
    pairs = [comparable(value, of.translate(each)) for each in node.expressions]
    if len({one.sql for one, _ in pairs}) > 1 or value.kind.kind == "decimal":
        equal = " OR ".join(
            comparison("=", value, of.translate(each)).sql for each in node.expressions
        )
        return Typed(f"({equal})", BOOLEAN)
    return Typed(f"({pairs[0][0].sql} IN ({', '.join(two.sql for _, two in pairs)}))", BOOLEAN)


def _exists(of: Expressions, node: exp.Expr) -> Typed:
    sql, _ = of.subquery(node.this, of.scope)
    return Typed(f"EXISTS ({sql})", BOOLEAN)


def _scalar_query(of: Expressions, node: exp.Expr) -> Typed:
    sql, kinds = of.subquery(node.this, of.scope)
    if len(kinds) != 1:
        raise NotAnswerable("a query with several columns as a value")
    selects = node.this.args.get("expressions") or []
    if node.this.args.get("group") is not None or not any(map(_has_aggregate, selects)):
        # Of several rows, SQLite takes the first; Spark refuses them.
        raise NotAnswerable("a query that may have several rows as a value")
    return Typed(f"({sql})", kinds[0], is_stored=True)


def _like(of: Expressions, node: exp.Expr) -> Typed:
    return _matched(of, node, "\\")


def _escaped(of: Expressions, node: exp.Expr) -> Typed:
    escape = node.expression
    inner = node.this
    if not isinstance(inner, exp.Like | exp.ILike) or not isinstance(escape, exp.Literal):
        raise NotAnswerable("ESCAPE without LIKE")
    return _matched(of, inner, escape.name)


def _matched(of: Expressions, node: exp.Expr, escape: str) -> Typed:
    text, pattern = of.translate(node.this), of.translate(node.expression)
    if (text.kind, pattern.kind) != (STRING, STRING):
        raise NotAnswerable(f"{text.kind} LIKE {pattern.kind}")
    name = "spark_ilike" if isinstance(node, exp.ILike) else "spark_like"
    negation = "NOT " if node.args.get("negate") else ""
    matched = f"{name}({text.sql}, {pattern.sql}, {text_literal(escape)})"
    return Typed(f"({negation}{matched})", BOOLEAN)


def _concatenated(of: Expressions, node: exp.Expr) -> Typed:
    return FUNCTIONS["concat"]([of.translate(node.this), of.translate(node.expression)])


def _case(of: Expressions, node: exp.Expr) -> Typed:
    subject = None if node.this is None else of.translate(node.this)
    branches = []
    for each in node.args["ifs"]:
        tested = of.translate(each.this)
        sql = condition(tested) if subject is None else comparison("=", subject, tested).sql
        branches.append((sql, of.translate(each.args["true"])))
    default = node.args.get("default")
    return choice(branches, None if default is None else of.translate(default))


def _cast(of: Expressions, node: exp.Expr) -> Typed:
    if node.args.get("safe"):
        raise NotAnswerable("TRY_CAST")
    try:
        kind = parse_type(node.args["to"].sql(dialect="spark"))
    except InvalidType as error:
        raise NotAnswerable(str(error)) from None
    return cast(of.translate(node.this), kind)


def _subscript(of: Expressions, node: exp.Expr) -> Typed:
    value = of.translate(node.this)
    if value.kind.kind != "map" or len(node.expressions) != 1:
        raise NotAnswerable(f"a subscript of {value.kind}")
    return FUNCTIONS["element_at"]([value, of.translate(node.expressions[0])])


def _extract(of: Expressions, node: exp.Expr) -> Typed:
    function = FUNCTIONS.get(node.name.lower())
    if node.name.upper() not in ("YEAR", "MONTH", "DAY", "HOUR", "MINUTE") or function is None:
        raise NotAnswerable(f"EXTRACT({node.name})")
    return function([of.translate(node.expression)])


def _function(of: Expressions, node: exp.Expr) -> Typed:
    name = str(node.this).lower()
    if name in AGGREGATES:
        return of.aggregate(node, "")
    if name in _NOW_FUNCTIONS and not node.expressions:
        return of.now(name)
    if name == "struct":
        return _struct(of, node)
    function = FUNCTIONS.get(name)
    if function is None:
        raise NotAnswerable(f"a view has no function {name}")
    try:
        return function([of.translate(each) for each in node.expressions])
    except (IndexError, ValueError):
        raise NotAnswerable(f"{name} with {len(node.expressions)} arguments") from None


def _struct(of: Expressions, node: exp.Expr) -> Typed:
    names, values = [], []
    for place, each in enumerate(node.expressions, 1):
        value = each.this if isinstance(each, exp.Alias) else each
        named = isinstance(each, exp.Alias | exp.Column)
        names.append(each.alias_or_name if named else f"col{place}")
        values.append(of.translate(value))
    return struct(names, values)


def _filtered(of: Expressions, node: exp.Expr) -> Typed:
    name = str(node.this.this).lower() if isinstance(node.this, exp.Anonymous) else ""
    if name not in AGGREGATES:
        raise NotAnswerable("FILTER of a function that is no aggregate")
    where = of.inside(lambda: condition(of.translate(node.expression.this)))
    return of.aggregate(node.this, f" FILTER (WHERE {where})")


_USUAL_PARTS = frozenset({"this", "expression", "expressions"})
_MORE_PARTS: Mapping[type[exp.Expr], tuple[str, ...]] = {
    exp.Column: ("table", "db", "catalog"),
    exp.Literal: ("is_string",),
    exp.HexString: ("is_integer",),
    exp.DPipe: ("safe",),
    exp.Div: ("typed", "safe"),
    exp.Subquery: ("alias",),
    exp.Between: ("low", "high"),
    exp.In: ("query", "field"),
    exp.Like: ("negate",),
    exp.ILike: ("negate",),
    exp.Case: ("ifs", "default"),
    exp.Cast: ("to", "safe"),
    exp.TryCast: ("to", "safe"),
}
"""Parts of expressions that are translated; others would be lost."""


def _has_aggregate(node: exp.Expr) -> bool:
    return any(
        isinstance(each, exp.Anonymous) and str(each.this).lower() in AGGREGATES
        for each in node.walk(prune=lambda inner: isinstance(inner, exp.Query))
    )


def _interval(node: exp.Interval) -> tuple[int, int]:
    """The microseconds and months of an interval with one unit."""
    unit = node.args.get("unit")
    name = "" if unit is None else unit.name.upper().removesuffix("S")
    try:
        number = int(node.this.name)
    except (ValueError, AttributeError):
        raise NotAnswerable("an interval that is no whole number of a unit") from None
    if name in _UNITS:
        return number * _UNITS[name], 0
    if name in _MONTHS:
        return 0, number * _MONTHS[name]
    raise NotAnswerable(f"an interval of {name or 'several units'}")


_NODES: dict[type[exp.Expr], Callable[[Expressions, exp.Expr], Typed]] = {
    exp.Column: _column,
    exp.Dot: _dot,
    exp.Literal: _literal,
    exp.HexString: _hex,
    exp.Boolean: _boolean,
    exp.Null: _null,
    exp.IntDiv: _whole_quotient,
    exp.Paren: _paren,
    exp.Neg: _negative,
    exp.Not: _not,
    exp.And: _and,
    exp.Or: _or,
    exp.Is: _is,
    exp.Between: _between,
    exp.In: _in,
    exp.Exists: _exists,
    exp.Subquery: _scalar_query,
    exp.Like: _like,
    exp.ILike: _like,
    exp.Escape: _escaped,
    exp.DPipe: _concatenated,
    exp.Case: _case,
    exp.Cast: _cast,
    exp.TryCast: _cast,
    exp.Bracket: _subscript,
    exp.Extract: _extract,
    exp.Anonymous: _function,
    exp.Filter: _filtered,
}
