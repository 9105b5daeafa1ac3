"""Share sessions: the partitions that a member fetches from this broker.

A session belongs to a member of a group and to the connection that opened it. Each request has the
next epoch; 0 opens a session, -1 closes it. When a session ends, by request or because its
connection is closed, the records of the member are released.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple
from uuid import UUID

from headrace.coordination.shares.share_partitions import LedSharePartition, SharePartitions
from headrace.coordination.shares.share_records import SharePartitionKey
from headrace.errors import ErrorCode, KafkaError

INITIAL_EPOCH, FINAL_EPOCH = 0, -1
_LAST_EPOCH = 0x7FFFFFFF


class ShareSessionKey(NamedTuple):
    """A member of a group."""

    group_id: str
    member_id: str


class ShareSession:
    """One session."""

    __slots__ = ("connection", "epoch", "key", "partitions", "used")

    def __init__(self, key: ShareSessionKey, connection: object) -> None:
        self.key = key
        self.connection = connection
        self.epoch = 1
        """The epoch of the next request."""
        self.partitions: dict[SharePartitionKey, None] = {}
        self.used: dict[SharePartitionKey, LedSharePartition] = {}
        """Share partitions that know of this session."""

    def update(
        self, added: Iterable[tuple[UUID, int]], forgotten: Iterable[tuple[UUID, int]]
    ) -> list[LedSharePartition]:
        """Add and remove partitions; returns those that the session no longer uses."""
        group_id = self.key.group_id
        for topic_id, index in added:
            self.partitions[SharePartitionKey(group_id, topic_id, index)] = None
        for topic_id, index in forgotten:
            self.partitions.pop(SharePartitionKey(group_id, topic_id, index), None)
        unused = [led for key, led in self.used.items() if key not in self.partitions]
        for led in unused:
            del self.used[led.key]
            led.sessions.discard(self.key)
        return unused

    def use(self, led: LedSharePartition) -> None:
        """Let the share partition live as long as the session."""
        if self.used.get(led.key) is not led:
            self.used[led.key] = led
            led.sessions.add(self.key)

    def in_turn(self) -> list[SharePartitionKey]:
        """The partitions, beginning with another one at each request."""
        keys = list(self.partitions)
        first = self.epoch % len(keys) if keys else 0
        return keys[first:] + keys[:first]


class ShareSessions:
    """The sessions of this broker."""

    def __init__(self, most: int, partitions: SharePartitions) -> None:
        self._most = most
        self._partitions = partitions
        self._sessions: dict[ShareSessionKey, ShareSession] = {}

    def open(self, key: ShareSessionKey, connection: object) -> ShareSession:
        """A new session, instead of the one that the member may have."""
        old = self._sessions.get(key)
        if old is None and len(self._sessions) >= self._most:
            raise KafkaError(
                ErrorCode.SHARE_SESSION_LIMIT_REACHED,
                f"This broker has {self._most} share sessions already.",
            )
        session = self._sessions[key] = ShareSession(key, connection)
        if old is not None:
            # What the new session does not use is dropped when its partitions are known.
            session.used = old.used
        return session

    def next(self, key: ShareSessionKey, epoch: int) -> ShareSession:
        """The session of a request with an epoch that is neither initial nor final."""
        session = self._find(key)
        if epoch != session.epoch:
            raise KafkaError(
                ErrorCode.INVALID_SHARE_SESSION_EPOCH,
                f"The share session epoch is {epoch}, but {session.epoch} is expected.",
            )
        session.epoch = 1 if epoch == _LAST_EPOCH else epoch + 1
        return session

    def close(self, key: ShareSessionKey) -> None:
        """End a session as its member has asked; `release` follows."""
        self._remove(self._find(key))

    def check(self, key: ShareSessionKey) -> None:
        """SHARE_SESSION_NOT_FOUND unless the member has a session."""
        self._find(key)

    def disconnected(self, connection: object) -> None:
        """End the sessions of a closed connection, and release the records of their members."""
        for session in [one for one in self._sessions.values() if one.connection is connection]:
            self._remove(session)
            self._partitions.release(*session.key)

    def _find(self, key: ShareSessionKey) -> ShareSession:
        session = self._sessions.get(key)
        if session is None:
            raise KafkaError(
                ErrorCode.SHARE_SESSION_NOT_FOUND,
                f"Member {key.member_id} of group {key.group_id} has no share session here.",
            )
        return session

    def _remove(self, session: ShareSession) -> None:
        del self._sessions[session.key]
        for led in session.used.values():
            led.sessions.discard(session.key)
            self._partitions.drop_if_unused(led)
