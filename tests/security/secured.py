"""A broker with listeners of every security protocol, and users."""

import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from headrace.clock import SystemClock
from headrace.cluster.metadata import Metadata
from headrace.cluster.sqlite_store import SqliteStore
from headrace.security.scram import DIGESTS, credential_from_password
from tests.security.authority import Authority, write

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


def add_user(folder: Path, name: str, password: str) -> None:
    """Give a stopped broker a user."""
    folder.mkdir(parents=True, exist_ok=True)
    store = SqliteStore(str(folder))
    metadata = Metadata(store, 1, SystemClock())
    metadata.load()
    credentials = {one: credential_from_password(one, password) for one in DIGESTS}
    metadata.alter_security(lambda state: ([], state.with_user(name, credentials)))
    store.close()


class SecuredBroker:
    """A broker process with a listener for each protocol; a context manager that stops it."""

    def __init__(
        self, folder: Path, users: Mapping[str, str], settings: Mapping[str, str] | None = None
    ) -> None:
        self.folder = folder
        self.data = folder / "data"
        authority = Authority()
        self.ca = write(folder / "ca.pem", authority.pem)
        issued = authority.issue("CN=broker")
        self.authority = authority
        self.keystore = write(folder / "broker.pem", issued.key_pem(), issued.certificate_pem)
        for name, password in users.items():
            add_user(self.data, name, password)
        self._settings = {
            "listeners": ",".join(f"{one}://127.0.0.1:0" for one in PROTOCOLS),
            "ssl.keystore.location": self.keystore,
            "ssl.truststore.location": self.ca,
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            "headrace.sasl.plain.without.tls": "true",
            **(settings or {}),
        }
        self.addresses: dict[str, str] = {}
        self._undo = ExitStack()

    def __enter__(self) -> Self:
        words = [sys.executable, "-m", "headrace.cli", "serve", "--data-dir", str(self.data)]
        for name, value in self._settings.items():
            words += ["--set", f"{name}={value}"]
        log = self._undo.enter_context((self.folder / "log.txt").open("ab"))
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=log, text=True)
        self.pid = process.pid
        self._undo.callback(process.wait, 60)
        self._undo.callback(process.terminate)
        assert process.stdout is not None
        ready = process.stdout.readline()
        assert "ready on " in ready, self.log()
        listening = ready.partition("ready on ")[2].partition(", data in ")[0].split(", ")
        self.addresses = {
            name: text.rpartition("//")[2] for name, text in zip(PROTOCOLS, listening, strict=True)
        }
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._undo.close()

    def port(self, protocol: str) -> int:
        """Of the listener with this protocol."""
        return int(self.addresses[protocol].rpartition(":")[2])

    def log(self) -> str:
        """What the broker has logged."""
        return (self.folder / "log.txt").read_text()
