"""Groups and transactions under the faults of a seed: all guarantees hold.

A failing seed prints its steps, and can be run again alone: HEADRACE_TEST_SEED=123.
"""

import asyncio
import os
from collections.abc import Sequence
from typing import TypeVar

import pytest

from tests.bugs.bugs import planted
from tests.bugs.coordinator_bugs import GROUP_BUGS, TRANSACTION_BUGS
from tests.simulation.group_world import KINDS, GroupWorld
from tests.simulation.transaction_world import TransactionWorld
from tests.simulation.world import Failure

USUAL_SEEDS = 20
ENDURANCE_SEEDS = 2000
CHUNK = 10
SEEDS_FOR_A_BUG = 60
FOUND_BY = {
    "timers": 17, "early-reply": 10, "held-partitions": 2, "epoch": 3, "stable": 1, "markers": 9,
}  # fmt: skip

pytestmark = pytest.mark.slow
_World = TypeVar("_World", GroupWorld, TransactionWorld)


def run(kind: type[_World], seeds: Sequence[int]) -> list[_World]:
    worlds = []
    for seed in seeds:
        world = kind(seed)
        world.run()
        worlds.append(world)
    return worlds


def chunks(first: int, count: int) -> list[range]:
    if only := os.environ.get("HEADRACE_TEST_SEED"):
        return [range(int(only), int(only) + 1)] if first == 0 else []
    return [range(seed, seed + CHUNK) for seed in range(first, first + count, CHUNK)]


def named(seeds: range) -> str:
    return f"seeds {seeds.start}-{seeds.stop - 1}"


@pytest.mark.parametrize("seeds", chunks(0, USUAL_SEEDS), ids=named)
def test_groups_keep_offsets_and_share_out_partitions_under_every_fault(seeds: range) -> None:
    worlds = run(GroupWorld, seeds)
    for world in worlds:
        assert world.groups.reads > 10
        assert world.groups.assignments >= len(KINDS)
    if len(worlds) == CHUNK:
        assert sum(world.groups.acknowledged_commits for world in worlds) > 10 * CHUNK
        assert sum(world.judge.elections for world in worlds) > CHUNK, "hardly anything happened"
        assert {world.quiet for world in worlds} == {True, False}


@pytest.mark.parametrize("seeds", chunks(0, USUAL_SEEDS), ids=named)
def test_transactions_are_all_or_nothing_under_every_fault(seeds: range) -> None:
    worlds = run(TransactionWorld, seeds)
    if len(worlds) == CHUNK:
        attempts = [one for world in worlds for one in world.transactions.attempts]
        for end in (True, False, None):
            assert sum(one.committed is end for one in attempts) > CHUNK


def test_producers_write_after_they_were_fenced() -> None:
    """Or the rule about them judges nothing."""
    worlds = (run(TransactionWorld, [seed])[0] for seed in range(SEEDS_FOR_A_BUG))
    assert any(world.transactions.fenced for world in worlds)


@pytest.mark.endurance
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seeds", chunks(USUAL_SEEDS, ENDURANCE_SEEDS), ids=named)
def test_coordinators_keep_their_promises_under_thousands_of_faults(seeds: range) -> None:
    run(GroupWorld, seeds)
    run(TransactionWorld, seeds)


@pytest.mark.parametrize("bug", GROUP_BUGS)
def test_a_bug_in_the_group_coordinator_is_found(bug: str) -> None:
    with planted(bug), pytest.raises(Failure) as raised:
        run(GroupWorld, seeds_for(bug))
    assert f"HEADRACE_TEST_SEED={raised.value.seed} " in str(raised.value)


@pytest.mark.parametrize("bug", ["epoch", "stable", *TRANSACTION_BUGS])
def test_a_bug_in_transactions_is_found(bug: str) -> None:
    with planted(bug), pytest.raises(Failure) as raised:
        run(TransactionWorld, seeds_for(bug))
    assert f"HEADRACE_TEST_SEED={raised.value.seed} " in str(raised.value)


def seeds_for(bug: str) -> Sequence[int]:
    """Seeds to find a bug with; first the one that found it the last time, to save time."""
    return (FOUND_BY.get(bug, 0), *range(SEEDS_FOR_A_BUG))


async def refused_leave(world: GroupWorld) -> None:
    """A member of each group leaves while its coordinator can write nothing."""
    for group in KINDS:
        while len(world.members_of(group)) < 2:
            world.add_member(group)
    await world.until(lambda: all(map(world.is_shared_out, KINDS)), "all members have joined")
    for group in KINDS:
        await asyncio.sleep(6)  # so that leaders are where they belong
        await world.leave_in_vain(world.group_coordinator(group).node, [group])


def test_a_member_whose_leave_was_refused_expires() -> None:
    world = GroupWorld(1)
    world.quiet = True
    world.settings["min.insync.replicas"] = "2"
    world.run(refused_leave)
    assert any("cannot write to __consumer_offsets" in line for line in world.story())


@pytest.mark.parametrize("kind", [GroupWorld, TransactionWorld])
def test_a_seed_has_the_same_steps_each_time(
    kind: type[GroupWorld] | type[TransactionWorld],
) -> None:
    stories = []
    for _ in range(2):
        world = kind(2)
        world.run()
        stories.append(world.story())
    assert stories[0] == stories[1]
    assert len(stories[0]) > 10
