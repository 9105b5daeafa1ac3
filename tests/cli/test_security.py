"""`headrace security`: from nothing to a secured broker, its checks and its renewal."""

import json
import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from kafka import KafkaProducer

from tests.cli.conftest import Run, command
from tests.security.authority import Authority, write
from tests.security.initialized import InitializedBroker
from tests.support import java
from tests.support.ports import free_port


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InitializedBroker]:
    with InitializedBroker(tmp_path_factory.mktemp("secured")) as running:
        yield running


def test_three_commands_lead_to_the_first_record(here: Run, secured: InitializedBroker) -> None:
    # The first two, `init` and `serve`, are in the fixture.
    done = here("produce", "greetings", "--create", *secured.admin, stdin=b"hello\n")
    assert done.code == 0, done.err
    assert here("consume", "greetings", "--from", "beginning", *secured.admin).text == "hello\n"


def test_the_audit_log_leads_to_the_acls_that_are_missing(
    here: Run, secured: InitializedBroker
) -> None:
    registry = ("--client-config", str(secured.folder / "registry.properties"))
    assert here("topics", "create", "registrys", *registry).code == 1
    assert here("acls", "list", *registry).code == 1
    log = str(secured.home / "data" / "audit.log")
    rows = here("acls", "suggest", log, "--principal", "registry", "--json").rows()
    commands = {str(row["command"]) for row in rows}
    start = "headrace acls add --allow-principal User:registry"
    assert f"{start} --operation describe --cluster" in commands
    assert any(one.startswith(f"{start} --operation create") for one in commands), commands
    shown = here("acls", "suggest", log, "--principal", "registry").text
    assert set(shown.splitlines()) == commands
    for suggested in commands:
        assert here(*suggested.split()[1:], *secured.admin).code == 0
    assert here("acls", "list", *registry).code == 0
    assert here("acls", "suggest", str(secured.home / "none.log")).code == 2


def test_a_command_without_tls_gets_a_hint(here: Run, secured: InitializedBroker) -> None:
    done = here("topics", "list", "--bootstrap", f"127.0.0.1:{secured.port}")
    assert done.code == 3
    assert "--client-config" in done.err


def test_several_brokers_of_one_machine_log_in_to_each_other(here: Run, tmp_path: Path) -> None:
    broker = InitializedBroker(tmp_path, serve=("--brokers", "2"))
    free_port()  # the next one, which is that of the second broker
    with broker:
        words = ("--partitions", "2", "--replication-factor", "2")
        assert here("topics", "create", "copied", *words, *broker.admin).code == 0
        assert here("produce", "copied", *broker.admin, stdin=b"a\nb\n").code == 0
        shown = here("topics", "describe", "copied", "--json", *broker.admin).document()
        partitions = shown["partitions"]
        assert isinstance(partitions, list)
        assert {len(one["isr"]) for one in partitions} == {2}, shown
    assert '"principal": "User:broker"' in (tmp_path / "data" / "audit.log").read_text()


def test_a_denial_by_an_acl_is_shown_and_not_allowed(here: Run, tmp_path: Path) -> None:
    event = {
        "event": "denied",
        "principal": "User:eve",
        "operation": "READ",
        "resource": "TOPIC",
        "name": "orders",
        "rule": "denied by the ACL: DENY User:eve from * to READ LITERAL TOPIC orders",
    }
    log = tmp_path / "audit.log"
    log.write_text(json.dumps(event) + "\nnot JSON\n" + json.dumps({"event": "login"}) + "\n")
    assert here("acls", "suggest", str(log)).text.startswith("# User:eve READ TOPIC orders: denied")
    assert here("acls", "suggest", str(log), "--json").rows()[0]["command"] is None


def test_init_prints_the_commands_that_follow(here: Run, tmp_path: Path) -> None:
    folder = tmp_path / "security"
    words = ("--folder", str(folder), "--data", str(tmp_path / "data"))
    shown = here("security", "init", *words).text
    assert f"headrace serve --config {folder}/broker.properties" in shown
    assert f"--create --client-config {folder}/admin.properties" in shown
    again = here("security", "init", *words)
    assert again.code == 1
    assert "headrace security renew" in again.err


