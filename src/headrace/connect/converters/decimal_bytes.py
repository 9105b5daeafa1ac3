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
    complement = F.try_add(magnitude, F.lit(1).cast("decimal(1,0)")).try_cast(_WIDE)
    return F.when(negative, _negated(complement)).otherwise(magnitude)


def _negated(number: Column) -> Column:
    """The number with another sign. Spark's own minus and abs() keep only 34 digits."""
    return (F.lit(0).cast("decimal(1,0)") - number).cast(_WIDE)


def _scaled(unscaled: Column, precision: int, scale: int) -> Column:
    """The number divided by 10 to the power of `scale`, without a loss of digits."""
    if not scale:
        return unscaled.try_cast(f"decimal({precision},0)")
    digits = F.lpad(
        F.when(unscaled < 0, _negated(unscaled)).otherwise(unscaled).cast("string"),
        MAX_PRECISION + 1,
        "0",
    )
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
    negative = unscaled < 0
    # The complement of a negative number is not negative, and never too large.
    complement = _negated((unscaled + F.lit(1).cast("decimal(1,0)")).cast(_WIDE))
    return _bound(
        F.struct(
            negative.alias("negative"),
            F.when(negative, complement).otherwise(unscaled).alias("magnitude"),
        ),
        lambda number: _shortest(number["negative"], number["magnitude"]),
    )


def _shortest(negative: Column, magnitude: Column) -> Column:
    two_64 = F.lit(str(1 << 64)).cast("decimal(20,0)")
    low = F.pmod(magnitude, two_64).cast("decimal(20,0)")
    signed = F.when(low >= F.lit(str(1 << 63)).cast("decimal(20,0)"), low - two_64)
    halves = [
        F.call_function("div", magnitude, two_64),
        F.coalesce(signed, low).cast("bigint"),
    ]
    digits = F.concat(
        *(
            F.lpad(F.hex(F.when(negative, F.bitwise_not(half)).otherwise(half)), 16, "0")
            for half in halves
        )
    )
    return F.unhex(F.regexp_replace(digits, "^(?:(?:00(?=[0-7]))+|(?:FF(?=[89A-F]))+)", ""))
