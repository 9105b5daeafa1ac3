"""An operation whose records the log refuses has not happened: state and timers stay as they were.

The real coordinators on real logs. A partition with too few in-sync replicas refuses every append,
in a random pattern. Once appends succeed again, every silent member expires and every group ends.
"""

from __future__ import annotations

import asyncio
import dataclasses
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from headrace.clock import ManualClock
from headrace.cluster.image import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from headrace.coordination.groups import consumer
from headrace.coordination.groups.classic import ClassicGroup
from headrace.coordination.groups.consumer import ConsumerGroup, ConsumerHeartbeat
from headrace.coordination.groups.group import Committer, Heartbeat, Join, Leaver, Sync
from headrace.coordination.groups.registry import Groups
from headrace.coordination.offsets import OffsetToCommit
from headrace.coordination.outcome import Outcome, Reply, Token
from headrace.coordination.runtime import Runtime
from headrace.coordination.transactions import NO_PRODUCER, Identity, Transactions
from headrace.errors import ErrorCode, KafkaError
from headrace.replication.partition import Partition
from headrace.types import TopicPartition
from tests.apis.one_broker import OneBroker
from tests.coordination.groups.test_migration import subscription

pytestmark = pytest.mark.slow

GROUP = "g"
NAMES = st.sampled_from(["a", "b", "c"])
WHICH = st.integers(0, 5)
REFUSED = st.booleans()
SESSION_MS = 6000
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.session.timeout.ms": "45000",
    "group.max.size": "3",
}
NOT_STATE = {
    "_group", "shard", "settings", "image", "limits", "wall", "_wall", "_limits", "_search",
}  # fmt: skip
"""Fields that are surroundings, caches, or the progress of a search whose result is not used."""


def dump(value: object) -> object:
    """Everything that an object holds, to be compared later."""
    if value is None or isinstance(value, bool | int | str | bytes | UUID):
        return value
    if isinstance(value, Token):
        return id(value), value.answered
    if isinstance(value, Mapping):
        return [(dump(key), dump(one)) for key, one in value.items()]
    if isinstance(value, set | frozenset):
        return sorted(map(repr, value))
    if isinstance(value, list | tuple):
        return [dump(one) for one in value]
    if dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value)]
    else:
        slots = getattr(type(value), "__slots__", ())
        names = [*slots, *vars(value)] if hasattr(value, "__dict__") else list(slots)
    return type(value).__name__, [
        (name, dump(getattr(value, name))) for name in sorted(names) if name not in NOT_STATE
    ]


