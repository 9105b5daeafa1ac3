"""Incremental fetch sessions (KIP-227): the partitions of a consumer, kept between its requests.

A session watches its partitions, so that a poll over a thousand idle ones looks only at those
that changed. A fetch without a session is a session that lives for one request.
"""

import random
from collections import OrderedDict

from headrace.clock import Clock
from headrace.errors import ErrorCode, KafkaError
from headrace.replication.partition import Partition
from headrace.replication.replica import WaitingReader
from headrace.wire.fast import FetchPartition, FetchRequest, TopicKey

FINAL_EPOCH = -1
INITIAL_EPOCH = 0
_EVICTABLE_AFTER_S = 120.0


class SessionPartition:
    """One partition of a session."""

    __slots__ = (
        "epoch", "index", "key", "max_bytes", "offset", "partition", "sent_high_watermark",
        "sent_start", "session",
    )  # fmt: skip

    def __init__(self, session: "FetchSession", key: TopicKey, wanted: FetchPartition) -> None:
        self.session = session
        self.key = key
        self.index, self.epoch, self.offset, _, _, self.max_bytes = wanted
        self.partition: Partition | None = None
        self.sent_high_watermark = -1
        self.sent_start = -1

    def changed(self) -> WaitingReader | None:
        """Mark the partition for the next read; returns the fetch that waits for it, if any."""
        session = self.session
        session.dirty[self] = None
        return session.waiting

    def watch(self) -> None:
        """Register with the partition, which then reports its changes."""
        if self.partition is not None:
            self.partition.replica.watchers[self] = None

    def unwatch(self) -> None:
        """Unregister from the partition."""
        if self.partition is not None:
            self.partition.replica.watchers.pop(self, None)
            self.partition = None


class FetchSession:
    """A set of partitions, and those of them that may have changed."""

    __slots__ = ("by_ids", "dirty", "entries", "epoch", "id", "used_at", "waiting")

    def __init__(self, session_id: int, by_ids: bool, request: FetchRequest) -> None:
        self.id = session_id
        self.by_ids = by_ids
        self.epoch = 1
        self.used_at = 0.0
        self.waiting: WaitingReader | None = None
        self.entries: dict[tuple[TopicKey, int], SessionPartition] = {}
        self.dirty: dict[SessionPartition, None] = {}
        self.update(request)

    def update(self, request: FetchRequest) -> None:
        """Add, change and remove partitions according to the request."""
        entries, dirty = self.entries, self.dirty
        for key, partitions in request.topics:
            for wanted in partitions:
                index, epoch, offset, _, _, max_bytes = wanted
                entry = entries.get((key, index))
                if entry is None:
                    entry = entries[key, index] = SessionPartition(self, key, wanted)
                else:
                    entry.epoch, entry.offset, entry.max_bytes = epoch, offset, max_bytes
                dirty[entry] = None
        for name in request.forgotten:
            entry = entries.pop(name, None)
            if entry is not None:
                dirty.pop(entry, None)
                entry.unwatch()

    def watch(self) -> None:
        """Register with the partitions that were read."""
        for entry in self.dirty if self.id else self.entries.values():
            entry.watch()

    def close(self) -> None:
        """Unregister from every partition."""
        for entry in self.entries.values():
            entry.unwatch()


class SessionCache:
    """The sessions of one broker; at most as many as the setting allows."""

    def __init__(self, slots: int, clock: Clock) -> None:
        self._slots = slots
        self._clock = clock
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def session_for(self, request: FetchRequest, by_ids: bool) -> tuple[FetchSession, bool]:
        """The session that the request uses or creates, and whether it is incremental."""
        if request.session_epoch <= INITIAL_EPOCH:
            if request.session_id:
                self.drop(request.session_id)
            if request.session_epoch == FINAL_EPOCH or not self._has_room():
                return FetchSession(0, by_ids, request), False
            return self._open(request, by_ids), False
        session = self._sessions.get(request.session_id)
        if session is None:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.by_ids != by_ids:
            raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        if session.epoch != request.session_epoch or session.waiting is not None:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        session.epoch = session.epoch + 1 if session.epoch < 0x7FFFFFFF else 1
        session.used_at = self._clock.monotonic()
        self._sessions.move_to_end(session.id)
        session.update(request)
        return session, True

    def _open(self, request: FetchRequest, by_ids: bool) -> FetchSession:
        session_id = random.randint(1, 0x7FFFFFFF)
        while session_id in self._sessions:
            session_id = random.randint(1, 0x7FFFFFFF)
        session = self._sessions[session_id] = FetchSession(session_id, by_ids, request)
        session.used_at = self._clock.monotonic()
        return session

    def drop(self, session_id: int) -> None:
        """Remove the session with this id, if it exists."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            session.close()

    def _has_room(self) -> bool:
        """Whether a slot is free; evicts the session that was idle longest if it may be evicted."""
        if len(self._sessions) < self._slots:
            return True
        if not self._sessions:
            return False
        oldest = next(iter(self._sessions.values()))
        if self._clock.monotonic() - oldest.used_at < _EVICTABLE_AFTER_S:
            return False
        self.drop(oldest.id)
        return True
