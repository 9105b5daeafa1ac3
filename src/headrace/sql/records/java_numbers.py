"""Floating-point numbers as Java writes them, and Spark and Jackson with it."""

import math
import struct
from decimal import Decimal

_FLOAT = struct.Struct("<f")
_FLOAT_DIGITS = range(1, 10)


def to_float(number: float) -> float:
    """The nearest number of 32 bits."""
    try:
        nearest: float = _FLOAT.unpack(_FLOAT.pack(number))[0]
    except OverflowError:
        return math.copysign(math.inf, number)
    return nearest


def double_text(number: float) -> str:
    """As Double.toString: 1.0E10 from ten million on, and below a thousandth."""
    return _text(number, repr(number))


def float_text(number: float) -> str:
    """As Float.toString: the fewest digits that tell it from its neighbours of 32 bits."""
    if not math.isfinite(number):
        return _text(number, "")
    shortest = next(
        text
        for digits in _FLOAT_DIGITS
        if to_float(float(text := f"{number:.{digits}g}")) == number
    )
    return _text(number, repr(float(shortest)))


def _text(number: float, shortest: str) -> str:
    if not math.isfinite(number):
        return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"
    if number == 0 or 1e-3 <= abs(number) < 1e7:
        return shortest
    sign, digits, exponent = Decimal(shortest).normalize().as_tuple()
    first, *rest = map(str, digits)
    power = int(exponent) + len(rest)
    return f"{'-' if sign else ''}{first}.{''.join(rest) or '0'}E{power}"
