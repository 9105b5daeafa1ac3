"""Several brokers with one store of metadata, each a process of its own."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka.admin import AdminClient, NewTopic, TopicMetadata

from headrace.testing.running import RunningBroker

PATIENCE_S = 60

QUICK = {
    "replica.lag.time.max.ms": "2000",
    "replica.fetch.wait.max.ms": "100",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
}


class RunningCluster:
    """Brokers 1 to N."""

    def __init__(
        self, folder: Path, count: int = 3, settings: Mapping[str, str] | None = None,
        metadata: str | None = None, quick: bool = True,
        each: Mapping[int, Mapping[str, str]] | None = None, folders: int = 1,
    ) -> None:  # fmt: skip
        folder.mkdir(exist_ok=True)
        where = metadata or f"sqlite:{folder}"
        given = {**(QUICK if quick else {}), "headrace.metadata": where, **(settings or {})}
        self.brokers: dict[int, RunningBroker] = {}
        try:
            for number in range(1, count + 1):
                self.brokers[number] = RunningBroker(
                    {**given, **(each or {}).get(number, {})}, node_id=number, folders=folders
                )
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
        for broker in self.brokers.values():
            broker.close()

    def wait_until_all_know_each_other(self) -> None:
        deadline = time.monotonic() + PATIENCE_S
        for broker in self.brokers.values():
            admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
            while len(admin.list_topics(timeout=10).brokers) < len(self.brokers):
                assert time.monotonic() < deadline, "the brokers do not find each other"
                time.sleep(0.02)

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

    def topic(self, name: str) -> TopicMetadata:
        """What the cluster says of a topic, once whoever is asked has heard of it."""
        return self.wait_for(name, lambda _: True)

    def leader(self, name: str, partition: int = 0) -> int:
        found: int = self.topic(name).partitions[partition].leader
        return found

    def wait_for(self, name: str, holds: Callable[[TopicMetadata], bool]) -> TopicMetadata:
        """Until what the cluster says of a topic is as wanted."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            topic = self.admin().list_topics(name, timeout=10).topics[name]
            if topic.error is None and holds(topic):
                return topic
            assert time.monotonic() < deadline, {
                number: (part.leader, part.isrs) for number, part in topic.partitions.items()
            }
            time.sleep(0.1)
