"""Builds and runs blaster.c, and fills topics with batches before they are fetched."""

import json
import shutil
import socket
import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
WORK = HERE / ".work"
SOURCE = HERE / "blaster.c"
PROGRAM = WORK / "blaster"
TLS_PROGRAM = WORK / "blaster-tls"


@dataclass(frozen=True, slots=True)
class Load:
    """Which requests to send, and how to know a good answer."""

    frames: tuple[bytes, ...]
    connections: int
    depth: int = 1
    error_at: int = -1
    min_answer_bytes: int = 0
    tls: bool = False
    once: bool = False
    """Whether each connection sends one request only, and a new one takes its place."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one run of the blaster measured."""

    requests_per_s: float
    sent_mb_per_s: float
    received_mb_per_s: float
    p50_us: int
    p99_us: int
    errors: int
    requests: int
    all_requests: int
    seconds: float


def build(tls: bool = False) -> None:
    """Compiles the blaster when it is missing or older than its source."""
    if tls:
        compile_program(TLS_PROGRAM, SOURCE, "-DWITH_TLS", *WITH_OPENSSL)
    else:
        compile_program(PROGRAM, SOURCE)


WITH_OPENSSL = ("-lssl", "-lcrypto")


def compile_program(program: Path, source: Path, *options: str) -> None:
    """Compiles a client when it is missing or older than its source."""
    if program.exists() and program.stat().st_mtime >= source.stat().st_mtime:
        return
    if shutil.which("gcc") is None:
        raise SystemExit("benchmarks need gcc: install the Debian packages gcc and libc6-dev")
    WORK.mkdir(exist_ok=True)
    command = ["gcc", "-O2", "-Wall", "-o", str(program), str(source), *options]
    if subprocess.run(command, check=False).returncode:
        hint = ": install libssl-dev for OpenSSL's headers" if options else ""
        raise SystemExit(f"{source.name} cannot be compiled{hint}")


def blast(port: int, load: Load, seconds: float, warm_s: float = 0.3) -> Outcome:
    """Sends `load` for `seconds`; raises when an answer was an error."""
    build(load.tls)
    frames = WORK / f"frames-{port}"
    frames.write_bytes(b"".join(load.frames))
    arguments = [port, frames, load.connections, load.depth, warm_s, seconds]
    arguments += [load.error_at, load.min_answer_bytes, int(load.tls), int(load.once)]
    done = subprocess.run(
        [str(TLS_PROGRAM if load.tls else PROGRAM), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=seconds + warm_s + 60,
        check=False,
    )
    frames.unlink()
    if done.returncode != 0:
        raise RuntimeError(f"the blaster failed against port {port}: {done.stderr.strip()}")
    outcome = Outcome(**json.loads(done.stdout))
    if outcome.errors or not outcome.requests:
        raise RuntimeError(f"{outcome.errors} bad answers of {outcome.all_requests} on port {port}")
    return outcome


class RawConnection:
    """One blocking connection that sends frames and reads whole answers."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), 60)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._file = self._socket.makefile("rb")

    def ask(self, frame: bytes) -> bytes:
        self._socket.sendall(frame)
        return self.answer()

    def answer(self) -> bytes:
        size: int = struct.unpack(">i", self._exactly(4))[0]
        return self._exactly(size)

    def _exactly(self, size: int) -> bytes:
        data = self._file.read(size)
        if len(data) != size:
            raise EOFError("the broker closed the connection")
        return data

    def close(self) -> None:
        self._file.close()
        self._socket.close()


def fill(port: int, frame: bytes, count: int, error_at: int) -> None:
    """Sends the same Produce request `count` times, one after the other."""
    connection = RawConnection(port)
    try:
        for _ in range(count):
            answer = connection.ask(frame)
            (error,) = struct.unpack_from(">h", answer, error_at)
            if error:
                raise RuntimeError(f"Produce was refused with error {error}")
    finally:
        connection.close()
