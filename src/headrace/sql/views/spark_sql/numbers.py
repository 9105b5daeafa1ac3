"""Functions of numbers as Spark and Java have them; NaN is a text in SQLite."""

import math
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation

from headrace.sql.records.java_numbers import double_text, float_text, to_float
from headrace.sql.records.types import INTEGERS
from headrace.sql.records.values import DIGITS
from headrace.sql.views.spark_sql.decimals import Unlike

NAN = "NaN"
_LARGEST = 1 << 63
Number = int | float


def square_root(number: Number) -> float | str:
    return math.sqrt(number) if number >= 0 else NAN


def rounded(number: float, digits: int) -> float:
    """Half up, of the digits that are shown."""
    if not math.isfinite(number):
        return number
    return float(Decimal(repr(number)).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP, DIGITS))


def rounded_integer(number: int, digits: int) -> int:
    """To tens, hundreds and so on with a negative number of digits."""
    if digits >= 0:
        return number
    step: int = 10**-digits
    magnitude = (abs(number) + step // 2) // step * step
    return -magnitude if number < 0 else magnitude


def whole(number: float, up: bool) -> int:
    """ceil and floor as a bigint."""
    if not math.isfinite(number):
        raise Unlike("no integer")
    found = math.ceil(number) if up else math.floor(number)
    return max(-_LARGEST, min(_LARGEST - 1, found))


def remainder(number: Number, divisor: Number) -> Number | str:
    """With the sign of the first, as Java's %."""
    if divisor == 0:
        raise Unlike("division by zero")
    if isinstance(number, int) and isinstance(divisor, int):
        found = abs(number) % abs(divisor)
        return -found if number < 0 else found
    if not math.isfinite(number):
        return NAN
    return math.fmod(number, divisor)


def positive_remainder(number: Number, divisor: Number) -> Number | str:
    found = remainder(number, divisor)
    if isinstance(found, str) or found >= 0:
        return found
    return remainder(found + divisor, divisor)


def to_integer(value: float | str, kind: str) -> int:
    """CAST of a number or a text; raises Unlike if it does not fit."""
    limit = 1 << (8 * INTEGERS[kind] - 1)
    if isinstance(value, str):
        found = _integer_of_text(value)
    elif not math.isfinite(value):
        raise Unlike("no integer")
    else:
        found = math.trunc(value)
    if not -limit <= found < limit:
        raise Unlike(f"{found} is no {kind}")
    return found


def _integer_of_text(text: str) -> int:
    stripped = text.strip()
    digits = stripped[1:] if stripped[:1] in ("+", "-") else stripped
    if not digits.isascii() or not digits.isdecimal():
        raise Unlike(f"{text!r} is no integer")
    return int(stripped)


def to_double(text: str) -> float | str:
    """CAST of a text; raises Unlike if it is no number."""
    if "_" in text:
        raise Unlike(f"{text!r} is no number")
    try:
        found = float(text)
    except ValueError:
        raise Unlike(f"{text!r} is no number") from None
    return NAN if math.isnan(found) else found


def decimal_of_text(text: str) -> Decimal:
    """CAST of a text; raises Unlike if it is no number."""
    try:
        found = Decimal(text.strip())
    except InvalidOperation:
        found = Decimal("NaN")
    if not found.is_finite() or "_" in text:
        raise Unlike(f"{text!r} is no number")
    return found


def double_as_text(number: float | str) -> str:
    return number if isinstance(number, str) else double_text(number)


def float_as_text(number: float | str) -> str:
    return number if isinstance(number, str) else float_text(number)


def narrowed(number: float | str) -> float | str:
    """A double as a float."""
    return number if isinstance(number, str) else to_float(number)
