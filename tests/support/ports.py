"""Free TCP ports, and waiting for a broker to answer on one."""

import itertools
import os
import socket
import struct
import time
from collections.abc import Callable

# Below the ports that Linux gives to connections, and from another place in each process: nobody
# else takes a port between its choice here and the start of the server that is meant to have it.
_FIRST = 12_000
_COUNT = 20_000
_numbers = itertools.count(os.getpid() * 997)


def free_port() -> int:
    """A port that nothing listens on now, and that is not chosen again soon."""
    while True:
        port = _FIRST + next(_numbers) % _COUNT
        with socket.socket() as listener:
            try:
                listener.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port


def metadata_request() -> bytes:
    """A framed Metadata v1 request that asks for no topic."""
    body = struct.pack(">hhihi", 3, 1, 7, -1, 0)
    return struct.pack(">i", len(body)) + body


def answers_metadata(port: int, timeout_s: float = 0.5) -> bool:
    """Whether a broker on this machine answers Metadata with at least one broker."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout_s) as connection:
            connection.settimeout(timeout_s)
            connection.sendall(metadata_request())
            head = _exactly(connection, 4)
            answer = _exactly(connection, struct.unpack(">i", head)[0])
    except (OSError, EOFError):
        return False
    brokers: int = struct.unpack_from(">i", answer, 4)[0]
    return brokers > 0


def wait_for_metadata(
    port: int, alive: Callable[[], bool], timeout_s: float = 60, pause_s: float = 0.005
) -> None:
    """Returns at the first Metadata answer; raises when the process has died or time is up."""
    deadline = time.monotonic() + timeout_s
    while not answers_metadata(port):
        if not alive():
            raise RuntimeError(f"the broker for port {port} died while starting")
        if time.monotonic() > deadline:
            raise TimeoutError(f"no Metadata answer on port {port} within {timeout_s} s")
        time.sleep(pause_s)


def _exactly(connection: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        piece = connection.recv(count - len(data))
        if not piece:
            raise EOFError
        data += piece
    return bytes(data)
