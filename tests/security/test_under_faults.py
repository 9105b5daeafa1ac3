"""A cluster with TLS, logins and ACLs loses nothing while its brokers are killed."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from headrace.clock import SystemClock
from headrace.cluster.metadata import Metadata
from headrace.cluster.sqlite_store import SqliteStore
from headrace.security.acls import (
    AclBinding,
    AclEntry,
    AclOperation,
    AclPermission,
    PatternType,
    ResourcePattern,
    ResourceType,
)
from tests.checker.verdict import judge
from tests.checker.workload import Workload
from tests.security.authority import Authority, write
from tests.security.secured import add_user
from tests.support.cluster import QUICK
from tests.support.ports import free_port

MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
USED = (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID)


class SecuredNode:
    """A broker that speaks SASL_SSL only."""

    def __init__(self, folder: Path, number: int, settings: dict[str, str]) -> None:
        self.address = f"127.0.0.1:{free_port()}"
        self._log = folder / f"log{number}.txt"
        self._words = [sys.executable, "-m", "headrace.cli", "serve"]
        self._words += ["--node-id", str(number), "--data-dir", str(folder / str(number))]
        for name, value in {**settings, "listeners": f"SASL_SSL://{self.address}"}.items():
            self._words += ["--set", f"{name}={value}"]
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._words, stdout=subprocess.PIPE, stderr=log, text=True
            )
        assert self._process.stdout is not None
        assert "ready" in self._process.stdout.readline(), self._log.read_text()

    def kill(self) -> int:
        assert self._process is not None
        self._process.kill()
        return self._process.wait(60)


def allow_everything_used(folder: Path, user: str) -> None:
    """Let a user do everything with topics, groups and transactional ids, and no more."""
    store = SqliteStore(str(folder))
    metadata = Metadata(store, 1, SystemClock())
    metadata.load()
    entry = AclEntry(f"User:{user}", "*", AclOperation.ALL, AclPermission.ALLOW)
    acls = [AclBinding(ResourcePattern(kind, PatternType.LITERAL, "*"), entry) for kind in USED]
    metadata.alter_security(lambda state: ([], state.with_acls(acls)))
    store.close()


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[list[SecuredNode]]:
    authority = Authority()
    issued = authority.issue("CN=broker")
    keys = write(tmp_path / "broker.pem", issued.key_pem(), issued.certificate_pem)
    settings = {
        **QUICK,
        "headrace.metadata": f"sqlite:{tmp_path}",
        "ssl.keystore.location": keys,
        "ssl.truststore.location": write(tmp_path / "ca.pem", authority.pem),
        "inter.broker.listener.name": "SASL_SSL",
        "sasl.jaas.config": f'{MODULE} required username="broker" password="br0ker";',
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:broker",
        "offsets.topic.replication.factor": "3",
        "transaction.state.log.replication.factor": "3",
    }
    add_user(tmp_path, "broker", "br0ker")
    add_user(tmp_path, "worker", "w0rker")
    allow_everything_used(tmp_path, "worker")
    with ExitStack() as undo:
        made = [SecuredNode(tmp_path, number, settings) for number in (1, 2, 3)]
        for node in made:
            node.start()
            undo.callback(node.kill)
        yield made


@pytest.mark.timeout(300)
def test_nothing_is_lost_or_repeated_while_brokers_are_killed(
    nodes: list[SecuredNode], tmp_path: Path
) -> None:
    folder = tmp_path / "history"
    folder.mkdir()
    login = {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(tmp_path / "ca.pem"),
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "worker",
        "sasl.password": "w0rker",
    }
    bootstrap = ",".join(node.address for node in nodes)
    with Workload(
        bootstrap,
        folder,
        clients=2,
        replicas=3,
        configs={"min.insync.replicas": "2"},
        properties=login,
    ) as workload:
        workload.go_on(2)
        for node in nodes:
            workload.struck("broker", node.kill() < 0)
            node.start()
            workload.go_on(3)
        verdict = judge(workload.finish(), ("broker",))
    assert verdict.clean, verdict
    logs = "".join((tmp_path / f"log{number}.txt").read_text() for number in (1, 2, 3))
    assert "br0ker" not in logs
    assert "w0rker" not in logs
