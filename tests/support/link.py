"""A TCP connection's way to a server, which can be cut, silently or not, in both directions or one.

What was sent into a silent cut arrives when it heals, as with a network that loses packets for a
while: TCP sends them again. `hang_up` is a server's end as its clients see it.
"""

import contextlib
import socket
import threading
from types import TracebackType
from typing import Self


class Link:
    """Listens on a port of its own, and passes everything on to a server's."""

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._requests_pass = threading.Event()
        self._answers_pass = threading.Event()
        self._before: bytes | None = None
        self._behind: bytes | None = None
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []
        self.heal()
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

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
        self.hang_up()
        self.heal()

    def cut(self) -> None:
        """Nothing arrives any more, and nobody is told."""
        self._requests_pass.clear()
        self._answers_pass.clear()

    def cut_before(self, request: bytes) -> None:
        """A silent cut of which a request with these bytes is the first victim."""
        self._before = request

    def cut_behind(self, request: bytes) -> None:
        """The same, but that request still arrives; no answer comes back."""
        self._behind = request

    def hang_up(self) -> None:
        """End all connections; what was on its way is lost."""
        with self._lock:
            sockets, self._sockets = self._sockets, []
        for each in sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def refuse(self) -> None:
        """End all connections, and take no new ones."""
        self._accepts = False
        self.hang_up()

    def heal(self) -> None:
        """Everything passes; what was sent into a cut arrives now, if nobody hung up."""
        self._accepts = True
        self._before = self._behind = None
        self._requests_pass.set()
        self._answers_pass.set()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if not self._accepts:
                client.close()
                continue
            try:
                server = socket.create_connection(("127.0.0.1", self._server_port))
            except OSError:
                client.close()
                continue
            for each in (client, server):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._sockets += [client, server]
            for way in (
                (client, server, self._requests_pass),
                (server, client, self._answers_pass),
            ):
                threading.Thread(target=self._pass_on, args=way, daemon=True).start()

    def _pass_on(
        self, source: socket.socket, target: socket.socket, passes: threading.Event
    ) -> None:
        with contextlib.suppress(OSError):
            while piece := source.recv(1 << 16):
                if passes is self._requests_pass:
                    self._look_at(piece)
                passes.wait()
                target.sendall(piece)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_RDWR)
        source.close()

    def _look_at(self, piece: bytes) -> None:
        if self._before is not None and self._before in piece:
            self.cut()
        if self._behind is not None and self._behind in piece:
            self._answers_pass.clear()
