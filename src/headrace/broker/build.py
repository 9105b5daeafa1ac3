"""Builds a broker from its parts: logs, metadata, replicas, coordinators, dispatch, and the rest.

The process (`server.py`), the simulator and the tests of handlers build their brokers here, so that
all are wired alike. They differ in their `Surroundings`. Sockets, signals and metrics belong to the
server.
"""

import asyncio
import logging
from collections.abc import Callable, Collection
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

from headrace.apis.context import Services
from headrace.broker.background import Background
from headrace.broker.clock_watch import ClockWatch
from headrace.broker.connection import ClientConnection
from headrace.broker.dispatch import Dispatch
from headrace.broker.metadata_stores import Opened
from headrace.broker.metrics.values import Metrics
from headrace.broker.receive_memory import ReceiveMemory
from headrace.broker.retention import CommittedOffsets, Retention
from headrace.clock import Clock
from headrace.cluster.image import (
    OFFSETS_TOPIC,
    SHARE_STATE_TOPIC,
    TRANSACTIONS_TOPIC,
    Broker,
    Image,
    Topic,
)
from headrace.cluster.membership import Membership, Rules
from headrace.cluster.metadata import FoundTopic, Metadata
from headrace.cluster.store import Store
from headrace.errors import SettingError
from headrace.log.directories import LogDirectories
from headrace.log.directory import LogDirectory
from headrace.replication.peers import Peers
from headrace.replication.replicas import Replicas
from headrace.security.audit import Audit
from headrace.security.guard import Guard, parse_super_users
from headrace.settings import Settings, log_settings

if TYPE_CHECKING:
    from headrace.broker.replication import Replication
    from headrace.client.aio import Connect
    from headrace.coordination.group_runtime import GroupCoordinator
    from headrace.coordination.shares.shares import Shares
    from headrace.coordination.transaction_runtime import TransactionCoordinator

logger = logging.getLogger(__name__)

_Result = TypeVar("_Result")