class Refusing(RuleBasedStateMachine):
    """A broker, and one coordinator's only partition."""

    topic = OFFSETS_TOPIC

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.broker = OneBroker(Path(self.folder.name), SETTINGS)
        self.broker.create("orders", 3)
        self.loop = asyncio.new_event_loop()
        self.asked: list[asyncio.Future[Any]] = []
        self.coordinator = self.of(self.broker)
        self.coordinator.topic.partition_of(GROUP)
        self.state = next(iter(self.coordinator.shards.states()))

    def of(self, broker: OneBroker) -> Runtime[Any]:
        return broker.groups

    def teardown(self) -> None:
        self.loop.close()
        self.broker.close()
        self.folder.cleanup()

    @property
    def clock(self) -> ManualClock:
        return cast(ManualClock, self.broker.services.clock)

    @property
    def partition(self) -> Partition:
        return self.broker.replicas.partition(self.topic, 0)

    def timers(self, renewed: bool) -> dict[tuple[str, ...], object]:
        """All timers; with `renewed` not when sessions end: a refused client is alive."""
        return {
            key.key: None if renewed and key.key[2:3] in (("session",), ("member",)) else at_ms
            for key, at_ms in self.coordinator._timers._timers._at.items()
        }

    def waiting(self) -> set[asyncio.Future[Any]]:
        """Requests that wait for their replies."""
        return {future for future in self.asked if not future.done()}

    def run_step(self, refused: bool, step: Callable[[], object], renews: bool = False) -> object:
        """Run one step; if it was refused, nothing but sessions has changed."""
        before, timers = dump(self.state), self.timers(renews)
        end = self.partition.replica.log.end_offset
        waiting = self.waiting()

        async def call() -> object:
            self.partition.isr = 0 if refused else 1
            try:
                return step()
            except KafkaError as error:
                return error
            finally:
                self.partition.isr = 1

        found = self.loop.run_until_complete(call())
        if isinstance(found, asyncio.Future):
            self.asked.append(found)
        if found is False or (
            isinstance(found, KafkaError) and found.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        ):
            assert self.partition.replica.log.end_offset == end
            assert dump(self.state) == before
            assert self.timers(renews) == timers
            assert self.waiting() == waiting, "another request was answered"
        return found

    def run_operation(
        self,
        refused: bool,
        operation: Callable[[Any, Token[Any], int], Outcome],
        renews: bool = False,
    ) -> object:
        """Run an operation as a request does."""
        return self.run_step(refused, lambda: self.coordinator._run(GROUP, operation), renews)

    def pass_time(self, ms: int, refused: bool = False) -> None:
        """Let time pass, and every timer fire at its moment."""
        until_ms = int(self.clock.monotonic() * 1000) + ms
        self.partition.isr = 0 if refused else 1
        while (
            at_ms := self.coordinator._timers._timers.next_ms()
        ) is not None and at_ms <= until_ms:
            self.clock.advance(max(at_ms - int(self.clock.monotonic() * 1000), 0))
            self.loop.run_until_complete(self._fire())
        self.clock.advance(max(until_ms - int(self.clock.monotonic() * 1000), 0))
        self.partition.isr = 1

    async def _fire(self) -> None:
        self.coordinator.fire_timers()


