"""Translated expressions with their types, and Spark's rules for types."""

import re
from dataclasses import dataclass
from typing import Any, Final

from headrace.sql.records.types import INTEGERS, ColumnType

BOOLEAN = ColumnType("boolean")
INT = ColumnType("int")
BIGINT = ColumnType("bigint")
DOUBLE = ColumnType("double")
STRING = ColumnType("string")
BINARY = ColumnType("binary")
DATE = ColumnType("date")
TIMESTAMP = ColumnType("timestamp")
VOID = ColumnType("void")
MAX_PRECISION = 38
_MIN_SCALE = 6
_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 20}
_NAME = re.compile(r'"(?:[^"]|"")*"(?:\."(?:[^"]|"")*")*')
NOT_CONSTANT: Final[Any] = object()


class NotAnswerable(Exception):
    """A view cannot answer a query; Spark can. The message tells why."""


@dataclass(frozen=True, slots=True)
class Typed:
    """SQLite's text of an expression, and its type."""

    sql: str
    kind: ColumnType
    constant: Any = NOT_CONSTANT
    """The value of a literal."""
    is_stored: bool = False
    """A value as it is stored: a double may be NaN, which is a text there."""

    @property
    def is_literal(self) -> bool:
        return self.constant is not NOT_CONSTANT


def is_integer(kind: ColumnType) -> bool:
    return kind.kind in INTEGERS


def is_numeric(kind: ColumnType) -> bool:
    return is_integer(kind) or kind.kind in ("float", "double", "decimal")


def is_moment(kind: ColumnType) -> bool:
    return kind.kind in ("date", "timestamp", "timestamp_ntz")


def number_sql(expression: Typed) -> str:
    """A number for arithmetic: NaN has none in SQLite."""
    sql = expression.sql
    if not expression.is_stored or expression.kind.kind not in ("float", "double"):
        return sql
    if _NAME.fullmatch(sql):
        return f"(CASE WHEN {sql} = 'NaN' THEN spark_fail('NaN') ELSE {sql} END)"
    # A longer text is not repeated.
    return f"spark_number({sql})"


def decimal_of(expression: Typed) -> ColumnType:
    """The decimal that holds all values of an integer type; of a literal, just its digits."""
    if expression.kind.kind == "decimal":
        return expression.kind
    if expression.is_literal and isinstance(expression.constant, int):
        return ColumnType("decimal", len(str(abs(expression.constant))), 0)
    return ColumnType("decimal", _DIGITS[expression.kind.kind], 0)


def bounded(precision: int, scale: int) -> ColumnType:
    """The decimal type of a result: of too many digits, those after the point are fewer."""
    if precision <= MAX_PRECISION:
        return ColumnType("decimal", precision, scale)
    whole = precision - scale
    return ColumnType("decimal", MAX_PRECISION, max(MAX_PRECISION - whole, min(scale, _MIN_SCALE)))


def decimal_result(operator: str, left: ColumnType, right: ColumnType) -> ColumnType:
    """The type of an operation on two decimals."""
    if operator == "*":
        return bounded(left.precision + right.precision + 1, left.scale + right.scale)
    if operator == "/":
        scale = max(_MIN_SCALE, left.scale + right.precision + 1)
        return bounded(left.precision - left.scale + right.scale + scale, scale)
    scale = max(left.scale, right.scale)
    whole = (left.precision - left.scale, right.precision - right.scale)
    if operator == "%":
        return bounded(min(whole) + scale, scale)
    return bounded(max(whole) + scale + 1, scale)


def common_type(parts: "list[Typed]", what: str) -> ColumnType:
    """The type of the branches of a CASE, of the elements of an IN, and so on."""
    found: Typed | None = None
    for each in parts:
        if each.kind == VOID:
            continue
        found = each if found is None else Typed("", _common(found, each, what))
    return VOID if found is None else found.kind


def _common(left: Typed, right: Typed, what: str) -> ColumnType:
    a, b = left.kind, right.kind
    if a == b:
        return a
    if is_integer(a) and is_integer(b):
        return a if INTEGERS[a.kind] >= INTEGERS[b.kind] else b
    if is_numeric(a) and is_numeric(b):
        if "double" in (a.kind, b.kind):
            return DOUBLE
        if "float" not in (a.kind, b.kind):
            one, two = decimal_of(Typed("", a)), decimal_of(Typed("", b))
            scale = max(one.scale, two.scale)
            whole = max(one.precision - one.scale, two.precision - two.scale)
            if whole + scale <= MAX_PRECISION:
                return ColumnType("decimal", whole + scale, scale)
    raise NotAnswerable(f"{what} has the types {a} and {b}")
