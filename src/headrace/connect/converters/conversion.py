"""The steps in which a key or value is converted.

Each step is a column of its own, because Spark would otherwise repeat the expression of a step
wherever the next one uses it.
"""

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import Column


@dataclass(frozen=True, slots=True)
class Conversion:
    """Parses a key or value, then says what is wrong with it, then takes its value."""

    parsed: Column
    problem: Callable[[Column], Column] | None
    """Of the parsed column: why the record cannot be converted, or null. None: it always can."""
    value: Callable[[Column], Column]
    """Of the parsed column, if there is no problem."""
