"""The broker process: builds every part by hand, listens, says when it is ready, stops cleanly."""

import asyncio
import gc
import logging
import os
import resource
import signal
import socket
import sys
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING

from headrace.apis.context import Caller, Services
from headrace.apis.records.fetch import Fetch
from headrace.apis.records.fetch_sessions import SessionCache
from headrace.apis.records.produce import Produce
from headrace.broker.background import Background
from headrace.broker.buffers import Buffers
from headrace.broker.clock_watch import ClockWatch
from headrace.broker.cluster_metrics import ClusterMetrics
from headrace.broker.connection import Connection, Handler, Limits
from headrace.broker.damage_report import damage_warnings, watch_damage
from headrace.broker.dispatch import Dispatch
from headrace.broker.metadata_stores import open_store
from headrace.broker.metrics import Metrics
from headrace.broker.poller import Poller
from headrace.broker.receive_memory import ReceiveMemory
from headrace.broker.retention import CommittedOffsets, Retention
from headrace.broker.starting import StoppedWhileStarting, StoreCalls
from headrace.clock import Clock, SystemClock
from headrace.cluster.image import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, Broker, Image, Topic
from headrace.cluster.membership import Membership, Rules
from headrace.cluster.metadata import FoundTopic, Metadata
from headrace.cluster.store import StoreError
from headrace.disk import Disk, OpenFiles, RealDisk
from headrace.errors import KafkaError, SettingError
from headrace.log.directories import LogDirectories
from headrace.log.directory import FolderInUse, LogDirectory
from headrace.logs import configure_logs
from headrace.replication.nearest import Nearest
from headrace.replication.peers import Peers
from headrace.replication.replicas import Replicas
from headrace.settings import Settings, log_settings

if TYPE_CHECKING:
    from headrace.broker.metrics_page import MetricsPage
    from headrace.broker.replication import Replication
    from headrace.coordination.runtime import Coordinator
    from headrace.coordination.transaction_runtime import TransactionCoordinator
    from headrace.disk.failpoints import Failpoints

logger = logging.getLogger(__name__)

FAULT_PORT = "HEADRACE_FAULT_PORT"
"""Environment variable: a Unix socket on which tests ask for faults. See `faults.py`."""

FAILPOINTS = "HEADRACE_FAILPOINTS"
"""Environment variable: disk faults that wait from the start, a JSON array of `disk` commands."""

_END_WITHIN_S = 5.0
_BACKLOG = 1024
_ACCEPT_PAUSE_S = 0.2
_ACCEPT_LOG_S = 10.0
"""How long accepting pauses when descriptors are used up, and how often that is logged."""
_DEFAULT_NODE_ID = 1

Address = tuple[str, int]


