"""Real clients log in with tickets of a real KDC; other tokens are refused."""

import asyncio
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from kio.schema.metadata.v12.request import MetadataRequest
from kio.schema.metadata.v12.response import MetadataResponse

from headrace.client.aio import AsyncConnection
from headrace.client.config import ClientConfig, Security, parse_bootstrap
from headrace.client.connection import Connection
from headrace.client.errors import ClientError, Unreachable
from headrace.client.kerberos import TicketSource, kerberos_login
from headrace.errors import ErrorCode, KafkaError, SettingError
from headrace.security import gss
from headrace.security.gss import AcceptorContext, InitiatorContext, initiator_credential
from headrace.security.gssapi import KerberosLogin, make_tickets
from headrace.security.logins import WAITING
from headrace.settings import Settings
from tests.security.secured import PROTOCOLS, SecuredBroker
from tests.security.test_logins import Raw, request, text
from tests.security.test_oauthbearer import authenticate
from tests.support import java, kerberos
from tests.support.apache_kafka import ApacheKafka
from tests.support.java import QUICK_START, run_tool
from tests.support.kerberos import REALM, Realm
from tests.support.ports import free_port

pytestmark = pytest.mark.skipif(kerberos.missing() is not None, reason=str(kerberos.missing()))

FAILED = ErrorCode.SASL_AUTHENTICATION_FAILED
CLOSED = -1
NO_LAYER = b"\x01\0\0\0"
MODULE = "com.sun.security.auth.module.Krb5LoginModule"
RULES = "RULE:[1:$1](alice|bob),RULE:[2:$1-$2](.*-admin),RULE:[2:$1](kafka)"


def jaas(keytab: str, principal: str) -> str:
    options = f'useKeyTab=true storeKey=true keyTab="{keytab}" principal="{principal}@{REALM}"'
    return f"{MODULE} required {options};"


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Realm]:
    """A realm that this process and those that it starts are in."""
    with (
        pytest.MonkeyPatch.context() as environment,
        Realm(tmp_path_factory.mktemp("realm")) as running,
    ):
        for name, value in running.environment.items():
            environment.setenv(name, value)
        for user in ("alice", "bob", "carol", "alice/admin"):
            running.keytab(user.replace("/", "-"), user)
        running.keytab("kafka", "kafka/localhost")
        running.keytab("other", "other/localhost")
        yield running


def of_broker(realm: Realm, keytab: str = "kafka", principal: str = "kafka/localhost") -> str:
    return jaas(str(realm.folder / f"{keytab}.keytab"), principal)


def settings(realm: Realm) -> dict[str, str]:
    return {
        "listeners": ",".join(f"{one}://localhost:0" for one in PROTOCOLS),
        "sasl.enabled.mechanisms": "GSSAPI,SCRAM-SHA-256",
        "sasl.kerberos.service.name": "kafka",
        "sasl.kerberos.principal.to.local.rules": RULES,
        "listener.name.sasl_plaintext.gssapi.sasl.jaas.config": of_broker(realm),
        "listener.name.sasl_ssl.gssapi.sasl.jaas.config": of_broker(realm),
        "headrace.audit.file": str(realm.folder / "audit.log"),
    }


