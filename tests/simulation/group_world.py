"""A world whose clients are members of groups, of both protocols.

Beside the usual faults members join, leave and die; some leave while nothing can be written.
"""

import asyncio
from random import Random
from typing import Any

from headrace.cluster.image import OFFSETS_TOPIC
from tests.simulation.coordinator_world import PARTITIONS, CoordinatorWorld
from tests.simulation.group_judge import GroupJudge
from tests.simulation.members import (
    REBALANCE_MS,
    ClassicMember,
    ConsumerMember,
    Leader,
    Member,
    OffsetReader,
)
from tests.simulation.world import BROKERS

KINDS: dict[str, type[Member]] = {"classics": ClassicMember, "consumer": ConsumerMember}
"""The groups, each in a partition of its own, and of which kind their members are."""
_SESSION_MS = 3000


class GroupWorld(CoordinatorWorld):
    """One run."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.settings |= {
            "group.initial.rebalance.delay.ms": "300",
            "group.consumer.session.timeout.ms": str(_SESSION_MS),
            "group.consumer.min.session.timeout.ms": str(_SESSION_MS),
            "group.consumer.heartbeat.interval.ms": "500",
            "group.consumer.min.heartbeat.interval.ms": "500",
        }
        self.groups = GroupJudge(
            self.loop.time, self.judge.breaks, min(_SESSION_MS, 2 * REBALANCE_MS) / 1000
        )
        self.quiet = self.random.random() < 0.3
        """Whether members hardly commit: then a coordinator that cannot write waits for nothing."""
        self.members: dict[Member, asyncio.Task[Any]] = {}
        """Those that have neither left nor died."""

    def _start_clients(self) -> None:
        self.producers = []
        for group in KINDS:
            for _ in range(self.random.randint(1, 3)):
                self.add_member(group)
        self.offsets = OffsetReader(
            self._clients, self.network, Random(self.random.random()), BROKERS, tuple(KINDS),
            self.orders, self.groups, self.group_coordinator,
        )  # fmt: skip
        self._run_client(self.offsets.run())

    # ------------------------------------------------------------------------------ members

    def add_member(self, group: str) -> None:
        member = KINDS[group](
            self._clients, self.network, Random(self.random.random()), BROKERS, group, self.orders,
            self.groups,
        )  # fmt: skip
        if self.quiet:
            member.commit_chance = 0.02
        self.members[member] = self._run_client(member.run())
        self.tell("world", f"a member joins {group}")

    def remove_member(self, member: Member, *, leaves: bool) -> None:
        task = self.members.pop(member)
        self.tell("world", f"{member.member_id} {'leaves' if leaves else 'dies'}")
        if leaves:
            member.leaving = True
        else:
            task.cancel()

    def members_of(self, group: str) -> list[Member]:
        return [one for one in self.members if one.group == group]

    def change_members(self) -> None:
        group = self.random.choice(list(KINDS))
        members = self.members_of(group)
        if len(members) < PARTITIONS and self.random.random() < 0.5:
            self.add_member(group)
        elif members:
            self.remove_member(self.random.choice(members), leaves=self.random.random() < 0.5)

    # ------------------------------------------------------------------------------- faults

    async def random_life(self) -> None:
        """Faults and changes of members, as the seed has it."""
        for _ in range(self.random.randint(4, 10)):
            await asyncio.sleep(self.random.expovariate(0.7))
            chance = self.random.random()
            if chance < 0.4:
                self.fault()
            elif chance < 0.8:
                self.change_members()
            else:
                group = self.random.choice(list(KINDS))
                await self.leave_in_vain(self.group_coordinator(group).node, list(KINDS))
        await asyncio.sleep(self.random.uniform(0, 3))

    async def leave_in_vain(self, spared: int, groups: list[str]) -> None:
        """Members leave while two brokers are down, so that the third cannot write."""
        if self.starve(spared):
            await asyncio.sleep(self.random.uniform(2.5, 4.5))
            for group in groups:
                if len(members := self.members_of(group)) > 1:
                    self.remove_member(self.random.choice(members), leaves=True)
            await asyncio.sleep(6)

    def group_coordinator(self, group: str) -> Leader:
        """The broker that leads a group's partition, as the store has it."""
        return self.coordinator_of(OFFSETS_TOPIC, group)

    # ---------------------------------------------------------------------------------- end

    async def _check_end(self) -> None:
        for group in KINDS:
            if not self.members_of(group):
                self.add_member(group)
        for group in KINDS:
            await self.until(
                lambda group=group: self.is_shared_out(group),  # type: ignore[misc]
                f"the members that are left in group {group} have all partitions",
            )
            while not await self.offsets.read(group):
                pass

    def is_shared_out(self, group: str) -> bool:
        members = self.members_of(group)
        owned = [index for one in members for index in one.owned]
        return all(one.stable for one in members) and sorted(owned) == list(range(PARTITIONS))
