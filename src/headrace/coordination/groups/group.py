"""The interface of all types of groups, as the registry and the offsets use it.

Also the requests and responses of the classic protocol. They are not in `classic.py`, because a
consumer group also serves members with the classic protocol.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from headrace.coordination.offsets import OffsetToCommit
from headrace.coordination.outcome import AnyReply, Outcome, Record, Timer, Token
from headrace.errors import ErrorCode

CLASSIC = "classic"
CONSUMER = "consumer"
SHARE = "share"
STREAMS = "streams"

NO_GENERATION = -1


@dataclass(frozen=True, slots=True)
class Join:
    """A JoinGroup, in its newest form."""

    group_id: str
    member_id: str  # "" from a member that has none yet
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]  # name and metadata, in order of preference
    reason: str
    requires_member_id: bool  # v4 and later: the client retries with the id that error 79 gave
    can_skip_assignment: bool  # v9 and later

    def metadata(self, protocol: str | None) -> bytes:
        """The metadata of this protocol, if the member supports it."""
        return next((data for name, data in self.protocols if name == protocol), b"")


@dataclass(frozen=True, slots=True)
class JoinedMember:
    """A member in the response to the leader."""

    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True)
class Joined:
    """The response to a Join; with an error, other fields have Kafka's defaults."""

    error: ErrorCode
    member_id: str
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


@dataclass(frozen=True, slots=True)
class Sync:
    """A SyncGroup, in its newest form."""

    group_id: str
    generation: int
    member_id: str
    instance_id: str | None
    protocol_type: str | None
    protocol_name: str | None
    assignments: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class Synced:
    """The response to a Sync."""

    error: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A Heartbeat of the classic protocol; the response is an ErrorCode."""

    group_id: str
    generation: int
    member_id: str
    instance_id: str | None


@dataclass(frozen=True, slots=True)
class Leaver:
    """One member of a LeaveGroup; an administrator names static members by instance only."""

    member_id: str
    instance_id: str | None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Left:
    """The result for one Leaver; the response to a LeaveGroup is a tuple of these."""

    member_id: str
    instance_id: str | None
    error: ErrorCode

    def failed(self, error: ErrorCode) -> Left:
        """The same member, with an error."""
        return replace(self, error=error)


@dataclass(frozen=True, slots=True)
class Committer:
    """The client that commits offsets; `generation` is a member epoch in a consumer group."""

    member_id: str
    instance_id: str | None
    generation: int
    version: int  # of OffsetCommit


class ClassicRequests(Protocol):
    """Serves the requests of members that use the classic protocol."""

    def join(self, join: Join, token: Token[Joined], new_member_id: str, now_ms: int) -> Outcome:
        """JoinGroup; replies with Joined. `new_member_id` is for a member that has none."""

    def sync(self, sync: Sync, token: Token[Synced], now_ms: int) -> Outcome:
        """SyncGroup; replies with Synced."""

    def heartbeat(self, beat: Heartbeat, token: Token[ErrorCode], now_ms: int) -> Outcome:
        """Heartbeat; replies with an ErrorCode."""

    def leave(
        self, leavers: Sequence[Leaver], token: Token[tuple[Left, ...]], now_ms: int
    ) -> Outcome:
        """LeaveGroup; replies with a tuple of Left, one for each leaver."""


class Group(Protocol):
    """A group of any kind. `expire` is called for timers whose key is (kind, group id, ...)."""

    @property
    def group_id(self) -> str: ...

    @property
    def classic(self) -> ClassicRequests:
        """Serves members that use the classic protocol."""

    @property
    def kind(self) -> str:
        """CLASSIC, CONSUMER, SHARE or STREAMS: how ListGroups names the type."""

    @property
    def protocol_type(self) -> str:
        """The protocol type of the members ("consumer", "connect"); "" if none has ever joined."""

    @property
    def state(self) -> str:
        """As Kafka prints it: Empty, Stable, PreparingRebalance, Assigning, ..."""

    def is_empty(self) -> bool:
        """Whether it has no members, so that it may be deleted."""

    def subscribes_to(self, topic: str) -> bool:
        """Whether offsets of this topic are in use."""

    def check_commit(
        self, who: Committer, now_ms: int, offsets: Sequence[OffsetToCommit] = ()
    ) -> list[Timer]:
        """Raise KafkaError unless `who` may commit the offsets; a commit renews the session."""

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """Raise KafkaError unless this member may read offsets (None or epoch -1: any client)."""

    def tombstones(self) -> list[Record]:
        """The records that delete the group, without its offsets."""

    def loaded(self, now_ms: int) -> Outcome:
        """The log has been read: begin the sessions of members."""

    def expire(self, key: tuple[str, ...], now_ms: int) -> Outcome:
        """A timer of this group is due."""

    def withdraw(self, error: ErrorCode) -> list[AnyReply]:
        """Answer all waiting requests: this broker no longer coordinates the group."""
