"""Real clients log in by every mechanism; others are refused without a reason."""

import asyncio
import socket
import ssl
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.helpers import create_ssl_context
from confluent_kafka import Producer
from kafka import KafkaProducer
from kio.schema.metadata.v12.request import MetadataRequest
from kio.schema.metadata.v12.response import MetadataResponse
from kio.schema.sasl_authenticate.v2.request import SaslAuthenticateRequest
from kio.schema.sasl_authenticate.v2.response import SaslAuthenticateResponse
from kio.schema.sasl_handshake.v1.request import SaslHandshakeRequest
from kio.schema.sasl_handshake.v1.response import SaslHandshakeResponse

from headrace.client.cluster import Cluster
from headrace.client.config import ClientConfig, Security, parse_bootstrap
from headrace.client.connection import Connection
from headrace.client.errors import ClientError, Unreachable
from headrace.client.users import delete_user, describe_users, set_password
from headrace.errors import ErrorCode, KafkaError
from headrace.security.mechanisms import MECHANISMS
from tests.security.secured import SecuredBroker

ALICE, PASSWORD = "alice", "s3cret-of-alice"
SASL = ("SASL_PLAINTEXT", "SASL_SSL")
SASL_HANDSHAKE, API_VERSIONS = 17, 18


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    folder = tmp_path_factory.mktemp("secured")
    with SecuredBroker(folder, {ALICE: PASSWORD, "bob": "b0b"}) as running:
        yield running


SHORT_S = 4
"""How long a session of `short_sessions` lasts."""
HASTY_S = 1
"""A client that logs in again sooner than this after a login is refused, as by Kafka."""


def connect(
    broker: SecuredBroker,
    protocol: str,
    mechanism: str = "SCRAM-SHA-256",
    username: str = ALICE,
    password: str = PASSWORD,
) -> Connection:
    security = Security(
        protocol, broker.ca, mechanism=mechanism, username=username, password=password
    )
    bootstrap = parse_bootstrap(broker.addresses[protocol])
    return Connection(bootstrap[0], ClientConfig(bootstrap, security=security))


@pytest.mark.parametrize("protocol", SASL)
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_our_client_logs_in(broker: SecuredBroker, protocol: str, mechanism: str) -> None:
    with connect(broker, protocol, mechanism) as connection:
        request = MetadataRequest(topics=(), include_topic_authorized_operations=False)
        assert len(connection.ask(request, MetadataResponse).brokers) == 1


def test_a_login_does_not_import_the_classes_of_all_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # They take a quarter of a second, in which the event loop would serve no other client.
    monkeypatch.setenv("PYTHONPROFILEIMPORTTIME", "1")
    with SecuredBroker(tmp_path, {ALICE: PASSWORD}) as running:
        for mechanism in MECHANISMS:
            connect(running, "SASL_SSL", mechanism).close()
        imported = {line.rpartition("|")[2].strip() for line in running.log().splitlines()}
    assert "headrace.wire.sasl" in imported
    assert "kio" not in imported


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_confluent_kafka_logs_in(broker: SecuredBroker, mechanism: str) -> None:
    producer = Producer(
        {
            "bootstrap.servers": broker.addresses["SASL_SSL"],
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": broker.ca,
            "sasl.mechanism": mechanism,
            "sasl.username": ALICE,
            "sasl.password": PASSWORD,
        }
    )
    delivered = []
    producer.produce("orders", b"x", callback=lambda error, _: delivered.append(error))
    assert producer.flush(60) == 0
    assert delivered == [None]


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python_logs_in(broker: SecuredBroker, mechanism: str) -> None:
    producer = KafkaProducer(
        bootstrap_servers=broker.addresses["SASL_PLAINTEXT"],
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism=mechanism,
        sasl_plain_username=ALICE,
        sasl_plain_password=PASSWORD,
    )
    assert producer.send("orders", b"x").get(60).offset >= 0
    producer.close()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_aiokafka_logs_in(broker: SecuredBroker, mechanism: str) -> None:
    async def produce() -> int:
        producer = AIOKafkaProducer(
            bootstrap_servers=broker.addresses["SASL_SSL"],
            security_protocol="SASL_SSL",
            ssl_context=create_ssl_context(cafile=broker.ca),
            sasl_mechanism=mechanism,
            sasl_plain_username=ALICE,
            sasl_plain_password=PASSWORD,
        )
        await producer.start()
        try:
            return int((await producer.send_and_wait("orders", b"x")).offset)
        finally:
            await producer.stop()

    assert asyncio.run(produce()) >= 0


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_wrong_password_and_an_unknown_user_get_the_same_answer(
    broker: SecuredBroker, mechanism: str
) -> None:
    answers = set()
    for username, password in ((ALICE, "wrong"), ("nobody", PASSWORD)):
        with pytest.raises(KafkaError) as refused:
            connect(broker, "SASL_PLAINTEXT", mechanism, username, password)
        assert refused.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED
        answers.add(refused.value.message.replace(username, "USER"))
    assert len(answers) == 1