@pytest.fixture(scope="module")
def broker(realm: Realm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    folder = tmp_path_factory.mktemp("broker")
    with SecuredBroker(folder, {"scram": "pw"}, settings(realm)) as running:
        yield running


def events(file: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def logins(realm: Realm) -> set[tuple[object, ...]]:
    """The principals, listeners and mechanisms of the logins so far."""
    return {
        (one["principal"], one["listener"], one["mechanism"])
        for one in events(realm.folder / "audit.log")
        if one["event"] == "login"
    }


# ----------------------------------------------------------------------------------- the clients


def tickets_of(realm: Realm, user: str) -> TicketSource:
    keytab = realm.folder / f"{user.replace('/', '-')}.keytab"
    return TicketSource(principal=f"{user}@{REALM}", keytab=str(keytab))


def connect(
    broker: SecuredBroker, tickets: TicketSource, protocol: str = "SASL_PLAINTEXT"
) -> Connection:
    security = Security(protocol, broker.ca, mechanism="GSSAPI", tickets=tickets)
    bootstrap = parse_bootstrap(broker.addresses[protocol])
    return Connection(bootstrap[0], ClientConfig(bootstrap, security=security))


def ask(connection: Connection) -> None:
    wanted = MetadataRequest(topics=(), include_topic_authorized_operations=False)
    assert len(connection.ask(wanted, MetadataResponse).brokers) == 1


@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
@pytest.mark.parametrize(("user", "name"), [("alice", "alice"), ("alice/admin", "alice-admin")])
def test_our_client_logs_in_with_a_keytab_and_gets_the_name_of_the_rules(
    broker: SecuredBroker, realm: Realm, protocol: str, user: str, name: str
) -> None:
    with connect(broker, tickets_of(realm, user), protocol) as connection:
        ask(connection)
    assert (f"User:{name}", protocol, "GSSAPI") in logins(realm)


def test_our_client_logs_in_with_a_ticket_cache(
    broker: SecuredBroker, realm: Realm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = realm.kinit("bob", tickets_of(realm, "bob").keytab, tmp_path / "tickets")
    with connect(broker, TicketSource(ticket_cache=cache)) as connection:
        ask(connection)
    with pytest.raises(ClientError, match=r"kafka/localhost.*tickets"):
        connect(broker, TicketSource())
    monkeypatch.setenv("KRB5CCNAME", cache)
    with connect(broker, TicketSource()) as connection:
        ask(connection)
    assert ("User:bob", "SASL_PLAINTEXT", "GSSAPI") in logins(realm)


def test_the_client_of_brokers_logs_in(broker: SecuredBroker, realm: Realm) -> None:
    async def log_in() -> None:
        host, port = broker.addresses["SASL_PLAINTEXT"].split(":")
        security = Security(
            "SASL_PLAINTEXT", mechanism="GSSAPI", tickets=tickets_of(realm, "alice")
        )
        connection = await AsyncConnection.connect(host, int(port), "test", 60, None, security)
        wanted = MetadataRequest(topics=(), include_topic_authorized_operations=False)
        assert (await connection.ask(wanted, MetadataResponse)).brokers
        connection.close()

    asyncio.run(log_in())


def client_file(broker: SecuredBroker, realm: Realm, folder: Path, **more: str) -> str:
    """A file of properties for librdkafka and for our own client."""
    properties = {
        "bootstrap.servers": broker.addresses["SASL_PLAINTEXT"],
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "sasl.kerberos.keytab": tickets_of(realm, "alice").keytab,
        "sasl.kerberos.principal": f"alice@{REALM}",
        **more,
    }
    path = folder / "client.properties"
    path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    return str(path)


def has_gssapi_of_cyrus() -> bool:
    return any(Path("/usr/lib").glob("*/sasl2/libgssapiv2.so*"))


@pytest.mark.skipif(shutil.which("kcat") is None, reason="install the Debian package kcat")
@pytest.mark.skipif(
    not has_gssapi_of_cyrus(), reason="install the Debian package libsasl2-modules-gssapi-mit"
)
def test_kcat_produces_and_consumes(
    broker: SecuredBroker, realm: Realm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KRB5CCNAME", str(tmp_path / "tickets"))
    file = client_file(broker, realm, tmp_path)

    def kcat(*words: str, stdin: str = "") -> str:
        command = ["kcat", "-F", file, *words, "-t", "kcat"]
        done = subprocess.run(
            command, input=stdin, capture_output=True, text=True, timeout=110, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    kcat("-P", stdin="from kcat\n")
    assert kcat("-C", "-e", "-o", "beginning") == "from kcat\n"


@pytest.mark.java
@pytest.mark.skipif(java.missing() is not None, reason=str(java.missing()))
def test_java_clients_produce_and_consume(
    broker: SecuredBroker, realm: Realm, tmp_path: Path
) -> None:
    properties = {
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": broker.ca,
        "sasl.mechanism": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "sasl.jaas.config": jaas(tickets_of(realm, "alice").keytab, "alice"),
    }
    file = tmp_path / "client.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    options = (*QUICK_START, *realm.java_options)
    there = ("--bootstrap-server", broker.addresses["SASL_SSL"], "--topic", "java")
    made = run_tool(
        "kafka-console-producer", *there, "--command-config", str(file),
        stdin="from Java\n", options=options,
    )  # fmt: skip
    assert "ERROR" not in made.text
    read = run_tool(
        "kafka-console-consumer", *there, "--command-config", str(file), "--from-beginning",
        "--max-messages", "1", "--timeout-ms", "60000", options=options,
    )  # fmt: skip
    assert "from Java" in read.stdout


def headrace(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "headrace.cli", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)


def test_the_command_line_logs_in(broker: SecuredBroker, realm: Realm, tmp_path: Path) -> None:
    file = client_file(broker, realm, tmp_path)
    created = headrace("topics", "create", "cli", "--client-config", file)
    assert created.returncode == 0, created.stderr
    assert "cli" in headrace("topics", "list", "--client-config", file).stdout


def test_the_command_line_writes_and_reads_records(
    broker: SecuredBroker, realm: Realm, tmp_path: Path
) -> None:
    file = client_file(broker, realm, tmp_path)
    lines = tmp_path / "lines.txt"
    lines.write_text("".join(f"key-{n % 7}:{n}\n" for n in range(5000)))
    made = headrace("topics", "create", "cli-records", "--partitions", "3", "--client-config", file)
    assert made.returncode == 0, made.stderr
    written = headrace("produce", "cli-records", "--file", str(lines), "--key-separator", ":",
                       "--header", "a=b", "--compression", "zstd", "--idempotent", "--json",
                       "--client-config", file)  # fmt: skip
    assert written.returncode == 0, written.stderr
    report = json.loads(written.stdout)
    assert (report["records"], report["failed"]) == (5000, 0)
    read = headrace("consume", "cli-records", "--json", "--client-config", file)
    assert read.returncode == 0, read.stderr
    records = [json.loads(line) for line in read.stdout.splitlines()]
    assert sorted(int(one["value"]) for one in records) == list(range(5000))
    # The partition of a key is librdkafka's, so that it does not depend on the login.
    for one in records:
        assert one["partition"] == zlib.crc32(one["key"].encode()) % 3
        assert one["headers"] == [{"key": "a", "value": "b"}]
    in_order = [int(one["value"]) for one in records if one["key"] == "key-3"]
    assert in_order == sorted(in_order)
    last = headrace("consume", "cli-records", "--from", "-2", "--partition", "1",
                    "--client-config", file)  # fmt: skip
    assert len(last.stdout.splitlines()) == 2
    missing = headrace("consume", "cli-missing", "--client-config", file)
    assert missing.returncode != 0
    assert "cli-missing" in missing.stderr


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_bench_runs(broker: SecuredBroker, realm: Realm, tmp_path: Path, acks: str) -> None:
    file = client_file(broker, realm, tmp_path)
    done = headrace("bench", "--records", "20000", "--partitions", "2", "--acks", acks, "--json",
                    "--client-config", file)  # fmt: skip
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["consume"]["records"] == 20_000


def test_the_schema_registry_logs_in_and_registers_a_schema(
    broker: SecuredBroker, realm: Realm, tmp_path: Path
) -> None:
    file = client_file(broker, realm, tmp_path)
    words = ["registry", "serve", "--listen", "127.0.0.1:0", "--client-config", file]
    process = subprocess.Popen(
        [sys.executable, "-m", "headrace.cli", *words], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        found = re.search(r"127\.0\.0\.1:\d+", process.stdout.readline())
        assert found
        with httpx.Client(base_url=f"http://{found[0]}", timeout=60) as http:
            schema = {"schema": '{"type": "string"}'}
            made = http.post("/subjects/orders-value/versions", json=schema)
            assert made.status_code == 200, made.text
            assert http.get("/subjects").json() == ["orders-value"]
    finally:
        process.terminate()
        process.wait(60)


# ---------------------------------------------------------------------------------- the refusals


@dataclass
class Attempts:
    """Logins by hand, each as the error codes of its answers; CLOSED where there is none."""

    raw: Callable[[], Raw]
    realm: Realm

    def context(self, user: str = "alice", service: str = "kafka") -> InitiatorContext:
        own = tickets_of(self.realm, user)
        credential = initiator_credential(own.principal, own.keytab, f"MEMORY:{user}")
        return InitiatorContext(credential, service, "localhost")

    def shake(self, version: int = 1) -> Raw:
        raw = self.raw()
        raw.send(request(17, version, text("GSSAPI")))
        assert raw.receive()
        return raw

    def send(self, token: bytes) -> list[int]:
        raw = self.shake()
        return [authenticate(raw, token)[0], self.after(raw)]

    def after(self, raw: Raw) -> int:
        """The code of what follows a refusal, which is CLOSED."""
        return authenticate(raw, b"")[0]

    def choose(self, choice: bytes, user: str = "alice", *, wrap: bool = True) -> list[int]:
        """A login with this choice of a security layer and authorization id."""
        raw, context = self.shake(), self.context(user)
        code, token, _ = authenticate(raw, context.step(b""))
        assert code == 0
        assert context.step(token) == b""
        code, offer, _ = authenticate(raw, b"")
        assert code == 0
        assert context.unwrap(offer)[:1] == NO_LAYER[:1]
        codes = [authenticate(raw, context.wrap(choice) if wrap else choice)[0]]
        raw.send(request(3, 1, struct.pack(">i", 0)))
        return [*codes, 0 if raw.receive() else CLOSED]

    def login(self) -> list[int]:
        return self.choose(NO_LAYER)

    def login_with_another_authorization_id(self) -> list[int]:
        return self.choose(NO_LAYER + b"bob")

    def no_token(self) -> list[int]:
        return self.send(b"")

    def garbage(self) -> list[int]:
        return self.send(b"\x60\x10garbage" * 10)

    def ticket_of_another_service(self) -> list[int]:
        return self.send(self.context(service="other").step(b""))

    def damaged_ticket(self) -> list[int]:
        token = bytearray(self.context().step(b""))
        token[len(token) // 2] ^= 1
        return self.send(bytes(token))

    def replay(self) -> list[int]:
        token = self.context().step(b"")
        assert authenticate(self.shake(), token)[0] == 0
        return self.send(token)

    def token_in_place_of_the_acknowledgement(self) -> list[int]:
        raw, context = self.shake(), self.context()
        assert authenticate(raw, context.step(b""))[0] == 0
        return [authenticate(raw, b"x")[0], self.after(raw)]

    def layer_of_integrity(self) -> list[int]:
        return self.choose(b"\x02\0\xff\xff")

    def layer_of_privacy(self) -> list[int]:
        return self.choose(b"\x04\0\xff\xff")

    def choice_without_protection(self) -> list[int]:
        return self.choose(NO_LAYER, wrap=False)

    def short_choice(self) -> list[int]:
        return self.choose(b"")

    def principal_without_a_name(self) -> list[int]:
        return self.choose(NO_LAYER, "carol")


REFUSED = [FAILED, CLOSED]
OUTCOMES = {
    Attempts.login: [0, 0],
    Attempts.login_with_another_authorization_id: [0, 0],
    Attempts.no_token: REFUSED,
    Attempts.garbage: REFUSED,
    Attempts.ticket_of_another_service: REFUSED,
    Attempts.damaged_ticket: REFUSED,
    Attempts.replay: REFUSED,
    Attempts.token_in_place_of_the_acknowledgement: REFUSED,
    Attempts.layer_of_integrity: REFUSED,
    Attempts.layer_of_privacy: REFUSED,
    Attempts.choice_without_protection: REFUSED,
    Attempts.short_choice: REFUSED,
    Attempts.principal_without_a_name: REFUSED,
}
OF_KAFKA = {
    # Java's code breaks on it.
    Attempts.short_choice: [CLOSED, CLOSED],
    # Kafka looks for the name after its answer.
    Attempts.principal_without_a_name: [0, CLOSED],
}


@pytest.mark.parametrize("attempt", OUTCOMES, ids=lambda one: one.__name__)
def test_a_login_ends_with_its_code(
    broker: SecuredBroker, realm: Realm, attempt: Callable[[Attempts], list[int]]
) -> None:
    attempts = Attempts(lambda: Raw(broker, "SASL_PLAINTEXT"), realm)
    assert attempt(attempts) == OUTCOMES[attempt]  # type: ignore[index]
    assert "unexpected error" not in broker.log()
    ask(connect(broker, tickets_of(realm, "alice")))


@pytest.fixture(scope="module")
def kafka(realm: Realm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Raw]]:
    """Makes connections to the SASL listener of an Apache Kafka."""
    users, plain, controller = free_port(), free_port(), free_port()
    listeners = f"PLAINTEXT://127.0.0.1:{plain},SASL_PLAINTEXT://localhost:{users}"
    given = {
        "listeners": f"{listeners},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": listeners,
        "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller}",
        "listener.security.protocol.map": (
            "PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT"
        ),
        "sasl.enabled.mechanisms": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "sasl.kerberos.principal.to.local.rules": RULES,
        "listener.name.sasl_plaintext.gssapi.sasl.jaas.config": of_broker(realm),
    }

    @dataclass
    class Addressed:
        addresses: dict[str, str]

    there = Addressed({"SASL_PLAINTEXT": f"localhost:{users}"})
    folder = tmp_path_factory.mktemp("kafka")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("JAVA_TOOL_OPTIONS", " ".join(realm.java_options))
        with ApacheKafka(folder, port=plain, settings=given, quick=True):
            yield lambda: Raw(there, "SASL_PLAINTEXT")  # type: ignore[arg-type]


@pytest.mark.java
@pytest.mark.skipif(java.missing() is not None, reason=str(java.missing()))
def test_logins_end_as_in_kafka(kafka: Callable[[], Raw], realm: Realm) -> None:
    attempts = Attempts(kafka, realm)
    assert {one.__name__: one(attempts) for one in OUTCOMES} == {
        one.__name__: OF_KAFKA.get(one, codes) for one, codes in OUTCOMES.items()
    }


def test_a_refused_login_says_the_same_for_all_causes_and_the_audit_log_says_why(
    realm: Realm, tmp_path: Path
) -> None:
    # A broker of its own: the audit log leaves out events that come too often.
    audit = tmp_path / "audit.log"
    answers = set()
    with SecuredBroker(tmp_path, {}, settings(realm) | {"headrace.audit.file": str(audit)}) as own:
        attempts = Attempts(lambda: Raw(own, "SASL_PLAINTEXT"), realm)
        for token in (b"garbage", attempts.context(service="other").step(b"")):
            raw = attempts.shake()
            raw.send(request(36, 1, struct.pack(">i", len(token)) + token))
            answers.add(raw.receive())
        assert len(answers) == 1
        with pytest.raises(KafkaError) as refused:
            connect(own, tickets_of(realm, "carol"))
    assert refused.value.code is FAILED
    assert "authentication failed: invalid credentials with GSSAPI" in refused.value.message
    failed = [one for one in events(audit) if one["event"] == "login_failed"]
    assert [one["user"] for one in failed] == [None, None, f"carol@{REALM}"]
    reasons = [str(one["reason"]) for one in failed]
    assert "other/localhost" in reasons[1]
    assert "sasl.kerberos.principal.to.local.rules" in reasons[2]


def test_a_ticket_inside_spnego_is_refused(broker: SecuredBroker, realm: Realm) -> None:
    attempts = Attempts(lambda: Raw(broker, "SASL_PLAINTEXT"), realm)
    inner = attempts.context().step(b"")

    def tagged(tag: int, data: bytes) -> bytes:
        return bytes((tag, 0x82)) + struct.pack(">H", len(data)) + data

    mechanisms = tagged(0xA0, tagged(0x30, bytes.fromhex("06092a864886f712010202")))
    token = tagged(0xA0, tagged(0x30, mechanisms + tagged(0xA2, tagged(0x04, inner))))
    assert attempts.send(tagged(0x60, bytes.fromhex("06062b0601050502") + token)) == REFUSED


def test_a_token_of_600_kb_closes_the_connection(broker: SecuredBroker, realm: Realm) -> None:
    raw = Attempts(lambda: Raw(broker, "SASL_PLAINTEXT"), realm).shake()
    raw.sock.sendall(struct.pack(">i", 600_000) + request(36, 1))
    assert raw.receive() is None


def test_tokens_may_be_plain_frames(broker: SecuredBroker, realm: Realm) -> None:
    attempts = Attempts(lambda: Raw(broker, "SASL_PLAINTEXT"), realm)
    raw, context = attempts.shake(0), attempts.context()
    raw.send(context.step(b""))
    assert context.step(raw.receive() or b"") == b""
    raw.send(b"")
    assert context.unwrap(raw.receive() or b"") == NO_LAYER
    raw.send(context.wrap(NO_LAYER))
    assert raw.receive() == b""
    raw.send(request(3, 1, struct.pack(">i", 0)))
    assert raw.receive()
    raw = attempts.shake(0)
    raw.send(b"garbage")
    assert raw.receive() is None


def test_tickets_are_checked_in_another_thread(
    realm: Realm, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[str] = []
    accept = AcceptorContext.accept

    def watched(context: AcceptorContext, token: bytes) -> bytes:
        threads.append(threading.current_thread().name)
        return accept(context, token)

    monkeypatch.setattr(AcceptorContext, "accept", watched)
    keytab = str(realm.folder / "kafka.keytab")
    tickets = make_tickets(f"kafka/localhost@{REALM}", keytab, "x", Settings.parse({}))
    own = tickets_of(realm, "alice")
    credential = initiator_credential(own.principal, own.keytab, "MEMORY:thread")
    token = InitiatorContext(credential, "kafka", "localhost").step(b"")
    assert asyncio.run(KerberosLogin(tickets).step(token))
    tickets.close()
    assert threads == ["kerberos-tickets_0"]


def test_a_flood_of_tickets_is_bounded(realm: Realm) -> None:
    given = Settings.parse({"sasl.kerberos.principal.to.local.rules": RULES})
    keytab = str(realm.folder / "kafka.keytab")
    tickets = make_tickets(f"kafka/localhost@{REALM}", keytab, "sasl.jaas.config", given)

    async def flood() -> list[str]:
        tries = [KerberosLogin(tickets).step(b"garbage") for _ in range(300)]
        refused = [str(one) for one in await asyncio.gather(*tries, return_exceptions=True)]
        token = Attempts(lambda: None, realm).context().step(b"")  # type: ignore[arg-type, return-value]
        assert await KerberosLogin(tickets).step(token), "and afterwards logins work"
        return refused

    assert asyncio.run(flood()).count("too many tickets are being checked") == 300 - WAITING
    tickets.close()


# ---------------------------------------------------------------------------------- the sessions


def test_a_session_is_renewed_by_the_same_user_only(realm: Realm, tmp_path: Path) -> None:
    given = {**settings(realm), "connections.max.reauth.ms": "60000"}
    with SecuredBroker(tmp_path, {}, given) as broker:
        attempts = Attempts(lambda: Raw(broker, "SASL_PLAINTEXT"), realm)

        def log_in(raw: Raw, user: str) -> tuple[int, int]:
            """The last code and the session lifetime."""
            context = attempts.context(user)
            token = authenticate(raw, context.step(b""))[1]
            context.step(token)
            authenticate(raw, b"")
            code, _, lifetime_ms = authenticate(raw, context.wrap(NO_LAYER))
            return code, lifetime_ms

        for user, expected in (("alice", 0), ("bob", FAILED)):
            raw = attempts.shake()
            assert log_in(raw, "alice") == (0, 60_000)
            time.sleep(1.1)  # a client that logs in again sooner is refused
            raw.send(request(17, 1, text("GSSAPI")))
            assert raw.receive()
            assert log_in(raw, user)[0] == expected


def test_a_new_key_in_the_keytab_counts_without_a_restart(realm: Realm, tmp_path: Path) -> None:
    keytab = realm.keytab("rekeyed", "kafka/localhost")
    own = jaas(keytab, "kafka/localhost")
    given = {**settings(realm)} | {
        f"listener.name.{name}.gssapi.sasl.jaas.config": own
        for name in ("sasl_ssl", "sasl_plaintext")
    }
    with SecuredBroker(tmp_path, {}, given) as broker:
        for number in range(2):
            source = TicketSource(
                principal=f"alice@{REALM}",
                keytab=tickets_of(realm, "alice").keytab,
                ticket_cache=f"MEMORY:rekeyed-{number}",
            )
            with connect(broker, source) as connection:
                ask(connection)
            realm.keytab("rekeyed", "kafka/localhost")
    # The other brokers of this module have the last key of the principal, too.
    shutil.copy(keytab, realm.folder / "kafka.keytab")


def test_clients_retry_while_no_kdc_answers_and_tickets_that_they_have_count(
    broker: SecuredBroker, realm: Realm, tmp_path: Path
) -> None:
    cache = f"MEMORY:{tmp_path}"
    bob = tickets_of(realm, "bob")
    known = TicketSource(principal=bob.principal, keytab=bob.keytab, ticket_cache=cache)
    connect(broker, known).close()
    realm.stop()
    try:
        ask(connect(broker, known))
        unknown = TicketSource(principal=bob.principal, keytab=bob.keytab, ticket_cache=f"{cache}2")
        with pytest.raises(Unreachable, match="KDC"):
            connect(broker, unknown)
    finally:
        realm.start()


# ---------------------------------------------------------------------------------- the settings


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"sasl.jaas.config": ""}, "listener.name.sasl_ssl.gssapi.sasl.jaas.config: GSSAPI needs"),
        (
            {"sasl.jaas.config": 'x.ScramLoginModule required username="a" password="hunter2";'},
            "sasl.jaas.config: GSSAPI needs",
        ),
        ({"sasl.jaas.config": jaas("/nowhere", "kafka/localhost")}, "/nowhere"),
        ({"sasl.jaas.config": jaas("KEYTAB", "kafka/elsewhere")}, "kafka/elsewhere"),
        ({"sasl.kerberos.principal.to.local.rules": "RULE:[1:"}, "principal.to.local.rules"),
    ],
)
def test_a_start_without_keys_or_with_wrong_rules_is_refused(
    realm: Realm, tmp_path: Path, changes: dict[str, str], named: str
) -> None:
    keytab = str(realm.folder / "kafka.keytab")
    given = {
        "listeners": "SASL_SSL://localhost:0,PLAINTEXT://localhost:0",
        "sasl.enabled.mechanisms": "GSSAPI",
        "sasl.jaas.config": of_broker(realm),
        **{name: value.replace("KEYTAB", keytab) for name, value in changes.items()},
    }
    broker = SecuredBroker(tmp_path, {}, given)
    with pytest.raises(AssertionError) as refused, broker:
        pass
    broker.__exit__(None, None, None)
    assert named in str(refused.value)
    assert "hunter2" not in str(refused.value)
    assert "Traceback" not in str(refused.value)


def make_for(principal: str, keytab: str) -> None:
    make_tickets(principal, keytab, "sasl.jaas.config", Settings.parse({})).close()


def test_a_missing_library_is_named_with_its_package(
    realm: Realm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gss, "_LIBRARY", "libgssapi_nowhere.so.2")
    gss._library.cache_clear()
    try:
        with pytest.raises(SettingError, match="apt-get install libgssapi-krb5-2"):
            make_for(f"kafka/localhost@{REALM}", str(realm.folder / "kafka.keytab"))
        with pytest.raises(ClientError, match="apt-get install libgssapi-krb5-2"):
            next(kerberos_login(TicketSource(), "localhost"))
    finally:
        monkeypatch.undo()
        gss._library.cache_clear()


def test_the_default_rule_needs_a_default_realm(
    realm: Realm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "krb5.conf").write_text("[libdefaults]\n")
    monkeypatch.setenv("KRB5_CONFIG", str(tmp_path / "krb5.conf"))
    with pytest.raises(SettingError, match="default_realm"):
        make_for(f"kafka/localhost@{REALM}", str(realm.folder / "kafka.keytab"))


def test_a_world_readable_keytab_causes_a_warning(
    realm: Realm, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    keytab = tmp_path / "open.keytab"
    shutil.copy(realm.folder / "kafka.keytab", keytab)
    os.chmod(keytab, 0o644)
    make_for(f"kafka/localhost@{REALM}", str(keytab))
    assert f"chmod 600 {keytab}" in caplog.text


def test_nothing_of_kerberos_is_imported_without_it() -> None:
    code = (
        "import sys, headrace.broker.server, headrace.broker.setup.logins, headrace.client.cluster;"
        "print([one for one in sys.modules if one in ('headrace.security.gss', 'ctypes')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
