"""Times in change events, as Debezium's `time.precision.mode` encodes them.

Without the option a column has the type that the JDBC source has for it: a date, a timestamp, or
the text of a time. Debezium's modes have numbers instead, and ISO 8601 texts in UTC for types with
a time zone. The names of Debezium's semantic types are not part of the schema.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time

import pyarrow as pa

from headrace.connect.connectors.jdbc.dialects import TableColumn
from headrace.connect.plugin import PermanentError

ADAPTIVE, ADAPTIVE_MICROSECONDS, CONNECT = "adaptive", "adaptive_time_microseconds", "connect"
_DAY_US = 24 * 3600 * 1_000_000
_TYPE = re.compile(r"(date|datetime|timestamp|time)\b(?:\((\d)\))?(.*)")
_TIME = re.compile(r"(-?)(\d+):(\d\d):(\d\d)(?:\.(\d{1,6}))?")


@dataclass(frozen=True, slots=True)
class TimeEncoding:
    """How values of a column are written."""

    type: pa.DataType
    encode: Callable[[pa.Array], pa.Array]


def time_encodings(
    columns: Sequence[TableColumn], mode: str, default_digits: int, fixed_digits: bool
) -> dict[str, TimeEncoding]:
    """By column, for those whose values are encoded; none if `mode` is empty.

    `default_digits` are the fractional digits of a type without a number, and `fixed_digits` says
    whether texts always have as many.
    """
    found = {}
    for column in columns if mode else ():
        encoding = _encoding(column, mode, default_digits, fixed_digits)
        if encoding is not None:
            found[column.name] = encoding
    return found


def _encoding(
    column: TableColumn, mode: str, default_digits: int, fixed_digits: bool
) -> TimeEncoding | None:
    parts = _TYPE.fullmatch(column.type)
    if parts is None:
        return None
    word, digits = parts[1], int(parts[2] or default_digits)
    if pa.types.is_timestamp(column.arrow) and column.arrow.tz:
        width = digits if fixed_digits and digits else None
        return TimeEncoding(pa.string(), lambda values: _instants(values, width))
    if word == "time" and "with time zone" in parts[3]:
        return TimeEncoding(pa.string(), _zoned_times)
    if word == "time":
        if mode == ADAPTIVE_MICROSECONDS or (mode == ADAPTIVE and digits > 3):
            return TimeEncoding(pa.int64(), lambda values: _times(values, 1, pa.int64()))
        return TimeEncoding(pa.int32(), lambda values: _times(values, 1000, pa.int32()))
    if mode == CONNECT:
        return None  # Kafka Connect's own types for dates and timestamps
    if word == "date":
        return TimeEncoding(pa.int32(), lambda values: values.cast(pa.int32()))
    unit = "ms" if digits <= 3 else "us"
    return TimeEncoding(pa.int64(), lambda values: values.cast(pa.timestamp(unit)).cast(pa.int64()))


def _instants(values: pa.Array, width: int | None) -> pa.Array:
    return pa.array([moment and _text(moment, width) for moment in values.to_pylist()], pa.string())


def _text(moment: datetime | time, width: int | None) -> str:
    """With `width` fractional digits, or as many as are needed."""
    whole = moment.replace(microsecond=0, tzinfo=None).isoformat()
    fraction = f"{moment.microsecond:06}"
    fraction = fraction.rstrip("0") if width is None else fraction[:width]
    return f"{whole}.{fraction}Z" if fraction else f"{whole}Z"


def _zoned_times(values: pa.Array) -> pa.Array:
    def utc(text: str) -> str:
        # Any day: the zone of such a time is a number of hours. 24:00 is the day's end.
        text = text.replace("24:00", "00:00") if text.startswith("24:00") else text
        moment = datetime.fromisoformat(f"2000-01-02T{text}").astimezone(UTC)
        return _text(moment.time(), None)

    return pa.array([text and utc(text) for text in values.to_pylist()], pa.string())


def _times(values: pa.Array, divisor: int, kind: pa.DataType) -> pa.Array:
    def number(text: str) -> int:
        parts = _TIME.fullmatch(text)
        assert parts is not None, f"{text!r} is no time"
        seconds = int(parts[2]) * 3600 + int(parts[3]) * 60 + int(parts[4])
        micros = seconds * 1_000_000 + int((parts[5] or "").ljust(6, "0"))
        if kind == pa.int32() and (parts[1] or micros > _DAY_US):
            raise PermanentError(
                f"{text} is no time of a day; set time.precision.mode={ADAPTIVE_MICROSECONDS}"
            )
        return (-1 if parts[1] else 1) * (micros // divisor)

    texts = values.to_pylist()
    return pa.array([None if text is None else number(text) for text in texts], kind)