def test_only_the_owner_reads_what_init_has_made(here: Run, tmp_path: Path) -> None:
    folder = tmp_path / "security"
    words = ("--folder", str(folder), "--data", str(tmp_path / "data"))
    made = here("security", "init", *words, "--host", "kafka.example.com", "--json").document()
    assert made["bootstrap"] == "kafka.example.com:9092"
    modes = {one.name: one.stat().st_mode & 0o777 for one in folder.iterdir()}
    assert modes.pop("ca.pem") == 0o644
    assert set(modes.values()) == {0o600}
    assert folder.stat().st_mode & 0o777 == 0o700
    settings = (folder / "broker.properties").read_text()
    assert "listeners=SASL_SSL://0.0.0.0:9092\n" in settings
    assert "advertised.listeners=SASL_SSL://kafka.example.com:9092\n" in settings
    registry = (folder / "registry-http.properties").read_text()
    assert "listeners=https://0.0.0.0:8081\n" in registry
    client = json.loads((folder / "admin.registry.json").read_text())
    assert client["url"] == "https://kafka.example.com:8081"
    assert client["basic.auth.user.info"].partition(":")[2] not in registry


def test_every_user_of_init_has_a_password_of_its_own(here: Run, tmp_path: Path) -> None:
    """A service that is given the password of an HTTP user must not learn that of a super user."""
    folder = tmp_path / "security"
    words = ("--folder", str(folder), "--data", str(tmp_path / "data"))
    made = here("security", "init", *words, "--json").document()
    assert made["users"] == ["admin", "broker", "connect", "console", "registry", "sql"]
    services = ("admin", "connect", "console", "registry", "sql")
    files = [folder / f"{name}.properties" for name in services]
    found = [re.search(r"^sasl.password=(.+)$", one.read_text(), re.MULTILINE) for one in files]
    passwords = [one[1] for one in found if one]
    settings = (folder / "broker.properties").read_text()
    passwords += re.findall(r'username="broker" password="([^"]+)"', settings)
    for name in ("admin", "console", "sql"):
        client = json.loads((folder / f"{name}.registry.json").read_text())
        user, _, password = client["basic.auth.user.info"].partition(":")
        assert user == name
        passwords.append(password)
    assert len(set(passwords)) == len(passwords) == 9


@pytest.mark.parametrize("host", ["kafka:9092", "", "a..b"])
def test_a_host_that_is_none_is_bad_usage(here: Run, tmp_path: Path, host: str) -> None:
    folder = tmp_path / "security"
    words = ("--folder", str(folder), "--data", str(tmp_path / "data"))
    assert here("security", "init", *words, "--host", host).code == 2
    assert not folder.exists()


def test_init_is_refused_while_the_broker_runs(here: Run, secured: InitializedBroker) -> None:
    words = ("--folder", str(secured.home / "other"), "--data", str(secured.home / "data"))
    refused = here("security", "init", *words)
    assert refused.code == 1
    assert "a broker is using" in refused.err
    assert not (secured.home / "other").exists()


class TestClientFiles:
    def test_python_clients_use_theirs(self, secured: InitializedBroker) -> None:
        made = json.loads((secured.folder / "admin.python.json").read_text())
        producer = KafkaProducer(**made["kafka_python"])
        assert producer.send("python", b"x").get(60).offset == 0
        producer.close()
        Producer(made["confluent_kafka"]).list_topics(timeout=60)

    def test_kcat_uses_its_own(self, secured: InitializedBroker) -> None:
        if shutil.which("kcat") is None:
            pytest.skip("kcat is not installed")
        words = ["kcat", "-F", str(secured.folder / "admin.kcat.conf"), "-P", "-t", "kcat"]
        subprocess.run(words, input=b"x\n", check=True, timeout=60)
        shown = subprocess.run(
            [*words[:3], "-C", "-t", "kcat", "-e", "-q"],
            check=True,
            timeout=60,
            capture_output=True,
        )
        assert shown.stdout == b"x\n"

    @pytest.mark.java
    def test_java_tools_use_theirs(self, secured: InitializedBroker) -> None:
        if reason := java.missing():
            pytest.skip(reason)
        file = str(secured.folder / "admin.java.properties")
        there = ("--bootstrap-server", f"127.0.0.1:{secured.port}", "--command-config", file)
        java.run_tool("kafka-topics", *there, "--create", "--topic", "java")
        assert (
            "User:registry"
            in java.run_tool("org.apache.kafka.tools.AclCommand", *there, "--list").text
        )

    def test_spark_options_are_those_of_our_client(self, secured: InitializedBroker) -> None:
        from headrace.client.cluster import Cluster
        from headrace.client.config import client_config

        options = json.loads((secured.folder / "admin.spark.json").read_text())
        plain = {name.removeprefix("kafka."): value for name, value in options.items()}
        with Cluster(client_config(plain)) as cluster:
            assert cluster.brokers()


