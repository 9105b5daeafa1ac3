"""Functions of arrays, maps and structs, which are JSON of stored values (`views/storage.py`)."""

import json
import re
from functools import lru_cache
from typing import Any

from headrace.sql.views.spark_sql.decimals import Unlike

_STEP = re.compile(r"\.([^.\[\]*]+)|\['([^']*)'\]|\[(\d+)\]")


def stored(value: Any) -> int | float | str | None:
    """A part of JSON as SQLite has it."""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, list | dict):
        return _text(value)
    found: int | float | str | None = value
    return found


def _text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def array_size(text: str) -> int:
    return len(json.loads(text))


def array_element(text: str, position: int) -> int | float | str | None:
    """Counted from 1, or with a minus from the end."""
    items = json.loads(text)
    if not position or abs(position) > len(items):
        raise Unlike("an index outside of an array")
    return stored(items[position - 1 if position > 0 else position])


def try_array_element(text: str, position: int) -> int | float | str | None:
    """Null outside of the array."""
    return array_element(text, position) if abs(position) <= array_size(text) else None


def map_value(text: str, key: Any) -> int | float | str | None:
    """The value of a key; null if there is none."""
    pairs = json.loads(text)
    if isinstance(pairs, dict):
        return stored(pairs.get(key))
    return stored(next((value for name, value in pairs if stored(name) == key), None))


def map_has_key(text: str, key: Any) -> int:
    pairs = json.loads(text)
    names = pairs if isinstance(pairs, dict) else [stored(name) for name, _ in pairs]
    return int(key in names)


def map_keys(text: str) -> str:
    pairs = json.loads(text)
    return _text(list(pairs) if isinstance(pairs, dict) else [name for name, _ in pairs])


def map_values(text: str) -> str:
    pairs = json.loads(text)
    values = pairs.values() if isinstance(pairs, dict) else [value for _, value in pairs]
    return _text(list(values))


def array_contains(text: str, wanted: Any) -> int | None:
    """Null if it is not there, but a null is."""
    items = [stored(each) for each in json.loads(text)]
    if wanted in items:
        return 1
    return None if None in items else 0


def array_join(text: str, separator: str) -> str:
    """Of strings; nulls are left out."""
    return separator.join(each for each in json.loads(text) if each is not None)


def json_path(text: str, path: str) -> str | None:
    """get_json_object: a part of any JSON text, as text; null if it is not there."""
    steps = _steps(path)
    try:
        found = json.loads(text)
    except ValueError:
        return None
    for step in steps:
        if isinstance(step, int):
            found = found[step] if isinstance(found, list) and step < len(found) else None
        else:
            found = found.get(step) if isinstance(found, dict) else None
    if found is None or isinstance(found, str):
        return found
    if isinstance(found, float | list | dict):
        raise Unlike("the text of a part of a JSON document")
    return _text(found)


@lru_cache(maxsize=256)
def _steps(path: str) -> tuple[str | int, ...]:
    if not path.startswith("$"):
        raise Unlike("a path of JSON")
    steps: list[str | int] = []
    at = 1
    while at < len(path):
        found = _STEP.match(path, at)
        if found is None:
            raise Unlike("a path of JSON")
        steps.append(int(found[3]) if found[3] else found[1] or found[2])
        at = found.end()
    return tuple(steps)


class CollectedList:
    """The aggregate collect_list, of values that are JSON already."""

    is_set = False

    def __init__(self) -> None:
        self._items: dict[str, None] | list[str] = {} if self.is_set else []

    def step(self, text: str | None) -> None:
        if text is None:
            return
        if isinstance(self._items, dict):
            self._items[text] = None
        else:
            self._items.append(text)

    def finalize(self) -> str:
        return f"[{','.join(self._items)}]"


class CollectedSet(CollectedList):
    """collect_set."""

    is_set = True