class MakeCall(Protocol):
    """Makes a call to the store; a starting broker repeats it until the store responds."""

    def __call__(self, what: str, call: Callable[[], _Result], /) -> _Result: ...


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The environment of a broker: clock, store, executor and connections."""

    clock: Clock
    executor: Executor
    """Runs work that waits for the disk."""
    opened: Opened
    """The metadata store."""
    make_call: MakeCall
    connect: "Connect | None" = None
    """Connects to another broker; None means over plain TCP."""


@dataclass(slots=True)
class BrokerParts:
    """The parts of one broker, wired together."""

    executor: Executor
    directories: LogDirectories
    store: Store
    metadata: Metadata
    membership: Membership
    rules: Callable[[Topic], Rules]
    replicas: Replicas
    services: Services
    dispatch: Dispatch
    connections: set[ClientConnection]
    memory: ReceiveMemory
    metrics: Metrics
    clock_watch: ClockWatch
    background: Background
    replication: "Replication | None"
    """None unless other brokers use the same metadata store."""

    def start(self) -> None:
        """Begin; needs a running event loop."""
        self.replicas.start()
        self.background.start()
        self._expire_tokens()
        if self.services.settings.text("headrace.metrics.address"):
            # Most clients ask for a subscription to client metrics if the broker offers them.
            self.executor.submit(_import_telemetry)
        _wake_coordinators(self.services, self.metadata.image)
        if self.replication is not None:
            self.replication.start()

    def _expire_tokens(self) -> None:
        settings = self.services.settings
        if settings.text("delegation.token.secret.key"):
            # Imported here, so that a broker without tokens starts faster.
            from headrace.broker.token_expiry import expire_tokens

            interval_ms = settings.integer("delegation.token.expiry.check.interval.ms")
            self.background.every(interval_ms, lambda: expire_tokens(self.services))

    async def stop(self) -> None:
        """Hand over leadership to other brokers, and end all work."""
        if self.replication is not None:
            await self.replication.hand_over()
            self.replication.stop()
        self.background.stop()
        self.services.stop_coordinators()
        self.services.peers.close()

    def close(self) -> None:
        """Close the data; the logs are in the state of a clean stop."""
        self.executor.shutdown()
        self.directories.close()
        self.store.close()
        self.services.audit.close()


def build(
    settings: Settings, directories: LogDirectories, this: Broker, on: Surroundings
) -> BrokerParts:
    """Build a broker with its data in `directories`, and register it in the metadata store.

    It needs no event loop, because nothing runs before `BrokerParts.start`.
    """
    node, clock, store, call = this.id, on.clock, on.opened.store, on.make_call
    metadata = Metadata(store, node, clock, settings.listeners.inter_broker_name)
    call("read the metadata", lambda: _load(metadata, directories.first))
    directories.write_meta(
        {"version": "1", "node.id": str(node), "cluster.id": metadata.image.cluster_id}
    )
    replicas = Replicas(node, settings, directories, on.executor, clock)

    def rules(topic: Topic) -> Rules:
        now = log_settings(replicas.settings_now, topic.configs)
        return Rules(now.min_insync_replicas, now.unclean_leader_election_enable)

    membership = Membership(metadata, node, rules)
    if on.opened.shared:
        # After a crash this broker has to catch up before it is in sync.
        clean = all(one.folder.is_whole() for one in directories.healthy)
        call("register this broker", lambda: _join(membership, this, directories, clean))
    else:
        metadata.stand_alone(this)
        _adopt_folders(metadata, directories)
    call("elect leaders", membership.look)
    replicas.load(metadata.image)
    metadata.listeners.append(replicas.apply)
    audit = _make_audit(settings, node, clock)
    services = Services(
        node,
        settings,
        clock,
        metadata,
        replicas,
        lambda: _start_groups(services),
        lambda: _start_transactions(services),
        lambda: _start_shares(services),
        Peers(metadata, node, settings.integer("replica.socket.timeout.ms") / 1000, on.connect),
        _make_guard(settings, metadata, audit),
        audit,
    )
    connections: set[ClientConnection] = set()
    memory = ReceiveMemory(settings.integer("queued.max.request.bytes"))
    metrics = Metrics()
    clock_watch = ClockWatch(clock, metrics)
    retention = Retention(replicas, clock, lambda topics: _committed(services, topics), metrics)
    replication = _replicate(services, membership, this, on) if on.opened.shared else None
    return BrokerParts(
        executor=on.executor,
        directories=directories,
        store=store,
        metadata=metadata,
        membership=membership,
        rules=rules,
        replicas=replicas,
        services=services,
        dispatch=Dispatch(services),
        connections=connections,
        memory=memory,
        metrics=metrics,
        clock_watch=clock_watch,
        background=Background(
            settings, replicas, connections, memory, on.executor, retention, clock, metrics,
            clock_watch,
        ),
        replication=replication,
    )  # fmt: skip


def _import_telemetry() -> None:
    """Import the code of client metrics, which takes too long for the event loop."""
    import headrace.apis.error_codes
    import headrace.apis.telemetry.get_telemetry_subscriptions
    import headrace.apis.telemetry.push_telemetry
    import headrace.wire.codec  # noqa: F401


def _make_audit(settings: Settings, node: int, clock: Clock) -> Audit:
    return Audit(
        clock,
        node,
        path=settings.text("headrace.audit.file"),
        log_allowed=settings.boolean("headrace.audit.allowed"),
    )


def _make_guard(settings: Settings, metadata: Metadata, audit: Audit) -> Guard | None:
    """The authorizer; None if the settings have none."""
    if not settings.text("authorizer.class.name"):
        return None
    guard = Guard(
        metadata.image.security,
        parse_super_users(settings.text("super.users")),
        audit,
        allow_without_acl=settings.boolean("allow.everyone.if.no.acl.found"),
    )
    metadata.listeners.append(lambda _old, new: guard.follow(new.security))
    return guard


def make_groups(services: Services) -> "GroupCoordinator":
    """The coordinator of this broker's groups, not started."""
    # Imported here, so that a broker without groups starts faster.
    from headrace.coordination.group_runtime import GroupCoordinator

    return GroupCoordinator(services.settings, services.clock, services.metadata, services.replicas)


def make_transactions(services: Services) -> "TransactionCoordinator":
    """The coordinator of this broker's transactional ids, not started."""
    from headrace.coordination.transaction_runtime import TransactionCoordinator

    return TransactionCoordinator(
        services.settings,
        services.clock,
        services.metadata,
        services.replicas,
        lambda: services.groups,
        services.peers,
    )


def make_shares(services: Services) -> "Shares":
    """What serves this broker's share groups, not started."""
    from headrace.coordination.shares.shares import Shares

    return Shares(
        services.settings,
        services.clock,
        services.metadata,
        services.replicas,
        services.peers,
        services.long_batches.search,
    )


def _start_shares(services: Services) -> "Shares":
    shares = make_shares(services)
    shares.start()
    return shares


def _start_groups(services: Services) -> "GroupCoordinator":
    groups = make_groups(services)
    groups.start()
    return groups


