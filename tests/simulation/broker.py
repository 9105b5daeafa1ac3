"""A broker of the simulation: every part is the real one, but for sockets, threads and the disk."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar, cast

from headrace.apis.context import Caller
from headrace.apis.hot import Answer, CloseConnection, LongProduce
from headrace.apis.records.waiting_fetches import WaitingFetch
from headrace.broker.build import BrokerParts, Surroundings, build
from headrace.broker.connection import ClientConnection
from headrace.broker.metadata_stores import Opened
from headrace.client.aio import AsyncConnection
from headrace.cluster.image import Broker
from headrace.cluster.metadata import Metadata
from headrace.cluster.store import Change, StoreNode, StoreSession
from headrace.disk.memory import MemoryDisk
from headrace.log.directories import LogDirectories
from headrace.replication.replicas import Replicas
from headrace.settings import Settings
from tests.simulation.loop import Process, SimulatedClock, SimulatedLoop, Threads
from tests.simulation.network import Link, Network
from tests.simulation.store import Ensemble, SimulatedStore

if TYPE_CHECKING:
    from headrace.wire.fast import Chunk

_Result = TypeVar("_Result")

FOLDER = "/data"
PORT = 9000


class Machine:
    """What outlives a broker's process: its disk and its clock."""

    def __init__(self, node: int, loop: SimulatedLoop, seed: int) -> None:
        self.node = node
        self.disk = MemoryDisk(seed)
        self.clock = SimulatedClock(loop)
        self.broker: SimulatedBroker | None = None
        self.incarnation = 0

    @property
    def name(self) -> str:
        return f"broker-{self.node}"


class SimulatedBroker:
    """One process of a broker, from its start to its end."""

    def __init__(
        self,
        machine: Machine,
        loop: SimulatedLoop,
        network: Network,
        ensemble: Ensemble,
        random: Random,
        settings: Mapping[str, str],
    ) -> None:
        self.machine = machine
        self.node = machine.node
        self.loop = loop
        self.network = network
        self.ensemble = ensemble
        self.process = Process(loop, machine.name)
        self.raw_store: SimulatedStore = ensemble.open()
        self._store = _ProcessStore(self.raw_store, self.process)
        self._random = random
        self._settings = Settings.parse(settings)
        self._working: dict[Link, list[asyncio.Task[None]]] = {}
        self.joined = False
        """Whether everybody can know that it has started, and whether cleanly."""

    def start(self) -> None:
        """As `broker/server.py` does it; to be called in the context of the process."""
        asyncio._set_running_loop(None)  # a server is built before its loop runs
        try:
            self.parts = self._build()
        finally:
            asyncio._set_running_loop(self.loop)
        self.parts.start()
        self.network.listeners[PORT + self.node] = self
        self.joined = True

    def _build(self) -> BrokerParts:
        clock = self.machine.clock
        directories = LogDirectories((FOLDER,), self.machine.disk, clock)
        directories.open()
        surroundings = Surroundings(
            clock,
            Threads(self.process, self._random),
            Opened(self._store, shared=True),
            _call_once,
            self._connect,
        )
        this = Broker(self.node, "localhost", PORT + self.node)
        return build(self._settings, directories, this, surroundings)

    @property
    def metadata(self) -> Metadata:
        return self.parts.metadata

    @property
    def replicas(self) -> Replicas:
        return self.parts.replicas

    async def stop(self) -> None:
        """As SIGTERM: leave no trace but the data."""
        await self.parts.stop()
        self.parts.close()

    async def _connect(
        self, _host: str, port: int, client_id: str, timeout_s: float
    ) -> AsyncConnection:
        return await self.network.connect(self.process, port, client_id, timeout_s)

    # ------------------------------------------------------------------------------ requests

    def receive(self, link: Link, frame: bytes) -> None:
        """A request arrives; answers leave in the order of the requests."""
        working = self._working.setdefault(link, [])
        before = working[-1] if working else None
        working.append(self.process.start(self._answer(link, bytearray(frame), before)))

    async def _answer(
        self, link: Link, frame: bytearray, before: "asyncio.Task[None] | None"
    ) -> None:
        connection = cast("ClientConnection", _Connection())
        try:
            answer = self.parts.dispatch.handle(connection, frame, memoryview(frame), 0, len(frame))
            if isinstance(answer, Coroutine | LongProduce | WaitingFetch):
                answer = await answer
        except CloseConnection:
            self.network.reset(link)
            return
        if before is not None:
            await before
        if answer is not None and not link.closed:
            link.answer(_bytes_of(answer))

    def hung_up(self, link: Link) -> None:
        """The client is gone: nothing of what it waits for matters."""
        for task in self._working.pop(link, ()):
            task.cancel()


class _Connection:
    """What dispatch sees of a connection."""

    caller = Caller("client:1")

    def hold(self) -> None: ...


class _ProcessStore:
    """A store whose news reach their process as everything else does: not while it is stopped."""

    def __init__(self, store: SimulatedStore, process: Process) -> None:
        self._store = store
        self._process = process
        self.commit: Callable[[Sequence[Change]], None] = store.commit
        self.get: Callable[[str], StoreNode | None] = store.get
        self.children: Callable[[str], dict[str, StoreNode]] = store.children
        self.close: Callable[[], None] = store.close

    def watch(self, changed: Callable[[], None]) -> None:
        self._store.watch(lambda: self._process.soon(changed))

    def on_session(self, told: Callable[[StoreSession], None]) -> None:
        self._store.on_session(lambda session: self._process.soon(told, session))


def _bytes_of(answer: Answer) -> bytes:
    chunks: list[Chunk] = answer if isinstance(answer, list) else [answer]  # type: ignore[list-item]
    return b"".join(
        chunk if isinstance(chunk, bytes) else cast("Any", chunk).read() for chunk in chunks
    )


def _call_once(_what: str, call: "Callable[[], _Result]") -> "_Result":
    """A call to the store: if it fails, so does the start, and the world tries again."""
    return call()
