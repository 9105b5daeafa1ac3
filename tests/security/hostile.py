"""Clients that attack a listener before they are known: a program, so that it has a CPU of its own.

    python -m tests.security.hostile ADDRESS KIND PER_SECOND SECONDS

It opens so many connections a second, each from another address of the loopback network, and keeps
the last two thousand of them open. KIND is a key of `ATTACKS`. The last line that it prints is a
JSON object: how many connections it opened, and how many of them the broker closed.
"""

import errno
import functools
import json
import os
import random
import socket
import ssl
import struct
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress

KEPT = 2000
_DRIP_S = 0.2


@functools.cache
def client_hello() -> bytes:
    """The first message of a TLS handshake; the rest of the handshake never follows."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing).do_handshake()
    return outgoing.read()


@functools.cache
def huge_hello() -> bytes:
    """A ClientHello that claims 16 MB, and as many of its records as a socket takes at once."""
    claim = b"\x01\xff\xff\xff" + b"\x03\x03" + bytes(32) + b"\0"
    record = b"\x16\x03\x01\x40\x00"
    return record + claim.ljust(16_384, b"\0") + (record + bytes(16_384)) * 20


@functools.cache
def large_hello() -> bytes:
    """A ClientHello that is about as large as OpenSSL takes it, without its last byte."""
    size = 130_000
    message = b"\x01" + size.to_bytes(3, "big") + b"\x03\x03" + bytes(size - 3)
    pieces = (message[at : at + 16_384] for at in range(0, len(message), 16_384))
    return b"".join(b"\x16\x03\x01" + struct.pack(">H", len(one)) + one for one in pieces)[:-1]


def kafka_frame(size: int) -> bytes:
    """The beginning of a frame of that size."""
    return struct.pack(">i", size) + struct.pack(">hhih", 36, 2, 1, 3) + b"bad"


def handshake_request(mechanism: bytes) -> bytes:
    body = struct.pack(">hhih", 17, 1, 1, 3) + b"bad" + struct.pack(">h", len(mechanism))
    return struct.pack(">i", len(body) + len(mechanism)) + body + mechanism


@functools.cache
def large_login() -> bytes:
    """A login whose token is as large as is allowed, without its last byte."""
    body = struct.pack(">hhih", 36, 1, 2, 3) + b"bad" + struct.pack(">i", 520_000)
    whole = struct.pack(">i", len(body) + 520_000) + body + bytes(519_999)
    return handshake_request(b"PLAIN") + whole


def failed_login() -> bytes:
    """A whole login with a password that is wrong."""
    token = b"\0alice\0wrong"
    body = struct.pack(">hhih", 36, 1, 2, 3) + b"bad" + struct.pack(">i", len(token)) + token
    return handshake_request(b"PLAIN") + struct.pack(">i", len(body)) + body


ATTACKS: dict[str, Callable[[], bytes]] = {
    "half-open": client_hello,
    "partial": lambda: client_hello()[:100],
    "drip": lambda: b"",
    "garbage": lambda: b"\x16\x03\x01" + random.Random(7).randbytes(500),
    "noise": lambda: random.Random(8).randbytes(500),
    "http": lambda: b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n",
    "plain-kafka": lambda: kafka_frame(100),
    "large-hello": large_hello,
    "huge-hello": huge_hello,
    "huge-frame": lambda: kafka_frame(2**31 - 1),
    "negative-frame": lambda: kafka_frame(-1),
    "silent": lambda: b"",
    "large-login": large_login,
    "failed-login": failed_login,
}


class Attack:
    """The connections of one attack."""

    def __init__(self, address: str, kind: str) -> None:
        host, _, port = address.rpartition(":")
        self._address = (host, int(port))
        self._make = ATTACKS[kind]
        self._drips = client_hello() if kind == "drip" else b""
        self._open: deque[tuple[socket.socket, int]] = deque()
        self.opened = self.closed = 0

    def connect(self) -> None:
        sock = socket.socket()
        sock.setblocking(False)
        sock.bind((f"127.0.{random.randrange(1, 255)}.{random.randrange(1, 255)}", 0))
        with suppress(BlockingIOError):
            sock.connect(self._address)
        self.opened += 1
        self._open.append((sock, 0))
        if len(self._open) > KEPT:
            self._open.popleft()[0].close()

    def go_on(self) -> None:
        """Send what is due on connections that are established; drop those that were closed."""
        alive: deque[tuple[socket.socket, int]] = deque()
        for sock, sent in self._open:
            try:
                if self._drips:
                    sent += sock.send(self._drips[sent : sent + 1]) if sent < 400 else 0
                elif sent < len(piece := self._make()):
                    sent += sock.send(memoryview(piece)[sent:])
                if not sock.recv(4096):
                    raise ConnectionError
            except (BlockingIOError, InterruptedError):
                alive.append((sock, sent))
            except OSError as error:
                if error.errno == errno.ENOTCONN:  # not connected yet
                    alive.append((sock, sent))
                    continue
                self.closed += 1
                sock.close()
            else:
                alive.append((sock, sent))
        self._open = alive


def attack(address: str, kind: str, per_second: float, seconds: float) -> Iterator[Attack]:
    """Attack step by step."""
    running = Attack(address, kind)
    began = time.monotonic()
    next_step = began
    while (now := time.monotonic()) - began < seconds:
        while running.opened < (now - began) * per_second:
            running.connect()
        if now >= next_step:
            running.go_on()
            next_step = now + (_DRIP_S if kind == "drip" else 0.02)
        time.sleep(0.002)
        yield running


def main() -> None:
    address, kind, per_second, seconds = sys.argv[1:5]
    # Attackers have machines of their own: here they get only what the others leave over.
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    for running in attack(address, kind, float(per_second), float(seconds)):
        last = running
    print(json.dumps({"opened": last.opened, "closed": last.closed}))


if __name__ == "__main__":
    main()