class Server:
    """One broker: its parts, its sockets, its life."""

    def __init__(
        self,
        settings: Settings,
        data_dirs: tuple[str, ...],
        listen: Address,
        advertise: Address | None,
        node_id: int | None,
    ) -> None:
        self._settings = settings
        self._stopping = False
        self._connections: set[Connection] = set()
        self._listener = _listen(listen, settings)
        port = self._listener.getsockname()[1]
        self.listen: Address = (listen[0], port)
        self.advertise: Address = advertise or (_dialable(listen[0]), port)

        clock = SystemClock()
        disk, failpoints = _choose_disk(settings)
        self.directories = LogDirectories(data_dirs, disk, clock)
        self.directories.open()
        with ExitStack() as undo:
            # Folders that were stopped cleanly stay so if this start fails.
            undo.callback(self.directories.abandon)
            self._build(_claim(self.directories.first, node_id, settings), clock, failpoints, undo)
            undo.pop_all()

    def _build(
        self, node: int, clock: SystemClock, failpoints: "Failpoints | None", undo: ExitStack
    ) -> None:
        """Make all parts, and be one of the cluster's brokers."""
        settings = self._settings
        self._executor = ThreadPoolExecutor(2, thread_name_prefix="disk")
        first, calls = self.directories.first, StoreCalls()
        self._store, shared = calls.make(
            "open the metadata store",
            lambda: open_store(settings, first.path, calls.stop_requested),
        )
        undo.callback(self._store.close)
        metadata = Metadata(self._store, node, clock)
        calls.make("read the metadata", lambda: _load(metadata, first))
        self.directories.write_meta(
            {"version": "1", "node.id": str(node), "cluster.id": metadata.image.cluster_id}
        )
        self._replicas = Replicas(node, settings, self.directories, self._executor, clock)
        membership = Membership(metadata, node, self._rules)
        this = Broker(node, *self.advertise, settings.text("broker.rack") or None)
        if shared:
            calls.make("register this broker", lambda: self._join(membership, this))
        else:
            metadata.stand_alone(this)
            _adopt_folders(metadata, self.directories)
        calls.make("elect leaders", membership.look)
        self._replicas.load(metadata.image)
        metadata.listeners.append(self._replicas.apply)
        services = self._services = self._make_services(node, metadata, clock)
        dispatch = Dispatch(services, Produce(services), self._make_fetch(services))
        self.handler: Handler = dispatch
        self._faults = None
        if failpoints is not None:
            from headrace.broker.faults import Faults

            self.handler = self._faults = Faults(dispatch, clock, failpoints)
        self._memory = ReceiveMemory(settings.integer("queued.max.request.bytes"))
        self._buffers = Buffers(self._memory)
        self._limits = Limits(
            settings.integer("socket.request.max.bytes"),
            settings.integer("headrace.connection.pipelined.requests"),
        )
        self._poller = Poller(self._replicas.wake)
        self._metrics = Metrics()
        self._metrics.watch("headrace_connections", lambda: len(self._connections))
        self._metrics.watch("headrace_receive_bytes", lambda: self._memory.held_bytes)
        self._metrics.watch("headrace_receive_waits", lambda: self._memory.waiting)
        self._metrics.watch_each("headrace_requests_total", dispatch.requests)
        self._metrics.watch("headrace_log_dirs_offline", lambda: len(self._broken_folders()))
        watch_damage(self._metrics, self.directories)
        self._metrics.watch("headrace_replica_moves", lambda: self._replicas.moves.under_way)
        self._cluster_metrics = ClusterMetrics(self._metrics, metadata, self._replicas, self._rules)
        self._accept_again: asyncio.TimerHandle | None = None
        self._accept_logged_from = 0.0
        self._metrics_page: MetricsPage | None = None
        retention = Retention(self._replicas, clock, self._find_committed, self._metrics)
        self._clock_watch = ClockWatch(clock, self._metrics)
        self._background = Background(
            settings, self._replicas, self._connections, self._memory, self._executor, retention,
            clock, self._metrics, self._clock_watch,
        )  # fmt: skip
        self._replication = None
        if shared:
            self._replication = self._replicate(membership, this)

    def _make_services(self, node: int, metadata: Metadata, clock: Clock) -> Services:
        timeout_s = self._settings.integer("replica.socket.timeout.ms") / 1000
        return Services(
            node,
            self._settings,
            clock,
            metadata,
            self._replicas,
            self._make_groups,
            self._make_transactions,
            Peers(metadata, node, timeout_s),
        )

    def _make_fetch(self, services: Services) -> Fetch:
        settings, replicas = self._settings, self._replicas
        slots = settings.integer("max.incremental.fetch.session.cache.slots")
        nearest = None
        if replicas.followers_serve:
            nearest = Nearest(services.metadata, services.node_id)
        clock, max_bytes = services.clock, settings.integer("fetch.max.bytes")
        return Fetch(replicas, SessionCache(slots, clock), max_bytes, clock, nearest)

    def _join(self, membership: Membership, this: Broker) -> Broker:
        """Be one of the cluster's brokers; after a crash one that has to catch up first."""
        folder = (self.directories.first.meta or {})["directory.id"]
        clean = all(one.is_whole() for one in self.directories.healthy)
        return membership.join(this, folder, clean=clean)

    def _replicate(self, membership: Membership, this: Broker) -> "Replication":
        # Imported here: a broker on its own starts faster without.
        from headrace.broker.replication import Replication

        services = self._services
        services.metadata.listeners.append(self._wake_coordinators)
        folder = (self.directories.first.meta or {})["directory.id"]
        return Replication(
            self._settings,
            self._store,
            services.metadata,
            membership,
            self._replicas,
            self._executor,
            services.clock,
            # It has run on: what it held it still holds.
            lambda: membership.join(this, folder, clean=True),
        )

    def run(self) -> int:
        """Serve until SIGTERM or SIGINT, or until no data folder is left; the exit code."""
        loop = asyncio.SelectorEventLoop(self._poller)
        asyncio.set_event_loop(loop)
        try:
            if self.directories.healthy:  # recovery may have left none
                loop.run_until_complete(self._serve())
        finally:
            loop.close()
        if self.directories.healthy:
            return 0
        print(f"headrace: stopped: {_all_failed(self.directories)}", file=sys.stderr)
        return 1

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)

        def directory_failed(directory: LogDirectory) -> None:
            loop.call_soon_threadsafe(self._replicas.directory_failed, directory)
            if not self.directories.healthy:
                loop.call_soon_threadsafe(stop.set)

        self.directories.on_failure = directory_failed
        if self._faults is not None:
            await asyncio.start_unix_server(self._faults.serve, os.environ[FAULT_PORT])
        await self._start_metrics()
        loop.add_reader(self._listener, self._accept)
        self._replicas.start()
        self._background.start()
        image = self._services.metadata.image
        self._wake_coordinators(image, image)
        if self._replication is not None:
            self._replication.start()
        # Everything built so far stays: the collector need not look at it again.
        gc.collect()
        gc.freeze()
        # A collection stops everything: ten thousand new objects take it a millisecond or two.
        gc.set_threshold(10_000, 10, 1_000)
        host, port = self.listen
        folders = ", ".join(directory.path for directory in self.directories.all)
        print(f"Headrace is ready on {host}:{port}, data in {folders}", flush=True)
        loop.run_in_executor(self._executor, _check_advertised, self.advertise)
        await stop.wait()
        logger.info("stopping")
        if self._replication is not None:
            await self._replication.hand_over()
            self._replication.stop()
        if self._accept_again is not None:
            self._accept_again.cancel()
        loop.remove_reader(self._listener)
        if self._metrics_page is not None:
            self._metrics_page.stop()
        self._background.stop()
        self._services.stop_coordinators()
        self._services.peers.close()
        for connection in list(self._connections):
            connection.close()
        await _end_tasks()
        self.close()

    def close(self) -> None:
        """Let go of the socket and the data; the logs are left as after a clean stop."""
        self._listener.close()
        self._executor.shutdown()
        self.directories.close()
        self._store.close()

    async def _start_metrics(self) -> None:
        address = self._settings.text("headrace.metrics.address")
        if not address:
            return
        from headrace.broker.metrics_page import MetricsPage

        host, _, port = address.rpartition(":")
        self._metrics_page = MetricsPage(self._metrics, self._problems, self._warnings)
        try:
            bound = await self._metrics_page.start(host.strip("[]"), int(port))
        except OSError as error:
            raise SettingError(
                f"headrace.metrics.address={address}: cannot listen there ({error.strerror}); "
                "choose another HOST:PORT"
            ) from error
        logger.info("metrics are at http://%s:%d/metrics", host, bound)

    def _problems(self) -> list[str]:
        """What keeps this broker from being healthy."""
        out = []
        if self._replicas.stepped_down:
            out.append("this broker is out of the cluster, because the metadata are out of reach")
        return [*self._broken_folders(), *out, *self._cluster_metrics.problems()]

    def _warnings(self) -> list[str]:
        """What people have to know, though a restart would not help."""
        return [*damage_warnings(self.directories), *self._clock_watch.warnings()]

    def _broken_folders(self) -> list[str]:
        return [
            f"{directory.path} is offline: {directory.offline}"
            for directory in self.directories.all
            if directory.offline is not None
        ]

    def _rules(self, topic: Topic) -> Rules:
        settings = log_settings(self._replicas.settings_now, topic.configs)
        return Rules(settings.min_insync_replicas, settings.unclean_leader_election_enable)

    def _wake_coordinators(self, _old: Image, image: Image) -> None:
        """See that whoever this broker coordinates is looked after, before anybody asks."""
        loop = asyncio.get_running_loop()
        if OFFSETS_TOPIC in image.topics:
            # Members of groups wait for us: read their state before they ask.
            loop.call_soon(lambda: self._services.groups)
        if TRANSACTIONS_TOPIC in image.topics:
            # What a crash interrupted is finished, and what nobody ends times out.
            loop.call_soon(lambda: self._services.transactions)

    async def _find_committed(self, topics: Collection[str]) -> CommittedOffsets:
        if OFFSETS_TOPIC not in self._services.metadata.image.topics:
            return {}
        from headrace.coordination.committed import committed_at, committed_here

        services = self._services
        found = await committed_here(services.groups, topics)
        for broker in services.metadata.image.brokers:
            if broker != services.node_id:
                elsewhere = await committed_at(services.peers, broker, topics)
                for topic, groups in elsewhere.items():
                    found.setdefault(topic, {}).update(groups)
        return found

    def _make_groups(self) -> "Coordinator":
        from headrace.coordination.runtime import Coordinator

        services = self._services
        groups = Coordinator(
            services.settings, services.clock, services.metadata, services.replicas
        )
        groups.start()
        return groups

    def _make_transactions(self) -> "TransactionCoordinator":
        from headrace.coordination.transaction_runtime import TransactionCoordinator

        services = self._services
        transactions = TransactionCoordinator(
            services.settings,
            services.clock,
            services.metadata,
            services.replicas,
            lambda: services.groups,
            services.peers,
        )
        transactions.start()
        return transactions

    def _accept(self) -> None:
        allowed = self._replicas.settings_now.integer("max.connections")
        while True:
            try:
                sock, address = self._listener.accept()
            except BlockingIOError:
                return
            except ConnectionAbortedError:
                continue  # the client gave up while it waited
            except OSError as error:
                self._pause_accepting(error)
                return
            if len(self._connections) >= allowed:
                logger.warning("refusing %s: max.connections=%d reached", address[0], allowed)
                sock.close()
                continue
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection = Connection(
                sock,
                Caller(f"{address[0]}:{address[1]}"),
                self._poller,
                self._buffers,
                self.handler,
                self._limits,
                self._connections.discard,
            )
            self._connections.add(connection)

    def _pause_accepting(self, error: OSError) -> None:
        """Leave new connections in the queue for a moment: descriptors or memory are used up.

        The listener stays ready all the time, so that without a pause this would be a busy loop.
        """
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._listener)
        self._accept_again = loop.call_later(
            _ACCEPT_PAUSE_S, loop.add_reader, self._listener, self._accept
        )
        now = loop.time()
        if now >= self._accept_logged_from:
            self._accept_logged_from = now + _ACCEPT_LOG_S
            logger.error(
                "cannot accept connections: %s; retrying every %.1f s. The broker has %d client "
                "connections; raise its limit of open files (ulimit -n) or lower max.connections",
                error, _ACCEPT_PAUSE_S, len(self._connections),
            )  # fmt: skip


