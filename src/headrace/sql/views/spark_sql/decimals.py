"""Arithmetic of decimals, which SQLite does not have: functions over their texts."""

from decimal import ROUND_DOWN, ROUND_HALF_UP, Context, Decimal, DivisionByZero, InvalidOperation

from headrace.sql.records.types import ColumnType
from headrace.sql.records.values import fitting

ROUNDING = Context(prec=100, rounding=ROUND_HALF_UP, traps=[DivisionByZero, InvalidOperation])
_TOWARDS_ZERO = Context(prec=100, rounding=ROUND_DOWN)


class Unlike(ValueError):
    """A result that Spark refuses, or that only Spark knows: the query is Spark's."""


def fitted(number: Decimal, precision: int, scale: int) -> str:
    """The text of a number of this type; raises Unlike if it has too many digits."""
    found = fitting(number, ColumnType("decimal", precision, scale))
    if found is None:
        raise Unlike(f"{number} does not fit into decimal({precision},{scale})")
    return f"{found:f}"


def calculate(operator: str, left: str, right: str, precision: int, scale: int) -> str:
    """`left operator right` as this type."""
    a, b = Decimal(left), Decimal(right)
    if operator == "+":
        found = ROUNDING.add(a, b)
    elif operator == "-":
        found = ROUNDING.subtract(a, b)
    elif operator == "*":
        found = ROUNDING.multiply(a, b)
    elif not b:
        raise Unlike("division by zero")
    elif operator == "/":
        found = ROUNDING.divide(a, b)
    else:
        found = ROUNDING.remainder(a, b)
    return fitted(found, precision, scale)


def compare(left: str, right: str) -> int:
    """The order of two decimals, for SQLite's collation."""
    a, b = Decimal(left), Decimal(right)
    return (a > b) - (a < b)


def whole_part(number: str) -> int:
    """Without the digits after the point."""
    return int(Decimal(number).to_integral_value(context=_TOWARDS_ZERO))


class DecimalSum:
    """The aggregate sum(decimal), and with `is_average` avg(decimal)."""

    is_average = False

    def __init__(self) -> None:
        self._sum: Decimal | None = None
        self._count = 0
        self._type = (0, 0)

    def step(self, number: str | None, precision: int, scale: int) -> None:
        self._type = precision, scale
        if number is not None:
            self._sum = ROUNDING.add(self._sum or Decimal(0), Decimal(number))
            self._count += 1

    def finalize(self) -> str | None:
        if self._sum is None:
            return None
        found = ROUNDING.divide(self._sum, Decimal(self._count)) if self.is_average else self._sum
        return fitted(found, *self._type)


class DecimalAverage(DecimalSum):
    """avg(decimal)."""

    is_average = True
