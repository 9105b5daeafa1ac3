"""JSON from strangers: bounded in depth, and nothing that JSON does not know."""

import json
import re

from headrace.registry import limits

_MARKS = re.compile(r'"(?:[^"\\]|\\.)*+"|[\[{]|[\]}]', re.DOTALL)


class BadJson(ValueError):
    """Text that is no JSON, or more deeply nested than is taken."""


def parse_json(text: str) -> object:
    """The value of a JSON text."""
    if text.count("[") + text.count("{") > limits.JSON_DEPTH:
        _check_depth(text)
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


def _check_depth(text: str) -> None:
    depth = 0
    for found in _MARKS.finditer(text):
        mark = text[found.start()]
        if mark in "[{":
            depth += 1
            if depth > limits.JSON_DEPTH:
                raise BadJson(f"it is nested more than {limits.JSON_DEPTH} levels deep")
        elif mark in "]}":
            depth -= 1


def _refuse(word: str) -> object:
    raise ValueError(f"{word} is no JSON value")


# json.loads would make one for every call.
_DECODER = json.JSONDecoder(parse_constant=_refuse)
