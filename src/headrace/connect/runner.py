"""Makes the host do what the config topic says, connector by connector."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence, Set
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TypeVar

from headrace.client.cluster import Cluster
from headrace.client.config import ClientConfig
from headrace.client.errors import ClientError
from headrace.connect import offsets
from headrace.connect.checkpoint_folder import folder_id
from headrace.connect.errors import NotOwner
from headrace.connect.hosting import ConnectorPlan, Host, HostedStatus, RunState
from headrace.connect.log_levels import set_level
from headrace.connect.plugins import Plugins, UnknownPlugin
from headrace.connect.secrets import SecretSources
from headrace.connect.sharing.slots import slot_of
from headrace.connect.storage.records import (
    CommitChange,
    Config,
    ConfigChange,
    ConnectorChange,
    GenerationChange,
    LoggerChange,
    OffsetEntry,
    TargetChange,
    TargetState,
    TaskChange,
)
from headrace.connect.storage.state import ConnectorState
from headrace.connect.storage.store import ConnectStore
from headrace.connect.validation import with_defaults
from headrace.errors import KafkaError
from headrace.service.errors import HttpError, StartFailure

log = logging.getLogger("headrace.connect")

T = TypeVar("T")

STATUS_CACHE_S = 1.0
RETRY_S = 2.0
"""The pause before a connector is started again that could not be started."""
BASIS = ("connector.class", "topics", "topics.regex")
"""A checkpoint holds for one class and one set of topics."""


@dataclass(slots=True)
class WorkerAddress:
    """How clients and other workers reach this worker."""

    host: str
    port: int
    """0 until the process listens, if it chooses a free port."""
    scheme: str = "http"

    @property
    def worker_id(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.worker_id}"

    def listening(self, port: int) -> None:
        """The process listens on this port."""
        self.port = self.port or port


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """What the operator chooses for connectors."""

    client: ClientConfig
    address: WorkerAddress
    group: str
    """The group in which workers share the connectors."""
    defaults: Mapping[str, str]
    """Converters and their options, for connectors without converters of their own."""
    secrets: SecretSources
    session_timeout_ms: int
    heartbeat_interval_ms: int
    folder: str
    """Where the checkpoints are."""
    shows_secrets: bool = False
    tracks_topics: bool = True
    resets_topics: bool = True


class ConnectorRunner:
    """The connectors that run, or should."""

    def __init__(
        self,
        store: ConnectStore,
        host: Host,
        plugins: Plugins,
        options: WorkerOptions,
        owns: Callable[[str], bool],
    ) -> None:
        """`owns` tells whether this worker runs a connector."""
        self._store = store
        self._host = host
        self._plugins = plugins
        self._options = options
        self._owns = owns
        self._running: dict[str, ConnectorPlan] = {}
        self._failures: dict[str, HostedStatus] = {}
        """Connectors that could not be started, and why."""
        self._taken_over: set[str] = set()
        """Connectors that ran here and have a checkpoint in the folder of another worker since. The
        group has not told this worker yet that it has lost them."""
        self._limits: dict[str, int] = {}
        """How many tasks the queries have, as far as the host has said it."""
        self._turns: dict[str, asyncio.Lock] = {}
        self._statuses: dict[str, tuple[float, HostedStatus]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._folder_id = ""
        self._started = False

    async def start(self) -> None:
        """Follow the config topic, now that it has been read."""
        try:
            self._folder_id = await asyncio.to_thread(folder_id, self._options.folder)
        except OSError as error:
            raise StartFailure(
                f"the folder for checkpoints, {self._options.folder} (headrace.connect.folder), "
                f"cannot be written: {error.strerror}"
            ) from error
        self._started = True
        configs = self._store.configs
        if any(configs.target(name) is TargetState.STARTED for name in configs.connectors):
            # The group assigns connectors after some seconds, and Spark takes longer to start.
            self._host.prepare()

    async def stop(self) -> None:
        """Returns when no connector runs."""
        self._started = False
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._host.close()

    def turn(self, name: str) -> asyncio.Lock:
        """Requests for one connector take turns, and so does what carries them out."""
        return self._turns.setdefault(name, asyncio.Lock())

    @asynccontextmanager
    async def owned_turn(self, name: str) -> AsyncIterator[None]:
        """The turn of a request that changes a connector; NotOwner if this worker does not run it.

        The slot of the connector is not released before the turn ends.
        """
        async with self.turn(name):
            if not self._owns(name):
                raise NotOwner
            yield

    def changed(self, change: ConfigChange) -> None:
        """Called after a record of the config topic is replayed."""
        if not self._started:
            return
        match change:
            case ConnectorChange(name) | TargetChange(name) | GenerationChange(name):
                self._settle_soon(name)
            case LoggerChange(logger, level):
                set_level(logger, level)

    async def status(self, name: str) -> HostedStatus:
        """The state of a connector, as it is now."""
        match self._store.configs.target(name):
            case TargetState.PAUSED:
                return HostedStatus(RunState.PAUSED)
            case TargetState.STOPPED:
                return HostedStatus(RunState.STOPPED)
        if name in self._failures:
            return self._failures[name]
        if name not in self._running:
            return HostedStatus(RunState.UNASSIGNED)
        cached = self._statuses.get(name)
        if cached is not None and time.monotonic() - cached[0] < STATUS_CACHE_S:
            return cached[1]
        found = await self._host.status(name)
        self._statuses[name] = (time.monotonic(), found)
        return found

    def is_running(self, name: str) -> bool:
        """Whether the host still has the connector."""
        return name in self._running

    async def restart(self, name: str) -> None:
        """Start the connector again, if it should run."""
        async with self.owned_turn(name):
            if self._running.pop(name, None) is not None:
                await self._host.stop(name)
        await self.settle(name)

    def _settle_soon(self, name: str, delay_s: float = 0.0) -> None:
        async def settle() -> None:
            await asyncio.sleep(delay_s)
            await self.settle(name)

        task = asyncio.create_task(settle())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def settle(self, name: str) -> None:
        """Returns when the host does what the config topic says about a connector."""
        async with self.turn(name):
            try:
                await self._carry_out(name)
                self._failures.pop(name, None)
            except HttpError as error:
                # The cluster does not respond, which passes.
                log.warning("connector %s cannot be started yet: %s", name, error.message)
                self._failures[name] = HostedStatus(RunState.RESTARTING, error.message)
                self._settle_soon(name, RETRY_S)
            except Exception as error:
                log.exception("connector %s cannot be started", name)
                trace = f"{type(error).__name__}: {error}"
                self._failures[name] = HostedStatus(RunState.FAILED, trace)

    async def settle_slots(self, slots: Set[int]) -> None:
        """The same for all connectors of some slots, also those whose requests have their turn."""
        known = {*self._store.configs.connectors, *self._turns}
        names = {name for name in known if slot_of(name) in slots}
        self._taken_over -= names
        await asyncio.gather(*map(self.settle, names))

    async def _carry_out(self, name: str) -> None:
        if name in self._running and self._is_elsewhere(name):
            self._taken_over.add(name)
        if not self._owns(name) or name in self._taken_over:
            if self._running.pop(name, None) is not None:
                await self._host.stop(name)
            await self._host.leave_letters(name)
            return
        found = self._store.configs.connectors.get(name)
        target = self._store.configs.target(name)
        if found is None:
            self._running.pop(name, None)
            await self._host.delete(name)
            return
        if target is not TargetState.STARTED:
            if self._running.pop(name, None) is not None:
                await self._host.stop(name)
            if target is TargetState.STOPPED and found.tasks:
                await self._store.write_configs(CommitChange(name, 0))
            return
        generation = await self._generation(name, found.config)
        plan = self.plan(name, found.config, generation.generation)
        if self._running.get(name) == plan:
            return
        self._limits.pop(name, None)
        await self._write_tasks(name, found)
        self._statuses.pop(name, None)
        await self._host.start(plan)
        self._running[name] = plan

    def plan(self, name: str, config: Config, generation: int = 0) -> ConnectorPlan:
        """A connector as the host runs it."""
        return ConnectorPlan(name, with_defaults(config, self._options.defaults), generation)

    async def bound_tasks(self, name: str, limit: int) -> None:
        """Show no more tasks than the query has."""
        async with self.turn(name):
            found = self._store.configs.connectors.get(name)
            if found is not None and name in self._running and limit != self._limits.get(name):
                self._limits[name] = limit
                await self._write_tasks(name, found)

    async def _write_tasks(self, name: str, found: ConnectorState) -> None:
        """One task for each of `tasks.max`, as far as the query runs as many at a time."""
        count = int(found.config.get("tasks.max", "1"))
        count = max(1, min(count, self._limits.get(name, count)))
        task_class = self._plugins.find(found.config.get("connector.class", "")).name
        config = {**found.config, "task.class": task_class}
        if found.tasks == [config] * count:
            return
        tasks = [TaskChange(name, task, config) for task in range(count)]
        await self._store.write_configs(*tasks, CommitChange(name, count))

    # -------------------------------------------------------------------- offsets and checkpoints

    async def offsets(self, name: str, config: Config) -> Sequence[OffsetEntry]:
        """The offsets of a connector, as they are now."""
        if self.type_of(config) == "sink":
            group = offsets.group_of(name, config)
            return offsets.as_entries(
                await self.ask(lambda cluster: offsets.sink_offsets(cluster, group))
            )
        await self._store.refresh_offsets()
        return [(each.partition, each.offset) for each in self._store.offsets.of(name)]

    def type_of(self, config: Config) -> str:
        """`source`, `sink` or `unknown`."""
        try:
            return self._plugins.find(config.get("connector.class", "")).type
        except UnknownPlugin:
            return "unknown"

    async def ask(self, request: Callable[[Cluster], T]) -> T:
        """The result of a blocking request to the cluster."""

        def run() -> T:
            with Cluster(self._options.client) as cluster:
                return request(cluster)

        try:
            return await asyncio.to_thread(run)
        except (KafkaError, ClientError) as error:
            raise HttpError(500, f"The offsets cannot be read or written: {error}") from error

    async def _generation(self, name: str, config: Config) -> GenerationChange:
        """The checkpoint of a connector; a new one if its class or its topics are others, or if it
        is in a folder that this worker does not have."""
        found = self._store.configs.generations.get(name)
        if self._is_elsewhere(name):
            # What this folder has of the connector is from before it moved to another worker.
            await self._host.delete(name)
        elif found is not None and found.basis == _basis(config):
            return found
        return await self.begin_generation(name, config)

    def _is_elsewhere(self, name: str) -> bool:
        """Whether the checkpoint of a connector is in a folder that this worker does not have."""
        found = self._store.configs.generations.get(name)
        return found is not None and found.folder != self._folder_id

    async def begin_generation(self, name: str, config: Config) -> GenerationChange:
        """Let the connector begin a new checkpoint, at its offsets, when it is started."""
        found = self._store.configs.generations.get(name)
        number = 0 if found is None else found.generation + 1
        made = GenerationChange(name, number, _basis(config), self._folder_id)
        await self._store.write_configs(made)
        return made


def _basis(config: Config) -> dict[str, str]:
    return {option: config[option] for option in BASIS if option in config}
