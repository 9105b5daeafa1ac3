"""Brokers log in to each other over TLS."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from headrace.client.cluster import Cluster
from headrace.client.config import ClientConfig, parse_bootstrap
from headrace.client.topics import create_topics
from tests.security.authority import Authority, write
from tests.security.issuer import AUDIENCE, ISSUER, Provider, SigningKey
from tests.security.secured import add_user
from tests.support import kerberos
from tests.support.ports import free_port
from tests.support.stores import eventually

TOKEN_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
TICKET_MODULE = "com.sun.security.auth.module.Krb5LoginModule"
MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"


def scram(folder: Path, undo: ExitStack) -> dict[str, str]:
    add_user(folder, "broker", 'br0ker"s')
    return {
        "listener.name.brokers.scram-sha-512.sasl.jaas.config": (
            f'{MODULE} required username="broker" password="br0ker\\"s";'
        ),
    }


def tokens(folder: Path, undo: ExitStack) -> dict[str, str]:
    provider = undo.enter_context(Provider(SigningKey("one")))
    return {
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": f"{provider.url}/keys",
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "sasl.oauthbearer.token.endpoint.url": f"{provider.url}/token",
        "listener.name.brokers.oauthbearer.sasl.jaas.config": (
            f'{TOKEN_MODULE} required clientId="broker" clientSecret="br0ker\\"s";'
        ),
    }


def tickets(folder: Path, undo: ExitStack) -> dict[str, str]:
    if reason := kerberos.missing():
        pytest.skip(reason)
    folder = folder / "realm"
    folder.mkdir()
    realm = undo.enter_context(kerberos.Realm(folder))
    environment = undo.enter_context(pytest.MonkeyPatch.context())
    for name, value in realm.environment.items():
        environment.setenv(name, value)
    keytab = realm.keytab("kafka", "kafka/127.0.0.1")
    return {
        "sasl.enabled.mechanisms": "GSSAPI",
        "sasl.mechanism.inter.broker.protocol": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "listener.name.brokers.gssapi.sasl.jaas.config": (
            f'{TICKET_MODULE} required useKeyTab=true storeKey=true keyTab="{keytab}" '
            f'principal="kafka/127.0.0.1@{kerberos.REALM}";'
        ),
    }


@pytest.fixture(params=[scram, tokens, tickets], ids=["SCRAM", "OAUTHBEARER", "GSSAPI"])
def bootstrap(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """Two brokers that replicate through SASL_SSL; clients use plain text."""
    authority = Authority()
    issued = authority.issue("CN=broker")
    settings = {
        "headrace.metadata": f"sqlite:{tmp_path}",
        "listener.security.protocol.map": "CLIENTS:PLAINTEXT,BROKERS:SASL_SSL",
        "inter.broker.listener.name": "BROKERS",
        "ssl.keystore.location": write(
            tmp_path / "broker.pem", issued.key_pem(), issued.certificate_pem
        ),
        "ssl.truststore.location": write(tmp_path / "ca.pem", authority.pem),
    }
    ports = [free_port() for _ in range(2)]
    with ExitStack() as undo:
        settings |= request.param(tmp_path, undo)
        for number, port in enumerate(ports, start=1):
            listeners = f"CLIENTS://127.0.0.1:{port},BROKERS://127.0.0.1:0"
            words = ["serve", "--node-id", str(number), "--data-dir", str(tmp_path / str(number))]
            for name, value in {**settings, "listeners": listeners}.items():
                words += ["--set", f"{name}={value}"]
            log = undo.enter_context((tmp_path / f"log{number}.txt").open("ab"))
            process = subprocess.Popen(
                [sys.executable, "-m", "headrace.cli", *words],
                stdout=subprocess.PIPE, stderr=log, text=True,
            )  # fmt: skip
            undo.callback(process.wait, 60)
            undo.callback(process.terminate)
            assert process.stdout is not None
            assert "ready" in process.stdout.readline()
        yield ",".join(f"127.0.0.1:{port}" for port in ports)


def test_replicas_come_into_sync_through_a_listener_with_logins(
    bootstrap: str, tmp_path: Path
) -> None:
    addresses = parse_bootstrap(bootstrap)
    with Cluster(ClientConfig(addresses)) as cluster:
        eventually(lambda: len(cluster.metadata(()).brokers) == 2, "both brokers are registered")
        assert create_topics(cluster, ["orders"], partitions=4, replication_factor=2) == {}

        def in_sync() -> bool:
            (topic,) = cluster.metadata(["orders"]).topics
            return all(len(one.isr_nodes) == 2 for one in topic.partitions)

        eventually(partial(in_sync), "all replicas are in sync")
    logs = "".join((tmp_path / f"log{number}.txt").read_text() for number in (1, 2))
    assert "br0ker" not in logs
