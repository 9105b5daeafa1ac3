"""Parses JSON from untrusted sources, with limits on nesting and on the number of containers.

Stricter than `json.loads`: NaN, infinities and unpaired surrogates are rejected.
"""

import json
import re

DEPTH = 128
"""Nesting of objects and arrays; the parsers of schemas recurse."""

# The closing quote is optional: otherwise a string without one makes the search quadratic, because
# every escaped quote in it is tried as the beginning of a string.
_MARKS = re.compile(r'"(?:[^"\\]|\\.)*+"?|[\[{]|[\]}]', re.DOTALL)


class BadJson(ValueError):
    """The text is not JSON or exceeds a limit."""


def parse_json(text: str, most_containers: int | None = None) -> object:
    """The value of a JSON text with at most this many objects and arrays; raises BadJson."""
    if text.count("[") + text.count("{") > DEPTH:
        _check_depth(text, len(text) if most_containers is None else most_containers)
    try:
        value: object = _DECODER.decode(text)
        if "\\ud" in text or "\\uD" in text:
            # An unpaired surrogate cannot be encoded as UTF-8.
            json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:
        raise BadJson("it is nested too deeply") from None
    except ValueError as error:
        raise BadJson(str(error).encode("ascii", "backslashreplace").decode()) from None
    return value


def _check_depth(text: str, most_containers: int) -> None:
    depth = containers = 0
    for found in _MARKS.finditer(text):
        mark = text[found.start()]
        if mark in "[{":
            depth += 1
            containers += 1
            if containers > most_containers:
                raise BadJson(f"it has more than {most_containers} objects and arrays")
            if depth > DEPTH:
                raise BadJson(f"it is nested more than {DEPTH} levels deep")
        elif mark in "]}":
            depth -= 1


def _reject(word: str) -> object:
    raise ValueError(f"{word} is not a JSON value")


# json.loads would create a decoder for every call.
_DECODER = json.JSONDecoder(parse_constant=_reject)
