"""Texts as dates and timestamps, as Spark's CAST reads them; times without a zone are in UTC."""

import datetime
import re
from zoneinfo import ZoneInfo

_DATE = re.compile(r"(\d{4,7})(?:-(\d{1,2})(?:-(\d{1,2})(?:[T ].*)?)?)?")
_TIMESTAMP = re.compile(
    r"(\d{4,6})(?:-(\d{1,2})(?:-(\d{1,2})"
    r"(?:[T ](?:(\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{0,9}))?)?\s*(\S+)?)?)?)?)?"
)
_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d{2}))?(?::?(\d{2}))?")
_UTC_NAMES = frozenset({"Z", "UTC", "GMT", "UT"})


def date_of_text(text: str) -> datetime.date | None:
    """The date; None if the text is none."""
    found = _DATE.fullmatch(text.strip())
    if found is None:
        return None
    try:
        return datetime.date(*(int(part or 1) for part in found.groups()))
    except ValueError:
        return None


def timestamp_of_text(text: str) -> datetime.datetime | None:
    """The time in UTC; None if the text is none."""
    found = _TIMESTAMP.fullmatch(text.strip())
    if found is None:
        return None
    year, month, day, hour, minute, second, fraction, zone = found.groups()
    try:
        moment = datetime.datetime(
            *(int(year), int(month or 1), int(day or 1)),
            *(int(hour or 0), int(minute or 0), int(second or 0)),
            int((fraction or "").ljust(6, "0")[:6]),
            tzinfo=_zone(zone),
        )
        return moment.astimezone(datetime.UTC)
    except (ValueError, OverflowError, LookupError, OSError):
        return None


def _zone(name: str | None) -> datetime.tzinfo:
    """A zone by its offset or its name; ValueError or LookupError if there is none."""
    if name is None or name in _UTC_NAMES:
        return datetime.UTC
    found = _OFFSET.fullmatch(name)
    if found is None:
        return ZoneInfo(name)
    hours, minutes, seconds = (int(part or 0) for part in found.groups()[1:])
    offset = datetime.timedelta(hours=hours, minutes=minutes, seconds=seconds)
    return datetime.timezone(-offset if found[1] == "-" else offset)
