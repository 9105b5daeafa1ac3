"""Masks: fields of records that never leave the server, in no list, search or download.

A mask is applied to the bytes before anything else looks at them. A masked value with a schema is
decoded first; a masked value that is not JSON is hidden as a whole, because its fields cannot be
found. Numbers that stay keep all their digits: the text is cut, not parsed and written again.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from headrace.errors import SettingError
from headrace.wire.records import Record

MASKED = '"***"'
MASKED_BYTES = b"***"
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null")
_SPACE = re.compile(r"[ \t\r\n]*")
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*+"')
MOST_DEPTH = 100


@dataclass(frozen=True, slots=True)
class Mask:
    """One field, of topics that match a pattern."""

    topics: str
    root: str
    path: tuple[str, ...]


def parse_masks(texts: Sequence[str]) -> "Masks":
    """The masks of the setting `console.masks`; raises SettingError."""
    found: list[Mask] = []
    for text in texts:
        topics, colon, path = text.partition(":")
        root, *steps = path.split(".")
        named = root in ("key", "value") or (root == "headers" and steps)
        if not colon or not topics or not named or not all(steps):
            raise SettingError(
                f"console.masks: {text!r} is not of the form TOPIC:value.FIELD or "
                "TOPIC:headers.NAME"
            )
        found.append(Mask(topics, root, tuple(steps)))
    return Masks(tuple(found))


@dataclass(frozen=True, slots=True)
class Masks:
    """All masks of a console."""

    masks: tuple[Mask, ...] = ()

    def of(self, topic: str) -> "TopicMasks | None":
        """The masks of a topic; None if it has none."""
        found = tuple(each for each in self.masks if fnmatchcase(topic, each.topics))
        return TopicMasks(found) if found else None

    def texts(self) -> list[str]:
        """The masks as the setting has them."""
        return [f"{each.topics}:{'.'.join((each.root, *each.path))}" for each in self.masks]


NO_MASKS = Masks()


@dataclass(frozen=True, slots=True)
class TopicMasks:
    """The masks of one topic."""

    masks: tuple[Mask, ...]

    def hides(self, root: str) -> bool:
        """Whether any field of the key or value is masked."""
        return any(each.root == root for each in self.masks)

    def apply(self, record: Record, decoded: dict[str, bytes | None]) -> Record:
        """The record without its masked fields. `decoded` has the JSON texts of keys and values
        that have a schema."""
        headers = {".".join(each.path) for each in self.masks if each.root == "headers"}
        return record._replace(
            key=self._masked("key", record.key, decoded.get("key")),
            value=self._masked("value", record.value, decoded.get("value")),
            headers=tuple(
                (name, MASKED_BYTES if name in headers and value is not None else value)
                for name, value in record.headers
            ),
        )

    def _masked(self, root: str, data: bytes | None, decoded: bytes | None) -> bytes | None:
        paths = [each.path for each in self.masks if each.root == root]
        if data is None or not paths:
            return data
        if () in paths:
            return MASKED_BYTES
        try:
            text = (data if decoded is None else decoded).decode()
            return masked_json(text, paths).encode()
        except (ValueError, RecursionError):
            return MASKED_BYTES


def masked_json(text: str, paths: Sequence[tuple[str, ...]]) -> str:
    """A JSON text whose values at these paths are replaced; arrays do not count as a step."""
    scanner = _Scanner(text, frozenset(paths))
    end = scanner.value(_skip(text, 0), (), 0)
    if _skip(text, end) != len(text):
        raise ValueError("text follows the JSON value")
    pieces: list[str] = []
    last = 0
    for start, stop in scanner.spans:
        pieces += [text[last:start], MASKED]
        last = stop
    return "".join((*pieces, text[last:]))


class _Scanner:
    """Finds where the values of masked paths begin and end."""

    def __init__(self, text: str, paths: frozenset[tuple[str, ...]]) -> None:
        self._text = text
        self._paths = paths
        self.spans: list[tuple[int, int]] = []

    def value(self, at: int, path: tuple[str, ...], depth: int) -> int:
        """The position after the value at `at`; raises ValueError if there is none."""
        if depth > MOST_DEPTH:
            raise ValueError("nested too deeply")
        if path in self._paths:
            # What is inside is skipped without looking for further paths.
            end = _Scanner(self._text, frozenset()).value(at, (), depth)
            self.spans.append((at, end))
            return end
        first = self._text[at : at + 1]
        if first == "{":
            return self._object(at + 1, path, depth)
        if first == "[":
            return self._array(at + 1, path, depth)
        if first == '"':
            return self._string(at)[1]
        found = _NUMBER.match(self._text, at)
        if found is None:
            raise ValueError("not JSON")
        return found.end()

    def _object(self, at: int, path: tuple[str, ...], depth: int) -> int:
        at = _skip(self._text, at)
        if self._text[at : at + 1] == "}":
            return at + 1
        while True:
            if self._text[at : at + 1] != '"':
                raise ValueError("a name is expected")
            name, at = self._string(at)
            at = _skip(self._text, at)
            if self._text[at : at + 1] != ":":
                raise ValueError("a colon is expected")
            at = self.value(_skip(self._text, at + 1), (*path, name), depth + 1)
            at, ended = self._next(at, "}")
            if ended:
                return at

    def _string(self, at: int) -> tuple[str, int]:
        found = _STRING.match(self._text, at)
        if found is None:
            raise ValueError("a string does not end")
        return str(json.loads(found[0])), found.end()

    def _array(self, at: int, path: tuple[str, ...], depth: int) -> int:
        at = _skip(self._text, at)
        if self._text[at : at + 1] == "]":
            return at + 1
        while True:
            at = self.value(at, path, depth + 1)
            at, ended = self._next(at, "]")
            if ended:
                return at

    def _next(self, at: int, end: str) -> tuple[int, bool]:
        at = _skip(self._text, at)
        sign = self._text[at : at + 1]
        if sign == end:
            return at + 1, True
        if sign != ",":
            raise ValueError("a comma is expected")
        return _skip(self._text, at + 1), False


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    assert found is not None
    return found.end()
