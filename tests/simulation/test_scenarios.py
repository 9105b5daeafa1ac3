"""Bugs that the simulator has found, each as a short scenario."""

import asyncio

from tests.simulation.world import World


def test_followers_learn_what_is_committed_though_nothing_more_is_written() -> None:
    async def nothing_happens(world: World) -> None:
        await world.calm()

    World(1).run(nothing_happens)


def test_a_follower_whose_session_ended_is_in_sync_again_though_nothing_is_written() -> None:
    async def session_ends(world: World) -> None:
        await world.calm()
        world.ensemble.expire(world.follower.raw_store)
        await world.until(lambda: not world.judge.is_calm(3), "it was put out")
        await world.until(lambda: world.judge.is_calm(3), "it was let in again")

    World(1).run(session_ends)


def test_a_restarted_follower_rejoins_the_isr_though_its_leader_is_notified_late() -> None:
    async def restart(world: World) -> None:
        world.ensemble.lateness_s = 1.5
        await world.calm()
        for _ in range(3):
            world.stop(world.follower.machine)
            await world.until(lambda: not world.judge.is_calm(3), "it was put out")
            await world.until(lambda: world.judge.is_calm(3), "it was let in again")

    World(1).run(restart)


def test_a_killed_follower_is_let_in_though_it_fetched_before_its_leader_heard_of_the_restart() -> (
    None
):
    """Its leader still counted it as in sync then, and there is nothing more to fetch."""

    async def restart(world: World) -> None:
        world.ensemble.lateness_s = 1.5
        await world.calm()
        for _ in range(3):
            machine = world.follower.machine
            world.restart(machine)
            await world.until(lambda: not world.judge.is_calm(3), "it was put out")
            await world.until(lambda: world.judge.is_calm(3), "it was let in again")

    World(1).run(restart)


def test_nothing_is_committed_without_a_follower_that_perhaps_counts_as_in_sync() -> None:
    """The leader lets a follower in, and loses the store before it hears that this was done."""

    async def lost_answer(world: World) -> None:
        await asyncio.sleep(1)
        leader, follower = world.leader, world.follower
        ways = [(follower.process.name, leader.process.name)]
        world.network.cut(ways)
        state = world.judge.state
        await world.until(lambda: world.judge.state != state, "it was put out")
        leader.raw_store.lose_next_commit(happens=True)
        world.network.heal(ways)
        state = world.judge.state
        await world.until(lambda: world.judge.state != state, "it was let in")
        world.network.cut(ways)
        await asyncio.sleep(1)  # the judge looks: does everybody in sync have what is committed?
        world.network.heal(ways)

    for seed in range(5):
        World(seed).run(lost_answer)
