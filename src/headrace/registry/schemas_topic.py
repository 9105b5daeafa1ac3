"""The schemas topic: creates it and replays its records into the state.

A thread polls for records and passes them to the event loop; only the event loop changes the state
that requests read. A write waits here until its records are replayed.
"""

import asyncio
import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from confluent_kafka import KafkaException

from headrace.client.cluster import Cluster
from headrace.client.config import (
    ClientConfig,
    client_config,
    from_librdkafka,
    has_library_login,
)
from headrace.client.errors import ClientError, Unreachable
from headrace.client.offsets import COMMITTED, LATEST, list_offsets
from headrace.client.topics import create_topics, describe_topics
from headrace.errors import ErrorCode, KafkaError
from headrace.registry.records import BadRecord, Change, decode
from headrace.registry.state import RegistryState
from headrace.registry.topic_records import Polled, RecordSource, open_source
from headrace.service.errors import ClusterUnreachable, TopicUnusable
from headrace.types import TopicPartition

log = logging.getLogger("headrace.registry")
_silent = logging.getLogger("headrace.registry.librdkafka")
_silent.addHandler(logging.NullHandler())
_silent.propagate = False

CLIENT_ID = "headrace-registry"
REPLICATION_FACTOR = 3


@dataclass(frozen=True, slots=True)
class TopicLocation:
    """The cluster and the topic."""

    bootstrap: str
    topic: str = "_schemas"
    properties: Mapping[str, str] = field(default_factory=dict)

    @property
    def by_library(self) -> bool:
        """Whether librdkafka can log in."""
        return has_library_login(self.properties, self._config().security)

    def cluster(self, timeout_s: float) -> Cluster:
        """A client of Headrace's own; a request is repeated for `timeout_s` at most."""
        config = self._config()
        request_s = min(config.request_timeout_s, timeout_s)
        return Cluster(replace(config, request_timeout_s=request_s, total_timeout_s=timeout_s))

    def _config(self) -> ClientConfig:
        properties = {
            "client.id": CLIENT_ID,
            **from_librdkafka(self.properties),
            "bootstrap.servers": self.bootstrap,
        }
        return client_config(properties)

    def client(self, **settings: object) -> dict[str, object]:
        """Settings of a librdkafka client."""
        return {
            "bootstrap.servers": self.bootstrap,
            "client.id": CLIENT_ID,
            "logger": _silent,
            **self.properties,
            **settings,
        }


def make_topic(location: TopicLocation, timeout_s: float) -> None:
    """Waits for the cluster and creates the topic if it does not exist."""
    try:
        with location.cluster(timeout_s) as cluster:
            found = describe_topics(cluster, [location.topic]).get(location.topic)
            if found is None or not found.partitions:
                brokers = cluster.retry("listing brokers", cluster.brokers)
                _create(cluster, location.topic, min(REPLICATION_FACTOR, len(brokers)))
                return
    except Unreachable as error:
        raise ClusterUnreachable(
            f"no Kafka cluster responds at {location.bootstrap}: {error}"
        ) from None
    except (ClientError, KafkaError) as error:
        raise TopicUnusable(f"topic {location.topic} cannot be used: {error}") from None
    if len(found.partitions) != 1:
        raise TopicUnusable(
            f"topic {location.topic} has {len(found.partitions)} partitions but must have exactly "
            "one, because its records need a total order. Specify another topic with --topic"
        )


def _create(cluster: Cluster, topic: str, factor: int) -> None:
    refused = create_topics(
        cluster,
        [topic],
        partitions=1,
        replication_factor=factor,
        configs={"cleanup.policy": "compact"},
    )
    for error in refused.values():
        # Another instance may have created it in the meantime.
        if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise TopicUnusable(f"topic {topic} could not be created: {error}")


class SchemasReader:
    """Reads the topic from its beginning until the registry stops."""

    def __init__(self, location: TopicLocation) -> None:
        self.state = RegistryState()
        self.next_offset = 0
        """All records below this offset have been replayed."""
        self._location = location
        self._loop = asyncio.get_running_loop()
        self._caught_up = self._loop.create_future()
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    async def start(self, timeout_s: float) -> None:
        """Returns when the records that were in the topic at the start are replayed."""
        self._thread = threading.Thread(
            target=self._run, args=(self._open(),), name="topic-reader", daemon=True
        )
        self._thread.start()
        try:
            await asyncio.wait_for(asyncio.shield(self._caught_up), timeout_s)
        except TimeoutError:
            raise TopicUnusable(
                f"topic {self._location.topic} could not be read to its end "
                f"within {timeout_s:.0f} s"
            ) from None

    def stop(self) -> None:
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()

    @property
    def is_running(self) -> bool:
        """Whether the topic was read to its end and the thread still polls it."""
        return self._thread is not None and self._caught_up.done() and self._thread.is_alive()

    async def reached(self, offset: int) -> None:
        """Returns when all records below `offset` have been replayed."""
        if self.next_offset < offset:
            future = self._loop.create_future()
            self._waiting.append((offset, future))
            await future

    async def copy_at(self, offset: int) -> RegistryState:
        """A copy of the state with all records below `offset`."""
        await self.reached(offset)
        return self.state.copy()

    def _open(self) -> RecordSource:
        try:
            return open_source(self._location)
        except KafkaException as error:
            raise TopicUnusable(
                f"topic {self._location.topic} cannot be read with confluent-kafka: "
                f"{error.args[0].str()}"
            ) from None

    def _run(self, source: RecordSource) -> None:
        try:
            while not self._stopping.is_set():
                polled = source.poll()
                if polled is not None:
                    self._take(polled)
        finally:
            source.close()

    def _take(self, polled: Polled) -> None:
        """Decodes the records in this thread; the event loop replays them."""
        changes: list[Change] = []
        for offset, key, value in polled.records:
            try:
                change = decode(key, value)
            except BadRecord as reason:
                log.warning("skipped offset %d of %s: %s", offset, self._location.topic, reason)
                continue
            if change is not None:
                changes.append(change)
        self._loop.call_soon_threadsafe(self._replay, changes, polled.reached, polled.at_end)

    def _replay(self, changes: list[Change], reached: int, at_end: bool) -> None:
        for change in changes:
            self.state.replay(change)
        self.next_offset = max(self.next_offset, reached)
        if at_end and not self._caught_up.done():
            self._caught_up.set_result(None)
        waiting, self._waiting = self._waiting, []
        for offset, future in waiting:
            if offset > self.next_offset:
                self._waiting.append((offset, future))
            elif not future.done():
                future.set_result(None)


def end_of(cluster: Cluster, topic: str) -> int:
    """The last stable offset of the topic's partition."""
    partition = TopicPartition(topic, 0)
    return list_offsets(cluster, {partition: LATEST}, COMMITTED)[partition]
