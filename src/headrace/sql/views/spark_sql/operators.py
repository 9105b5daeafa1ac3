"""Operators: arithmetic, comparisons, and those of dates and times."""

from headrace.sql.records.types import INTEGERS, ColumnType
from headrace.sql.views.spark_sql.casts import cast
from headrace.sql.views.spark_sql.sqlite_functions import DECIMAL_COLLATION
from headrace.sql.views.spark_sql.typed import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    STRING,
    TIMESTAMP,
    VOID,
    NotAnswerable,
    Typed,
    decimal_of,
    decimal_result,
    is_integer,
    is_moment,
    is_numeric,
    number_sql,
)


def arithmetic(operator: str, left: Typed, right: Typed) -> Typed:
    """`+`, `-`, `*`, `/` and `%` of numbers, and days of dates."""
    a, b = left.kind, right.kind
    if a == DATE and is_integer(b) and operator in ("+", "-"):
        return Typed(f"({left.sql} {operator} {right.sql})", DATE)
    if VOID in (a, b) or not is_numeric(a) or not is_numeric(b):
        raise NotAnswerable(f"a view cannot calculate {a} {operator} {b}")
    if "float" in (a.kind, b.kind):
        raise NotAnswerable("a view does not calculate with the type float")
    if "decimal" in (a.kind, b.kind) and "double" not in (a.kind, b.kind):
        return _decimals(operator, left, right)
    one, two = number_sql(_plain(left)), number_sql(_plain(right))
    if operator == "/":
        # A quotient of integers is a double, too.
        return Typed(f"(CAST({one} AS REAL) / {_divisor(right, two)})", DOUBLE)
    if operator == "%" or "double" in (a.kind, b.kind):
        kind = DOUBLE if "double" in (a.kind, b.kind) else _wider(a, b)
        if operator == "%":
            return Typed(f"spark_remainder({one}, {two})", kind, is_stored=True)
        return Typed(f"({one} {operator} {two})", kind)
    return Typed(f"({one} {operator} {two})", _wider(a, b))


def whole_quotient(left: Typed, right: Typed) -> Typed:
    """`div`."""
    if not is_integer(left.kind) or not is_integer(right.kind):
        raise NotAnswerable(f"a view cannot calculate {left.kind} div {right.kind}")
    return Typed(f"({left.sql} / {_divisor(right, right.sql)})", BIGINT)


def negated(value: Typed) -> Typed:
    kind = value.kind
    if kind.kind == "decimal":
        zero = Typed("'0'", ColumnType("decimal", 1, 0))
        return cast(_decimals("-", zero, value), kind)
    if not is_integer(kind) and kind != DOUBLE:
        raise NotAnswerable(f"a view cannot negate {kind}")
    constant = -value.constant if value.is_literal else value.constant
    return Typed(f"(- {number_sql(value)})", kind, constant)


def comparison(operator: str, left: Typed, right: Typed) -> Typed:
    """Of two values of the same type, after Spark's conversions."""
    one, two = comparable(left, right)
    collation = f" COLLATE {DECIMAL_COLLATION}" if one.kind.kind == "decimal" else ""
    return Typed(f"({one.sql} {operator} {two.sql}{collation})", BOOLEAN)


def comparable(left: Typed, right: Typed) -> tuple[Typed, Typed]:
    """Both as values that SQLite compares as Spark does."""
    a, b = left.kind, right.kind
    if VOID in (a, b):
        return Typed(left.sql, BOOLEAN), Typed(right.sql, BOOLEAN)
    if a == b:
        if a.is_nested or a.kind == "variant":
            raise NotAnswerable(f"a view does not compare values of the type {a}")
        return left, right
    if is_numeric(a) and is_numeric(b):
        if "float" in (a.kind, b.kind) and "double" not in (a.kind, b.kind):
            raise NotAnswerable(f"a view does not compare {a} with {b}")
        if "decimal" in (a.kind, b.kind):
            return _decimal_pair(left, right)
        return left, right
    if is_moment(a) and b == STRING and right.is_literal:
        return left, cast(right, a)
    if is_moment(b) and a == STRING and left.is_literal:
        return cast(left, b), right
    if {a.kind, b.kind} == {"date", "timestamp"}:
        return cast(left, TIMESTAMP), cast(right, TIMESTAMP)
    raise NotAnswerable(f"a view does not compare {a} with {b}")


def later(moment: Typed, micros: int, months: int) -> Typed:
    """A date or timestamp and an interval."""
    if moment.kind == DATE:
        if micros % 86_400_000_000:
            raise NotAnswerable("a view does not add hours to a date")
        shifted = f"spark_add_months({moment.sql}, {months})" if months else moment.sql
        return Typed(f"({shifted} + {micros // 86_400_000_000})", DATE)
    if moment.kind.kind not in ("timestamp", "timestamp_ntz"):
        raise NotAnswerable(f"a view does not add an interval to {moment.kind}")
    shifted = f"spark_moment_add_months({moment.sql}, {months})" if months else moment.sql
    return Typed(f"({shifted} + {micros})", moment.kind)


def _plain(value: Typed) -> Typed:
    """A number of SQLite; a decimal that meets a double is one."""
    return cast(value, DOUBLE) if value.kind.kind == "decimal" else value


def _divisor(divisor: Typed, sql: str) -> str:
    return sql if divisor.is_literal and divisor.constant else f"spark_divisor({sql})"


def _wider(a: ColumnType, b: ColumnType) -> ColumnType:
    return a if INTEGERS[a.kind] >= INTEGERS[b.kind] else b


def _decimals(operator: str, left: Typed, right: Typed) -> Typed:
    a, b = decimal_of(left), decimal_of(right)
    kind = decimal_result(operator, a, b)
    one, two = cast(left, a).sql, cast(right, b).sql
    sql = f"spark_decimal_calculate('{operator}', {one}, {two}, {kind.precision}, {kind.scale})"
    return Typed(sql, kind)


def _decimal_pair(left: Typed, right: Typed) -> tuple[Typed, Typed]:
    if DOUBLE in (left.kind, right.kind):
        return _as_double(left), _as_double(right)
    if left.kind.kind != "decimal":
        left = cast(left, decimal_of(left))
    if right.kind.kind != "decimal":
        right = cast(right, decimal_of(right))
    # The collation compares numbers of any scale.
    return left, right


def _as_double(value: Typed) -> Typed:
    return cast(value, DOUBLE) if value.kind.kind == "decimal" else value


def condition(value: Typed) -> str:
    """A condition of WHERE, ON, CASE and so on."""
    if value.kind not in (BOOLEAN, VOID):
        raise NotAnswerable(f"a condition is {value.kind}")
    return value.sql
