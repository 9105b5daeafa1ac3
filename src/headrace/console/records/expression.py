"""The expressions of a search: parsed, never executed as code, and evaluated in linear time.

    value.amount > 100 and headers.source == "web"
    key contains "alice" or not value.items[0].id exists
    "a text" anywhere in key, value or headers

Grammar:

    expression = and-part { "or" and-part }
    and-part   = not-part { "and" not-part }
    not-part   = "not" not-part | "(" expression ")" | comparison
    comparison = operand [ operator operand | "exists" ]
    operator   = "==" | "!=" | "<" | "<=" | ">" | ">=" | "contains" | "startswith" | "endswith"
    operand    = path | text | number | "true" | "false" | "null"
    path       = ("key" | "value" | "headers" | "partition" | "offset" | "timestamp") { step }
    step       = "." name | "[" number "]" | "[" text "]"
"""

import json
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from headrace.wire.records import Record

MOST_CHARACTERS = 2_000
MOST_DEPTH = 50

_TOKEN = re.compile(
    r"""\s*(?:(?P<text>"(?:[^"\\]|\\.)*")
    |(?P<number>-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)
    |(?P<name>[A-Za-z_][\w-]*)
    |(?P<sign>==|!=|<=|>=|[=<>().\[\]]))""",
    re.VERBOSE,
)