def test_a_mechanism_that_is_not_enabled_is_answered_with_those_that_are(
    broker: SecuredBroker,
) -> None:
    with pytest.raises(ClientError, match="PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"):
        connect(broker, "SASL_PLAINTEXT", "OAUTHBEARER")


class Raw:
    """A connection that sends what it likes."""

    def __init__(self, broker: SecuredBroker, protocol: str) -> None:
        host, port = broker.addresses[protocol].split(":")
        self.sock = socket.create_connection((host, int(port)), 60)
        if protocol.endswith("SSL"):
            context = ssl.create_default_context(cafile=broker.ca)
            self.sock = context.wrap_socket(self.sock, server_hostname=host)

    def send(self, frame: bytes) -> None:
        self.sock.sendall(struct.pack(">i", len(frame)) + frame)

    def receive(self) -> bytes | None:
        """The next frame, or None at the end of the connection."""
        try:
            size = self.sock.recv(4, socket.MSG_WAITALL)
            if len(size) < 4:
                return None
            (length,) = struct.unpack(">i", size)
            return self.sock.recv(length, socket.MSG_WAITALL) if length else b""
        except ConnectionResetError:
            return None


def request(key: int, version: int, body: bytes = b"") -> bytes:
    return struct.pack(">hhih", key, version, 7, -1) + body


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def test_before_the_login_nothing_but_versions_and_a_handshake_is_answered(
    broker: SecuredBroker,
) -> None:
    for key in sorted({*range(-1, 101), 32767, -32768} - {API_VERSIONS, SASL_HANDSHAKE}):
        for version in (0, 1):
            raw = Raw(broker, "SASL_PLAINTEXT")
            raw.send(request(key, version, b"\0" * 40))
            assert raw.receive() is None, f"version {version} of API {key} was answered"
            raw.sock.close()
    raw = Raw(broker, "SASL_PLAINTEXT")
    raw.send(request(18, 0))
    assert raw.receive()
    raw.send(request(18, 0))
    assert raw.receive() is None, "versions are told once"


def test_another_request_within_a_login_is_refused_and_ends_it(broker: SecuredBroker) -> None:
    raw = Raw(broker, "SASL_PLAINTEXT")
    raw.send(request(17, 1, text("PLAIN")))
    assert raw.receive()
    raw.send(request(10, 0, text("group")))
    answer = raw.receive()
    assert answer is not None
    assert struct.unpack_from(">h", answer, 4) == (ErrorCode.ILLEGAL_SASL_STATE,)
    assert raw.receive() is None


@pytest.mark.parametrize("size", [0, 1, 7, 9, 13])
def test_a_frame_that_is_no_request_closes_the_connection(broker: SecuredBroker, size: int) -> None:
    raw = Raw(broker, "SASL_PLAINTEXT")
    raw.send(b"\0" * size)
    assert raw.receive() is None
    raw = Raw(broker, "SASL_PLAINTEXT")
    raw.send(request(17, 1, text("PLAIN")))
    raw.receive()
    raw.send(b"\0" * size)
    assert raw.receive() is None
    assert "unexpected error" not in broker.log()


@pytest.mark.parametrize(
    "size", [512 * 1024 + 1, 100_000_000, 2**31 - 1, -1], ids=["512K+1", "100M", "2G", "-1"]
)
def test_a_large_frame_before_the_login_closes_the_connection(
    broker: SecuredBroker, size: int
) -> None:
    raw = Raw(broker, "SASL_PLAINTEXT")
    raw.sock.sendall(struct.pack(">i", size) + request(17, 1))
    assert raw.receive() is None


def test_tokens_may_follow_a_handshake_of_version_0_as_plain_frames(
    broker: SecuredBroker,
) -> None:
    raw = Raw(broker, "SASL_PLAINTEXT")
    raw.send(request(17, 0, text("PLAIN")))
    assert raw.receive()
    raw.send(b"\0b\0b")
    assert raw.receive() is None, "a wrong password closes the connection"
    raw = Raw(broker, "SASL_PLAINTEXT")
    raw.send(request(17, 0, text("PLAIN")))
    raw.receive()
    raw.send(f"\0{ALICE}\0{PASSWORD}".encode())
    assert raw.receive() == b""
    raw.send(request(3, 1, struct.pack(">i", 0)))
    assert raw.receive()


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL"])
def test_a_login_where_none_is_wanted_is_answered_with_an_error(
    broker: SecuredBroker, protocol: str
) -> None:
    with connect(broker, protocol) as connection:
        hands = connection.ask(SaslHandshakeRequest(mechanism="PLAIN"), SaslHandshakeResponse)
        assert int(hands.error_code) == ErrorCode.ILLEGAL_SASL_STATE
        token = SaslAuthenticateRequest(auth_bytes=b"\0alice\0x")
        answer = connection.ask(token, SaslAuthenticateResponse)
        assert int(answer.error_code) == ErrorCode.ILLEGAL_SASL_STATE


