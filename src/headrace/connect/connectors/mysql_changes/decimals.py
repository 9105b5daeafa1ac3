"""Decodes decimals of the binary log.

Digits before and after the point are in groups of nine, big-endian, each in four bytes; the first
and the last group may be shorter. The first bit is inverted; in a negative number all others are.
"""

from collections.abc import Callable
from decimal import Decimal
from typing import TypeAlias

Decoder: TypeAlias = Callable[[bytes, int], tuple[object, int]]
"""Takes the bytes of an event and a place, and returns the value and the place behind it."""

_DIGIT_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)


def decimal_decoder(precision: int, scale: int) -> Decoder:
    whole = precision - scale
    sizes = [whole % 9, *[9] * (whole // 9), *[9] * (scale // 9), scale % 9]
    groups = [(digits, _DIGIT_BYTES[digits]) for digits in sizes if digits]
    size = sum(length for _, length in groups)

    def decode(data: bytes, place: int) -> tuple[object, int]:
        number = int.from_bytes(data[place : place + size], "big") ^ 1 << 8 * size - 1
        negative = number >> 8 * size - 1
        if negative:
            number ^= (1 << 8 * size) - 1
        raw = number.to_bytes(size, "big")
        text, at = "", 0
        for digits, length in groups:
            part = int.from_bytes(raw[at : at + length], "big")
            text += str(part).zfill(digits)
            at += length
        whole_digits, rest = text[: len(text) - scale], text[len(text) - scale :]
        sign = "-" if negative else ""
        return Decimal(f"{sign}{whole_digits or 0}.{rest}"), place + size

    return decode