_ORDER: Mapping[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_TEXTS: Mapping[str, Callable[[str, str], bool]] = {
    "contains": lambda text, part: part in text,
    "startswith": str.startswith,
    "endswith": str.endswith,
}
_DECODED = ("key", "value")
_ROOTS = (*_DECODED, "headers", "partition", "offset", "timestamp")
_SPECIAL_NUMBERS = ("NaN", "Infinity")
_DECODER = json.JSONDecoder()
_CONSTANTS: Mapping[str, object] = {"true": True, "false": False, "null": None}


class BadExpression(ValueError):
    """The expression cannot be parsed; the message tells where."""


class MissingField:
    """A path that a record does not have."""


MISSING = MissingField()


class SearchedRecord:
    """A record that is searched. Texts are decoded and parsed when an expression needs them."""

    __slots__ = ("_parsed", "_record", "_text", "_texts", "partition")

    def __init__(
        self, record: Record, partition: int, text: Callable[[bytes | None], str | None]
    ) -> None:
        """`text` decodes a key, a value or the value of a header."""
        self._record = record
        self.partition = partition
        self._text = text
        self._texts: dict[str, str | None] | None = None
        self._parsed: dict[str, object] | None = None

    def fixed(self, root: str) -> int:
        """The partition, the offset or the timestamp."""
        if root == "partition":
            return self.partition
        return self._record.offset if root == "offset" else self._record.timestamp

    def headers(self) -> Mapping[str, str | None]:
        return {name: self._text(value) for name, value in self._record.headers}

    def text(self, root: str) -> str | None:
        """The key or the value as a text; None if there is none."""
        if self._texts is None:
            self._texts = {}
        elif root in self._texts:
            return self._texts[root]
        found = self._text(self._record.key if root == "key" else self._record.value)
        self._texts[root] = found
        return found

    def parsed(self, root: str) -> object:
        """The key or the value as JSON; MISSING if it is not JSON."""
        if self._parsed is None:
            self._parsed = {}
        elif root in self._parsed:
            return self._parsed[root]
        text = self.text(root)
        found = MISSING if text is None else _parse(text)
        self._parsed[root] = found
        return found


def _parse(text: str) -> object:
    """The value of a JSON text; MISSING if it is none."""
    try:
        found: object
        if text[:1].isspace() or text[-1:].isspace():
            found = json.loads(text)
        else:
            # `json.loads` looks for white space around the value, which takes time.
            found, end = _DECODER.raw_decode(text)
            found = found if end == len(text) else MISSING
    except (ValueError, RecursionError):
        return MISSING
    return found


class Condition(Protocol):
    """A part of an expression."""

    def matches(self, subject: SearchedRecord) -> bool: ...

    def literal(self) -> str | None:
        """A text that every matching record contains; None if there is none."""


@dataclass(frozen=True, slots=True)
class AnyOf:
    parts: tuple[Condition, ...]

    def matches(self, subject: SearchedRecord) -> bool:
        return any(part.matches(subject) for part in self.parts)

    def literal(self) -> str | None:
        return None


@dataclass(frozen=True, slots=True)
class AllOf:
    parts: tuple[Condition, ...]

    def matches(self, subject: SearchedRecord) -> bool:
        return all(part.matches(subject) for part in self.parts)

    def literal(self) -> str | None:
        found = [text for part in self.parts if (text := part.literal())]
        return max(found, key=len, default=None)


@dataclass(frozen=True, slots=True)
class Negation:
    part: Condition

    def matches(self, subject: SearchedRecord) -> bool:
        return not self.part.matches(subject)

    def literal(self) -> str | None:
        return None


@dataclass(frozen=True, slots=True)
class Anywhere:
    """A text in the key, the value or a header."""

    wanted: str
    ignore_case: bool = False

    def matches(self, subject: SearchedRecord) -> bool:
        wanted = self.wanted.casefold() if self.ignore_case else self.wanted
        texts = [subject.text("key"), subject.text("value")]
        texts += [part for pair in subject.headers().items() for part in pair]
        return any(
            wanted in (text.casefold() if self.ignore_case else text)
            for text in texts
            if text is not None
        )

    def literal(self) -> str | None:
        return None if self.ignore_case else self.wanted


@dataclass(frozen=True, slots=True)
class RecordPath:
    """A part of a record."""

    root: str
    steps: tuple[str | int, ...]

    def of(self, subject: SearchedRecord) -> object:
        if self.root not in _DECODED:
            if self.root != "headers":
                return subject.fixed(self.root)
            headers = subject.headers()
            name = ".".join(map(str, self.steps))
            return headers.get(name, MISSING) if self.steps else MISSING
        if not self.steps:
            return subject.text(self.root)
        found = subject.parsed(self.root)
        for step in self.steps:
            if isinstance(step, str) and isinstance(found, dict):
                found = found.get(step, MISSING)
            elif isinstance(step, int) and isinstance(found, list):
                found = found[step] if -len(found) <= step < len(found) else MISSING
            else:
                return MISSING
        return found


@dataclass(frozen=True, slots=True)
class FieldExists:
    path: RecordPath

    def matches(self, subject: SearchedRecord) -> bool:
        found = self.path.of(subject)
        return found is not MISSING and found is not None

    def literal(self) -> str | None:
        return None


@dataclass(frozen=True, slots=True)
class FieldComparison:
    left: RecordPath
    sign: str
    right: object

    def matches(self, subject: SearchedRecord) -> bool:
        found = self.left.of(subject)
        if self.sign in ("==", "!="):
            same = found is not MISSING and _equal(found, self.right)
            return same if self.sign == "==" else not same
        if self.sign in _TEXTS:
            text = found if isinstance(found, str) else None
            if text is None and found is not MISSING and found is not None:
                text = json.dumps(found, ensure_ascii=False)
            return text is not None and _TEXTS[self.sign](text, str(self.right))
        if _is_number(found) and _is_number(self.right):
            return _ORDER[self.sign](found, self.right)
        if isinstance(found, str) and isinstance(self.right, str):
            return _ORDER[self.sign](found, self.right)
        return False

    def literal(self) -> str | None:
        if not isinstance(self.right, str) or self.left.root not in _DECODED:
            return None
        if self.sign == "==" or (self.sign in _TEXTS and not self.left.steps):
            return self.right
        # A number, list or object is compared as JSON of our own: 1e2 as 100.0, [1,2] as [1, 2].
        if self.sign in _TEXTS and self.right.isalpha():
            return None if any(self.right in each for each in _SPECIAL_NUMBERS) else self.right
        return None


def _equal(found: object, wanted: object) -> bool:
    if isinstance(found, bool) or isinstance(wanted, bool):
        return found is wanted
    if isinstance(found, str) and _is_number(wanted):
        # A key such as 17 is a text.
        return found == str(wanted)
    return found == wanted


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens = _tokens(text)
        self._at = 0
        self._depth = 0

    def whole(self) -> Condition:
        found = self._either()
        if self._at < len(self._tokens):
            raise BadExpression(f"'and' or 'or' is expected before {self._shown()}")
        return found

    def _either(self) -> Condition:
        self._depth += 1
        if self._depth > MOST_DEPTH:
            raise BadExpression("the expression is nested too deeply")
        parts = [self._both()]
        while self._take_name("or"):
            parts.append(self._both())
        self._depth -= 1
        return parts[0] if len(parts) == 1 else AnyOf(tuple(parts))

    def _both(self) -> Condition:
        parts = [self._not()]
        while self._take_name("and"):
            parts.append(self._not())
        return parts[0] if len(parts) == 1 else AllOf(tuple(parts))

    def _not(self) -> Condition:
        negations = 0
        while self._take_name("not"):
            negations += 1
        found = self._group() if self._take("sign", "(") else self._comparison()
        return Negation(found) if negations % 2 else found

    def _group(self) -> Condition:
        found = self._either()
        if not self._take("sign", ")"):
            raise BadExpression(f"')' is expected before {self._shown()}")
        return found

    def _comparison(self) -> Condition:
        kind, token = self._peek()
        if kind == "text":
            self._at += 1
            return Anywhere(_unquoted(token))
        if kind != "name" or token not in _ROOTS:
            raise BadExpression(
                f"{', '.join(_ROOTS)} or a text in double quotes is expected before {self._shown()}"
            )
        path = self._path()
        if self._take_name("exists"):
            return FieldExists(path)
        sign = self._operator()
        return FieldComparison(path, sign, self._constant())

    def _path(self) -> RecordPath:
        root = self._next()[1]
        steps: list[str | int] = []
        while True:
            if self._take("sign", "."):
                kind, token = self._next()
                if kind not in ("name", "number"):
                    raise BadExpression(f"a name is expected after '.', not {token!r}")
                steps.append(token)
            elif self._take("sign", "["):
                kind, token = self._next()
                if kind == "text":
                    steps.append(_unquoted(token))
                elif kind == "number" and token.removeprefix("-").isdecimal():
                    steps.append(int(token))
                else:
                    raise BadExpression(f"a number or a text is expected after '[', not {token!r}")
                if not self._take("sign", "]"):
                    raise BadExpression(f"']' is expected before {self._shown()}")
            else:
                return RecordPath(root, tuple(steps))

    def _operator(self) -> str:
        kind, token = self._peek()
        if kind == "sign" and token in ("=", "==", "!=", *_ORDER):
            self._at += 1
            return "==" if token == "=" else token
        if kind == "name" and token in _TEXTS:
            self._at += 1
            return token
        raise BadExpression(
            f"one of ==, !=, <, <=, >, >=, {', '.join(_TEXTS)}, exists is expected before "
            f"{self._shown()}"
        )

    def _constant(self) -> object:
        kind, token = self._next()
        if kind == "text":
            return _unquoted(token)
        if kind == "number":
            found: object = json.loads(token)
            return found
        if kind == "name" and token in _CONSTANTS:
            return _CONSTANTS[token]
        raise BadExpression(f"a text in double quotes or a number is expected, not {token!r}")

    def _peek(self) -> tuple[str, str]:
        return self._tokens[self._at] if self._at < len(self._tokens) else ("", "")

    def _next(self) -> tuple[str, str]:
        found = self._peek()
        if not found[0]:
            raise BadExpression("the expression ends too early")
        self._at += 1
        return found

    def _take(self, kind: str, token: str) -> bool:
        if self._peek() != (kind, token):
            return False
        self._at += 1
        return True

    def _take_name(self, name: str) -> bool:
        return self._take("name", name)

    def _shown(self) -> str:
        token = self._peek()[1]
        return repr(token) if token else "the end"


def parse_expression(text: str) -> Condition:
    """The expression; raises BadExpression."""
    if len(text) > MOST_CHARACTERS:
        raise BadExpression(f"the expression has more than {MOST_CHARACTERS} characters")
    return _Parser(text).whole()


def _tokens(text: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    at = 0
    text = text.rstrip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise BadExpression(
                f"character {at + 1}: {text[at : at + 20].strip()!r} is not understood"
            )
        assert match.lastgroup is not None
        found.append((match.lastgroup, match[match.lastgroup]))
        at = match.end()
    return found


def _unquoted(token: str) -> str:
    try:
        return str(json.loads(token))
    except ValueError:
        raise BadExpression(f"{token} is not a text: a backslash must be doubled") from None
