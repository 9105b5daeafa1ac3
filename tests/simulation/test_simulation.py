"""Three brokers under the faults of a seed: the guarantees hold after every step.

A failing seed prints its steps, and can be run again alone: HEADRACE_TEST_SEED=123.
"""

import os

import pytest

from tests.bugs.bugs import planted
from tests.bugs.replication_bugs import REPLICATION_BUGS
from tests.simulation.world import Failure, World

pytestmark = pytest.mark.slow

USUAL_SEEDS = 60
ENDURANCE_SEEDS = 5000
UNCLEAN_SEEDS = 20
MOST_UNCLEAN_SEEDS = 200
CHUNK = 20
SEEDS_FOR_A_BUG = 60


def run(seeds: range) -> list[World]:
    worlds = []
    for seed in seeds:
        world = World(seed)
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
def test_what_was_acknowledged_outlives_every_fault(seeds: range) -> None:
    worlds = run(seeds)
    for world in worlds:
        assert world.judge.acknowledgements
        assert world.judge.reads >= len(world.judge.committed) > 0
    if len(worlds) == CHUNK:
        assert sum(world.judge.elections for world in worlds) > CHUNK, "hardly anything happened"
        assert {world.flushes for world in worlds} == {True, False}
        assert {world.min_isr for world in worlds} == {1, 2}


def test_replicas_are_equal_in_the_end_where_a_topic_allows_loss() -> None:
    """About one seed in thirty loses records; the others have nothing in which replicas differ."""
    lost = 0
    seeds = [seed for chunk in chunks(60, MOST_UNCLEAN_SEEDS) for seed in chunk]
    for number, seed in enumerate(seeds, 1):
        world = World(seed, unclean=True)
        world.run()
        ((_, replica), *_) = world.judge.opened()
        lost += world.judge.acknowledgements > replica.replica.log.end_offset
        if lost and number >= UNCLEAN_SEEDS:
            break
    assert lost or len(seeds) == 1, "nothing was lost, so that nothing could differ"


@pytest.mark.endurance
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seeds", chunks(USUAL_SEEDS, ENDURANCE_SEEDS), ids=named)
def test_what_was_acknowledged_outlives_thousands_of_faults(seeds: range) -> None:
    assert all(world.judge.acknowledgements for world in run(seeds))


@pytest.mark.parametrize("bug", REPLICATION_BUGS)
def test_a_planted_bug_is_found(bug: str) -> None:
    with planted(bug), pytest.raises(Failure) as raised:
        run(range(SEEDS_FOR_A_BUG))
    told = str(raised.value)
    assert f"HEADRACE_TEST_SEED={raised.value.seed} " in told
    assert "leads in epoch 0" in told


def test_a_seed_has_the_same_steps_each_time() -> None:
    stories = []
    for _ in range(2):
        world = World(7)
        world.run()
        stories.append(world.story())
    assert stories[0] == stories[1]
    assert len(stories[0]) > 10