class TestCheck:
    def test_everything_is_right_after_init(self, here: Run, secured: InitializedBroker) -> None:
        done = here("security", "check", "--folder", str(secured.folder), "--json")
        assert done.code == 0, done.text
        rows = done.rows()
        assert {Path(str(row["file"])).name for row in rows} == {
            "admin.properties",
            "admin.java.properties",
            "admin.kcat.conf",
            "connect.properties",
            "console.properties",
            "registry.properties",
            "sql.properties",
        }
        assert all(row["ok"] for row in rows)

    @pytest.mark.parametrize(
        ("change", "step", "text"),
        [
            ("sasl.password=wrong", "login", "wrong password, or no such user"),
            ("sasl.username=nobody", "login", "wrong password, or no such user"),
            ("bootstrap.servers=127.0.0.1:1", "network", "cannot be reached"),
            ("ssl.ca.location=/nowhere.pem", "file", "does not exist"),
            ("sasl.mechanism=DIGEST-MD5", "file", "DIGEST-MD5 is not supported"),
            ("sasl.password=", "file", "sasl.password is missing"),
        ],
    )
    def test_the_first_wrong_thing_is_named(
        self,
        here: Run,
        secured: InitializedBroker,
        tmp_path: Path,
        change: str,
        step: str,
        text: str,
    ) -> None:
        name = change.partition("=")[0]
        good = (secured.folder / "admin.properties").read_text()
        file = tmp_path / "client.properties"
        file.write_text(re.sub(rf"^{name}=.*$", change, good, flags=re.MULTILINE))
        file.chmod(0o600)
        done = here("security", "check", str(file), "--json")
        assert done.code == 1
        last = done.rows()[0]["steps"][-1]  # type: ignore[index]
        assert (last["what"], last["ok"]) == (step, False)
        assert text in last["detail"]

    def test_a_password_that_others_may_read_is_named(
        self, here: Run, secured: InitializedBroker, tmp_path: Path
    ) -> None:
        file = tmp_path / "client.properties"
        shutil.copy(secured.folder / "admin.properties", file)
        file.chmod(0o644)
        assert "chmod 600" in here("security", "check", str(file)).text

    def test_a_foreign_authority_is_named(
        self, here: Run, secured: InitializedBroker, tmp_path: Path
    ) -> None:
        foreign = write(tmp_path / "foreign.pem", Authority().pem)
        good = (secured.folder / "admin.properties").read_text()
        file = tmp_path / "client.properties"
        file.write_text(good.replace(str(secured.folder / "ca.pem"), foreign))
        file.chmod(0o600)
        done = here("security", "check", str(file))
        assert done.code == 1
        assert "WRONG  TLS" in done.text
        assert f"is not issued by {foreign}" in done.text

    def test_a_host_that_the_certificate_does_not_name_is_named(
        self, here: Run, secured: InitializedBroker
    ) -> None:
        file = str(secured.folder / "admin.properties")
        there = ("--bootstrap", f"127.0.0.2:{secured.port}")
        with socket.create_server(("127.0.0.2", secured.port)) as other:
            # Another address of this machine, with the broker behind it.
            forward = subprocess.Popen(
                [sys.executable, "-c", FORWARD, str(other.fileno()), str(secured.port)],
                pass_fds=[other.fileno()],
            )
            try:
                done = here("security", "check", file, *there)
            finally:
                forward.kill()
                forward.wait()
        assert done.code == 1
        assert (
            "the certificate is not valid for 127.0.0.2, but only for 127.0.0.1, ::1" in done.text
        )
        assert "headrace security renew --host 127.0.0.2" in done.text

    def test_a_port_without_tls_is_named(
        self, here: Run, secured: InitializedBroker, bootstrap: str
    ) -> None:
        file = str(secured.folder / "admin.properties")
        done = here("security", "check", file, "--bootstrap", bootstrap)
        assert done.code == 1
        assert "does not use TLS" in done.text

    def test_permissions_on_a_topic_are_shown(self, here: Run, secured: InitializedBroker) -> None:
        assert here("topics", "create", "secret", *secured.admin).code == 0
        admin, registry = (secured.folder / f"{name}.properties" for name in ("admin", "registry"))
        allowed = here("security", "check", str(admin), "--topic", "secret")
        assert allowed.code == 0
        assert "it may read, write, create" in allowed.text
        denied = here("security", "check", str(registry), "--topic", "secret")
        assert denied.code == 1
        assert "WRONG  permissions" in denied.text
        assert "acls explain" in denied.text

    def test_an_expired_certificate_is_named(self, here: Run, tmp_path: Path) -> None:
        authority = Authority()
        issued = authority.issue("CN=broker", days=-1)
        pem = write(tmp_path / "broker.pem", issued.key_pem(), issued.certificate_pem)
        ca = write(tmp_path / "ca.pem", authority.pem)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pem)
        file = tmp_path / "client.properties"
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            file.write_text(
                f"bootstrap.servers=127.0.0.1:{port}\nsecurity.protocol=SSL\nssl.ca.location={ca}\n"
            )
            serving = subprocess.Popen(
                [sys.executable, "-c", HANDSHAKES, str(server.fileno()), pem],
                pass_fds=[server.fileno()],
            )
            try:
                done = here("security", "check", str(file))
            finally:
                serving.kill()
                serving.wait()
        assert done.code == 1
        assert "is valid from" in done.text
        assert "headrace security renew" in done.text


