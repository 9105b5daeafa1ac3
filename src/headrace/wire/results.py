"""The results of Produce and Fetch for one partition.

The handlers in `apis/records` create them, and `fast.py` encodes them. They are classes with slots,
which are faster to create and to read than named tuples.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

RecordErrors: TypeAlias = Sequence[tuple[int, str]]
"""Index in the batch and message of each record that was refused (KIP-467)."""


@dataclass(slots=True)
class ProduceResult:
    """The result of a Produce for one partition."""

    partition_index: int
    error_code: int
    base_offset: int = -1
    log_append_time: int = -1
    log_start_offset: int = -1
    error_message: str | None = None
    record_errors: RecordErrors = ()


class Records(Protocol):
    """Bytes of a log file that are sent unchanged."""

    @property
    def length(self) -> int: ...

    @property
    def following(self) -> int:
        """The offset after the last batch; -1 if it is unknown."""

    def read(self) -> bytes: ...


Aborted: TypeAlias = list[tuple[int, int]]
"""Producer id and first offset of each aborted transaction."""

NO_REPLICA = -1


@dataclass(slots=True)
class FetchResult:
    """The result of a Fetch for one partition."""

    partition_index: int
    error_code: int
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    records: Records | None = None
    aborted: Aborted | None = None
    """The aborted transactions among the records, for a client that reads committed records."""
    preferred_replica: int = NO_REPLICA
    """The broker that the client should fetch from instead (KIP-392)."""
