"""HTTP load from one thread: a number of connections, one request under way on each."""

import selectors
import socket
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass

CONNECTIONS = 8


@dataclass(frozen=True, slots=True)
class Rate:
    """What a stretch of load brought."""

    per_second: float
    p50_ms: float
    p99_ms: float


def request(method: str, path: str, body: bytes = b"") -> bytes:
    """A whole request."""
    head = f"{method} {path} HTTP/1.1\r\nHost: registry\r\nAccept: application/json\r\n"
    if body:
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return head.encode() + b"\r\n" + body


class _Connection:
    __slots__ = ("began", "received", "sock")

    def __init__(self, port: int) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port))
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.received = b""
        self.began = 0.0

    def send(self, data: bytes) -> None:
        self.began = time.perf_counter()
        self.sock.sendall(data)

    def complete(self) -> bool:
        """Whether the whole answer has come; an answer that is no success ends the run."""
        self.received += self.sock.recv(65536)
        head, blank, body = self.received.partition(b"\r\n\r\n")
        if not blank:
            return False
        length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
        if len(body) < length:
            return False
        if b" 200 " not in head[:15]:
            raise RuntimeError(f"{head[:15]!r}: {body[:300]!r}")
        self.received = b""
        return True


def run(port: int, requests: Iterator[bytes], seconds: float) -> Rate:
    """Sends requests for a while, and says how fast they were answered."""
    chooser = selectors.DefaultSelector()
    connections = [_Connection(port) for _ in range(CONNECTIONS)]
    for each in connections:
        chooser.register(each.sock, selectors.EVENT_READ, each)
        each.send(next(requests))
    latencies: list[float] = []
    began = time.perf_counter()
    deadline = began + seconds
    waiting = len(connections)
    while waiting:
        for key, _ in chooser.select():
            connection: _Connection = key.data
            if not connection.complete():
                continue
            now = time.perf_counter()
            latencies.append(now - connection.began)
            if now < deadline:
                connection.send(next(requests))
            else:
                waiting -= 1
                chooser.unregister(connection.sock)
                connection.sock.close()
    spent = time.perf_counter() - began
    chooser.close()
    cuts = statistics.quantiles(latencies, n=100)
    return Rate(len(latencies) / spent, cuts[49] * 1000, cuts[98] * 1000)
