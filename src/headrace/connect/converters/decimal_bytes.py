"""Decimals as Connect's bytes: the unscaled number, big-endian, in two's complement."""

from collections.abc import Callable

from pyspark.sql import Column
from pyspark.sql import functions as F

from headrace.connect.converters.connect_schema import MAX_PRECISION

_WIDE = f"decimal({MAX_PRECISION},0)"
_HEX_DIGITS = 32
"""Of 16 bytes: decimals of 38 digits need no more."""
_CHUNK = 8


def decimal_of_bytes(octets: Column, precision: int, scale: int) -> Column:
    """The decimal; null if the bytes are none or the number does not fit."""
    fits = F.length(octets).between(1, _HEX_DIGITS // 2)
    return F.when(
        fits,
        _bound(
            F.hex(octets),
            lambda digits: _bound(
                _number_of_hex(digits), lambda number: _scaled(number, precision, scale)
            ),
        ),
    )


def _bound(value: Column, use: Callable[[Column], Column]) -> Column:
    """`use` of a value that is computed once, however often it is used."""
    return F.transform(F.array(value), use)[0]


def _number_of_hex(digits: Column) -> Column:
    """The number in two's complement; null if it has more than 38 digits."""
    negative = F.substring(digits, 1, 1) >= F.lit("8")
    padded = F.when(negative, F.lpad(digits, _HEX_DIGITS, "F")).otherwise(
        F.lpad(digits, _HEX_DIGITS, "0")
    )
    chunks = [
        F.conv(F.substring(padded, at, _CHUNK), 16, 10).cast("bigint")
        for at in range(1, _HEX_DIGITS, _CHUNK)
    ]
    # The complement of a negative number is not negative: no step is larger than the result.
    chunks = [F.when(negative, F.lit((1 << 32) - 1) - chunk).otherwise(chunk) for chunk in chunks]
    magnitude = chunks[0].cast(_WIDE)
    for chunk in chunks[1:]:
        magnitude = F.try_add(
            F.try_multiply(magnitude, F.lit(1 << 32).cast("decimal(10,0)")).try_cast(_WIDE),
            chunk.cast("decimal(10,0)"),
        ).try_cast(_WIDE)
    complement = F.try_subtract(-magnitude, F.lit(1).cast("decimal(1,0)")).try_cast(_WIDE)
    return F.when(negative, complement).otherwise(magnitude)


def _scaled(unscaled: Column, precision: int, scale: int) -> Column:
    """The number divided by 10 to the power of `scale`, without a loss of digits."""
    if not scale:
        return unscaled.try_cast(f"decimal({precision},0)")
    digits = F.lpad(F.abs(unscaled).cast("string"), MAX_PRECISION + 1, "0")
    whole = MAX_PRECISION + 1 - scale
    text = F.concat(
        F.when(unscaled < 0, "-").otherwise(""),
        F.substring(digits, 1, whole),
        F.lit("."),
        F.substring(digits, whole + 1, scale),
    )
    return text.try_cast(f"decimal({precision},{scale})")


def bytes_of_decimal(number: Column) -> Column:
    """The fewest bytes that have the unscaled number."""
    text = number.cast("string")
    # Spark writes very small numbers as 1.5E-9 in some modes; the mantissa has all digits.
    digits = F.regexp_replace(F.regexp_replace(text, "E.*$", ""), "[.]", "")
    return _bound(digits.cast(_WIDE), _bytes_of_number)


def _bytes_of_number(unscaled: Column) -> Column:
    two_64 = F.lit(str(1 << 64)).cast("decimal(20,0)")
    low = F.pmod(unscaled, two_64).cast("decimal(20,0)")
    high = F.call_function("div", (unscaled - low).cast(_WIDE), two_64)
    signed_low = F.when(low >= F.lit(str(1 << 63)).cast("decimal(20,0)"), low - two_64)
    both = F.concat(
        F.lpad(F.hex(high), 16, "0"),
        F.lpad(F.hex(F.coalesce(signed_low, low).cast("bigint")), 16, "0"),
    )
    shortest = F.regexp_replace(both, "^(?:(?:00(?=[0-7]))+|(?:FF(?=[89A-F]))+)", "")
    return F.unhex(shortest)
