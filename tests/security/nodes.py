"""Brokers of one cluster whose clients log in, and the challenges that they send."""

import base64
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from kio.schema.sasl_authenticate.v2.request import SaslAuthenticateRequest
from kio.schema.sasl_authenticate.v2.response import SaslAuthenticateResponse
from kio.schema.sasl_handshake.v1.request import SaslHandshakeRequest
from kio.schema.sasl_handshake.v1.response import SaslHandshakeResponse

from headrace.client.cluster import Cluster
from headrace.client.config import ClientConfig, Security, parse_bootstrap
from headrace.client.connection import Connection
from tests.support.cluster import QUICK
from tests.support.ports import free_port
from tests.support.stores import eventually

ADMIN = "admin"
PASSWORD = "s3cret-of-nodes"


class LoginNode:
    """One broker; the listener of clients has SASL_PLAINTEXT, that of brokers has no login."""

    def __init__(self, folder: Path, number: int, settings: Mapping[str, str]) -> None:
        port, inner = free_port(), free_port()
        self.address = f"127.0.0.1:{port}"
        self.inner = f"127.0.0.1:{inner}"
        """The listener of brokers, whose clients are super users."""
        self._log = folder / f"log{number}.txt"
        self._words = [sys.executable, "-m", "headrace.cli", "serve"]
        self._words += ["--node-id", str(number), "--data-dir", str(folder / str(number))]
        listeners = f"CLIENTS://{self.address},BROKERS://{self.inner}"
        for name, value in {**settings, "listeners": listeners}.items():
            self._words += ["--set", f"{name}={value}"]
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._words, stdout=subprocess.PIPE, stderr=log, text=True
            )
        assert self._process.stdout is not None
        assert "ready" in self._process.stdout.readline(), self._log.read_text()

    def stop(self) -> None:
        assert self._process is not None
        self._process.terminate()
        self._process.wait(60)

    def connect(self, username: str, password: str = PASSWORD) -> Connection:
        """A connection with a login."""
        addresses = parse_bootstrap(self.address)
        security = Security(
            "SASL_PLAINTEXT", mechanism="SCRAM-SHA-256", username=username, password=password
        )
        return Connection(addresses[0], ClientConfig(addresses, security=security))

    def admin(self) -> Cluster:
        """An administrator at this broker."""
        return Cluster(ClientConfig(parse_bootstrap(self.inner)))

    def challenge(self, mechanism: str, username: str) -> "Challenge":
        """What the broker answers to the first message of a login."""
        addresses = parse_bootstrap(self.address)
        with Connection(addresses[0], ClientConfig(addresses)) as connection:
            hands = SaslHandshakeRequest(mechanism=mechanism)
            assert not connection.ask(hands, SaslHandshakeResponse).error_code
            first = SaslAuthenticateRequest(auth_bytes=f"n,,n={username},r=nonce".encode())
            answer = connection.ask(first, SaslAuthenticateResponse)
        assert not answer.error_code
        fields = dict(one.split("=", 1) for one in answer.auth_bytes.decode().split(","))
        return Challenge(base64.b64decode(fields["s"]), int(fields["i"]))


class Challenge(NamedTuple):
    """What a challenge tells of a user."""

    salt: bytes
    iterations: int


@contextmanager
def login_nodes(
    folder: Path, count: int, metadata: str = "", settings: Mapping[str, str] | None = None
) -> Iterator[Sequence[LoginNode]]:
    """Brokers 1 to `count` that know each other, with an authorizer."""
    given = {
        **QUICK,
        "headrace.metadata": metadata or f"sqlite:{folder}",
        "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT,BROKERS:PLAINTEXT",
        "inter.broker.listener.name": "BROKERS",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:ANONYMOUS;User:{ADMIN}",
        **(settings or {}),
    }
    nodes = [LoginNode(folder, number, given) for number in range(1, count + 1)]
    with ExitStack() as undo:
        for node in nodes:
            node.start()
            undo.callback(node.stop)
        with nodes[0].admin() as admin:
            eventually(lambda: len(admin.metadata(()).brokers) == count, "all are registered")
        yield nodes