class RefusedGroups(Refusing):
    """Groups of both protocols, and their offsets."""

    serial = 0

    # ------------------------------------------------------------------------------ what is there

    @property
    def groups(self) -> Groups:
        return cast(Groups, self.state)

    def members(self) -> list[tuple[str, str | None, int]]:
        """The ids, instance ids and epochs or generations of all members."""
        group = self.groups.groups.get(GROUP)
        if isinstance(group, ClassicGroup):
            known = group.roster.members.values()
            found = [(one.member_id, one.instance_id, group.generation.number) for one in known]
            return found + [(member_id, None, -1) for member_id in sorted(group.rebalance.pending)]
        if isinstance(group, ConsumerGroup):
            all_members = group.persistent.members.values()
            return [(one.id, one.instance_id, one.epoch) for one in all_members]
        return []

    def member(self, which: int) -> tuple[str, str | None, int]:
        members = self.members()
        return members[which % len(members)] if members else ("nobody", None, 0)

    # ------------------------------------------------------------------------- classic protocol

    def _join(self, refused: bool, member_id: str, instance_id: str | None, more: bool) -> object:
        self.serial += 1
        topics = ("orders", "returns") if more else ("orders",)
        request = Join(
            GROUP, member_id, instance_id, "client", "/127.0.0.1", SESSION_MS, 20_000, "consumer",
            (("range", subscription(*topics)),), "", instance_id is None and more, True,
        )  # fmt: skip
        new_id = f"classic-{self.serial}"
        return self.run_operation(
            refused, lambda groups, token, now: groups.join(request, token, new_id, now), True
        )

    @rule(refused=REFUSED, instance_id=st.sampled_from([None, "x", "y"]), more=st.booleans())
    def join_classic(self, refused: bool, instance_id: str | None, more: bool) -> None:
        self._join(refused, "", instance_id, more)

    @rule(refused=REFUSED, which=WHICH, more=st.booleans())
    def join_classic_again(self, refused: bool, which: int, more: bool) -> None:
        member_id, instance_id, _ = self.member(which)
        self._join(refused, member_id, instance_id, more)

    @rule(refused=REFUSED, which=WHICH)
    def sync(self, refused: bool, which: int) -> None:
        member_id, instance_id, generation = self.member(which)
        parts = tuple((one[0], b"") for one in self.members())
        request = Sync(GROUP, generation, member_id, instance_id, None, None, parts)
        self.run_operation(
            refused, lambda groups, token, now: groups.sync(request, token, now), True
        )

    @rule(refused=REFUSED, which=WHICH)
    def beat_classic(self, refused: bool, which: int) -> None:
        member_id, instance_id, generation = self.member(which)
        request = Heartbeat(GROUP, generation, member_id, instance_id)
        self.run_operation(
            refused, lambda groups, token, now: groups.heartbeat(request, token, now)
        )

    @rule(refused=REFUSED, count=st.integers(1, 4), which=WHICH)
    def leave_classic(self, refused: bool, count: int, which: int) -> None:
        leavers = [Leaver(one[0], one[1]) for one in self.members()[which % 2 :][:count]]
        self.run_operation(
            refused, lambda groups, token, now: groups.leave(GROUP, leavers, token, now)
        )

    @rule(more=st.booleans())
    def everybody_joins_and_syncs(self, more: bool) -> None:
        """Most generations come from here."""
        for member_id, instance_id, _ in self.members():
            self._join(False, member_id, instance_id, more)
        for which in range(len(self.members())):
            self.sync(False, which)

    # ---------------------------------------------------------------------- consumer protocol

    def _beat(self, refused: bool, member_id: str, **fields: object) -> object:
        values: dict[str, object] = {
            "group_id": GROUP, "member_id": member_id, "epoch": 0, "instance_id": None,
            "rack_id": None, "rebalance_timeout_ms": 20_000, "topics": ("orders",),
            "expression": None, "assignor": None, "owned": {}, "client_id": "client",
            "client_host": "/127.0.0.1", **fields,
        }  # fmt: skip
        beat = ConsumerHeartbeat(**values)  # type: ignore[arg-type]
        return self.run_operation(
            refused, lambda groups, token, now: consumer.heartbeat(groups, beat, token, now), True
        )

    @rule(refused=REFUSED, name=NAMES, static=st.booleans(), expression=st.booleans())
    def join_consumer(self, refused: bool, name: str, static: bool, expression: bool) -> None:
        self.serial += 1
        member_id = f"{name}-{self.serial}" if static else name
        instance_id = name if static else None
        text = "or.*" if expression else None
        self._beat(refused, member_id, instance_id=instance_id, expression=text)

    @rule(refused=REFUSED, which=WHICH, topics=st.sampled_from([None, ("orders", "returns")]))
    def beat_consumer(self, refused: bool, which: int, topics: tuple[str, ...] | None) -> None:
        member_id, instance_id, epoch = self.member(which)
        group = self.groups.groups.get(GROUP)
        owned: object = {}
        if isinstance(group, ConsumerGroup) and member_id in group.persistent.members:
            owned = group.persistent.members[member_id].current.assigned
        self._beat(
            refused, member_id, instance_id=instance_id, epoch=epoch, topics=topics, owned=owned
        )

    @rule(refused=REFUSED, which=WHICH, for_now=st.booleans())
    def leave_consumer(self, refused: bool, which: int, for_now: bool) -> None:
        member_id, instance_id, _ = self.member(which)
        epoch = -2 if for_now and instance_id is not None else -1
        self._beat(refused, member_id, instance_id=instance_id, epoch=epoch)

    # ----------------------------------------------------- offsets, administration, topics, time

    @rule(refused=REFUSED, which=WHICH, transactional=st.booleans())
    def commit(self, refused: bool, which: int, transactional: bool) -> None:
        member_id, instance_id, generation = self.member(which)
        who = Committer(member_id, instance_id, generation, 9)
        wanted = [OffsetToCommit("orders", 0, 7, 0, "")]

        def operation(groups: Groups, token: Token[None], now_ms: int) -> Outcome:
            if transactional:
                found = groups.commit_in_transaction(GROUP, who, wanted, (1, 0), now_ms)
            else:
                found = groups.commit(GROUP, who, wanted, now_ms)
            found.replies.append(Reply(token, None))
            return found

        self.run_operation(refused, operation, True)

    @rule(refused=REFUSED)
    def delete(self, refused: bool) -> None:
        self.run_operation(refused, lambda groups, token, _: groups.delete(GROUP, token))

    @rule(refused=REFUSED)
    def delete_offsets(self, refused: bool) -> None:
        partitions = [TopicPartition("orders", 0)]
        self.run_operation(
            refused, lambda groups, token, _: groups.delete_offsets(GROUP, partitions, token)
        )

    @rule(refused=REFUSED, data=st.data())
    def a_timer_is_due(self, refused: bool, data: st.DataObject) -> None:
        keys = sorted(key.key for key in self.coordinator._timers._timers._at if len(key.key) > 2)
        if not keys:
            return
        key = data.draw(st.sampled_from(keys))
        now_ms = int(self.clock.monotonic() * 1000)
        shard = self.coordinator.shards.get(0)
        self.run_step(
            refused, lambda: self.coordinator._apply(shard, self.groups.expire(key, now_ms))
        )

    @rule(refused=REFUSED)
    def a_topic_comes_or_goes(self, refused: bool) -> None:
        self.partition.isr = 0 if refused else 1
        partition = self.partition
        if "returns" in self.broker.metadata.image.topics:
            self.broker.metadata.delete_topics(["returns"])
        else:
            self.broker.create("returns", 2)
        partition.isr = 1

    @rule(refused=REFUSED, ms=st.sampled_from([1, 1000, 7000, 21_000, 46_000]))
    def time_passes(self, refused: bool, ms: int) -> None:
        self.pass_time(ms, refused)

    def teardown(self) -> None:
        """Whatever the log refused before, silent members expire, and nobody rebalances."""
        try:
            self.pass_time(400_000)
            self.pass_time(400_000)
            assert not self.members()
            group = self.groups.groups.get(GROUP)
            assert group is None or group.state == "Empty"
            assert not self.waiting()
        finally:
            super().teardown()


