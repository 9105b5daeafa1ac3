"""A running broker with TLS listeners, and the files that its clients need."""

import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.security.authority import Authority, write


class Served:
    """A broker process and the addresses of its listeners."""

    def __init__(self, folder: Path, settings: Mapping[str, str], node_id: int = 1) -> None:
        words = [sys.executable, "-m", "headrace.cli", "serve", "--node-id", str(node_id)]
        words += ["--data-dir", str(folder / "data")]
        for name, text in settings.items():
            words += ["--set", f"{name}={text}"]
        folder.mkdir(exist_ok=True)
        self.log = folder / "log.txt"
        with self.log.open("a") as log:
            self.process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=log, text=True)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert "ready on " in line, self.log.read_text()
        shown = line.partition("ready on ")[2].split(", data in ")[0].split(", ")
        self.addresses = [word.rpartition("://")[2] for word in shown]

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(60)


class TlsBroker:
    """`headrace serve` with the listeners PLAINTEXT, SSL, and MUTUAL for client certificates."""

    def __init__(self, folder: Path, **settings: str) -> None:
        self.folder = folder
        self.authority = Authority()
        self.ca = write(folder / "ca.pem", self.authority.pem)
        self.renew()
        alice = self.authority.issue("O=Example", "CN=alice")
        self.client_key = write(folder / "alice.key", alice.key_pem())
        self.client_certificate = write(folder / "alice.crt", alice.certificate_pem)
        self.client_store = write(folder / "alice.pem", alice.key_pem(), alice.certificate_pem)
        self._settings = {
            "listeners": "PLAINTEXT://127.0.0.1:0,SSL://localhost:0,MUTUAL://localhost:0",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,MUTUAL:SSL",
            "listener.name.mutual.ssl.client.auth": "required",
            "ssl.keystore.location": str(folder / "broker.pem"),
            "ssl.truststore.location": self.ca,
            **{name.replace("_", "."): text for name, text in settings.items()},
        }

    def renew(self) -> int:
        """Give the broker a new certificate; its serial number."""
        own = self.authority.issue("CN=broker")
        write(self.folder / "broker.pem", own.key_pem(), own.certificate_pem)
        return own.certificate.serial_number

    def __enter__(self) -> Self:
        self._served = Served(self.folder, self._settings)
        self.plain, self.ssl, self.mutual = self._served.addresses
        return self

    @property
    def log(self) -> Path:
        return self._served.log

    def hang_up(self) -> None:
        """SIGHUP: look at the certificates."""
        self._served.process.send_signal(signal.SIGHUP)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._served.stop()
