"""The replica of a partition on this broker: its log, its high watermark, and waiting requests.

The log is opened at first use. Consumers read up to the high watermark or the last stable offset,
followers read up to the log end. `partition.py` decides what is committed and calls `advance`.
"""

from typing import Protocol

from headrace.errors import ErrorCode, KafkaError
from headrace.log.log import Log
from headrace.log.retention import LogView
from headrace.log.slices import Slice
from headrace.replication.waiters import CommitWaiters
from headrace.types import Offset, TopicPartition


class WaitingReader(Protocol):
    """A fetch that waits for changes of partitions."""

    def read_again(self) -> None: ...


class Watcher(Protocol):
    """A fetch session that is notified when a partition changes."""

    def changed(self) -> WaitingReader | None:
        """Note the change; returns the fetch that waits for it, if any."""


class LogSource(Protocol):
    """Opens the log of a partition."""

    name: TopicPartition

    def open_log(self) -> tuple[Log, Offset]:
        """The log and the high watermark that is known of it; KafkaError if that fails."""


class LocalReplica:
    """A replica's log and its high watermark."""

    __slots__ = ("_changed", "_source", "committed", "opened", "serves", "waiters", "watchers")

    def __init__(self, source: LogSource, changed: list["LocalReplica"]) -> None:
        """`changed` is the list to which a changed replica with watchers adds itself."""
        self._source = source
        self._changed = changed
        self.opened: Log | None = None
        """The log, if it is open."""
        self.committed: Offset = 0
        """The high watermark; valid while the log is open."""
        self.serves = False
        """Whether consumers may read here."""
        self.waiters = CommitWaiters()
        self.watchers: dict[Watcher, None] = {}

    @property
    def log(self) -> Log:
        """The log, opened at first use."""
        if self.opened is None:
            self.opened, self.committed = self._source.open_log()
        return self.opened

    # ------------------------------------------------------------------------------- reading

    def read(self, offset: Offset, max_bytes: int, whole_first: bool) -> Slice | None:
        """Committed batches from `offset` on, or None if there are none yet."""
        if not self.serves:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        log = self.opened or self.log
        high_watermark = self.committed
        if offset == high_watermark:
            return None
        return log.read(offset, max_bytes, high_watermark, whole_first)

    def read_committed(
        self, offset: Offset, max_bytes: int, whole_first: bool
    ) -> tuple[Slice | None, list[tuple[int, Offset]]]:
        """Batches below the last stable offset, and the aborted transactions among them."""
        if not self.serves:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        log = self.opened or self.log
        limit = log.last_stable_offset(self.committed)
        piece = log.read(offset, max_bytes, limit, whole_first)
        if piece is None or not log.transactions:
            return piece, []
        return piece, log.transactions.between(
            offset, log.segments.offset_after(offset, piece, log.end_offset)
        )

    def read_to_end(self, offset: Offset, max_bytes: int, whole_first: bool) -> Slice | None:
        """Batches from `offset` on, committed or not: for followers and for the leader itself."""
        log = self.opened or self.log
        return log.read(offset, max_bytes, log.end_offset, whole_first)

    def read_bytes(self, found: Slice) -> bytes:
        """The bytes of a slice that was read here; KafkaError 56 if the disk fails."""
        try:
            return found.read()
        except OSError as error:
            reason = f"reading {self.log.folder} failed: {error}"
            raise self.log.availability.error(reason, error) from error

    # ------------------------------------------------------------------------ high watermark

    @property
    def high_watermark(self) -> Offset:
        """The offset below which everything is committed and may be read."""
        if self.opened is None:
            self.log  # noqa: B018 - opening it finds the high watermark
        return self.committed

    @property
    def last_stable_offset(self) -> Offset:
        """The last stable offset, for `read_committed` consumers."""
        log = self.opened or self.log
        return log.last_stable_offset(self.committed)

    def is_committed(self, offset: Offset) -> bool:
        """Whether everything below `offset` is committed."""
        return self.committed >= offset

    def advance(self, offset: Offset) -> None:
        """Everything below `offset` is committed now."""
        if offset > self.committed:
            self.committed = offset
        if self.watchers:
            self._changed.append(self)
        self.waiters.reached(offset)

    def notify(self) -> None:
        """Let waiting fetches read again."""
        if self.watchers:
            self._changed.append(self)

    def use_leader_high_watermark(self, high_watermark: Offset) -> None:
        """Apply the leader's high watermark (follower only)."""
        bound = min(high_watermark, self.log.end_offset)
        if bound > self.committed:
            self.advance(bound)

    # ---------------------------------------------------------------------------- truncation

    def truncate_to(self, offset: Offset) -> None:
        """Truncate the log to what the leader has (follower only)."""
        self.log.truncate_to(offset)
        self.committed = min(self.committed, self.log.end_offset)

    def restart_at(self, offset: Offset) -> None:
        """Empty the log: the leader's log starts after the end of this one (follower only)."""
        self.log.restart_at(offset)
        self.committed = offset

    # ------------------------------------------------------------------------------ deletion

    def delete_records(self, offset: Offset) -> Offset:
        """Delete records below `offset` (-1: all that is committed); the new low watermark."""
        high_watermark = self.high_watermark
        if offset == -1:
            offset = high_watermark
        if offset < 0 or offset > high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"cannot delete below {offset}: the high watermark of {self._source.name} is "
                f"{high_watermark}",
            )
        start = self.log.delete_records_before(offset)
        self.notify()
        return start

    def retention_view(self) -> LogView:
        """The state that retention uses."""
        log = self.log
        return LogView(tuple(log.segments), log.start_offset, log.end_offset, self.committed)

    def delete_segments(self, count: int, now_ms: int) -> None:
        """Delete the oldest segments, all of them committed."""
        self.log.delete_segments(count, now_ms)
        self.notify()
