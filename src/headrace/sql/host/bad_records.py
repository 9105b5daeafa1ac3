"""Records that cannot be read: counted by Spark, and told by the progress of their query.

Spark's progress has a bounded number of them for each epoch; the count is exact.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headrace.sql.host.reading import PROBLEM
from headrace.sql.plans import ROWOFFSET, ROWPARTITION
from headrace.sql.sources import Format, SqlSource

MOST_AN_EPOCH = 200
_OBSERVED = "unreadable-"
_NEVER_UNREADABLE = frozenset({"string", "binary"})


@dataclass(frozen=True, slots=True)
class UnreadableInput:
    """A record that is not a row of its source."""

    topic: str
    partition: int
    offset: int
    reason: str


def with_bad_records(rows: DataFrame, source: SqlSource, view: str) -> DataFrame:
    """The rows that could be read; the others are in the progress of the query."""
    if _all_readable(source):
        return rows.drop(PROBLEM)
    bad = F.col(PROBLEM).isNotNull()
    described = F.struct(
        F.lit(source.topic).alias("topic"), ROWPARTITION, ROWOFFSET, F.col(PROBLEM).alias("reason")
    )
    first = F.when(bad, -F.col(ROWOFFSET))
    observed = rows.observe(
        f"{_OBSERVED}{view}",
        F.count_if(bad).alias("count"),
        F.max_by(described, first, MOST_AN_EPOCH).alias("records"),
    )
    return observed.where(~bad).drop(PROBLEM)


def _all_readable(source: SqlSource) -> bool:
    if source.timestamp is not None or source.window is not None:
        return False
    parts = ((source.key_format, source.keys), (source.value_format, source.values))
    return all(
        not columns
        or form is Format.NONE
        or (form is Format.KAFKA and columns[0].type in _NEVER_UNREADABLE)
        for form, columns in parts
    )


def bad_records(progress: Mapping[str, Any]) -> tuple[int, Iterator[UnreadableInput]]:
    """How many records of an epoch could not be read, and the first of them."""
    found = [
        row
        for name, row in (progress.get("observedMetrics") or {}).items()
        if name.startswith(_OBSERVED)
    ]
    count = sum(row["count"] or 0 for row in found)
    return count, (
        UnreadableInput(each["topic"], each[ROWPARTITION], each[ROWOFFSET], each["reason"])
        for row in found
        for each in row["records"] or ()
    )
