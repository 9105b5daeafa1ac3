"""JSON from strangers: bounded in depth, and nothing that JSON does not know."""

import json
import re

from headrace.registry import limits

# The closing quote is optional: otherwise a string without one makes the search quadratic, because
# every escaped quote in it is tried as the beginning of a string.
_MARKS = re.compile(r'"(?:[^"\\]|\\.)*+"?|[\[{]|[\]}]', re.DOTALL)


class BadJson(ValueError):
    """Text that is no JSON, or more deeply nested than is taken."""


def parse_json(text: str, most_parts: int | None = None) -> object:
    """The value of a JSON text, which may have so many objects and arrays."""
    if text.count("[") + text.count("{") > limits.JSON_DEPTH:
        _check_depth(text, len(text) if most_parts is None else most_parts)
    try:
        value: object = _DECODER.decode(text)
        if "\\ud" in text or "\\uD" in text:
            # Half of a surrogate pair is no character, and could be written nowhere.
            json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:
        raise BadJson("it is nested too deeply") from None
    except ValueError as error:
        raise BadJson(str(error).encode("ascii", "backslashreplace").decode()) from None
    return value


def _check_depth(text: str, most_parts: int) -> None:
    depth = parts = 0
    for found in _MARKS.finditer(text):
        mark = text[found.start()]
        if mark in "[{":
            depth += 1
            parts += 1
            if parts > most_parts:
                raise BadJson(f"it has more than {most_parts} objects and arrays")
            if depth > limits.JSON_DEPTH:
                raise BadJson(f"it is nested more than {limits.JSON_DEPTH} levels deep")
        elif mark in "]}":
            depth -= 1


def _refuse(word: str) -> object:
    raise ValueError(f"{word} is no JSON value")


# json.loads would make one for every call.
_DECODER = json.JSONDecoder(parse_constant=_refuse)
