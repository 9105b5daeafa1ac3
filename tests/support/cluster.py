"""Several brokers with one store of metadata, each a process of its own."""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka.admin import AdminClient, NewTopic

from headrace.client.cluster import Cluster
from headrace.client.config import ClientConfig, parse_bootstrap
from headrace.client.errors import Unreachable
from headrace.clock import SystemClock
from headrace.cluster.image import Image, PartitionState
from headrace.cluster.metadata import Metadata
from headrace.cluster.zookeeper_store import ZookeeperStore
from headrace.testing.running import RunningBroker
from headrace.wire.primitives import TopicName
from tests.support.network import HERE, Place

PATIENCE_S = 60

QUICK = {
    # Long enough for a machine that has much to do: only what a test strikes shall be missed.
    "replica.lag.time.max.ms": "10000",
    "zookeeper.session.timeout.ms": "6000",
    "replica.fetch.wait.max.ms": "100",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
}


@dataclass(frozen=True, slots=True)
class PartitionSeen:
    """A partition as a broker tells of it; the leader is -1 where there is none."""

    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isrs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TopicSeen:
    """A topic as a broker tells of it."""

    partitions: Mapping[int, PartitionSeen]


class RunningCluster:
    """Brokers 1 to N.

    A broker hears of what another one has done a moment later, and a client asks any. So whoever
    looks at the cluster here asks every broker until all say the same: the one that has done
    something knew of it before it answered, and thus nobody speaks of the past.
    """

    def __init__(
        self,
        folder: Path,
        count: int = 3,
        settings: Mapping[str, str] | None = None,
        metadata: str | None = None,
        quick: bool = True,
        each: Mapping[int, Mapping[str, str]] | None = None,
        folders: int = 1,
        places: Sequence[Place] = (),
        homes: Mapping[int, Path] | None = None,
        under: Sequence[str] = (),
        together: bool = True,
    ) -> None:
        """`each` are settings of single brokers, `places` where they are in a network,
        `homes` where their files are, `under` a command that runs each; `together` starts them
        at the same time.
        """
        folder.mkdir(exist_ok=True)
        where = metadata or f"sqlite:{folder}"
        given = {**(QUICK if quick else {}), "headrace.metadata": where, **(settings or {})}
        self._metadata = where
        self._watched: tuple[ZookeeperStore, Metadata] | None = None
        self._given = given
        self.brokers: dict[int, RunningBroker] = {}

        def start(number: int) -> None:
            settings = {**given, **(each or {}).get(number, {})}
            home = (homes or {}).get(number)
            place = places[number - 1] if places else HERE
            self.brokers[number] = RunningBroker(
                settings,
                number,
                folders,
                home=home,
                host=place.host,
                under=[*place.under, *under],
            )

        try:
            with ThreadPoolExecutor(count if together else 1) as pool:
                list(pool.map(start, range(1, count + 1)))
            self.brokers = dict(sorted(self.brokers.items()))
            self.wait_until_all_know_each_other()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(broker.bootstrap_servers for broker in self.brokers.values())

    def close(self) -> None:
        if self._watched is not None:
            self._watched[0].close()
        for broker in self.brokers.values():
            broker.close()

    def wait_until_all_know_each_other(self) -> None:
        deadline = time.monotonic() + PATIENCE_S
        for broker in self._asked():
            while not set(self._asked()) <= self.known_to(broker):
                assert time.monotonic() < deadline, "the brokers do not find each other"
                time.sleep(0.02)

    def image(self) -> Image:
        """The cluster as its ZooKeeper has it, whatever the brokers know of it."""
        if self._watched is None:
            store = ZookeeperStore(self._metadata)
            self._watched = store, Metadata(store, -1, SystemClock())
            self._watched[1].load()
        self._watched[1].refresh()
        return self._watched[1].image

    def state(self, name: str, partition: int = 0) -> PartitionState:
        """Who leads a partition and who is in sync, as ZooKeeper has it."""
        return self.image().topics[name].partitions[partition]

    def wait_for_state(
        self, name: str, holds: Callable[[PartitionState], bool], partition: int = 0
    ) -> PartitionState:
        """Until that is as wanted."""
        deadline = time.monotonic() + PATIENCE_S
        while not holds(state := self.state(name, partition)):
            assert time.monotonic() < deadline, state
            time.sleep(0.05)
        return state

    def wait_until_in_sync(self, *names: str) -> None:
        """Until every replica of these topics is in sync, and one of them leads."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            states = [state for name in names for state in self.image().topics[name].partitions]
            if all(set(one.isr) == set(one.replicas) and one.leader >= 0 for one in states):
                return
            assert time.monotonic() < deadline, states
            time.sleep(0.05)

    def add(self) -> int:
        """One more broker; its number."""
        number = max(self.brokers) + 1
        self.brokers[number] = RunningBroker(self._given, node_id=number)
        self.wait_until_all_know_each_other()
        return number

    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap_servers})

    def create(self, name: str, partitions: int = 1, factor: int = 3, **configs: str) -> None:
        """A topic; returns once every replica is in sync."""
        given = {key.replace("_", "."): value for key, value in configs.items()}
        new = NewTopic(name, partitions, factor, config=given)
        admin = self.admin()  # a client that nobody holds never answers
        admin.create_topics([new])[name].result(PATIENCE_S)
        self.wait_for(name, lambda topic: all(
            len(part.isrs) == factor and part.leader >= 0 for part in topic.partitions.values()
        ) and len(topic.partitions) == partitions)  # fmt: skip

    def topic(self, name: str) -> TopicSeen:
        """What the cluster says of a topic."""
        return self.wait_for(name, lambda _: True)

    def leader(self, name: str, partition: int = 0) -> int:
        return self.topic(name).partitions[partition].leader

    def wait_for(
        self, name: str, holds: Callable[[TopicSeen], bool], at: Collection[int] = ()
    ) -> TopicSeen:
        """Until all brokers say the same of a topic, and it is as wanted.

        `at` names those that are asked, where others cannot know.
        """
        deadline = time.monotonic() + PATIENCE_S
        while True:
            first, *others = seen = [self.seen_by(number, name) for number in at or self._asked()]
            if first is not None and all(other == first for other in others) and holds(first):
                return first
            assert time.monotonic() < deadline, seen
            time.sleep(0.05)

    def seen_by(self, number: int, name: str) -> TopicSeen | None:
        """What one broker says of a topic; None if it has not heard of it or does not answer."""
        from kio.schema.metadata.v12.request import MetadataRequest, MetadataRequestTopic
        from kio.schema.metadata.v12.response import MetadataResponse

        request = MetadataRequest(
            topics=(MetadataRequestTopic(topic_id=None, name=TopicName(name)),),
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=False,
        )
        try:
            with self.client(number) as client:
                (topic,) = client.ask(request, MetadataResponse).topics
        except Unreachable:
            return None
        if topic.error_code:
            return None
        return TopicSeen(
            {
                int(row.partition_index): PartitionSeen(
                    int(row.leader_id),
                    int(row.leader_epoch),
                    tuple(map(int, row.replica_nodes)),
                    tuple(map(int, row.isr_nodes)),
                )
                for row in topic.partitions
            }
        )

    def known_to(self, number: int) -> set[int]:
        """The brokers that one of them tells of; none if it does not answer."""
        try:
            with self.client(number) as client:
                return set(client.brokers())
        except Unreachable:
            return set()

    def _asked(self) -> list[int]:
        """Those that can answer."""
        return [
            number
            for number, broker in self.brokers.items()
            if broker.is_running and not broker.is_paused
        ]

    def client(self, number: int) -> Cluster:
        """A client that asks this broker and no other."""
        where = parse_bootstrap(self.brokers[number].bootstrap_servers)
        return Cluster(ClientConfig(where, request_timeout_s=10))
