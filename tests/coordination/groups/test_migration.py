"""Both protocols in one group: upgrade, members of either kind side by side, downgrade."""

import struct
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.coordination.consumer_records import Assignment
from headrace.coordination.groups import consumer
from headrace.coordination.groups.classic import ClassicGroup
from headrace.coordination.groups.consumer import ConsumerGroup, ConsumerHeartbeatReply
from headrace.coordination.groups.embedded import (
    by_id,
    read_assignment,
    read_subscription,
    write_assignment,
)
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
from headrace.coordination.outcome import Token
from headrace.errors import ErrorCode, KafkaError
from tests.coordination.groups.consumer_shard import (
    GROUP,
    Client,
    Shard,
    partitions,
    settle,
    topic_id,
)
from tests.coordination.replies import reply_of

ORDERS = topic_id("orders")
SETTINGS = {"group.initial.rebalance.delay.ms": "0"}


def _text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def subscription(*topics: str, owned: Assignment | None = None) -> bytes:
    """Version 1 of a consumer's subscription; everything owned is of the topic orders."""
    held = sorted((owned or {}).get(topic_id("orders"), ()))
    names = struct.pack(">hi", 1, len(topics)) + b"".join(map(_text, topics))
    mine = struct.pack(">i", 1) + _text("orders") + struct.pack(f">i{len(held)}i", len(held), *held)
    return names + struct.pack(">i", -1) + (mine if held else struct.pack(">i", 0))


class OldClient:
    """A consumer with the classic protocol that gives up its partitions one by one."""

    def __init__(self, shard: Shard, instance_id: str | None = None) -> None:
        self.shard = shard
        self.instance_id = instance_id
        self.member_id = ""
        self.generation = -1
        self.owned: Assignment = {}

    def request(self) -> Join:
        return Join(
            GROUP,
            self.member_id,
            self.instance_id,
            "old",
            "/127.0.0.1",
            10_000,
            60_000,
            "consumer",
            (("cooperative-sticky", subscription("orders", owned=self.owned)),),
            "",
            requires_member_id=False,
            can_skip_assignment=False,
        )

    def join(self, new_id: str = "old-1") -> Joined:
        joined = self.shard.join(self.request(), new_id)
        if joined.error is ErrorCode.NONE:
            self.member_id, self.generation = joined.member_id, joined.generation
        return joined

    def sync(self, *assignments: tuple[str, bytes]) -> Synced:
        request = Sync(
            GROUP, self.generation, self.member_id, self.instance_id, None, None, assignments
        )
        synced = self.shard.ask(partial(self.shard.groups.sync, request))
        if synced.error is ErrorCode.NONE:
            self.owned = by_id(read_assignment(synced.assignment), self.shard.image)
        return synced

    def heartbeat(self) -> ErrorCode:
        beat = Heartbeat(GROUP, self.generation, self.member_id, self.instance_id)
        return self.shard.ask(partial(self.shard.groups.heartbeat, beat))

    def settle(self) -> None:
        """Heartbeat, and join and sync for as long as that is asked for."""
        for _ in range(10):
            if self.heartbeat() is ErrorCode.NONE:
                return
            self.join()
            self.sync()
        raise AssertionError("the member does not come to rest")


def classic_group(shard: Shard) -> OldClient:
    """A stable classic group with one member that has everything."""
    old = OldClient(shard)
    old.join()
    everything = write_assignment(1, {"orders": frozenset(range(4))})
    assert old.sync((old.member_id, everything)).error is ErrorCode.NONE
    return old


def test_a_classic_group_goes_on_as_a_consumer_group_when_a_new_member_comes() -> None:
    shard = Shard(SETTINGS, orders=4)
    old, new = classic_group(shard), Client(shard, "new")
    generation = old.generation
    assert new.join().assigned == {}, "everything still belongs to the old member"
    assert shard.group.persistent.epoch == generation + 1
    assert shard.group.persistent.member(old.member_id).current.assigned == partitions(orders=4)

    assert old.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    old.join()
    assert old.generation == generation, "it must give up two partitions first"
    old.sync()
    assert len(old.owned[topic_id("orders")]) == 2
    assert old.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    old.settle()
    settle(new)
    assert old.generation == generation + 1
    assert {*old.owned[topic_id("orders")], *new.owned[topic_id("orders")]} == set(range(4))
    assert shard.group.state == "Stable"


