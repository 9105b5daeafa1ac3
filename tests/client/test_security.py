"""Logins and TLS against a real Apache Kafka, which has what our broker lacks so far."""

import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from headrace.client.cluster import Cluster
from headrace.client.config import client_config
from headrace.client.errors import ClientError
from headrace.errors import KafkaError
from tests.cli.conftest import execute
from tests.support import java
from tests.support.apache_kafka import ApacheKafka
from tests.support.ports import free_port

pytestmark = [pytest.mark.java, pytest.mark.slow]

MODULES = "org.apache.kafka.common.security"


@dataclass(frozen=True, slots=True)
class Doors:
    """Where the cluster listens with a login, and where with TLS; the certificate it shows."""

    login: str
    tls: str
    certificate: Path


@pytest.fixture(scope="module")
def doors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    if reason := java.missing():
        pytest.skip(reason)
    if shutil.which("openssl") is None:
        pytest.skip("no openssl to make a certificate with")
    folder = tmp_path_factory.mktemp("secure")
    key, certificate, both = folder / "key.pem", folder / "cert.pem", folder / "both.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
         "-keyout", str(key), "-out", str(certificate), "-subj", "/CN=localhost",
         "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"],
        check=True,
        capture_output=True,
    )  # fmt: skip
    both.write_text(key.read_text() + certificate.read_text())
    login, tls, controller = (f"127.0.0.1:{free_port()}" for _ in range(3))
    kafka = ApacheKafka(folder / "kafka")
    plain = f"PLAINTEXT://{kafka.bootstrap},LOGIN://{login},TLS://{tls}"
    kafka = ApacheKafka(
        folder / "kafka",
        port=kafka.port,
        quick=True,
        settings={
            "controller.quorum.bootstrap.servers": controller,
            "listeners": f"{plain},CONTROLLER://{controller}",
            "advertised.listeners": plain,
            "listener.security.protocol.map": (
                "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,LOGIN:SASL_PLAINTEXT,TLS:SSL"
            ),
            "inter.broker.listener.name": "PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
            "listener.name.login.plain.sasl.jaas.config": (
                f'{MODULES}.plain.PlainLoginModule required user_alice="secret";'
            ),
            "listener.name.login.scram-sha-256.sasl.jaas.config": (
                f"{MODULES}.scram.ScramLoginModule required;"
            ),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(both),
        },
    )
    with kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
        user = UserScramCredentialUpsertion("bob", info, b"pencil")
        admin.alter_user_scram_credentials([user])["bob"].result(60)
        yield Doors(login, tls, certificate)


def topics(properties: dict[str, str]) -> list[str]:
    with Cluster(client_config(properties)) as cluster:
        return list(cluster.topics(None))


@pytest.mark.parametrize(
    ("mechanism", "name", "password"),
    [("PLAIN", "alice", "secret"), ("SCRAM-SHA-256", "bob", "pencil")],
)
def test_a_correct_login_succeeds_and_a_wrong_one_is_reported(
    doors: Doors, mechanism: str, name: str, password: str
) -> None:
    properties = {
        "bootstrap.servers": doors.login,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": name,
        "sasl.password": password,
    }
    assert topics(properties) == []
    with pytest.raises(KafkaError, match=rf"logging in to {doors.login} as '{name}'"):
        topics({**properties, "sasl.password": "wrong"})
    with pytest.raises(ClientError, match="it has PLAIN, SCRAM-SHA-256"):
        topics({**properties, "sasl.mechanism": "SCRAM-SHA-512"})


def test_admin_commands_log_in_with_the_client_config(doors: Doors, tmp_path: Path) -> None:
    login, tls = tmp_path / "login.properties", tmp_path / "tls.properties"
    login.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanisms=SCRAM-SHA-256\n"
        "sasl.username=bob\nsasl.password=pencil\n"
    )
    tls.write_text(f"security.protocol=SSL\nssl.ca.location={doors.certificate}\n")
    for address, file in ((doors.login, login), (doors.tls, tls)):
        at = ("--bootstrap", address, "--client-config", str(file), "--json")
        for words in (("groups", "list"), ("transactions", "list"), ("topics", "list")):
            done = execute(*words, *at)
            assert (done.code, done.json()) == (0, []), done.err
        cluster = execute("cluster", "describe", *at).document()
        assert cluster["apis"]
    wrong = execute("groups", "list", "--bootstrap", doors.login, "--client-config", str(tls))
    assert wrong.code == 3, wrong.err


def test_tls_needs_a_certificate_that_is_trusted(doors: Doors) -> None:
    properties = {"bootstrap.servers": doors.tls, "security.protocol": "SSL"}
    assert topics({**properties, "ssl.ca.location": str(doors.certificate)}) == []
    with pytest.raises(ClientError, match=r"ssl\.ca\.location"):
        topics(properties)
    store = {"ssl.truststore.location": str(doors.certificate), "ssl.truststore.type": "PEM"}
    assert topics({**properties, **store}) == []