def test_no_password_is_logged_and_failures_are(broker: SecuredBroker) -> None:
    with pytest.raises(KafkaError):
        connect(broker, "SASL_PLAINTEXT", "PLAIN", ALICE, "planted-wrong-password")
    log = broker.log()
    assert "its login failed: wrong password, or no such user" in log
    assert PASSWORD not in log
    assert "planted-wrong-password" not in log


def log_in_again(connection: Connection, username: str, password: str) -> int:
    """The error code of a second PLAIN login on the same connection."""
    hands = connection.ask(SaslHandshakeRequest(mechanism="PLAIN"), SaslHandshakeResponse)
    if hands.error_code:
        return int(hands.error_code)
    token = SaslAuthenticateRequest(auth_bytes=f"\0{username}\0{password}".encode())
    return int(connection.ask(token, SaslAuthenticateResponse).error_code)


@pytest.fixture(scope="module")
def short_sessions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    folder = tmp_path_factory.mktemp("sessions")
    settings = {"connections.max.reauth.ms": str(SHORT_S * 1000)}
    with SecuredBroker(folder, {ALICE: PASSWORD}, settings) as running:
        yield running


@pytest.fixture(scope="module")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    """Sessions end, but not while a test runs."""
    folder = tmp_path_factory.mktemp("sessions")
    settings = {"connections.max.reauth.ms": "600000"}
    with SecuredBroker(folder, {ALICE: PASSWORD, "bob": "b0b"}, settings) as running:
        yield running


def ask(connection: Connection) -> None:
    wanted = MetadataRequest(topics=(), include_topic_authorized_operations=False)
    connection.ask(wanted, MetadataResponse)


def test_a_session_that_has_ended_closes_the_connection(short_sessions: SecuredBroker) -> None:
    connection = connect(short_sessions, "SASL_PLAINTEXT", "PLAIN")
    began = time.monotonic()
    try:
        ask(connection)
    except Unreachable:
        # On a busy machine the session may have ended by now.
        assert time.monotonic() - began > SHORT_S / 2
    time.sleep(SHORT_S + 0.5)
    with pytest.raises(Unreachable):
        ask(connection)


def test_the_same_user_logs_in_again(sessions: SecuredBroker) -> None:
    connection = connect(sessions, "SASL_PLAINTEXT", "PLAIN")
    for _ in range(3):
        time.sleep(HASTY_S + 0.1)
        assert log_in_again(connection, ALICE, PASSWORD) == 0
        ask(connection)


def test_a_login_soon_after_another_is_refused(sessions: SecuredBroker) -> None:
    took_s = float(HASTY_S)
    while took_s >= HASTY_S:  # on a busy machine it was not soon
        began = time.monotonic()
        connection = connect(sessions, "SASL_PLAINTEXT", "PLAIN")
        code = log_in_again(connection, ALICE, PASSWORD)
        took_s = time.monotonic() - began
    assert code == ErrorCode.ILLEGAL_SASL_STATE


def test_another_user_does_not_log_in_again(sessions: SecuredBroker) -> None:
    connection = connect(sessions, "SASL_PLAINTEXT", "PLAIN")
    time.sleep(HASTY_S + 0.1)
    code = log_in_again(connection, "bob", "b0b")
    assert code == ErrorCode.SASL_AUTHENTICATION_FAILED
    with pytest.raises(Unreachable):
        ask(connection)


def test_a_user_that_was_deleted_does_not_log_in_again(sessions: SecuredBroker) -> None:
    bootstrap = parse_bootstrap(sessions.addresses["PLAINTEXT"])
    with Cluster(ClientConfig(bootstrap)) as admin:
        set_password(admin, "carol", "c")
        connection = connect(sessions, "SASL_PLAINTEXT", "PLAIN", "carol", "c")
        delete_user(admin, describe_users(admin, ["carol"])["carol"])
    ask(connection)
    time.sleep(HASTY_S + 0.1)
    assert log_in_again(connection, "carol", "c") == ErrorCode.SASL_AUTHENTICATION_FAILED
    with pytest.raises(Unreachable):
        ask(connection)


def test_confluent_kafka_goes_on_through_several_sessions(short_sessions: SecuredBroker) -> None:
    producer = Producer(
        {
            "bootstrap.servers": short_sessions.addresses["SASL_PLAINTEXT"],
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": ALICE,
            "sasl.password": PASSWORD,
        }
    )
    errors = []
    for _ in range(20):
        producer.produce("orders", b"x", callback=lambda error, _: errors.append(error))
        producer.poll(0.5)
    assert producer.flush(60) == 0
    assert errors == [None] * 20
