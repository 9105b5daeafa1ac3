"""How far a table was read: offsets of the JDBC source, and the SQL for the rows between two.

The offsets are those of Confluent's JDBC source: `incrementing`, and `timestamp` in milliseconds
with the fraction of its second in `timestamp_nanos`.
"""

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa

from headrace.connect.connectors.jdbc.dialects import Dialect, TableColumn
from headrace.connect.plugin import SourceOffset

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


@dataclass(frozen=True, slots=True)
class RowPosition:
    """The place of a row in the order in which a table is read."""

    time: datetime.datetime | None = None
    """In UTC."""
    number: int | None = None

    @classmethod
    def of(cls, offset: SourceOffset | None) -> "RowPosition | None":
        if offset is None:
            return None
        time, number = offset.get("timestamp"), offset.get("incrementing")
        if time is None:
            return cls(None, None if number is None else int(str(number)))
        milliseconds = int(str(time))
        nanoseconds = offset.get("timestamp_nanos")
        if nanoseconds is None:
            nanoseconds = milliseconds % 1000 * 1_000_000
        moment = _EPOCH + datetime.timedelta(
            seconds=milliseconds // 1000, microseconds=int(str(nanoseconds)) // 1000
        )
        return cls(moment, None if number is None else int(str(number)))

    @property
    def offset(self) -> SourceOffset:
        offset: dict[str, int] = {}
        if self.number is not None:
            offset["incrementing"] = self.number
        if self.time is not None:
            seconds, rest = divmod(self.time - _EPOCH, datetime.timedelta(seconds=1))
            offset["timestamp"] = seconds * 1000 + rest.microseconds // 1000
            offset["timestamp_nanos"] = rest.microseconds * 1000
        return offset


@dataclass(frozen=True, slots=True)
class ReadOrder:
    """The columns by which a table is read: a time, a number, or both."""

    database: Dialect
    times: Sequence[TableColumn]
    """Several are one after the other: the first that is not null counts."""
    number: TableColumn | None
    zone: ZoneInfo

    def expressions(self) -> list[str]:
        found = []
        if self.times:
            times = [self.database.ordered(column) for column in self.times]
            found.append(times[0] if len(times) == 1 else f"COALESCE({', '.join(times)})")
        if self.number is not None:
            found.append(self.database.quoted(self.number.name))
        return found

    def position(self, row: Sequence[Any]) -> RowPosition:
        """The position of a row with the values of the expressions."""
        values = list(row)
        time = None
        if self.times:
            found = self.database.value(values.pop(0), self.times[0].arrow)
            zone = found.tzinfo or self.zone
            time = found.replace(tzinfo=zone).astimezone(datetime.UTC)
        return RowPosition(time, int(values.pop(0)) if values else None)

    def between(
        self, start: RowPosition | None, end: RowPosition | None
    ) -> tuple[list[str], list[object]]:
        """The conditions, with their parameters, for rows after `start` up to `end`."""
        conditions: list[str] = []
        parameters: list[object] = []
        for position, beyond, last in ((start, ">", ">"), (end, "<", "<=")):
            if position is None:
                continue
            values = self._parameters(position)
            names = self.expressions()[: len(values)]
            mark = self.database.placeholder
            if len(values) == 1:
                conditions.append(f"{names[0]} {last} {mark}")
                parameters += values
            elif values:
                conditions.append(
                    f"({names[0]} {beyond} {mark} OR "
                    f"({names[0]} = {mark} AND {names[1]} {last} {mark}))"
                )
                parameters += [values[0], values[0], values[1]]
        return conditions, parameters

    def before(self, moment: datetime.datetime) -> tuple[list[str], list[object]]:
        """The condition for rows that are older than this moment."""
        if not self.times:
            return [], []
        name = self.expressions()[0]
        return [f"{name} < {self.database.placeholder}"], [self._time(moment)]

    def _parameters(self, position: RowPosition) -> list[object]:
        values: list[object] = []
        if self.times and position.time is not None:
            values.append(self._time(position.time))
        if self.number is not None and position.number is not None:
            values.append(position.number)
        return values

    def _time(self, moment: datetime.datetime) -> datetime.datetime:
        """As the column has it: with a zone, or in the zone of the database."""
        kind = self.times[0].arrow
        if pa.types.is_timestamp(kind) and kind.tz:
            return moment
        return moment.astimezone(self.zone).replace(tzinfo=None)
