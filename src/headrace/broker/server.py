"""The broker process: listens, prints the ready line, stops cleanly. See also `build.py`."""

import asyncio
import gc
import logging
import os
import resource
import signal
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING

from headrace.apis.context import Caller
from headrace.broker.acceptor import Acceptor, Reception
from headrace.broker.buffers import Buffers
from headrace.broker.build import Surroundings, build
from headrace.broker.connection import ClientConnection, Handler, Limits
from headrace.broker.dispatch import import_codec
from headrace.broker.metadata_stores import open_store
from headrace.broker.metrics.damage import damage_warnings
from headrace.broker.metrics.sources import ServerMetrics
from headrace.broker.poller import Poller
from headrace.broker.quotas.connection_limits import ConnectionLimits
from headrace.broker.quotas.serving import Serving
from headrace.broker.starting import StoppedWhileStarting, StoreCalls
from headrace.broker.transport import Transport
from headrace.clock import SystemClock
from headrace.cluster.image import Broker, Endpoint
from headrace.cluster.store import StoreError
from headrace.disk import Disk, OpenFiles, TimedDisk
from headrace.errors import KafkaError, SettingError
from headrace.log.data_folder import FolderInUse
from headrace.log.directories import LogDirectories
from headrace.log.directory import LogDirectory
from headrace.logs import configure_logs
from headrace.security.acls import ANONYMOUS
from headrace.settings import Settings
from headrace.settings.listeners import PLAINTEXT, Listener
from headrace.types import Address

if TYPE_CHECKING:
    from headrace.broker.metrics.page import MetricsPage
    from headrace.broker.metrics.process import ProcessMetrics
    from headrace.broker.setup.login import Login
    from headrace.broker.setup.logins import Logins
    from headrace.client.aio import Connect
    from headrace.disk.failpoints import Failpoints
    from headrace.prometheus import Histogram
    from headrace.security.tls import ListenerTls

logger = logging.getLogger(__name__)

FAULT_PORT = "HEADRACE_FAULT_PORT"
"""Environment variable: a Unix socket for fault commands of tests. See `faults.py`."""

FAILPOINTS = "HEADRACE_FAILPOINTS"
"""Environment variable: disk faults from the start, a JSON array of `disk` commands."""

ADMIN_PASSWORD_FILE = "HEADRACE_ADMIN_PASSWORD_FILE"
"""Environment variable: a file with the password of the first user. See `first_admin.py`."""

_END_WITHIN_S = 5.0
_LOOK_AT_CERTIFICATES_S = 3.0
_DEFAULT_NODE_ID = 1
_MACOS_FILES = 10_240
"""The number of descriptors that macOS allows a process."""