def _start_transactions(services: Services) -> "TransactionCoordinator":
    transactions = make_transactions(services)
    transactions.start()
    return transactions


def _wake_coordinators(services: Services, image: Image) -> None:
    """Load the coordinators' state before the first request."""
    loop = asyncio.get_running_loop()
    if OFFSETS_TOPIC in image.topics:
        # Members of groups wait for their coordinator.
        loop.call_soon(lambda: services.groups)
    if TRANSACTIONS_TOPIC in image.topics:
        # Complete transactions that a crash interrupted, and abort those that time out.
        loop.call_soon(lambda: services.transactions)
    if SHARE_STATE_TOPIC in image.topics:
        loop.call_soon(lambda: services.shares)


async def _committed(services: Services, topics: Collection[str]) -> CommittedOffsets:
    """The committed offsets of all groups in some topics."""
    if OFFSETS_TOPIC not in services.metadata.image.topics:
        return {}
    from headrace.coordination.committed import committed_at, committed_here, delivered_here

    found = await committed_here(services.groups, topics)
    if SHARE_STATE_TOPIC in services.metadata.image.topics:
        persister = services.shares.persister
        delivered = await delivered_here(services.groups, persister, topics)
        for topic, starts in delivered.items():
            found.setdefault(topic, {}).update(starts)
    for broker in services.metadata.image.brokers:
        if broker != services.node_id:
            elsewhere = await committed_at(services.peers, broker, topics)
            for topic, groups in elsewhere.items():
                found.setdefault(topic, {}).update(groups)
    return found


def _join(membership: Membership, this: Broker, directories: LogDirectories, clean: bool) -> Broker:
    """Register this broker in the cluster."""
    folder = (directories.first.folder.meta or {})["directory.id"]
    return membership.join(this, folder, clean=clean)


def _replicate(
    services: Services, membership: Membership, this: Broker, on: Surroundings
) -> "Replication":
    # Imported here, so that a single broker starts faster.
    from headrace.broker.replication import Replication
    from headrace.client.aio import AsyncConnection

    services.metadata.listeners.append(lambda _old, image: _wake_coordinators(services, image))
    return Replication(
        services.settings,
        on.opened.store,
        services.metadata,
        membership,
        services.replicas,
        on.executor,
        services.clock,
        # The broker kept running, so its replicas are intact: `clean` is True.
        lambda: _join(membership, this, services.replicas.directories, clean=True),
        on.connect or AsyncConnection.connect,
    )


def _load(metadata: Metadata, directory: LogDirectory) -> None:
    """Read the metadata, and check their cluster id; new metadata get the id of the data."""
    known = (directory.folder.meta or {}).get("cluster.id")
    metadata.load(known)
    if known is not None and known != metadata.image.cluster_id:
        raise SettingError(
            f"the data in {directory.path} belong to cluster {known}, but the metadata are those "
            f"of cluster {metadata.image.cluster_id}. Give this broker another folder with "
            "--data-dir, or the metadata of its own cluster with --metadata."
        )


def _adopt_folders(metadata: Metadata, directories: LogDirectories) -> None:
    """Register partition folders that were copied here, such as those of Apache Kafka.

    A crash may bring back a folder of a deleted topic; it is removed.
    """
    found: dict[str, FoundTopic] = {}
    for partition, directory in directories.homes():
        known_topic = metadata.image.topics.get(partition.topic)
        if known_topic is not None and directory.folder.stopped_cleanly:
            continue
        topic_id = directory.folder.topic_id(partition)
        if topic_id is None and known_topic is not None:
            directory.folder.write_topic_id(
                partition, known_topic.id
            )  # a power failure lost the file's content
        if topic_id is None or (known_topic is not None and known_topic.id == topic_id):
            continue
        if metadata.nodes.was_deleted(topic_id):
            logger.info("removing the folder of %s, whose topic was deleted", partition)
            directories.delete(partition)()
            continue
        if known_topic is not None:
            logger.warning(
                "the folder of %s has another topic id than its topic; the folder is used",
                partition,
            )
            continue
        count = partition.partition + 1
        known = found.get(partition.topic)
        if known is None or known.partitions < count:
            found[partition.topic] = FoundTopic(partition.topic, topic_id, count)
    conflicting = metadata.adopt_topics(found.values())
    for topic in found.values():
        if topic in conflicting:
            logger.warning("the folders of %s belong to another topic; ignoring them", topic.name)
        else:
            logger.info("registered topic %s, whose folders were found", topic.name)