def test_waiting_members_of_a_classic_group_have_to_join_again() -> None:
    shard = Shard({"group.initial.rebalance.delay.ms": "3000"}, orders=4)
    old = OldClient(shard)
    waiting: Token[Joined] = Token()
    shard.run(shard.groups.join(old.request(), waiting, "old-1", shard.now_ms))
    asking: Token[ConsumerHeartbeatReply] = Token()
    outcome = consumer.heartbeat(
        shard.groups,
        Client(shard, "new").request(
            topics=("orders",), rebalance_timeout_ms=60_000, owned={}, epoch=0
        ),
        asking,
        shard.now_ms,
    )
    assert len(outcome.replies) == 2
    shard.run(outcome)
    assert asking.answered
    assert reply_of(waiting).error is ErrorCode.REBALANCE_IN_PROGRESS
    assert isinstance(shard.groups.groups[GROUP], ConsumerGroup)


def test_the_policy_can_forbid_upgrades() -> None:
    shard = Shard({**SETTINGS, "group.consumer.migration.policy": "disabled"}, orders=4)
    classic_group(shard)
    with pytest.raises(KafkaError) as refusal:
        Client(shard, "new").join()
    assert refusal.value.code is ErrorCode.GROUP_ID_NOT_FOUND
    assert isinstance(shard.groups.groups[GROUP], ClassicGroup)


def test_the_group_is_classic_again_when_the_last_new_member_leaves() -> None:
    shard = Shard(SETTINGS, orders=4)
    old, new = classic_group(shard), Client(shard, "new")
    new.join()
    old.settle()
    settle(new)
    new.leave()
    group = shard.groups.groups[GROUP]
    assert isinstance(group, ClassicGroup)
    shard.advance(1)
    assert old.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    joined = old.join()
    assert joined.leader == old.member_id
    kept = [key for key, value in shard.log.items() if value is not None]
    assert [key[:2] for key in kept] == [b"\0\2"], "nothing of the consumer group is left"


def test_a_member_that_is_silent_leads_to_a_downgrade_too() -> None:
    shard = Shard(SETTINGS, orders=4)
    old, new = classic_group(shard), Client(shard, "new")
    new.join()
    old.settle()
    for _ in range(9):
        shard.advance(5_000)
        old.heartbeat()
    assert isinstance(shard.groups.groups[GROUP], ClassicGroup)


def test_the_policy_can_forbid_downgrades() -> None:
    shard = Shard({**SETTINGS, "group.consumer.migration.policy": "upgrade"}, orders=4)
    old, new = classic_group(shard), Client(shard, "new")
    new.join()
    old.settle()
    settle(new)
    new.leave()
    old.settle()
    assert isinstance(shard.groups.groups[GROUP], ConsumerGroup)
    assert old.owned == partitions(orders=4)


def test_a_group_without_members_takes_the_protocol_of_its_next_member() -> None:
    shard = Shard(SETTINGS, orders=4)
    new = Client(shard, "new")
    new.join()
    new.leave()
    old = classic_group(shard)
    assert isinstance(shard.groups.groups[GROUP], ClassicGroup)
    left = shard.leave(Leaver(old.member_id, None))
    assert left == (Left(old.member_id, None, ErrorCode.NONE),)
    assert new.join().assigned == partitions(orders=4)
    shard.restart()
    assert shard.group.state == "Stable"


def test_a_static_member_can_change_its_protocol_and_keeps_its_partitions() -> None:
    shard = Shard(SETTINGS, orders=4)
    other, new = Client(shard, "other"), Client(shard, "new", instance_id="one")
    other.join()
    new.join()
    settle(other, new)
    had = new.owned
    new.leave(-2)
    old = OldClient(shard, "one")
    assert old.join("old-7").member_id == "old-7"
    old.sync()
    assert old.owned == had
    again = Client(shard, "again", instance_id="one")
    assert again.join().assigned == had
    assert old.heartbeat() is ErrorCode.FENCED_INSTANCE_ID