FORWARD = """
import socket, sys, threading
server = socket.socket(fileno=int(sys.argv[1]))
def copy(a, b):
    while data := a.recv(65536):
        b.sendall(data)
    b.close()
while True:
    client, _ = server.accept()
    broker = socket.create_connection(("127.0.0.1", int(sys.argv[2])))
    for pair in ((client, broker), (broker, client)):
        threading.Thread(target=copy, args=pair, daemon=True).start()
"""
HANDSHAKES = """
import socket, ssl, sys
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[2])
server = socket.socket(fileno=int(sys.argv[1]))
while True:
    client, _ = server.accept()
    try:
        context.wrap_socket(client, server_side=True).close()
    except OSError:
        client.close()
"""


class TestRenew:
    def test_a_running_broker_takes_the_new_certificate(self, here: Run, tmp_path: Path) -> None:
        with InitializedBroker(tmp_path) as secured:
            before = ssl.get_server_certificate(("127.0.0.1", secured.port))
            of_registry = (secured.folder / "registry.pem").read_text()
            words = ("--folder", str(secured.folder), "--host", "more.example.com", "--days", "90")
            renewed = here("security", "renew", *words, "--json").document()
            assert renewed["hosts"] == ["127.0.0.1", "::1", "localhost", "more.example.com"]
            deadline = time.monotonic() + 60
            while ssl.get_server_certificate(("127.0.0.1", secured.port)) == before:
                assert time.monotonic() < deadline, secured.log()
                time.sleep(0.2)
            done = here("security", "check", str(secured.folder / "admin.properties"))
            assert done.code == 0, done.text
            assert "is valid for 89 days" in done.text
            assert os.stat(secured.folder / "broker.pem").st_mode & 0o777 == 0o600
            assert (secured.folder / "registry.pem").read_text() != of_registry

    def test_there_is_nothing_to_renew_before_init(self, here: Run, tmp_path: Path) -> None:
        done = here("security", "renew", "--folder", str(tmp_path))
        assert done.code == 4
        assert "headrace security init" in done.err


def test_without_the_package_cryptography_init_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "cryptography.py").write_text("raise ModuleNotFoundError(name='cryptography')")
    done = subprocess.run(
        command("security", "init"), cwd=tmp_path, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 1
    assert "pip install 'headrace[security]'" in done.stderr
