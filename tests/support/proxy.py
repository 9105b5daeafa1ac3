"""A TCP proxy that knows where frames begin: holds, drops, repeats or tears the ones it is told to.

Frames keep their order within a connection, as TCP has it: behind one that is held, all others of
its direction wait. What belongs to different connections may overtake. A client that gives up and
hangs up does not take its held frame with it: that one still arrives when it is let go, late.
"""

import contextlib
import queue
import socket
import struct
import threading
from types import TracebackType
from typing import Self

PATIENCE_S = 60


class Caught:
    """One frame that was taken out of its stream, until the test says what becomes of it."""

    def __init__(self, api: int, answers: bool) -> None:
        self.api = api
        self.answers = answers
        self.frame = b""
        """With its length; empty until it has come."""
        self._came = threading.Event()
        self._decided: queue.SimpleQueue[tuple[int, int, bytes | None]] = queue.SimpleQueue()
        self._answer: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    @property
    def version(self) -> int:
        """The version of a request."""
        version: int = struct.unpack_from(">h", self.frame, 6)[0]
        return version

    def wait(self) -> None:
        """Until the frame has come."""
        if not self._came.wait(PATIENCE_S):
            raise TimeoutError(f"no frame of API {self.api} came within {PATIENCE_S} s")

    def let_go(self, times: int = 1) -> None:
        """Send it on, and again if it shall arrive more than once."""
        self._decided.put((times, -1, None))

    def drop(self) -> None:
        """It never arrives; what comes behind it does."""
        self._decided.put((0, -1, None))

    def change(self, frame: bytes) -> None:
        """Something else arrives in its place; with its length."""
        self._decided.put((1, -1, frame))

    def tear(self, length: int) -> None:
        """Only so many bytes of it arrive, and then the end of both connections."""
        self._decided.put((1, length, None))

    def answer(self) -> bytes:
        """What the broker answered to a request, after its length, even if nobody heard it."""
        return self._answer.get(timeout=PATIENCE_S)

    def _take(self, frame: bytes) -> tuple[int, int, bytes]:
        self.frame = frame
        self._came.set()
        times, length, other = self._decided.get()
        return times, length, frame if other is None else other


class FrameProxy:
    """Listens on a port of its own; the broker has to advertise that one."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.broker_port = 0
        """Where it sends everybody; to be set before the first client comes."""
        self._waiting: list[Caught] = []
        self._all: list[Caught] = []
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    @property
    def bootstrap_servers(self) -> str:
        """What clients call `bootstrap.servers`."""
        return f"127.0.0.1:{self.port}"

    @property
    def listener(self) -> str:
        """What a broker behind this proxy has to have as `advertised.listeners`."""
        return f"PLAINTEXT://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # A thread that waits in accept() does not notice a close.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()
        for caught in self._all:
            caught.drop()
        with self._lock:
            for each in self._sockets:
                _end(each)

    def catch(self, api: int, *, answers: bool = False) -> Caught:
        """Take the next request of an API, or the next answer to one, out of its stream."""
        caught = Caught(api, answers)
        with self._lock:
            self._waiting.append(caught)
            self._all.append(caught)
        return caught

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                broker = socket.create_connection(("127.0.0.1", self.broker_port))
            except OSError:
                client.close()  # the broker is down; the client shall see that
                continue
            for each in (client, broker):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._sockets += [client, broker]
            link = _Link(self, client, broker)
            threading.Thread(target=link.requests, daemon=True).start()
            threading.Thread(target=link.answers, daemon=True).start()

    def _trap(self, api: int, answers: bool) -> Caught | None:
        with self._lock:
            for caught in self._waiting:
                if (caught.api, caught.answers) == (api, answers):
                    self._waiting.remove(caught)
                    return caught
        return None


class _Link:
    """A client's connection and the broker's that belongs to it."""

    def __init__(self, proxy: FrameProxy, client: socket.socket, broker: socket.socket) -> None:
        self._proxy = proxy
        self._client = client
        self._broker = broker
        # By correlation id: the API of a request, and the trap in which it was.
        self._asked: dict[int, tuple[int, Caught | None]] = {}

    def requests(self) -> None:
        """Client to broker, until the client hangs up."""
        while frame := _read_frame(self._client):
            api, _, correlation = struct.unpack_from(">hhi", frame, 4)
            caught = self._proxy._trap(api, False)
            self._asked[correlation] = (api, caught)
            if not self._pass_on(caught, frame, self._broker):
                return
        with contextlib.suppress(OSError):
            self._broker.shutdown(socket.SHUT_WR)

    def answers(self) -> None:
        """Broker to client; goes on when the client has gone, for who asks what was answered."""
        while frame := _read_frame(self._broker):
            (correlation,) = struct.unpack_from(">i", frame, 4)
            api, asked = self._asked.get(correlation, (-1, None))
            if asked is not None:
                asked._answer.put(frame[4:])
            if not self._pass_on(self._proxy._trap(api, True), frame, self._client):
                return
        _end(self._client)

    def _pass_on(self, caught: Caught | None, frame: bytes, target: socket.socket) -> bool:
        """Whether the stream goes on."""
        times, length, sent = (1, -1, frame) if caught is None else caught._take(frame)
        with contextlib.suppress(OSError):  # whoever is gone hears nothing
            for _ in range(times):
                target.sendall(sent if length < 0 else sent[:length])
        if length >= 0:
            _end(self._client)
            _end(self._broker)
        return length < 0


def _read_frame(source: socket.socket) -> bytes:
    """A whole frame with its length; empty at the end of the stream, also within a frame."""
    head = _exactly(source, 4)
    if len(head) < 4:
        return b""
    size = struct.unpack(">i", head)[0]
    body = _exactly(source, size)
    return head + body if len(body) == size else b""


def _exactly(source: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        try:
            piece = source.recv(min(count - len(data), 1 << 16))
        except OSError:
            piece = b""
        if not piece:
            break
        data += piece
    return bytes(data)


def _end(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()