class Server:
    """One broker process: its parts, its sockets, start and stop."""

    def __init__(
        self,
        settings: Settings,
        data_dirs: tuple[str, ...],
        node_id: int | None,
    ) -> None:
        self._settings = settings
        self._stopping = False
        self._acceptors = [Acceptor(one, settings) for one in settings.listeners.all]
        clock = SystemClock()
        disk, failpoints, self._sync_seconds = _choose_disk(settings)
        self.directories = LogDirectories(data_dirs, disk, clock)
        self.directories.open()
        with ExitStack() as undo:
            # If the start fails, cleanly stopped folders keep their marker.
            undo.callback(self.directories.abandon)
            self._build(_claim(self.directories.first, node_id, settings), clock, failpoints, undo)
            undo.pop_all()

    def _build(
        self, node: int, clock: SystemClock, failpoints: "Failpoints | None", undo: ExitStack
    ) -> None:
        """Build all parts, and register this broker in the cluster."""
        settings = self._settings
        first, calls = self.directories.first, StoreCalls()
        opened = calls.make(
            "open the metadata store",
            lambda: open_store(settings, first.path, calls.stop_requested),
        )
        undo.callback(opened.store.close)
        executor = ThreadPoolExecutor(2, thread_name_prefix="disk")
        surroundings = Surroundings(
            clock, executor, opened, calls.make, self._connect(opened.shared)
        )
        this = self._this_broker(node)
        self.parts = build(settings, self.directories, this, surroundings)
        self._use_dynamic_certificates(node)
        if file := os.environ.get(ADMIN_PASSWORD_FILE):
            from headrace.broker.first_admin import make_first_admin

            metadata = self.parts.metadata
            calls.make("create the first user", lambda: make_first_admin(metadata, file))
        self.handler: Handler = self.parts.dispatch
        self._faults = None
        if failpoints is not None:
            from headrace.broker.faults import Faults

            self.handler = self._faults = Faults(self.parts.dispatch, clock, failpoints)
        self.handler = Serving(self.handler, self.parts, settings)
        self._connections = self.parts.connections
        self._limits = Limits(
            settings.integer("socket.request.max.bytes"),
            settings.integer("headrace.connection.pipelined.requests"),
            Buffers(self.parts.memory),
        )
        self._logins = self._make_logins(calls)
        self._poller = Poller(self.parts.services.waiting_fetches.wake)
        self._limits_of_connections = ConnectionLimits(
            lambda: self.parts.replicas.settings_now,
            lambda: self.parts.metadata.image.security.quotas,
            clock.monotonic,
        )
        self.parts.dispatch.polled_at = lambda: self._poller.polled_at
        self.parts.dispatch.on_first_client = partial(self.parts.executor.submit, import_codec)
        self._listening = False
        self._metrics_page: MetricsPage | None = None
        self._process_metrics: ProcessMetrics | None = None
        self._metrics = ServerMetrics(
            self.parts,
            settings,
            self._acceptors,
            self._limits_of_connections,
            lambda: len(self._broken_folders()),
            self._sync_seconds,
        )

    @property
    def listeners(self) -> list[Listener]:
        """The listeners with their actual ports."""
        return [acceptor.listener for acceptor in self._acceptors]

    def _this_broker(self, node: int) -> Broker:
        """The registration of this broker in the cluster."""
        endpoints = tuple(
            Endpoint(one.name, *one.advertised) for one in self.listeners if one.advertised
        )
        name = self._settings.listeners.inter_broker_name
        _, host, port = next(one for one in endpoints if one.listener == name)
        rack = self._settings.text("broker.rack") or None
        return Broker(node, host, port, rack, endpoints=endpoints)

    def _connect(self, others: bool) -> "Connect | None":
        """A function that connects to other brokers; None for plain TCP."""
        name = self._settings.listeners.inter_broker_name
        acceptor = next(one for one in self._acceptors if one.listener.name == name)
        if acceptor.listener.protocol == PLAINTEXT:
            return None
        # Imported here, so that a broker without TLS and logins starts faster.
        from headrace.broker.inter_broker import check_login, make_connect

        if others:
            check_login(acceptor.listener, self._settings)
        return make_connect(acceptor.listener, acceptor.tls, self._settings)

    def _use_dynamic_certificates(self, node: int) -> None:
        """Use the certificates that the stored configs of this broker name."""
        with_tls = [one.tls for one in self._acceptors if one.tls is not None]
        if not with_tls:
            return
        from headrace.security.listener_certificates import ListenerCertificates

        certificates = ListenerCertificates(self._settings, with_tls)
        certificates.use(self.parts.metadata.image.broker_configs.get(str(node), {}))
        self.parts.services.certificates = certificates

    def _make_logins(self, calls: StoreCalls) -> "Logins | None":
        """The logins of this broker's listeners; None if no listener requires one."""
        if not any(listener.login for listener in self.listeners):
            return None
        # Imported here, so that a broker without logins starts faster.
        from headrace.broker.setup.logins import Logins, read_login_secret

        secret = calls.make("read the login secret", lambda: read_login_secret(self.parts.store))
        return Logins(
            self.listeners, self._settings, self.parts, self.handler, self._limits, secret
        )

    def run(self) -> int:
        """Serve until SIGTERM or SIGINT, or until no data folder is left; the exit code."""
        loop = asyncio.SelectorEventLoop(self._poller)
        asyncio.set_event_loop(loop)
        try:
            if self.directories.healthy:  # recovery may have found all of them damaged
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
            loop.call_soon_threadsafe(self.parts.replicas.directory_failed, directory)
            if not self.directories.healthy:
                loop.call_soon_threadsafe(stop.set)

        self.directories.on_failure = directory_failed
        if self._faults is not None:
            await asyncio.start_unix_server(self._faults.serve, os.environ[FAULT_PORT])
        await self._start_metrics()
        reception = Reception(
            self._poller,
            self._connections,
            self._limits_of_connections,
            self._serve_client,
            self.parts.services.audit,
        )
        for acceptor in self._acceptors:
            acceptor.start(reception)
        renewals = self._watch_certificates()
        self.parts.start()
        # The objects built so far stay, so the garbage collector need not scan them again.
        gc.collect()
        gc.freeze()
        # A collection of ten thousand new objects stops the event loop for 1 to 2 ms.
        gc.set_threshold(10_000, 10, 1_000)
        self._listening = True
        first, *others = self.listeners
        addresses = ", ".join([str(first.bind), *map(str, others)])
        folders = ", ".join(directory.path for directory in self.directories.all)
        print(f"Headrace is ready on {addresses}, data in {folders}", flush=True)
        for listener in self.listeners:
            if listener.advertised is not None:
                loop.run_in_executor(self.parts.executor, _check_advertised, listener.advertised)
        await stop.wait()
        logger.info("stopping")
        self._listening = False
        await self.parts.stop()
        for acceptor in self._acceptors:
            acceptor.stop()
        if renewals is not None:
            renewals.cancel()
        if self._metrics_page is not None:
            self._metrics_page.stop()
        if self._process_metrics is not None:
            self._process_metrics.stop()
        for connection in list(self._connections):
            connection.close()
        if self._logins is not None:
            self._logins.close()
        await _end_tasks()
        self.close()

    def _watch_certificates(self) -> "asyncio.Task[None] | None":
        """Renew certificates whose files change, and all of them on SIGHUP."""
        renewed: list[ListenerTls | MetricsPage] = [
            one.tls for one in self._acceptors if one.tls is not None
        ]
        if self._metrics_page is not None and self._metrics_page.is_protected:
            renewed.append(self._metrics_page)
        if not renewed:
            return None

        def renew_all() -> None:
            for one in renewed:
                one.renew(always=True)

        async def look() -> None:
            while True:
                await asyncio.sleep(_LOOK_AT_CERTIFICATES_S)
                for one in renewed:
                    one.renew()

        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGHUP, renew_all)
        return loop.create_task(look())

    def close(self) -> None:
        """Close the sockets and the data; the logs are in the state of a clean stop."""
        for acceptor in self._acceptors:
            acceptor.close()
        self.parts.close()

    async def _start_metrics(self) -> None:
        address = self._settings.text("headrace.metrics.address")
        if not address:
            return
        from headrace.broker.metrics.page import HealthChecks, make_metrics_page
        from headrace.broker.metrics.process import ProcessMetrics

        self._metrics.watch()
        self._process_metrics = ProcessMetrics(self.parts.metrics)
        self._process_metrics.start()
        checks = HealthChecks(
            self._reasons_not_ready,
            self._problems,
            self._warnings,
            self._metrics.cluster.count_steps,
        )
        self._metrics_page, (host, port) = make_metrics_page(
            self._settings, self.parts.metrics, checks, self.parts.services.slices
        )
        try:
            bound = await self._metrics_page.start(host, port)
        except OSError as error:
            raise SettingError(
                f"headrace.metrics.address={address}: cannot listen there ({error.strerror}); "
                "choose another HOST:PORT"
            ) from error
        scheme = "https" if address.startswith("https:") else "http"
        logger.info("metrics are at %s://%s:%d/metrics", scheme, host, bound)

    def _reasons_not_ready(self) -> list[str]:
        """The reasons why this broker does not serve clients."""
        if not self._listening:
            return ["this broker is starting or stopping"]
        return self._out_of_cluster()

    def _out_of_cluster(self) -> list[str]:
        if self.parts.replicas.stepped_down:
            return [
                "this broker is not in the cluster, because the metadata store is not reachable"
            ]
        return []

    def _problems(self) -> list[str]:
        """The reasons why this broker is not healthy."""
        return [
            *self._broken_folders(),
            *self._out_of_cluster(),
            *self._metrics.cluster.problems(),
        ]

    def _warnings(self) -> list[str]:
        """Warnings for operators; a restart would not help."""
        certificates = (one.tls.expiry_warning() for one in self._acceptors if one.tls is not None)
        return [
            *damage_warnings(self.directories),
            *self.parts.clock_watch.warnings(),
            *filter(None, certificates),
        ]

    def _broken_folders(self) -> list[str]:
        return [
            f"{directory.path} is offline: {directory.offline}"
            for directory in self.directories.all
            if directory.offline is not None
        ]

    def _serve_client(self, transport: Transport, caller: Caller) -> None:
        self.parts.services.admit(caller)
        if caller.principal != ANONYMOUS:
            self.parts.services.audit.login(caller, "TLS")
        login = self._logins.begin(caller.listener) if self._logins is not None else None
        connection = ClientConnection(
            transport,
            caller,
            self._poller,
            self.handler if login is None else login,
            self._limits if login is None else login.first_limits,
            self._closed if login is None else partial(self._closed, login=login),
        )
        self._connections.add(connection)
        self._limits_of_connections.opened(caller)
        if login is not None:
            login.begin(connection)

    def _closed(self, connection: ClientConnection, login: "Login | None" = None) -> None:
        if login is not None:
            login.leave_setup()
        self._connections.discard(connection)
        self._limits_of_connections.closed(connection.caller)