def test_old_members_that_do_not_come_when_asked_are_out() -> None:
    shard = Shard(SETTINGS, orders=4)
    old, new = classic_group(shard), Client(shard, "new")
    new.join()
    for _ in range(12):
        assert old.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
        new.beat()
        shard.advance(5_000)
    assert old.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID
    settle(new)
    assert new.owned == partitions(orders=4)


def test_the_errors_of_the_classic_protocol_in_a_consumer_group() -> None:
    shard = Shard(SETTINGS, orders=4)
    old, new = classic_group(shard), Client(shard, "new")
    new.join()
    old.settle()
    for request, code in (
        (replace(old.request(), protocol_type="connect"), ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (replace(old.request(), protocols=()), ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (
            replace(old.request(), protocols=(("cooperative-sticky", b"\0"),)),
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        ),
        (
            replace(old.request(), member_id="", requires_member_id=True),
            ErrorCode.MEMBER_ID_REQUIRED,
        ),
        (replace(old.request(), instance_id="nobody"), ErrorCode.UNKNOWN_MEMBER_ID),
    ):
        assert shard.join(request, "id").error is code
    generation, old.generation = old.generation, 99
    assert old.heartbeat() is old.sync().error is ErrorCode.ILLEGAL_GENERATION
    with pytest.raises(KafkaError) as refusal:
        shard.group.check_commit(Committer(old.member_id, None, 99, 8), 0)
    assert refusal.value.code is ErrorCode.ILLEGAL_GENERATION
    shard.group.check_commit(Committer(old.member_id, None, generation, 8), 0)
    old.member_id = "new"
    assert old.heartbeat() is old.sync().error is ErrorCode.UNKNOWN_MEMBER_ID


def test_an_administrator_removes_members_of_both_kinds() -> None:
    shard = Shard(SETTINGS, orders=4)
    old, new = classic_group(shard), Client(shard, "new", instance_id="one")
    new.join()
    third = Client(shard, "third")
    third.join()
    leavers = [Leaver("", "one"), Leaver(old.member_id, None), Leaver("nobody", None)]
    left = shard.leave(*leavers)
    assert left == (
        Left("new", "one", ErrorCode.NONE),
        Left(old.member_id, None, ErrorCode.NONE),
        Left("nobody", None, ErrorCode.UNKNOWN_MEMBER_ID),
    )
    assert list(shard.group.persistent.members) == ["third"]


@pytest.mark.parametrize("cut", range(len(subscription("orders", owned=partitions(orders=2)))))
def test_a_subscription_that_ends_early_is_none(cut: int) -> None:
    whole = subscription("orders", owned=partitions(orders=2))
    with pytest.raises(ValueError, match=r"."):
        read_subscription(whole[:cut])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.sampled_from(["step", "step", "leave"]))))
def test_members_of_both_kinds_never_own_the_same_partition(
    actions: list[tuple[int, str]],
) -> None:
    shard = Shard(SETTINGS, orders=7)
    # One with the new protocol stays, so that the group never becomes a classic one.
    stays = Client(shard, "stays")
    stays.join()
    members: dict[int, OldClient | Client] = {}
    for serial, (number, action) in enumerate(actions):
        member = members.get(number)
        if member is None:
            member = OldClient(shard) if number < 3 else Client(shard, f"new-{serial}")
            members[number] = member
            if isinstance(member, OldClient):
                member.join(f"old-{serial}")
                member.sync()
            else:
                member.join()
        elif action == "leave":
            del members[number]
            if isinstance(member, OldClient):
                leaver = Leaver(member.member_id, None)
                shard.leave(leaver)
            else:
                member.leave()
        elif isinstance(member, Client):
            member.settle()
        elif member.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS:
            member.join()
            member.sync()
        stays.settle()
        held = [n for one in (stays, *members.values()) for n in one.owned.get(ORDERS, ())]
        assert len(held) == len(set(held))
    for _ in range(12):
        stays.settle()
        for member in members.values():
            member.settle()
    held = [n for one in (stays, *members.values()) for n in one.owned.get(ORDERS, ())]
    assert sorted(held) == list(range(7))
    assert shard.group.state == "Stable"
