"""Forks that are built while their topics come, change and go, without a broker process."""

import asyncio
import uuid
from collections.abc import Callable
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

import pytest

from headrace.clock import ManualClock
from headrace.cluster.image import Image, PartitionState, Topic
from headrace.disk import RealDisk
from headrace.log.directories import LogDirectories
from headrace.replication.forks import ForkInProgress
from headrace.replication.replicas import Replicas
from headrace.settings import Settings
from headrace.types import TopicPartition, encode_uuid
from tests.log.samples import NOW, append, batch, contents

ME = 1


class LaterWork(Executor):
    """Worker threads whose work is done when a test says so."""

    def __init__(self) -> None:
        self._waiting: list[tuple[Future[Any], Callable[[], Any]]] = []

    def submit(self, work: Any, /, *args: Any, **options: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self._waiting.append((future, lambda: work(*args, **options)))
        return future

    async def do(self) -> None:
        """Do all work, and let the event loop handle the results."""
        waiting, self._waiting = self._waiting, []
        for future, work in waiting:
            try:
                future.set_result(work())
            except Exception as error:
                future.set_exception(error)
        for _ in range(3):
            await asyncio.sleep(0)


def topic(name: str, number: int, replicas: tuple[int, ...] = (ME,), **configs: str) -> Topic:
    state = PartitionState(replicas[0], 0, replicas, replicas)
    given = {key.replace("_", "."): value for key, value in configs.items()}
    return Topic(name, uuid.UUID(int=number), (state,), given)


ORDERS = topic("orders", 1)


def fork_of(parent: Topic, replicas: tuple[int, ...] = (ME,), number: int = 9) -> Topic:
    of_id = encode_uuid(parent.id)
    return topic(
        "a.fork", number, replicas, fork_of=parent.name, fork_of_id=of_id, fork_offsets="6"
    )


class World:
    """The replicas of one broker, and the image that they follow."""

    def __init__(self, folder: Path) -> None:
        self.threads = LaterWork()
        self.directories = LogDirectories((str(folder),), RealDisk(), ManualClock(NOW))
        self.directories.open()
        self.replicas = Replicas(
            ME, Settings.parse({}), self.directories, self.threads, ManualClock(NOW)
        )
        self._image = Image()

    def apply(self, *changed: Topic, removed: tuple[Topic, ...] = ()) -> None:
        before, self._image = self._image, self._image.with_topics(changed, removed)
        self.replicas.apply(before, self._image)

    def fill(self, batches: int = 4) -> None:
        log = self.replicas.partition("orders", 0).replica.log
        for _ in range(batches):
            append(log, batch(2))

    @property
    def has_fork(self) -> bool:
        return self.directories.has(TopicPartition("a.fork", 0))

    def forked(self) -> list[tuple[int, bytes]]:
        return contents(self.replicas.topic("a.fork")[0].replica.log)


def run(folder: Path, story: Callable[[World], Any]) -> None:
    async def start() -> None:
        world = World(folder)
        world.replicas.forks.start()
        await story(world)
        world.directories.close()

    asyncio.run(start())


def leftovers(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if "fork" in path.name]


def test_a_fork_is_refused_until_it_is_complete(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        world.apply(ORDERS)
        world.fill()
        world.apply(fork_of(ORDERS))
        with pytest.raises(ForkInProgress):
            world.forked()
        await world.threads.do()
        assert [offset for offset, _ in world.forked()] == [0, 2, 4]

    run(tmp_path, story)


def test_a_fork_is_known_before_its_parent(tmp_path: Path) -> None:
    """Both may come with one change of the image, in the order of their names."""

    async def story(world: World) -> None:
        world.apply(fork_of(ORDERS), ORDERS)
        assert not world.has_fork
        world.fill()
        with pytest.raises(ForkInProgress):
            world.forked()
        await world.threads.do()
        assert [offset for offset, _ in world.forked()] == [0, 2, 4]

    run(tmp_path, story)


def test_a_fork_waits_for_records_that_its_parent_does_not_have_yet(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        world.apply(ORDERS)
        world.fill(2)
        world.apply(fork_of(ORDERS))
        await world.threads.do()
        assert not world.has_fork
        world.fill(2)
        with pytest.raises(ForkInProgress):
            world.forked()
        await world.threads.do()
        assert len(world.forked()) == 3

    run(tmp_path, story)


def test_a_fork_that_is_deleted_while_it_is_built_leaves_nothing(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        world.apply(ORDERS)
        world.fill()
        fork = fork_of(ORDERS)
        world.apply(fork)
        world.apply(removed=(fork,))
        await world.threads.do()
        assert not world.has_fork
        assert leftovers(tmp_path) == []
        world.apply(fork_of(ORDERS, number=10))
        await world.threads.do()
        assert len(world.forked()) == 3

    run(tmp_path, story)


def test_a_fork_of_a_deleted_topic_is_empty_at_the_cut(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        world.apply(ORDERS)
        world.fill()
        world.apply(fork_of(ORDERS))
        world.apply(topic("orders", 2), removed=(ORDERS,))  # another topic with that name
        world.fill()
        await world.threads.do()
        await world.threads.do()
        log = world.replicas.topic("a.fork")[0].replica.log
        assert (log.start_offset, log.end_offset) == (6, 6)

    run(tmp_path, story)


def test_a_follower_without_the_parents_records_begins_empty(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        world.apply(ORDERS)
        world.fill(1)
        world.apply(fork_of(ORDERS, replicas=(2, ME)))
        assert world.replicas.topic("a.fork")[0].replica.log.end_offset == 0

    run(tmp_path, story)


def test_a_leader_with_followers_leads_when_the_fork_is_complete(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        world.apply(ORDERS)
        world.fill()
        world.apply(fork_of(ORDERS, replicas=(ME, 2)))
        assert list(world.replicas.leading) == []
        await world.threads.do()
        assert [one.name.topic for one in world.replicas.leading] == ["a.fork"]
        assert len(world.forked()) == 3
        assert not world.replicas.offline_replicas.offsets

    run(tmp_path, story)
