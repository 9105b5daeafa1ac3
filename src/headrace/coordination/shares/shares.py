"""What a broker does for share groups: the share coordinator, share partitions and sessions."""

from __future__ import annotations

from headrace.clock import Clock
from headrace.cluster.metadata import Metadata
from headrace.coordination.coordinator_tasks import CoordinatorTasks
from headrace.coordination.shares.dead_letters import DeadLetters
from headrace.coordination.shares.persister import SharePersister
from headrace.coordination.shares.share_partitions import Search, SharePartitions
from headrace.coordination.shares.share_runtime import ShareCoordinator
from headrace.coordination.shares.share_sessions import ShareSessions
from headrace.replication.peers import Peers
from headrace.replication.replicas import Replicas
from headrace.settings import Settings


class Shares:
    """The parts of this broker that serve share groups."""

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        metadata: Metadata,
        replicas: Replicas,
        peers: Peers,
        search: Search,
    ) -> None:
        self._tasks = CoordinatorTasks()
        self.coordinator = ShareCoordinator(settings, clock, metadata, replicas)
        self.persister = SharePersister(self.coordinator, peers, replicas.node_id)
        self.partitions = SharePartitions(
            settings,
            clock,
            metadata,
            replicas,
            self.persister,
            DeadLetters(settings, metadata, replicas, peers),
            search,
            self._tasks,
        )
        self.sessions = ShareSessions(
            settings.integer("group.share.max.share.sessions"), self.partitions
        )

    def start(self) -> None:
        """Begin to read the state; needs a running event loop."""
        self._tasks.start()
        self.coordinator.start()

    def stop(self) -> None:
        """Stop all work."""
        self._tasks.stop()
        self.coordinator.stop()
