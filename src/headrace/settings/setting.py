"""One row of the settings table: its type, its check, and the conversion of its text.

The rows are in the modules `*_table.py`. They are
named tuples because each start of a broker creates some hundreds of them.
"""

import math
import re
from collections.abc import Callable
from enum import IntEnum
from functools import cache
from typing import Literal, NamedTuple, Protocol, TypeAlias

from headrace.errors import SettingError

Value: TypeAlias = bool | int | float | str | tuple[str, ...] | None

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1


class Type(IntEnum):
    """Kafka's types of settings, by the numbers in DescribeConfigs."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


WHOLE_NUMBER_BITS = {Type.SHORT: 16, Type.INT: 32, Type.LONG: 64}


class Check(NamedTuple):
    """A condition on a value beyond its type; `expected` completes "expected ..."."""

    expected: str
    accepts: Callable[[Value], bool]
    empty_words: bool = False
    """Whether a list may have empty words, as in `0:1,,0:2`."""


class Synonym(NamedTuple):
    """A setting whose value, times `factor`, is used if another one is not given."""

    name: str
    factor: int = 1


class Setting(NamedTuple):
    """A setting: its name, type, default, check and documentation.

    A value of None means "not given": the first of `synonyms` that has a value is used.
    `inert` rows are accepted and have no effect.
    """

    name: str
    type: Type
    default: Value
    doc: str
    check: Check | None = None
    scope: Literal["broker", "topic", "group", "client-metrics", "service"] = "broker"
    live: bool = False
    synonyms: tuple[Synonym, ...] = ()
    kafka_default: str | None = None
    """Kafka's own default as text, where ours differs."""
    inert: bool = False

    @property
    def synonym(self) -> str | None:
        """The first synonym of this setting, if it has any."""
        return self.synonyms[0].name if self.synonyms else None

    @property
    def secret(self) -> bool:
        """Whether the value must never be shown."""
        return self.type is Type.PASSWORD

    @property
    def expected(self) -> str:
        """The allowed values, for the documentation."""
        return self.check.expected if self.check else EXPECTED[self.type]


class SettingValues(Protocol):
    """The values of a table of settings: a broker's or a service's."""

    def text(self, name: str, /) -> str:
        """The value of a text setting; empty if there is none."""

    def integer(self, name: str, /) -> int:
        """The value of a whole-number setting."""

    def boolean(self, name: str, /) -> bool:
        """The value of a yes-or-no setting."""

    def words(self, name: str, /) -> tuple[str, ...]:
        """The value of a list setting."""


EXPECTED = {
    Type.BOOLEAN: "true or false",
    Type.STRING: "text",
    Type.INT: "a whole number of 32 bits",
    Type.SHORT: "a whole number of 16 bits",
    Type.LONG: "a whole number of 64 bits",
    Type.DOUBLE: "a number",
    Type.LIST: "words separated by commas",
    Type.CLASS: "a name",
    Type.PASSWORD: "a secret",
}


def parse_value(setting: Setting, text: str) -> Value:
    """The value of a text, checked; SettingError has the expected values."""
    value = _convert(setting, text.strip())
    if setting.check is not None and not setting.check.accepts(value):
        raise refusal(setting, text, setting.check.expected)
    return value


def check_words(setting: Setting, text: str) -> None:
    """SettingError if a new value is a list with an empty word.

    Kafka accepts such lists before 4.3, so stored values may have them: `parse_value` skips the
    empty words.
    """
    allowed = setting.check is not None and setting.check.empty_words
    if setting.type is not Type.LIST or allowed or not text.strip():
        return
    if not all(word.strip() for word in text.split(",")):
        raise refusal(setting, text, "no empty words between the commas")


def format_value(value: Value) -> str | None:
    """The text that `parse_value` would read back as `value`, as Kafka writes it."""
    match value:
        case None:
            return None
        case bool():
            return "true" if value else "false"
        case tuple():
            return ",".join(value)
        case _:
            return str(value)


def refusal(setting: Setting, text: str, expected: str) -> SettingError:
    """The error for a value that `setting` cannot take."""
    shown = "[hidden]" if setting.secret else text
    default = format_value(setting.default)
    hint = f" (default: {default})" if default else ""
    return SettingError(f"{setting.name}={shown}: expected {expected}{hint}")


def _convert(setting: Setting, text: str) -> Value:
    match setting.type:
        case Type.BOOLEAN:
            lowered = text.lower()
            if lowered in ("true", "false"):
                return lowered == "true"
        case Type.INT | Type.SHORT | Type.LONG:
            if re.fullmatch(r"[+-]?[0-9]{1,19}", text):
                number, limit = int(text), 1 << (WHOLE_NUMBER_BITS[setting.type] - 1)
                if -limit <= number < limit:
                    return number
        case Type.DOUBLE:
            try:
                real = float(text)
            except ValueError:
                real = math.nan
            if math.isfinite(real):
                return real
        case Type.LIST:
            return tuple(word for part in text.split(",") if (word := part.strip()))
        case Type.STRING | Type.CLASS | Type.PASSWORD:
            return text
    raise refusal(setting, text, EXPECTED[setting.type])


def _number(value: Value) -> float:
    assert isinstance(value, int | float), "only number settings have number checks"
    return value


@cache
def at_least(low: int) -> Check:
    """Numbers from `low` up."""
    return Check(f"a number of at least {low}", lambda v: _number(v) >= low)


@cache
def between(low: int, high: int) -> Check:
    """Numbers from `low` to `high`, both included."""
    return Check(f"a number from {low} to {high}", lambda v: low <= _number(v) <= high)


def between_or(low: int, high: int, other: int) -> Check:
    """As `between`, or the one number `other`."""
    return Check(
        f"a number from {low} to {high}, or {other}",
        lambda v: low <= _number(v) <= high or v == other,
    )


@cache
def at_least_or(low: int, other: int) -> Check:
    """As `at_least`, or the one number `other`."""
    return Check(
        f"a number of at least {low}, or {other}", lambda v: _number(v) >= low or v == other
    )


def one_of(*words: str) -> Check:
    """Exactly one of `words`."""
    return Check("one of " + ", ".join(words), lambda v: v in words)


def one_of_any_case(*words: str) -> Check:
    """One of `words`, in capitals or not."""
    return Check("one of " + ", ".join(words), lambda v: isinstance(v, str) and v.lower() in words)


def some_of(*words: str) -> Check:
    """A list of any of `words`."""
    return Check(
        "any of " + ", ".join(words) + ", separated by commas",
        lambda v: isinstance(v, tuple) and set(v) <= set(words),
    )


def matching(pattern: str, expected: str) -> Check:
    """Text that matches `pattern` as a whole."""
    compiled = re.compile(pattern)
    return Check(expected, lambda v: isinstance(v, str) and compiled.fullmatch(v) is not None)


def each_matching(pattern: str, expected: str) -> Check:
    """A list each of whose words matches `pattern`."""
    compiled = re.compile(pattern)
    return Check(
        expected,
        lambda v: isinstance(v, tuple) and all(compiled.fullmatch(word) for word in v),
    )
