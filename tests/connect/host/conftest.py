"""A broker and a host with one Spark driver for all tests of this folder."""

import asyncio
import json
import os
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.connect.host.settings import DriverSettings
from headrace.connect.host.spark_host import SparkHost
from headrace.connect.hosting import ConnectorPlan, HostedStatus, RunState
from tests.connect.broker import ConnectBroker, connect_broker

WITHIN_S = 300.0
"""A Spark driver on a busy machine takes a minute to start."""
OFFSETS = "connect-offsets"
MODULE = "tests.connect.host.plugins"
PLUGINS = ("Numbers", "Folder", "Traced", "Traces")
NUMBERS = f"{MODULE}.Numbers"
FOLDER = f"{MODULE}.Folder"
ROOT = Path(__file__).resolve().parents[3]

Result = TypeVar("Result")


class HostUnderTest:
    """A host, its broker, and a loop for it."""

    def __init__(
        self, broker: ConnectBroker, folder: Path, spark: Mapping[str, str] | None = None
    ) -> None:
        self.broker = broker
        self.bootstrap = broker.bootstrap
        self.folder = folder
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        settings = DriverSettings(
            self.bootstrap,
            {"bootstrap.servers": self.bootstrap},
            OFFSETS,
            str(folder / "checkpoints"),
            dict(spark or {}),
        )
        self.host = self.call(_make(settings))
        self.create(OFFSETS, 2)

    def call(self, work: Coroutine[Any, Any, Result]) -> Result:
        done: Future[Result] = asyncio.run_coroutine_threadsafe(work, self._loop)
        return done.result(WITHIN_S)

    def close(self) -> None:
        self.call(self.host.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def create(self, topic: str, partitions: int = 1) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        admin.create_topics([NewTopic(topic, partitions)])[topic].result(60)

    def start(self, name: str, config: Mapping[str, str], generation: int = 0) -> None:
        self.call(self.host.start(ConnectorPlan(name, {"name": name, **config}, generation)))

    def stop(self, name: str) -> None:
        self.call(self.host.stop(name))

    def status(self, name: str) -> HostedStatus:
        return self.call(self.host.status(name))

    def wait_for(self, name: str, state: RunState) -> HostedStatus:
        return self.wait(lambda: self.status(name), lambda found: found.state is state)

    def wait(self, look: Callable[[], Result], is_enough: Callable[[Result], bool]) -> Result:
        """Look until it is enough."""
        end = time.monotonic() + WITHIN_S
        while not is_enough(found := look()):
            assert time.monotonic() < end, found
            time.sleep(0.2)
        return found

    def values(self, topic: str) -> list[Any]:
        """What a read_committed consumer reads up to the end, as JSON."""
        return [json.loads(value) for _, value, _ in self.records(topic) if value is not None]

    def records(self, topic: str) -> list[tuple[bytes | None, bytes | None, dict[str, bytes]]]:
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "look",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
            }
        )
        found = []
        partitions = consumer.list_topics(topic, 60).topics[topic].partitions
        consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
        left = len(partitions)
        while left:
            message = consumer.poll(60)
            assert message is not None
            if message.error():
                left -= 1
                continue
            headers = dict(message.headers() or ())
            found.append((message.key(), message.value(), headers))
        consumer.close()
        return found


async def _make(settings: DriverSettings) -> SparkHost:
    return SparkHost(settings)


@pytest.fixture(scope="package")
def installed_plugins(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A distribution with the connectors of the tests, as drivers and workers find it."""
    folder = tmp_path_factory.mktemp("site")
    described = folder / "numbers-1.0.dist-info"
    described.mkdir()
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: numbers\nVersion: 1.0\n")
    rows = "".join(f"{name} = {MODULE}:{name}\n" for name in PLUGINS)
    (described / "entry_points.txt").write_text(f"[headrace.connectors]\n{rows}")
    inherited = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    path = os.pathsep.join([str(folder), str(ROOT), *inherited])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", path)
        yield


@pytest.fixture(scope="package")
def host(
    tmp_path_factory: pytest.TempPathFactory, installed_plugins: None
) -> Iterator[HostUnderTest]:
    with connect_broker(tmp_path_factory.mktemp("broker")) as broker:
        running = HostUnderTest(broker, tmp_path_factory.mktemp("host"))
        yield running
        running.close()


@pytest.fixture
def topic(host: HostUnderTest, request: pytest.FixtureRequest) -> str:
    name = request.node.name.removeprefix("test_")[:100]
    host.create(name, 2)
    return str(name)


@pytest.fixture
def started(host: HostUnderTest) -> Iterator[list[str]]:
    """Names of connectors that the test starts; they are stopped at its end."""
    names: list[str] = []
    yield names
    for name in names:
        host.stop(name)
