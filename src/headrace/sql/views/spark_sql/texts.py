"""Functions of strings as Spark has them: characters are code points, and patterns Spark's."""

import hashlib
import re
import zlib
from functools import lru_cache

from headrace.sql.views.spark_sql.decimals import Unlike

LARGEST_TEXT = 10_000_000
"""Characters that a function makes at most; Spark makes larger ones."""
_SHA2 = {0: "sha256", 224: "sha224", 256: "sha256", 384: "sha384", 512: "sha512"}


def substring(text: str | bytes, position: int, length: int | None = None) -> str | bytes:
    """From a position, counted from 1, or with a minus from the end."""
    start = position - 1 if position > 0 else 0 if position == 0 else len(text) + position
    end = len(text) if length is None else start + length
    return text[max(start, 0) : max(end, 0)]


def left(text: str, count: int) -> str:
    return text[: max(count, 0)]


def right(text: str, count: int) -> str:
    return text[-count:] if count > 0 else ""


def locate(part: str, text: str, position: int = 1) -> int:
    """Where a part begins, counted from 1; 0 if it is not there."""
    return text.find(part, position - 1) + 1 if position > 0 else 0


def padded(text: str, length: int, filler: str, before: bool) -> str:
    if length > LARGEST_TEXT:
        raise Unlike("a very long text")
    if length <= len(text):
        return text[: max(length, 0)]
    if not filler:
        return text
    missing = length - len(text)
    padding = (filler * (missing // len(filler) + 1))[:missing]
    return padding + text if before else text + padding


def repeat(text: str, times: int) -> str:
    if len(text) * max(times, 0) > LARGEST_TEXT:
        raise Unlike("a very long text")
    return text * max(times, 0)


def replace(text: str, part: str, other: str = "") -> str:
    return text.replace(part, other) if part else text


def initcap(text: str) -> str:
    """Every word with an upper-case letter first."""
    return " ".join(word[:1].title() + word[1:].lower() for word in text.split(" "))


def trimmed(text: str, characters: str, sides: str) -> str:
    found = text.lstrip(characters) if "l" in sides else text
    return found.rstrip(characters) if "r" in sides else found


def concat_ws(separator: str | None, *parts: str | None) -> str | None:
    """Nulls are left out."""
    if separator is None:
        return None
    return separator.join(part for part in parts if part is not None)


def like(text: str, pattern: str, escape: str) -> int:
    return int(_like_expression(pattern, escape).fullmatch(text) is not None)


def ilike(text: str, pattern: str, escape: str) -> int:
    return like(text.lower(), pattern.lower(), escape)


@lru_cache(maxsize=256)
def _like_expression(pattern: str, escape: str) -> re.Pattern[str]:
    """Several `%` in a row are one, so that no text takes long."""
    parts: list[str | None] = []
    at = 0
    while at < len(pattern):
        sign = pattern[at]
        at += 1
        if sign == escape:
            if at == len(pattern) or pattern[at] not in ("%", "_", escape):
                raise Unlike("an invalid pattern of LIKE")
            parts.append(re.escape(pattern[at]))
            at += 1
        elif sign == "%":
            parts.append(None)
        else:
            parts.append("." if sign == "_" else re.escape(sign))
    return re.compile(_linear(parts), re.DOTALL)


def _linear(parts: list[str | None]) -> str:
    """Each `%`, which is a None here, matches as little as possible, and is not tried again: the
    time is linear."""
    runs: list[list[str]] = [[]]
    for part in parts:
        if part is None:
            runs.append([])
        else:
            runs[-1].append(part)
    first, *others = ["".join(run) for run in runs]
    if not others:
        return first
    *middle, last = others
    lazily = "".join(f"(?>.*?{run})" for run in middle if run)
    return f"{first}{lazily}.*{last}"


def digest(name: str, octets: str | bytes) -> str:
    return hashlib.new(name, _octets(octets), usedforsecurity=False).hexdigest()


def sha2(octets: str | bytes, bits: int) -> str | None:
    name = _SHA2.get(bits)
    return None if name is None else digest(name, octets)


def crc32(octets: str | bytes) -> int:
    return zlib.crc32(_octets(octets))


def hexadecimal(value: int | str | bytes) -> str:
    if isinstance(value, int):
        return f"{value & (1 << 64) - 1:X}"
    return _octets(value).hex().upper()


def _octets(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value
