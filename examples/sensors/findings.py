"""Compares the results of a run with its readings: every minute once, in topic and table."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from picture import Average

# A minute of a sensor.
Cell = tuple[datetime, str]


@dataclass(frozen=True)
class Findings:
    """The counts of a run; `problems` is empty if every reading is counted exactly once."""

    produced: int
    averages: int
    averaged: int
    alerts: int
    table_rows: int
    problems: tuple[str, ...]


def compare(
    produced: Mapping[Cell, int],
    averages: Sequence[Average],
    alerts: Sequence[Average],
    table: Sequence[Average],
) -> Findings:
    """Compare topic and table with the readings that were sent."""
    problems: list[str] = []
    times = Counter((row.minute, row.sensor) for row in averages)
    problems += [f"{_name(cell)} is {n} times in the topic" for cell, n in times.items() if n > 1]
    problems += [
        f"{_name((row.minute, row.sensor))} averages {row.readings} readings, "
        f"not {produced.get((row.minute, row.sensor), 0)}"
        for row in averages
        if row.readings != produced.get((row.minute, row.sensor), 0)
    ]
    expected = Counter(row for row in averages if row.alert is not None)
    problems += _differences("alert", expected, Counter(alerts), "the topic of alerts")
    problems += _differences("average", Counter(averages), Counter(table), "the table")
    return Findings(
        produced=sum(produced.values()),
        averages=len(averages),
        averaged=sum(row.readings for row in averages),
        alerts=len(alerts),
        table_rows=len(table),
        problems=tuple(problems),
    )


def _differences(
    what: str, expected: Counter[Average], found: Counter[Average], where: str
) -> Iterable[str]:
    for row in expected | found:
        if expected[row] != found[row]:
            cell = _name((row.minute, row.sensor))
            yield f"{what} {cell} is {found[row]} times in {where}, not {expected[row]}"


def _name(cell: Cell) -> str:
    return f"{cell[1]} at {cell[0]:%H:%M}"


def average(found: Mapping[str, Any]) -> Average:
    """A record of the topics, or a row of the table."""
    minute = found["minute"]
    if isinstance(minute, str):
        minute = datetime.fromisoformat(minute)
    return Average(
        minute.astimezone(UTC),
        found["sensor"],
        found["place"],
        found["readings"],
        found["temperature"],
        found["humidity"],
        found.get("alert"),
    )


def table_rows(folder: Path) -> list[Average]:
    """All rows of the Delta table; empty if it does not exist yet."""
    from deltalake import DeltaTable
    from deltalake.exceptions import TableNotFoundError

    try:
        rows = DeltaTable(str(folder)).to_pyarrow_table().to_pylist()
    except TableNotFoundError:
        return []
    return [average(row) for row in rows]
