"""The wall clock of the current operation, which goes into the records that it writes."""

from dataclasses import dataclass


@dataclass(slots=True)
class WallTime:
    """The time in milliseconds; the runtime sets it before each operation."""

    ms: int = 0
