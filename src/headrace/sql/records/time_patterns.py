"""Times as texts, by the patterns of Java's DateTimeFormatter that Spark has: yyyy-MM-dd HH:mm:ss.

Letters that are not here raise UnknownPattern: Spark may know them.
"""

import datetime
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from headrace.client.errors import ClientError

MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July"),
    *("August", "September", "October", "November", "December"),
)
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_PIECE = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|(\[|\])|([^A-Za-z'\[\]]+)")
_TWO_DIGIT_YEARS_FROM = 2000

Format: TypeAlias = Callable[[datetime.datetime], str]


class UnknownPattern(ClientError):
    """A pattern with letters that this module does not have."""


@dataclass(frozen=True, slots=True)
class _Part:
    """What a run of one letter means: a regular expression for its text, and the text."""

    field: str
    expression: str
    text: Format


@dataclass(frozen=True, slots=True)
class TimePattern:
    """Parses and formats."""

    _expression: re.Pattern[str]
    _fields: tuple[str, ...]
    _texts: tuple[Format, ...]

    def parse(self, text: str) -> datetime.datetime | None:
        """The time in UTC; None if the text does not match."""
        found = self._expression.fullmatch(text)
        if found is None:
            return None
        values = {
            name: part
            for name, part in zip(self._fields, found.groups(), strict=True)
            if part is not None
        }
        try:
            return _moment(values)
        except (ValueError, OverflowError, ZoneInfoNotFoundError):
            return None

    def format(self, moment: datetime.datetime) -> str:
        """The text of a time in UTC."""
        return "".join(text(moment) for text in self._texts)


@cache
def time_pattern(pattern: str) -> TimePattern:
    """The pattern; raises UnknownPattern."""
    expression: list[str] = []
    fields: list[str] = []
    texts: list[Format] = []
    at = 0
    for piece in _PIECE.finditer(pattern):
        if piece.start() != at:
            break
        at = piece.end()
        if piece[2]:
            part = _part(piece[0], pattern)
            expression.append(f"({part.expression})")
            fields.append(part.field)
            texts.append(part.text)
        elif piece[3]:
            expression.append("(?:" if piece[3] == "[" else ")?")
        else:
            literal = piece[4] or (piece[1] or "").replace("''", "'") or "'"
            expression.append(re.escape(literal))
            texts.append(_literal(literal))
    if at != len(pattern):
        raise UnknownPattern(f"the time pattern {pattern!r} has a quote without an end")
    try:
        return TimePattern(re.compile("".join(expression)), tuple(fields), tuple(texts))
    except re.error:
        raise UnknownPattern(f"the time pattern {pattern!r} has a bracket too many") from None


def _literal(text: str) -> Format:
    return lambda _: text


def _part(run: str, pattern: str) -> _Part:
    letter, count = run[0], len(run)
    if letter in "yu":
        return _year(count)
    if letter in "ML":
        return _month(count)
    if letter == "E" and count <= 4:
        names = DAYS if count == 4 else tuple(name[:3] for name in DAYS)
        return _Part("weekday", "|".join(names), lambda moment: names[moment.weekday()])
    if letter == "S" and count <= 9:
        return _Part(
            "fraction",
            rf"\d{{1,{count}}}",
            lambda moment: f"{moment.microsecond * 1000:09d}"[:count],
        )
    if letter == "a" and count == 1:
        return _Part("half", "AM|PM|am|pm", lambda moment: "AM" if moment.hour < 12 else "PM")
    if letter in "Xx" and count <= 3:
        return _offset(letter, count)
    if letter == "Z" and count <= 3:
        return _Part("offset", r"[+-]\d{4}", lambda _: "+0000")
    if letter == "V" and count == 2:
        return _Part("zone", r"[A-Za-z_]+(?:/[A-Za-z_+\-0-9]+)*|[+-]\d\d:\d\d", lambda _: "UTC")
    if (letter in _NUMBERS and count <= 2) or (letter == "D" and count <= 3):
        return _number(letter, count)
    raise UnknownPattern(f"the time pattern {pattern!r} has {run}, which is not supported")


_NUMBERS: dict[str, tuple[str, Callable[[datetime.datetime], int]]] = {
    "d": ("day", lambda moment: moment.day),
    "D": ("day_of_year", lambda moment: moment.timetuple().tm_yday),
    "H": ("hour", lambda moment: moment.hour),
    "k": ("hour_24", lambda moment: moment.hour or 24),
    "h": ("hour_12", lambda moment: moment.hour % 12 or 12),
    "K": ("hour_11", lambda moment: moment.hour % 12),
    "m": ("minute", lambda moment: moment.minute),
    "s": ("second", lambda moment: moment.second),
}


def _number(letter: str, count: int) -> _Part:
    field, value = _NUMBERS[letter]
    widest = 3 if letter == "D" else 2
    expression = rf"\d{{{count}}}" if count == widest else rf"\d{{{count},{widest}}}"
    return _Part(field, expression, lambda moment: f"{value(moment):0{count}d}")


def _year(count: int) -> _Part:
    if count == 2:
        return _Part("short_year", r"\d{2}", lambda moment: f"{moment.year % 100:02d}")
    expression = r"\d{4}" if count == 4 else rf"\d{{{count},9}}"
    return _Part("year", expression, lambda moment: f"{moment.year:0{count}d}")


def _month(count: int) -> _Part:
    if count <= 2:
        expression = r"\d{2}" if count == 2 else r"\d{1,2}"
        return _Part("month", expression, lambda moment: f"{moment.month:0{count}d}")
    names = MONTHS if count == 4 else tuple(name[:3] for name in MONTHS)
    return _Part("month_name", "|".join(names), lambda moment: names[moment.month - 1])


def _offset(letter: str, count: int) -> _Part:
    digits = {1: r"\d\d(?:\d\d)?", 2: r"\d{4}", 3: r"\d\d:\d\d"}[count]
    zero = {1: "+00", 2: "+0000", 3: "+00:00"}[count]
    if letter == "X":
        return _Part("offset", rf"Z|[+-]{digits}", lambda _: "Z")
    return _Part("offset", rf"[+-]{digits}", lambda _: zero)


def _moment(values: dict[str, str]) -> datetime.datetime:
    """The time that the parsed fields tell; ValueError if there is none."""
    year = int(values.get("year", 1970))
    if "short_year" in values:
        year = _TWO_DIGIT_YEARS_FROM + int(values["short_year"])
    month = int(values.get("month", 1))
    if "month_name" in values:
        month = 1 + [name[:3] for name in MONTHS].index(values["month_name"][:3])
    date = datetime.date(year, month, int(values.get("day", 1)))
    if "day_of_year" in values:
        date = datetime.date(year, 1, 1) + datetime.timedelta(int(values["day_of_year"]) - 1)
        if date.year != year:
            raise ValueError("the year has no such day")
    if "weekday" in values and DAYS[date.weekday()][:3] != values["weekday"][:3]:
        raise ValueError("another day of the week")
    time = datetime.time(
        _hour(values),
        int(values.get("minute", 0)),
        int(values.get("second", 0)),
        int(values.get("fraction", "0").ljust(9, "0")[:6]),
    )
    zone: datetime.tzinfo = datetime.UTC
    if "offset" in values:
        zone = _zone(values["offset"])
    elif "zone" in values:
        named = values["zone"]
        zone = _zone(named) if named[0] in "+-" else ZoneInfo(named)
    return datetime.datetime.combine(date, time, zone).astimezone(datetime.UTC)


def _hour(values: dict[str, str]) -> int:
    if "hour" in values:
        return int(values["hour"])
    if "hour_24" in values:
        return int(values["hour_24"]) % 24
    if "hour_12" in values and not 1 <= int(values["hour_12"]) <= 12:
        raise ValueError("an hour from 1 to 12")
    short = int(values.get("hour_12", values.get("hour_11", 0))) % 12
    return short + (12 if values.get("half", "AM").upper() == "PM" else 0)


def _zone(text: str) -> datetime.tzinfo:
    if text == "Z":
        return datetime.UTC
    digits = text[1:].replace(":", "").ljust(4, "0")
    offset = datetime.timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
    return datetime.timezone(-offset if text[0] == "-" else offset)
