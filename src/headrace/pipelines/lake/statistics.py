"""Statistics of a data file for Delta's log, from the footer of the Parquet file.

Readers skip files by them, so a bound may be too wide but never too narrow: a value that cannot be
expressed exactly is widened or left out.
"""

import json
from collections.abc import Collection
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

# The default of Delta's other writers.
COLUMNS = 32
STRING_CHARACTERS = 32
# Digits of a JSON number that every reader preserves.
EXACT_DIGITS = 15


def delta_statistics(
    footer: pq.FileMetaData, schema: pa.Schema, without_bounds: Collection[str] = ()
) -> str:
    """The `stats` of an add action: numRecords, minValues, maxValues and nullCount.

    `without_bounds` are columns with NaN, which Parquet's own bounds ignore.
    """
    lowest: dict[str, Any] = {}
    highest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    leaf = 0
    for field in schema:
        if not pa.types.is_nested(field.type):
            if leaf >= COLUMNS:
                break
            groups = [
                footer.row_group(group).column(leaf).statistics
                for group in range(footer.num_row_groups)
            ]
            if all(each is not None and each.has_null_count for each in groups):
                nulls[field.name] = sum(each.null_count for each in groups)
            bounds = _bounds(groups, field.type)
            if bounds is not None and field.name not in without_bounds:
                lowest[field.name], highest[field.name] = bounds
        leaf += _leaves(field.type)
    found = {
        "numRecords": footer.num_rows,
        "minValues": lowest,
        "maxValues": highest,
        "nullCount": nulls,
    }
    return json.dumps(found)


def _bounds(groups: list[Any], kind: pa.DataType) -> tuple[Any, Any] | None:
    if pa.types.is_boolean(kind) or pa.types.is_binary(kind):
        return None
    # A group of nulls needs no bounds; if another group lacks them, the file has none.
    bounded = [each for each in groups if each is not None and each.has_min_max]
    if not bounded or any(
        each is None or (not each.has_min_max and each.num_values) for each in groups
    ):
        return None
    try:
        low, high = min(each.min for each in bounded), max(each.max for each in bounded)
    except (OverflowError, ValueError):
        # A time outside the range of Python's datetime.
        return None
    lowest, highest = _low(low), _high(high)
    return None if lowest is None or highest is None else (lowest, highest)


def _low(value: object) -> Any:
    if isinstance(value, str):
        return value[:STRING_CHARACTERS]
    if isinstance(value, datetime):
        return _time(value)
    return _plain(value)


def _high(value: object) -> Any:
    if isinstance(value, str) and len(value) > STRING_CHARACTERS:
        # An upper bound of all strings with this prefix.
        last = "\U0010ffff"
        return None if value[STRING_CHARACTERS] == last else value[:STRING_CHARACTERS] + last
    if isinstance(value, datetime):
        up = -value.microsecond % 1000
        return _time(value + timedelta(microseconds=up))
    return _plain(value)


def _plain(value: object) -> Any:
    if isinstance(value, Decimal):
        exact = len(value.as_tuple().digits) <= EXACT_DIGITS
        return float(value) if exact else None
    if isinstance(value, date):
        return value.isoformat()
    return value if isinstance(value, str | int | float) else None


def _time(value: datetime) -> str:
    """A time in milliseconds, as Delta's readers expect it."""
    text = value.replace(tzinfo=None).isoformat(timespec="milliseconds")
    return text if value.tzinfo is None else f"{text}Z"


def _leaves(kind: pa.DataType) -> int:
    """The number of Parquet columns of a type."""
    if pa.types.is_struct(kind):
        return sum(_leaves(kind.field(number).type) for number in range(kind.num_fields))
    if pa.types.is_map(kind):
        return _leaves(kind.key_type) + _leaves(kind.item_type)
    if pa.types.is_nested(kind):
        return _leaves(kind.value_type)
    return 1