def main(
    settings: Settings,
    data_dirs: tuple[str, ...],
    node_id: int | None,
    log_format: str,
    log_level: str,
) -> int:
    """Run a broker until a stop signal; returns the exit code of the process."""
    configure_logs(log_format, log_level)
    _allow_many_files()
    try:
        _log_without_effect(settings)
        server = Server(settings, data_dirs, node_id)
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
    """Log once which of the given settings have no effect."""
    names = sorted([*settings.unused, *settings.ignored])
    if names:
        logger.warning(
            "these settings have no effect in this version: %s", ", ".join(names),
            extra={"fields": {"event": "settings_without_effect", "settings": names}},
        )  # fmt: skip


async def _end_tasks() -> None:
    """Wait for cancelled tasks, so that asyncio does not warn about them."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=_END_WITHIN_S)


def _choose_disk(settings: Settings) -> "tuple[Disk, Failpoints | None, Histogram]":
    """The machine's disk, with injected faults if a test configured them; its times of syncs."""
    granted, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    disk = TimedDisk(OpenFiles(min(settings.integer("headrace.open.files.max"), granted // 2)))
    if FAULT_PORT not in os.environ:
        return disk, None, disk.sync_seconds
    from headrace.disk.failpoints import FaultyDisk, armed_failpoints

    failpoints = armed_failpoints(os.environ.get(FAILPOINTS, "[]"))
    return FaultyDisk(disk, failpoints), failpoints, disk.sync_seconds


def _check_advertised(address: Address) -> None:
    """Warn if the advertised address is not reachable for clients."""
    host, port = address
    try:
        socket.create_connection(address, timeout=5).close()
    except OSError as error:
        logger.warning(
            "the advertised address %s:%d cannot be reached from here (%s); clients will bootstrap "
            "and then fail to connect. Start with --advertise HOST:PORT, an address that clients "
            "can reach.",
            host, port, error,
        )  # fmt: skip


def _allow_many_files() -> None:
    """Raise the limit of descriptors to the hard limit; segments and connections need them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (ValueError, OSError):  # macOS has a lower limit, and gives the hard one as infinite
        with suppress(ValueError, OSError):
            wanted = max(soft, _MACOS_FILES)
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _all_failed(directories: LogDirectories) -> str:
    """The reason of a stop after all data folders have failed."""
    reasons = "; ".join(f"{one.path}: {one.offline}" for one in directories.all)
    return f"every folder of log.dirs has failed ({reasons})"


def _claim(directory: LogDirectory, node_id: int | None, settings: Settings) -> int:
    """The id of this broker: from the command line, the folder, or the settings."""
    known = (directory.folder.meta or {}).get("node.id")
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
