"""Texts of JSON as Jackson writes them."""

import json.encoder
import math
import re
from decimal import Decimal

from headrace.sql.records.java_numbers import double_text

_ESCAPE = re.compile(r"\\(?:u[0-9a-f]{4}|.)")
_quote = json.encoder.encode_basestring


def quoted(text: str) -> str:
    """A string; Jackson writes the letters of escapes in upper case."""
    found: str = _quote(text)
    if "\\u" in found:
        return _ESCAPE.sub(_upper, found)
    return found


def _upper(escape: re.Match[str]) -> str:
    found = escape[0]
    return f"\\u{found[2:].upper()}" if found.startswith("\\u") else found


def any_text(value: object) -> str:
    """A value of JSON without spaces, with numbers as doubles of Java."""
    if isinstance(value, str):
        return quoted(value)
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, float | Decimal):
        number = float(value)
        return double_text(number) if math.isfinite(number) else f'"{double_text(number)}"'
    if isinstance(value, dict):
        pairs = (f"{quoted(str(name))}:{any_text(each)}" for name, each in value.items())
        return f"{{{','.join(pairs)}}}"
    if isinstance(value, list):
        return f"[{','.join(map(any_text, value))}]"
    return str(value)
