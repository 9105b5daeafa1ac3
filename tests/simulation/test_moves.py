"""Replicas move under all other faults, and all guarantees hold."""

import asyncio
import contextlib
import os
from functools import partial

import pytest

from headrace.cluster.image import PartitionState
from headrace.cluster.partition_requests import ReassignmentRequest, reassign
from headrace.errors import KafkaError
from headrace.types import TopicPartition
from tests.simulation.broker import SimulatedBroker
from tests.simulation.world import BROKERS, TOPIC, World

pytestmark = pytest.mark.slow
EVERYBODY = tuple(range(1, BROKERS + 1))
SEEDS = range(30)
if only := os.environ.get("HEADRACE_TEST_SEED"):
    SEEDS = range(int(only), int(only) + 1)


def controller_of(world: World) -> SimulatedBroker | None:
    """Whoever takes itself for the controller: others would not be let elect a leader."""
    running = [machine.broker for machine in world.machines]
    for broker in running:
        if broker and broker.joined and broker.metadata.image.controller_id == broker.node:
            return broker
    return None


def state_of(broker: SimulatedBroker) -> PartitionState:
    return broker.metadata.image.topics[TOPIC].partitions[0]


def move(world: World, target: tuple[int, ...] | None) -> None:
    """Ask for a move, or stop the one under way; what cannot be is refused."""
    broker = controller_of(world)
    if broker is None:
        return
    request = ReassignmentRequest(TopicPartition(TOPIC, 0), target)
    decide = partial(reassign, registered=EVERYBODY, requested=[request])
    world.tell("world", f"asks for {target}")
    with contextlib.suppress(KafkaError):
        broker.process.context.run(broker.metadata.ask_partitions, decide)


async def moves_and_faults(world: World) -> None:
    random = world.random
    for _ in range(random.randint(5, 12)):
        await asyncio.sleep(random.expovariate(1.2))
        chance = random.random()
        if chance < 0.5:
            move(world, tuple(random.sample(EVERYBODY, random.randint(2, BROKERS))))
        elif chance < 0.6:
            move(world, None)
        else:
            world.fault()
    world.heal_all()

    def is_everywhere() -> bool:
        move(world, EVERYBODY)
        broker = controller_of(world)
        return broker is not None and set(state_of(broker).isr) == set(EVERYBODY)

    await world.until(is_everywhere, "the last move was done")


@pytest.mark.parametrize("seed", SEEDS)
def test_moves_among_faults_break_no_promise(seed: int) -> None:
    World(seed).run(moves_and_faults)
