"""The members of a classic group: their protocols, the leader, and waiting requests."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from headrace.coordination.groups.group import Join, Joined, JoinedMember, Synced
from headrace.coordination.outcome import Token
from headrace.coordination.records import MemberMetadata
from headrace.errors import ErrorCode, KafkaError

Protocols = tuple[tuple[str, bytes], ...]
"""Assignment strategies with the metadata of the member, in order of preference."""


@dataclass(slots=True)
class ClassicMember:
    """One member; the tokens are those of its waiting requests."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    join_token: Token[Joined] | None = None
    sync_token: Token[Synced] | None = None
    is_new: bool = False
    """Whether it has been in no generation yet: it has no id, and sends no heartbeats."""

    @classmethod
    def joining(cls, join: Join, member_id: str) -> ClassicMember:
        """A member that is new."""
        return cls(
            member_id,
            join.instance_id,
            join.client_id,
            join.client_host,
            join.rebalance_timeout_ms,
            join.session_timeout_ms,
            join.protocols,
            is_new=True,
        )

    @classmethod
    def stored(cls, stored: MemberMetadata, protocol: str | None) -> ClassicMember:
        """A member as in the log, which has only the protocol in use."""
        return cls(
            stored.member_id,
            stored.instance_id,
            stored.client_id,
            stored.client_host,
            stored.rebalance_timeout_ms,
            stored.session_timeout_ms,
            ((protocol or "", stored.subscription),),
            stored.assignment,
        )

    def to_store(self, assignment: bytes, protocol: str | None) -> MemberMetadata:
        """The member as the log has it, with this assignment and protocol."""
        return MemberMetadata(
            self.member_id,
            self.instance_id,
            self.client_id,
            self.client_host,
            self.rebalance_timeout_ms,
            self.session_timeout_ms,
            self.metadata(protocol),
            assignment,
        )

    def metadata(self, protocol: str | None) -> bytes:
        """The metadata that the member sent for this protocol."""
        return next((data for name, data in self.protocols if name == protocol), b"")


@dataclass(slots=True)
class Roster:
    """The members by their ids."""

    members: dict[str, ClassicMember] = field(default_factory=dict)
    leader: str | None = None
    static: dict[str, str] = field(default_factory=dict)
    """Member ids by instance id."""
    joining: int = 0
    """How many wait for the response to their JoinGroup."""
    unsynced: set[str] = field(default_factory=set)
    """Members of this generation that have not asked for their assignment yet."""
    _supporters: Counter[str] = field(default_factory=Counter)
    """The number of members that support each protocol."""

    def __len__(self) -> int:
        return len(self.members)

    def __iter__(self) -> Iterator[ClassicMember]:
        """The members in the order in which they joined; they may be removed meanwhile."""
        return iter(list(self.members.values()))

    def add(self, member: ClassicMember) -> None:
        """Add a member; the first one leads."""
        self.members[member.member_id] = member
        self._supporters.update(name for name, _ in member.protocols)
        if member.instance_id is not None:
            self.static[member.instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id

    def remove(self, member_id: str) -> ClassicMember:
        """Remove a member; if it was the leader, the oldest of the others leads."""
        member = self.members.pop(member_id)
        self._forget_protocols(member)
        self.unsynced.discard(member_id)
        if member.join_token is not None:
            self.joining -= 1
        if member.instance_id is not None and self.static.get(member.instance_id) == member_id:
            del self.static[member.instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        return member

    def rename(self, member: ClassicMember, member_id: str) -> None:
        """Change the id of a static member that came back."""
        old = member.member_id
        # The order of members decides which one leads next; the dict is rebuilt to keep it.
        self.members = {
            (member_id if known == old else known): one for known, one in self.members.items()
        }
        member.member_id = member_id
        assert member.instance_id is not None, "only static members change their ids"
        self.static[member.instance_id] = member_id
        if self.leader == old:
            self.leader = member_id
        if old in self.unsynced:
            self.unsynced.remove(old)
            self.unsynced.add(member_id)

    def update(self, member: ClassicMember, join: Join) -> None:
        """Update a member that joins again."""
        self._forget_protocols(member)
        member.protocols = join.protocols
        self._supporters.update(name for name, _ in join.protocols)
        member.rebalance_timeout_ms = join.rebalance_timeout_ms
        member.session_timeout_ms = join.session_timeout_ms

    def _forget_protocols(self, member: ClassicMember) -> None:
        for name, _ in member.protocols:
            self._supporters[name] -= 1
            if not self._supporters[name]:
                del self._supporters[name]

    def wait_to_join(self, member: ClassicMember, token: Token[Joined]) -> Token[Joined] | None:
        """The member waits for the generation; returns the token of an earlier request."""
        earlier, member.join_token = member.join_token, token
        if earlier is None:
            self.joining += 1
        return earlier

    def stop_waiting(self, member: ClassicMember) -> Token[Joined] | None:
        """The member no longer waits for the generation; returns its token, if it did."""
        token, member.join_token = member.join_token, None
        if token is not None:
            self.joining -= 1
        return token

    def check(self, member_id: str, instance_id: str | None) -> ClassicMember:
        """The member; UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID if there is none."""
        if instance_id is not None:
            known = self.static.get(instance_id)
            if known is None:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
            if known != member_id:
                raise KafkaError(ErrorCode.FENCED_INSTANCE_ID)
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        return member

    def support_any(self, protocols: Protocols) -> bool:
        """Whether all members support at least one of these protocols."""
        everybody = len(self.members)
        return any(self._supporters[name] == everybody for name, _ in protocols)

    def select_protocol(self, changed: Mapping[str, Protocols] | None = None) -> str | None:
        """The protocol that most members prefer, of those that all support.

        `changed` replaces the protocols of some members.
        """
        spoken = [
            (changed or {}).get(member.member_id, member.protocols)
            for member in self.members.values()
        ]
        common = set.intersection(*({name for name, _ in one} for one in spoken))
        votes: Counter[str] = Counter()
        for protocols in spoken:
            votes.update([name for name, _ in protocols if name in common][:1])
        return max(votes, key=votes.__getitem__, default=None)

    def elect(self) -> bool:
        """Make a member that has joined the leader; False if none has."""
        if self.leader is None:
            return False
        if self.members[self.leader].join_token is not None:
            return True
        for member in self.members.values():
            if member.join_token is not None:
                self.leader = member.member_id
                return True
        return False

    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout of the members."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def as_joined(self, protocol: str | None) -> tuple[JoinedMember, ...]:
        """The members for the response to the leader."""
        return tuple(
            JoinedMember(member.member_id, member.instance_id, member.metadata(protocol))
            for member in self.members.values()
        )


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """The topics that consumers subscribe to, or None if that cannot be read.

    A subscription begins with its version (int16) and an array of topic names, in every version.
    """
    topics: set[str] = set()
    try:
        for data in subscriptions:
            (count,) = struct.unpack_from(">i", data, 2)
            if not 0 <= count <= len(data):
                return None
            pos = 6
            for _ in range(count):
                (size,) = struct.unpack_from(">h", data, pos)
                pos += 2
                if size < 0 or pos + size > len(data):
                    return None
                topics.add(data[pos : pos + size].decode())
                pos += size
    except (struct.error, UnicodeDecodeError):
        return None
    return frozenset(topics)
