"""A real ZooKeeper, alone or as an ensemble, from the jars that scripts/fetch-java-tools brings."""

import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from tests.support.java import QUICK_START, ROOT
from tests.support.ports import free_port

POM = ROOT / "scripts" / "java" / "zookeeper.pom.xml"
TICK_MS = 250
"""ZooKeeper lets no session be shorter than two of these, and ends sessions once in one."""
PATIENCE_S = 120


@cache
def missing() -> str | None:
    """None when a ZooKeeper can be started, else a sentence naming what is missing."""
    if shutil.which("java") is None:
        return "no Java runtime: install the Debian package openjdk-17-jre-headless"
    if not (jars() / ".complete").exists():
        return "no ZooKeeper jars: run `make tools` (needs the Debian package maven)"
    return None


class Server:
    """One server: a process that can be killed, stopped for a while and started again."""

    def __init__(
        self,
        folder: Path,
        number: int = 1,
        ensemble: Sequence[str] = (),
        host: str = "127.0.0.1",
        under: Sequence[str] = (),
        lines: Sequence[str] = (),
    ) -> None:
        self.folder = folder
        self._host = host
        self._under = under
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._output: IO[bytes] | None = None
        (folder / "data").mkdir(parents=True)
        (folder / "data" / "myid").write_text(f"{number}\n")
        config = (
            f"tickTime={TICK_MS}",
            "initLimit=40",
            "syncLimit=20",
            "maxSessionTimeout=60000",
            f"dataDir={folder / 'data'}",
            f"clientPortAddress={host}",
            f"clientPort={self.port}",
            "maxClientCnxns=0",
            "admin.enableServer=false",
            "4lw.commands.whitelist=srvr",
            *ensemble,
            *lines,
        )
        (folder / "zoo.cfg").write_text("\n".join(config) + "\n")

    @property
    def address(self) -> str:
        return f"{self._host}:{self.port}"

    def start(self) -> None:
        reason = missing()
        if reason is not None:
            raise RuntimeError(reason)
        self._output = (self.folder / "output.txt").open("ab")
        self._process = subprocess.Popen(
            [
                *self._under,
                "java",
                *QUICK_START,
                "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
                *("-cp", f"{jars()}/*"),
                "org.apache.zookeeper.server.quorum.QuorumPeerMain",
                str(self.folder / "zoo.cfg"),
            ],
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
        )

    def wait_until_it_serves(self) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not self.mode():
            assert self._process is not None, "the server was not started"
            if self._process.poll() is not None or time.monotonic() > deadline:
                said = (self.folder / "output.txt").read_text()[-2000:]
                raise RuntimeError(f"ZooKeeper did not start:\n{said}")
            time.sleep(0.02)

    def mode(self) -> str:
        """`standalone`, `leader` or `follower`; empty while it does not serve."""
        try:
            with socket.create_connection((self._host, self.port), 2) as connection:
                connection.sendall(b"srvr")
                said = b""
                while piece := connection.recv(4096):
                    said += piece
        except OSError:
            return ""
        found = re.search(rb"^Mode: (\w+)$", said, re.MULTILINE)
        return found[1].decode() if found else ""

    def send(self, number: signal.Signals) -> None:
        assert self._process is not None, "the server was not started"
        self._process.send_signal(number)

    def kill(self) -> None:
        """At once, as with a power cut; does nothing if it does not run."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
        if self._output is not None:
            self._output.close()
            self._output = None


class ZooKeeper:
    """One server, or an ensemble of several; a context manager that ends them."""

    def __init__(
        self,
        folder: Path,
        servers: int = 1,
        host: str = "127.0.0.1",
        under: Sequence[str] = (),
        lines: Sequence[str] = (),
    ) -> None:
        """`host` is where they listen; `under` a command that runs them; `lines` are added to
        their configuration."""
        ensemble: list[str] = []
        if servers > 1:
            ensemble = [
                f"server.{number}={host}:{free_port()}:{free_port()}"
                for number in range(1, servers + 1)
            ]
        self.servers = [
            Server(folder / str(number), number, ensemble, host, under, lines)
            for number in range(1, servers + 1)
        ]

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.kill()
            raise
        return self

    def start(self) -> None:
        """Start all of them; returns once they serve."""
        for server in self.servers:
            server.start()
        for server in self.servers:
            server.wait_until_it_serves()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()

    def address(self, chroot: str = "") -> str:
        """What a broker takes as the address of its metadata."""
        hosts = ",".join(server.address for server in self.servers)
        return f"zookeeper://{hosts}{chroot}"

    def leader(self) -> Server:
        """The server that decides now."""
        return next(server for server in self.servers if server.mode() in ("leader", "standalone"))

    def kill(self) -> None:
        for server in self.servers:
            server.kill()


def jars() -> Path:
    """Where ZooKeeper's jars are, once `make tools` has brought them."""
    found = re.search(r"<zookeeper\.version>(.*?)</zookeeper\.version>", POM.read_text())
    assert found, f"{POM} names no zookeeper.version"
    return ROOT / ".tools" / "zookeeper" / found[1]