def main(
    settings: Settings,
    data_dirs: tuple[str, ...],
    listen: Address,
    advertise: Address | None,
    node_id: int | None,
    log_format: str,
    log_level: str,
) -> int:
    """Run a broker until it is told to stop; the exit code of the process."""
    configure_logs(log_format, log_level)
    _allow_many_files()
    try:
        _log_without_effect(settings)
        server = Server(settings, data_dirs, listen, advertise, node_id)
    except StoppedWhileStarting:
        logger.info("stopped before the start was complete")
        return 0
    except (SettingError, KafkaError, FolderInUse, StoreError, OSError) as error:
        print(f"headrace: cannot start: {error}", file=sys.stderr)
        return 1
    try:
        return server.run()
    except SettingError as error:
        server.close()
        print(f"headrace: cannot start: {error}", file=sys.stderr)
        return 1


def _log_without_effect(settings: Settings) -> None:
    """Say once which of the given settings change nothing."""
    names = sorted([*settings.unused, *settings.ignored])
    if names:
        logger.warning(
            "these settings have no effect in this version: %s", ", ".join(names),
            extra={"fields": {"event": "settings_without_effect", "settings": names}},
        )  # fmt: skip


async def _end_tasks() -> None:
    """Let everything end that was told to, so that nothing is dropped with a complaint."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=_END_WITHIN_S)


def _listen(address: Address, settings: Settings) -> socket.socket:
    host, port = address
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    for name, option in (
        ("socket.send.buffer.bytes", socket.SO_SNDBUF),
        ("socket.receive.buffer.bytes", socket.SO_RCVBUF),
    ):
        if settings.integer(name) > 0:
            listener.setsockopt(socket.SOL_SOCKET, option, settings.integer(name))
    try:
        listener.bind((host, port))
    except OSError as error:
        raise SettingError(
            f"cannot listen on {host}:{port} ({error.strerror}). Is another broker running there? "
            "Choose another address with --listen HOST:PORT."
        ) from error
    listener.listen(_BACKLOG)
    listener.setblocking(False)
    return listener


def _choose_disk(settings: Settings) -> "tuple[Disk, Failpoints | None]":
    """The machine's disk, which fails on demand if a test asked for faults."""
    granted, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    disk = RealDisk(OpenFiles(min(settings.integer("headrace.open.files.max"), granted // 2)))
    if FAULT_PORT not in os.environ:
        return disk, None
    from headrace.disk.failpoints import FaultyDisk, armed_failpoints

    failpoints = armed_failpoints(os.environ.get(FAILPOINTS, "[]"))
    return FaultyDisk(disk, failpoints), failpoints


def _dialable(host: str) -> str:
    """What clients should dial when nothing is advertised: a wildcard is no address."""
    return "localhost" if host in ("", "0.0.0.0", "::") else host


def _check_advertised(address: Address) -> None:
    """Say so if clients will be sent to an address that nobody can reach."""
    host, port = address
    try:
        socket.create_connection(address, timeout=5).close()
    except OSError as error:
        logger.warning(
            "the advertised address %s:%d cannot be dialled from here (%s): clients that bootstrap "
            "elsewhere will fail after their first answer. Start with --advertise HOST:PORT, an "
            "address that clients can reach.",
            host, port, error,
        )  # fmt: skip


def _allow_many_files() -> None:
    """Take as many descriptors as the system lets us: a segment and a connection each need one."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _all_failed(directories: LogDirectories) -> str:
    """Why there is nothing left to do for this broker."""
    reasons = "; ".join(f"{one.path}: {one.offline}" for one in directories.all)
    return f"every folder of log.dirs has failed ({reasons})"


def _claim(directory: LogDirectory, node_id: int | None, settings: Settings) -> int:
    """The id of this broker: as asked for, as the folder says, or as the settings have it."""
    known = (directory.meta or {}).get("node.id")
    if node_id is None:
        asked = settings.value("node.id")
        if asked is None:
            return int(known) if known is not None else _DEFAULT_NODE_ID
        node_id = settings.integer("node.id")
    if known is not None and int(known) != node_id:
        raise SettingError(
            f"node.id={node_id}, but the data in {directory.path} belongs to node {known}. "
            f"Start with --node-id {known}, or with another --data-dir."
        )
    return node_id


def _load(metadata: Metadata, directory: LogDirectory) -> None:
    """Read the metadata, and see that the data belong to them; new metadata take the data's id."""
    known = (directory.meta or {}).get("cluster.id")
    metadata.load(known)
    if known is not None and known != metadata.image.cluster_id:
        raise SettingError(
            f"the data in {directory.path} belong to cluster {known}, but the metadata are those "
            f"of cluster {metadata.image.cluster_id}. Give this broker a folder of its own with "
            "--data-dir, or the metadata of its own cluster with --metadata."
        )


def _adopt_folders(metadata: Metadata, directories: LogDirectories) -> None:
    """Take in partition folders that somebody put here, such as a broker of Apache Kafka.

    A crash may bring back a folder of a topic that was deleted; such a one goes for good.
    """
    found: dict[str, FoundTopic] = {}
    for partition, directory in directories.homes():
        known_topic = metadata.image.topics.get(partition.topic)
        if known_topic is not None and directory.stopped_cleanly:
            continue
        topic_id = directory.topic_id(partition)
        if topic_id is None and known_topic is not None:
            directory.write_topic_id(partition, known_topic.id)  # a power cut took the file's bytes
        if topic_id is None or (known_topic is not None and known_topic.id == topic_id):
            continue
        if metadata.was_deleted(topic_id):
            logger.info("removing the folder of %s, whose topic was deleted", partition)
            directories.delete(partition)()
            continue
        if known_topic is not None:
            logger.warning(
                "the folder of %s has another topic id than the topic; using it", partition
            )
            continue
        count = partition.partition + 1
        known = found.get(partition.topic)
        if known is None or known.partitions < count:
            found[partition.topic] = FoundTopic(partition.topic, topic_id, count)
    strange = metadata.adopt_topics(found.values())
    for topic in found.values():
        if topic in strange:
            logger.warning("the folders of %s belong to another topic; left alone", topic.name)
        else:
            logger.info("found the folders of topic %s and took it in", topic.name)