class RefusedTransactions(Refusing):
    """Transactional ids; markers go to a real partition."""

    topic = TRANSACTIONS_TOPIC

    def of(self, broker: OneBroker) -> Runtime[Any]:
        return broker.transactions

    @property
    def who(self) -> Identity:
        one = cast(Transactions, self.state).ids.get(GROUP)
        return NO_PRODUCER if one is None else Identity(one.producer_id, one.epoch)

    @rule(refused=REFUSED, again=st.booleans())
    def init(self, refused: bool, again: bool) -> None:
        given = self.who if again else NO_PRODUCER
        self.run_operation(refused, lambda state, token, _: state.init(GROUP, 9000, given, token))

    @rule(refused=REFUSED, index=st.integers(0, 2))
    def add(self, refused: bool, index: int) -> None:
        wanted = frozenset({TopicPartition("orders", index)})
        self.run_operation(
            refused, lambda state, token, _: state.add(GROUP, self.who, wanted, 2, token)
        )

    @rule(refused=REFUSED, commit=st.booleans(), version=st.sampled_from([0, 2]))
    def end(self, refused: bool, commit: bool, version: int) -> None:
        self.run_operation(
            refused, lambda state, token, _: state.end(GROUP, self.who, commit, version, token)
        )

    @rule(refused=REFUSED)
    def time_passes(self, refused: bool) -> None:
        self.clock.advance(10_000)
        shard = self.coordinator.shards.get(0)
        shard.state.wall.ms = self.clock.now_ms()
        self.run_step(refused, lambda: self.coordinator._apply(shard, self.state.abort_timed_out()))


RefusedGroups.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestRefusedGroups = RefusedGroups.TestCase
RefusedTransactions.TestCase.settings = settings(
    max_examples=20, stateful_step_count=30, deadline=None
)
TestRefusedTransactions = RefusedTransactions.TestCase
