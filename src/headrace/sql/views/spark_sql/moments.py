"""Functions of dates and timestamps: days and microseconds since 1970, in UTC."""

import calendar
import datetime

from headrace.sql.records.moments import date_of_text, timestamp_of_text
from headrace.sql.records.time_patterns import UnknownPattern, time_pattern
from headrace.sql.records.values import date_of, days, microseconds, moment_of
from headrace.sql.views.spark_sql.decimals import Unlike

DAY = 86_400_000_000
SECOND = 1_000_000
_UNITS = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": SECOND,
    "minute": 60 * SECOND,
    "hour": 3600 * SECOND,
}
_NAMES = {"mm": "month", "mon": "month", "yyyy": "year", "yy": "year", "dd": "day"}


def date_part(unit: str, number: int) -> int:
    """A part of a date."""
    date = _date(number)
    if unit == "quarter":
        return (date.month + 2) // 3
    if unit == "dayofweek":
        return date.isoweekday() % 7 + 1
    if unit == "weekday":
        return date.weekday()
    if unit == "dayofyear":
        return date.timetuple().tm_yday
    if unit == "week":
        return date.isocalendar().week
    return int(getattr(date, unit))


def moment_part(unit: str, micros: int) -> int:
    """A part of the time of a timestamp."""
    return int(getattr(_moment(micros), unit))


def add_months(number: int, months: int) -> int:
    """The same day of another month, or its last day."""
    date = _date(number)
    total = date.year * 12 + date.month - 1 + months
    return days(_on_day(total // 12, total % 12 + 1, date.day))


def add_months_to_moment(micros: int, months: int) -> int:
    number, rest = divmod(micros, DAY)
    return add_months(number, months) * DAY + rest


def last_day(number: int) -> int:
    date = _date(number)
    return days(_on_day(date.year, date.month, 31))


def _on_day(year: int, month: int, day: int) -> datetime.date:
    try:
        return datetime.date(year, month, min(day, calendar.monthrange(year, month)[1]))
    except (ValueError, OverflowError):
        raise Unlike("a date after the year 9999") from None


def truncated(unit: str, micros: int) -> int | None:
    """The beginning of the unit that a time is in; null for an unknown unit."""
    name = _NAMES.get(unit.lower(), unit.lower())
    if name in _UNITS:
        return micros - micros % _UNITS[name]
    if name == "day":
        return micros - micros % DAY
    found = truncated_date(name, micros // DAY)
    return None if found is None else found * DAY


def truncated_date(unit: str, number: int) -> int | None:
    """The beginning of the year, quarter, month or week that a date is in."""
    name, date = _NAMES.get(unit.lower(), unit.lower()), _date(number)
    if name == "year":
        return days(date.replace(month=1, day=1))
    if name == "quarter":
        return days(date.replace(month=(date.month - 1) // 3 * 3 + 1, day=1))
    if name == "month":
        return days(date.replace(day=1))
    return number - date.weekday() if name == "week" else None


def formatted(micros: int, pattern: str) -> str:
    """A time by a pattern."""
    try:
        return time_pattern(pattern).format(_moment(micros))
    except UnknownPattern as error:
        raise Unlike(str(error)) from None


def parsed(text: str, pattern: str) -> int | None:
    """The microseconds of a text by a pattern; null if it is none."""
    try:
        found = time_pattern(pattern).parse(text)
    except UnknownPattern as error:
        raise Unlike(str(error)) from None
    return None if found is None else microseconds(found)


def timestamp_of(text: str) -> int | None:
    """A text as CAST reads it; null if it is none."""
    found = timestamp_of_text(text)
    return None if found is None else microseconds(found)


def date_number(text: str) -> int | None:
    """A text as CAST reads it; null if it is none."""
    found = date_of_text(text)
    return None if found is None else days(found)


def timestamp_text(micros: int) -> str:
    """As CAST writes it: 2026-01-02 03:04:05.678"""
    moment = _moment(micros)
    text = moment.strftime("%Y-%m-%d %H:%M:%S").rjust(19, "0")
    fraction = f"{moment.microsecond:06d}".rstrip("0")
    return f"{text}.{fraction}" if fraction else text


def date_text(number: int) -> str:
    return _date(number).isoformat()


def make_date(year: int, month: int, day: int) -> int:
    try:
        return days(datetime.date(year, month, day))
    except ValueError:
        raise Unlike("no such date") from None


def _date(number: int) -> datetime.date:
    try:
        return date_of(number)
    except OverflowError:
        raise Unlike("a date outside the years 1 to 9999") from None


def _moment(micros: int) -> datetime.datetime:
    try:
        return moment_of(micros)
    except OverflowError:
        raise Unlike("a time outside the years 1 to 9999") from None
