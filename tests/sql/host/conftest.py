"""A broker, a registry and a host with one Spark driver for all tests of this folder."""

import asyncio
import json
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.sql.host.settings import SqlDriverSettings
from headrace.sql.host.sql_host import SqlHost
from headrace.sql.hosting import START, HostedState, QuerySpec, QueryStatus
from headrace.sql.plans import Input, PlanKind, QueryPlan
from headrace.sql.sources import ColumnRole, Format, SqlColumn, SqlSource
from tests.connect.broker import connect_broker
from tests.support.headrace_registry import HeadraceRegistry

WITHIN_S = 240.0
"""A Spark driver on a busy machine takes a minute to start."""
PROCESSING_LOG = "test-processing-log"

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Written:
    """A record as a read_committed consumer reads it."""

    key: bytes | None
    value: bytes | None
    timestamp: int
    partition: int
    offset: int

    @property
    def json(self) -> Any:
        return None if self.value is None else json.loads(self.value)


class SqlUnderTest:
    """A host, its broker, and a loop for it."""

    def __init__(self, bootstrap: str, registry: str, folder: Path) -> None:
        self.bootstrap = bootstrap
        self.registry = registry
        self.folder = folder
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 1})
        self.settings = SqlDriverSettings(
            bootstrap,
            {"bootstrap.servers": bootstrap},
            str(folder / "checkpoints"),
            PROCESSING_LOG,
            {"schema.registry.url": registry},
            allows_functions=True,
        )
        self.host = self.call(self._make())

    async def _make(self) -> SqlHost:
        return SqlHost(self.settings)

    def call(self, work: Coroutine[Any, Any, Result]) -> Result:
        done: Future[Result] = asyncio.run_coroutine_threadsafe(work, self._loop)
        return done.result(WITHIN_S)

    def close(self) -> None:
        self.call(self.host.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    # ------------------------------------------------------------------------------------ topics

    def create(self, topic: str, partitions: int = 2) -> str:
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        # Records have times of 1970, which retention would delete.
        new = NewTopic(topic, partitions, config={"retention.ms": "-1"})
        admin.create_topics([new])[topic].result(60)
        return topic

    def send(
        self,
        topic: str,
        value: object,
        key: str | bytes | None = None,
        time_ms: int | None = None,
        **more: Any,
    ) -> None:
        """A record; a value that is neither bytes nor null is sent as JSON."""
        octets = value if isinstance(value, bytes | None) else json.dumps(value).encode()
        stamp = {} if time_ms is None else {"timestamp": time_ms}
        self._producer.produce(topic, octets, key, **stamp, **more)

    def flush(self) -> None:
        assert self._producer.flush(60) == 0

    def records(self, topic: str) -> list[Written]:
        """What is in the topic now, partition by partition."""
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
            kind, at = message.timestamp()
            assert kind != TIMESTAMP_NOT_AVAILABLE
            found.append(
                Written(message.key(), message.value(), at, message.partition(), message.offset())
            )
        consumer.close()
        return found

    def values(self, topic: str) -> list[Any]:
        return [each.json for each in self.records(topic)]

    def table(self, topic: str) -> dict[bytes | None, Any]:
        """The last value of each key."""
        found = {each.key: each.json for each in self.records(topic)}
        return {key: value for key, value in found.items() if value is not None}

    # ----------------------------------------------------------------------------------- queries

    def start(
        self,
        query: str,
        plan: QueryPlan,
        sources: Iterable[SqlSource],
        target: SqlSource,
        generation: int = 0,
        **properties: str,
    ) -> QuerySpec:
        given = {START: "earliest", **{n.replace("_", "."): v for n, v in properties.items()}}
        spec = QuerySpec(query, target, plan, tuple(sources), generation, given)
        self.call(self.host.start(spec))
        return spec

    def stop(self, query: str) -> None:
        self.call(self.host.stop(query))

    def status(self, query: str) -> QueryStatus:
        return self.call(self.host.status(query))

    def wait_for(self, query: str, state: HostedState) -> QueryStatus:
        return self.wait(lambda: self.status(query), lambda found: found.state is state)

    def wait(self, look: Callable[[], Result], is_enough: Callable[[Result], bool]) -> Result:
        """Look until it is enough."""
        end = time.monotonic() + WITHIN_S
        while not is_enough(found := look()):
            assert time.monotonic() < end, found
            time.sleep(0.2)
        return found

    def has_read(self, query: str, rows: int) -> QueryStatus:
        """Wait until the query has read this many rows; it must not fail."""

        def look() -> QueryStatus:
            found = self.status(query)
            # A driver on a busy machine may respond late, which is no failure.
            assert found.next_try_at is None, found.error
            return found

        return self.wait(look, lambda found: found.rows == rows)


def column(name: str, kind: str = "string") -> SqlColumn:
    return SqlColumn(name, kind)


def key(name: str, kind: str = "string") -> SqlColumn:
    return SqlColumn(name, kind, ColumnRole.KEY)


def source(name: str, topic: str, *columns: SqlColumn, **more: Any) -> SqlSource:
    """A stream of JSON, unless the arguments say otherwise."""
    return SqlSource(name, more.pop("is_table", False), topic, columns, **more)


def stateless(sql: str, columns: Sequence[str], *views: str, **more: Any) -> QueryPlan:
    """A plan over views that are named as their sources."""
    given: Mapping[str, Any] = {
        "kind": PlanKind.STATELESS,
        "keys": (),
        "makes_table": False,
        **more,
    }
    inputs = tuple(Input(name, name) for name in views)
    return QueryPlan(inputs=inputs, sql=sql, columns=tuple(columns), **given)


@pytest.fixture(scope="package")
def sql(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqlUnderTest]:
    folder = tmp_path_factory.mktemp("sql")
    with (
        connect_broker(tmp_path_factory.mktemp("broker")) as broker,
        HeadraceRegistry(broker.bootstrap, folder) as registry,
    ):
        running = SqlUnderTest(broker.bootstrap, registry.url, folder)
        yield running
        running.close()


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name of the test's own for topics and queries."""
    found: str = request.node.name.removeprefix("test_")
    return "".join(each if each.isalnum() else "_" for each in found)[:80]


@pytest.fixture
def started(sql: SqlUnderTest) -> Iterator[list[str]]:
    """Names of queries that the test starts; they are stopped at its end."""
    names: list[str] = []
    yield names
    for each in names:
        sql.stop(each)


__all__ = ["Format", "Written", "column", "key", "source", "stateless"]
