"""The time of a row, if a column has it."""

import datetime
from collections.abc import Callable, Sequence
from typing import TypeAlias

from headrace.client.errors import ClientError
from headrace.sql.records.errors import UnreadableRecord
from headrace.sql.records.moments import timestamp_of_text
from headrace.sql.records.time_patterns import time_pattern
from headrace.sql.records.values import days, milliseconds
from headrace.sql.sources import SqlSource

RowTime: TypeAlias = Callable[[Sequence[object]], int]
"""The milliseconds since 1970 of a row, of its cells; raises UnreadableRecord."""
_DAY_MS = 86_400_000


def row_time(source: SqlSource) -> RowTime | None:
    """The function that finds the time of a row; None if it is the time of the record."""
    if source.timestamp is None:
        return None
    column = source.column(source.timestamp)
    if column is None:
        raise ClientError(
            f"{source.name} has no column {source.timestamp}, which its property timestamp names"
        )
    at, name = source.columns.index(column), column.name
    pattern = None if source.timestamp_format is None else time_pattern(source.timestamp_format)

    def moment(cells: Sequence[object]) -> int:
        value = cells[at]
        if isinstance(value, int):
            return value
        if isinstance(value, datetime.datetime):
            return milliseconds(value)
        if isinstance(value, datetime.date):
            return days(value) * _DAY_MS
        if isinstance(value, str):
            parsed = timestamp_of_text(value) if pattern is None else pattern.parse(value)
            if parsed is not None:
                return milliseconds(parsed)
        raise UnreadableRecord(f"value: the timestamp column {name} is {value!r}, which is no time")

    return moment
