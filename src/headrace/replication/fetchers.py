"""The replica fetchers of this broker: one for each leader of partitions with a replica here."""

import asyncio
from concurrent.futures import Executor

from headrace.client.aio import Connect
from headrace.clock import Clock
from headrace.cluster.image import Broker
from headrace.cluster.metadata import Metadata
from headrace.replication.fetcher import Fetcher
from headrace.replication.partition import Partition
from headrace.replication.replicas import Replicas
from headrace.replication.throttle import Throttle
from headrace.settings import Settings
from headrace.types import BrokerId


class Fetchers:
    """Starts, updates and stops fetchers as leaders change."""

    def __init__(
        self,
        replicas: Replicas,
        metadata: Metadata,
        settings: Settings,
        executor: Executor,
        clock: Clock,
        connect: Connect,
    ) -> None:
        self._replicas = replicas
        self._metadata = metadata
        self._settings = settings
        self._executor = executor
        self._clock = clock
        self._throttle = Throttle(replicas, metadata, clock)
        self._connect = connect
        self._running: dict[BrokerId, tuple[Fetcher, asyncio.Task[None]]] = {}
        self._me: Broker | None = None

    def update(self) -> None:
        """Start and update fetchers for the current leaders; needs a running event loop."""
        image = self._metadata.image
        me = image.brokers.get(self._replicas.node_id)
        if me != self._me:
            # Registered again: leaders do not add a follower with an old broker epoch to the ISR.
            self.stop()
            self._me = me
        by_leader: dict[BrokerId, list[Partition]] = {}
        if me is not None:
            for partition in self._replicas.following:
                if partition.leader in image.brokers:
                    by_leader.setdefault(partition.leader, []).append(partition)
        for leader in list(self._running):
            fetcher, _ = self._running[leader]
            # A broker that registered again has another broker epoch, which its fetches must use.
            if (
                leader not in by_leader
                or fetcher.leader != image.brokers[leader]
                or fetcher.me != me
            ):
                self._end(leader)
        for leader, partitions in by_leader.items():
            assert me is not None
            fetcher = self._fetcher(image.brokers[leader], me)
            fetcher.follow(partitions)

    def stop(self) -> None:
        """Stop all fetchers."""
        for leader in list(self._running):
            self._end(leader)

    def _fetcher(self, leader: Broker, me: Broker) -> Fetcher:
        if leader.id not in self._running:
            fetcher = Fetcher(
                leader,
                me,
                self._settings,
                self._executor,
                self._clock,
                self._throttle,
                self._connect,
            )
            task = asyncio.get_running_loop().create_task(fetcher.run())
            self._running[leader.id] = (fetcher, task)
        return self._running[leader.id][0]

    def _end(self, leader: BrokerId) -> None:
        _, task = self._running.pop(leader)
        task.cancel()
