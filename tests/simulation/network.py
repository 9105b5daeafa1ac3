"""A network whose delays, cuts and resets a seed decides.

A connection keeps its messages in order in each direction; between connections anything may
overtake anything. What is sent into a cut waits, as TCP waits: it arrives after the cut, perhaps
long after the sender's timeout, unless the connection is reset before.
"""

import asyncio
from collections import deque
from random import Random
from typing import TYPE_CHECKING, Protocol, cast

from headrace.client.aio import AsyncConnection
from headrace.client.errors import Unreachable
from headrace.client.protocol import Response
from tests.simulation.loop import Process, SimulatedLoop

if TYPE_CHECKING:
    import socket

_RETRY_S = 0.05


class Listener(Protocol):
    """A broker, as the network sees it."""

    process: Process

    def receive(self, link: "Link", frame: bytes) -> None: ...

    def hung_up(self, link: "Link") -> None: ...


class Network:
    """Who can be reached by whom, and what is under way."""

    def __init__(self, loop: SimulatedLoop, random: Random) -> None:
        self.loop = loop
        self.random = random
        self.listeners: dict[int, Listener] = {}
        self.cuts: dict[tuple[str, str], int] = {}
        """How often the way from one process to another is cut."""
        self.links: dict[Link, None] = {}

    def cut(self, ways: list[tuple[str, str]]) -> None:
        """Nothing passes on these ways until `heal`."""
        for way in ways:
            self.cuts[way] = self.cuts.get(way, 0) + 1

    def heal(self, ways: list[tuple[str, str]]) -> None:
        """One cut less."""
        for way in ways:
            self.cuts[way] = max(self.cuts.get(way, 0) - 1, 0)

    def passes(self, source: Process, target: Process) -> bool:
        return not self.cuts.get((source.name, target.name))

    def delay(self) -> float:
        if self.random.random() < 0.01:
            return self.random.uniform(0, 1)
        return self.random.expovariate(500)

    def reset(self, link: "Link") -> None:
        """Both ends lose the connection."""
        if self.links.pop(link, 0) is None:
            link.closed = True
            link.client.soon(link.lost)
            link.server.process.soon(link.server.hung_up, link)

    async def connect(
        self, client: Process, port: int, client_id: str, timeout_s: float
    ) -> "SimulatedPeer":
        try:
            link = await asyncio.wait_for(self._connect(client, port), timeout_s)
        except TimeoutError as error:
            raise Unreachable(f"port {port}: no answer in time") from error
        peer = SimulatedPeer(link, client_id, timeout_s)
        try:
            await peer.negotiate()
        except BaseException:
            peer.close()
            raise
        return peer

    async def _connect(self, client: Process, port: int) -> "Link":
        await asyncio.sleep(self.delay())
        server = self.listeners.get(port)
        while server is not None and not (
            self.passes(client, server.process) and self.passes(server.process, client)
        ):
            await asyncio.sleep(_RETRY_S)
            server = self.listeners.get(port)
        if server is None or not server.process.alive:
            raise Unreachable(f"port {port}: connection refused")
        link = Link(self, client, server)
        self.links[link] = None
        return link


class _Way:
    """One direction of a connection: messages arrive in the order in which they left."""

    def __init__(self, link: "Link", source: Process, target: Process) -> None:
        self._link = link
        self._source = source
        self._target = target
        self._waiting: deque[tuple[object, tuple[object, ...]]] = deque()

    def send(self, callback: object, *args: object) -> None:
        self._waiting.append((callback, args))
        if len(self._waiting) == 1:
            self._next(self._link.network.delay())

    def _next(self, delay_s: float) -> None:
        self._link.network.loop.later(delay_s, self._arrive)

    def _arrive(self) -> None:
        network = self._link.network
        if not self._target.alive:
            network.reset(self._link)
        if self._link.closed:
            return
        if not network.passes(self._source, self._target):
            self._next(_RETRY_S)
            return
        callback, args = self._waiting.popleft()
        self._target.soon(callback, *args)  # type: ignore[arg-type]
        if self._waiting:
            self._next(network.delay() / 2)


class Link:
    """One connection between a client (a follower, a producer) and a broker."""

    def __init__(self, network: Network, client: Process, server: Listener) -> None:
        self.network = network
        self.client = client
        self.server = server
        self.closed = False
        self._to_server = _Way(self, client, server.process)
        self._to_client = _Way(self, server.process, client)
        self._answers: deque[asyncio.Future[bytes]] = deque()

    def ask(self, frame: bytes) -> "asyncio.Future[bytes]":
        """Send a request; the future holds the answer."""
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        if self.closed:
            future.set_exception(ConnectionResetError("the connection was reset"))
            return future
        self._answers.append(future)
        self._to_server.send(self.server.receive, self, frame)
        return future

    def answer(self, frame: bytes) -> None:
        """The broker's answer to the oldest request."""
        self._to_client.send(self._answered, frame)

    def _answered(self, frame: bytes) -> None:
        if not self._answers:
            return  # whoever asked was stopped, and has heard first that the connection was lost
        future = self._answers.popleft()
        if not future.done():
            future.set_result(frame)

    def lost(self) -> None:
        """Nobody will answer what was asked."""
        for future in self._answers:
            if not future.done():
                future.set_exception(ConnectionResetError("the connection was reset"))
        self._answers.clear()

    def hang_up(self) -> None:
        """The client needs it no more; the broker hears of it when that arrives."""
        if not self.closed:
            self._to_server.send(self.server.hung_up, self)
            self.network.links.pop(self, None)


class SimulatedPeer(AsyncConnection):
    """A connection to a broker over the simulated network."""

    def __init__(self, link: Link, client_id: str, timeout_s: float) -> None:
        super().__init__(cast("socket.socket", None), client_id, "simulated", timeout_s)
        self.link = link

    def close(self) -> None:
        self.link.hang_up()

    def send(self, api_key: int, version: int, body: bytes) -> "asyncio.Future[bytes]":
        """Ask without waiting; answers come in the order of the questions."""
        return self.link.ask(self.conversation.frame(api_key, version, body)[4:])

    async def _carry(self, frame: bytes) -> Response:
        answer = bytearray(await self.link.ask(frame[4:]))
        size = self.conversation.response_bytes(answer)
        return self.conversation.take_response(answer, 8, 8 + size)
