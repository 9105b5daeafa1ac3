"""A shard without a broker: operations, a log in memory, a clock by hand."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import TypeVar

from headrace.cluster.image import Image
from headrace.coordination.groups.classic import ClassicGroup
from headrace.coordination.groups.group import (
    Committer,
    Heartbeat,
    Join,
    Joined,
    Leaver,
    Left,
    Sync,
    Synced,
)
from headrace.coordination.groups.registry import Groups
from headrace.coordination.load import Latest, replay_steps
from headrace.coordination.offsets import OffsetToCommit
from headrace.coordination.outcome import Outcome, Reply, Token
from headrace.coordination.timers import Timers
from headrace.errors import ErrorCode
from headrace.settings import Settings
from tests.coordination.replies import reply_of

T = TypeVar("T")
GROUP = "g"
WALL_MS = 1_700_000_000_000
QUICK = {"group.initial.rebalance.delay.ms": "0"}


def subscription(*topics: str) -> bytes:
    """What a consumer says about itself, in version 0 of the consumer protocol."""
    out = struct.pack(">hi", 0, len(topics))
    for topic in topics:
        out += struct.pack(">h", len(topic)) + topic.encode()
    return out + struct.pack(">i", 0)


class Shard:
    """Runs operations as the runtime does; the log survives `restart`."""

    def __init__(self, settings: Mapping[str, str] = QUICK) -> None:
        self.settings = Settings.parse(dict(settings))
        self.log: list[tuple[bytes, bytes | None]] = []
        self.now_ms = 0
        self._member = 0
        self.groups = Groups(self.settings, Image())
        self.timers: Timers[tuple[str, ...]] = Timers()

    def restart(self) -> None:
        """Forget everything but the log, and read that."""
        self.groups = Groups(self.settings, Image())
        self.timers = Timers()
        latest = Latest()
        for key, value in self.log:
            latest.put(key, value)
        for _ in replay_steps(self.groups, latest):
            pass
        self._apply(self.groups.loaded(self.now_ms))

    def run(self, operation: Callable[[Groups, Token[T], int], Outcome]) -> Token[T]:
        """The token of the operation; it is answered now or later."""
        token: Token[T] = Token()
        self.groups.wall.ms = WALL_MS + self.now_ms
        self._apply(operation(self.groups, token, self.now_ms))
        return token

    def _apply(self, outcome: Outcome) -> None:
        for key, value in outcome.records:
            self.log.append((key.encode(), None if value is None else value.encode()))
            self.groups.replay(key, value)
        for effect in outcome.effects:
            effect()
        for timer in outcome.sessions + outcome.timers:
            self.timers.set(timer.key, timer.at_ms)
        for reply in outcome.replies:
            assert isinstance(reply, Reply)
            assert not reply.token.answered, f"answered twice: {reply.token.response}, {reply}"
            reply.send()

    def advance(self, ms: int) -> None:
        """Let time pass, and every timer fire at its moment."""
        until = self.now_ms + ms
        while (at_ms := self.timers.next_ms()) is not None and at_ms <= until:
            self.now_ms = max(self.now_ms, at_ms)
            for key in self.timers.due(self.now_ms):
                self.groups.wall.ms = WALL_MS + self.now_ms
                self._apply(self.groups.expire(key, self.now_ms))
        self.now_ms = until

    def group(self, group_id: str = GROUP) -> ClassicGroup:
        return self.groups.classic(group_id)

    # ------------------------------------------------------------------------ the clients' side

    def join(
        self,
        member_id: str = "",
        *,
        instance_id: str | None = None,
        protocols: tuple[tuple[str, bytes], ...] = (("range", subscription("orders")),),
        protocol_type: str = "consumer",
        session_ms: int = 10_000,
        rebalance_ms: int = 60_000,
        requires_member_id: bool = False,
        can_skip_assignment: bool = True,
        group_id: str = GROUP,
    ) -> Token[Joined]:
        self._member += 1
        new_id = f"{instance_id or 'm'}-{self._member}"
        join = Join(
            group_id, member_id, instance_id, "client", "/127.0.0.1", session_ms, rebalance_ms,
            protocol_type, protocols, "", requires_member_id, can_skip_assignment,
        )  # fmt: skip
        return self.run(lambda groups, token, now: groups.join(join, token, new_id, now))

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments: Mapping[str, bytes] | None = None,
        *,
        instance_id: str | None = None,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
    ) -> Token[Synced]:
        sync = Sync(
            GROUP, generation, member_id, instance_id, protocol_type, protocol_name,
            tuple((assignments or {}).items()),
        )  # fmt: skip
        return self.run(lambda groups, token, now: groups.sync(sync, token, now))

    def heartbeat(
        self, member_id: str, generation: int, instance_id: str | None = None
    ) -> ErrorCode:
        beat = Heartbeat(GROUP, generation, member_id, instance_id)
        token: Token[ErrorCode] = self.run(
            lambda groups, token, now: groups.heartbeat(beat, token, now)
        )
        return reply_of(token)

    def leave(self, *leavers: tuple[str, str | None]) -> list[ErrorCode]:
        leaving = [Leaver(member_id, instance_id) for member_id, instance_id in leavers]
        token: Token[tuple[Left, ...]] = self.run(
            lambda groups, token, now: groups.leave(GROUP, leaving, token, now)
        )
        return [left.error for left in reply_of(token)]

    def commit(
        self,
        offset: int,
        member_id: str = "",
        generation: int = -1,
        *,
        partition: int = 0,
        topic: str = "orders",
        instance_id: str | None = None,
        version: int = 8,
        group_id: str = GROUP,
    ) -> None:
        """Raises KafkaError where a client would be told one."""
        who = Committer(member_id, instance_id, generation, version)
        wanted = [OffsetToCommit(topic, partition, offset, 0, "")]

        def commit(groups: Groups, token: Token[None], now_ms: int) -> Outcome:
            outcome = groups.commit(group_id, who, wanted, now_ms)
            outcome.replies.append(Reply(token, None))
            return outcome

        self.run(commit)

    def committed(self, partition: int = 0, topic: str = "orders", group_id: str = GROUP) -> int:
        found = self.groups.fetch(group_id, None, -1).get(topic, {}).get(partition)
        return -1 if found is None else found.offset

    def stable(self, count: int, **options: object) -> list[Joined]:
        """A group of `count` members that all have their assignment: what each was told."""
        joined = [reply_of(self.join(**options))]  # type: ignore[arg-type]
        members = [joined[0].member_id]
        for _ in range(count - 1):
            newcomer = self.join(**options)  # type: ignore[arg-type]
            tokens = [self.join(member_id) for member_id in members]
            joined = [reply_of(token) for token in (*tokens, newcomer)]
            members = [one.member_id for one in joined]
        self.sync_all(joined)
        return joined

    def sync_all(self, joined: list[Joined]) -> None:
        """Everybody asks for its part; the leader gives each member its own id as assignment."""
        for one in joined:
            leads = one.leader == one.member_id
            parts = {member.member_id: member.member_id.encode() for member in one.members}
            self.sync(one.member_id, one.generation, parts if leads else None)
