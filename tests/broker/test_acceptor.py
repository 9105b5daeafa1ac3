"""Connections that a listener accepts, their principals, and connections that it refuses."""

import asyncio
import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headrace.apis.context import Caller
from headrace.broker.acceptor import Acceptor, Reception
from headrace.broker.poller import Poller
from headrace.broker.quotas.connection_limits import ConnectionLimits
from headrace.broker.setup import handshakes
from headrace.broker.transport import Transport
from headrace.security.audit import Audit
from headrace.settings import Settings
from tests.security.authority import Authority, Issued, write
from tests.support.stores import eventually

PATIENCE_S = 60


class Accepting:
    """An acceptor in a loop of its own; what it has accepted."""

    def __init__(self, settings: dict[str, str]) -> None:
        parsed = Settings.parse(settings)
        self.acceptor = Acceptor(parsed.listeners.all[0], parsed)
        self.callers: list[Caller] = []
        self._transports: list[Transport] = []
        poller = Poller(lambda: False)
        self._loop = asyncio.SelectorEventLoop(poller)
        limits = ConnectionLimits(lambda: parsed, dict, time.monotonic)
        reception = Reception(poller, self._transports, limits, self._serve, Audit())
        self._loop.call_soon(self.acceptor.start, reception)
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()

    def _serve(self, transport: Transport, caller: Caller) -> None:
        self._transports.append(transport)
        self.callers.append(caller)

    def call(self, function: Callable[[], object]) -> None:
        """Run something in the loop's thread."""
        done = threading.Event()

        def run() -> None:
            function()
            done.set()

        self._loop.call_soon_threadsafe(run)
        assert done.wait(PATIENCE_S)

    def close(self) -> None:
        self.call(self.acceptor.stop)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self.acceptor.close()
        for transport in self._transports:
            transport.close()

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.acceptor.listener.bind.port), PATIENCE_S)

    def principal(self, context: ssl.SSLContext) -> str:
        """Of a client that connects with this context."""
        before = len(self.callers)
        with context.wrap_socket(self.connect(), server_hostname="localhost"):
            eventually(lambda: len(self.callers) > before, "the connection is accepted")
        return self.callers[-1].principal


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture
def folder(tmp_path: Path, authority: Authority) -> Path:
    write(tmp_path / "ca.pem", authority.pem)
    own = authority.issue("CN=broker")
    write(tmp_path / "broker.pem", own.key_pem(), own.certificate_pem)
    return tmp_path


def settings(folder: Path, **more: str) -> dict[str, str]:
    return {
        "listeners": "SSL://localhost:0",
        "ssl.keystore.location": str(folder / "broker.pem"),
        "ssl.truststore.location": str(folder / "ca.pem"),
        **{name.replace("_", "."): text for name, text in more.items()},
    }


@pytest.fixture
def start() -> Iterator[Callable[[dict[str, str]], Accepting]]:
    started: list[Accepting] = []

    def begin(given: dict[str, str]) -> Accepting:
        started.append(Accepting(given))
        return started[-1]

    yield begin
    for one in started:
        one.close()


Start = Callable[[dict[str, str]], Accepting]


def client(folder: Path, own: Issued | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(folder / "ca.pem"))
    if own is not None:
        file = write(folder / "client.pem", own.key_pem(), own.certificate_pem)
        context.load_cert_chain(file)
    return context


def test_a_plain_listener_identifies_clients_by_address_and_listener(start: Start) -> None:
    listening = start({"listeners": "PLAINTEXT://127.0.0.1:0"})
    with listening.connect() as sock:
        eventually(lambda: bool(listening.callers), "the connection is accepted")
        [caller] = listening.callers
        host, port = sock.getsockname()
        assert caller.address == f"{host}:{port}"
    assert (caller.listener, caller.principal) == ("PLAINTEXT", "User:ANONYMOUS")


def test_the_principal_is_the_subject_with_its_last_part_first(
    start: Start, folder: Path, authority: Authority
) -> None:
    listening = start(settings(folder, ssl_client_auth="required"))
    alice = authority.issue("O=Example", "OU=Data", "CN=alice")
    assert listening.principal(client(folder, alice)) == "User:CN=alice,OU=Data,O=Example"


def test_rules_map_the_subject_to_a_principal(
    start: Start, folder: Path, authority: Authority
) -> None:
    rules = "RULE:^CN=(.*?),OU=ops.*$/$1@ops/U,RULE:^CN=([^,]*).*$/$1/L"
    given = settings(folder, ssl_client_auth="required", ssl_principal_mapping_rules=rules)
    listening = start(given)
    found = [
        listening.principal(client(folder, authority.issue(*subject)))
        for subject in (("OU=ops", "CN=Bob"), ("O=x", "CN=Carol"))
    ]
    assert found == ["User:BOB@OPS", "User:carol"]


def test_a_client_without_a_certificate_is_anonymous_where_one_is_only_requested(
    start: Start, folder: Path, authority: Authority
) -> None:
    listening = start(settings(folder, ssl_client_auth="requested"))
    assert listening.principal(client(folder)) == "User:ANONYMOUS"
    assert listening.principal(client(folder, authority.issue("CN=a"))) == "User:CN=a"


def refuses(listening: Accepting, context: ssl.SSLContext) -> bool:
    """Whether the client is closed; with TLS 1.3 it learns that only after its handshake."""
    try:
        with context.wrap_socket(listening.connect(), server_hostname="localhost") as tls:
            return not tls.recv(1)
    except OSError:
        return True


def test_where_clients_log_in_certificates_are_asked_for_by_the_listeners_own_setting(
    start: Start, folder: Path, authority: Authority
) -> None:
    given = {
        **settings(folder, ssl_client_auth="required"),
        "listeners": "SASL_SSL://localhost:0,SSL://localhost:0",
        "inter.broker.listener.name": "SSL",
        "sasl.enabled.mechanisms": "PLAIN",
    }
    listening = start(given)
    assert listening.principal(client(folder)) == "User:ANONYMOUS"
    own = "listener.name.sasl_ssl.ssl.client.auth"
    strict = start({**given, own: "required"})
    assert refuses(strict, client(folder))
    # The login will say who it is.
    assert strict.principal(client(folder, authority.issue("CN=a"))) == "User:ANONYMOUS"


@pytest.mark.parametrize("kind", ["missing", "foreign", "expired", "unmapped"])
def test_a_client_that_does_not_prove_who_it_is_is_refused(
    start: Start, folder: Path, authority: Authority, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    rules = "RULE:^CN=alice$/alice/"
    given = settings(folder, ssl_client_auth="required", ssl_principal_mapping_rules=rules)
    listening = start(given)
    own = {
        "missing": None,
        "foreign": Authority().issue("CN=alice"),
        "expired": authority.issue("CN=alice", days=-1),
        "unmapped": authority.issue("CN=mallory"),
    }[kind]
    assert refuses(listening, client(folder, own))
    assert listening.callers == []
    said = {"missing": "peer did not return", "unmapped": "CN=mallory, which no rule"}
    said |= {"foreign": "its certificate is refused", "expired": "certificate has expired"}
    eventually(lambda: said[kind] in caplog.text, "it is logged")


@pytest.mark.parametrize(
    "first", [b"\0\0\0\x20\0\x12\0\x03", b"GET / HTTP/1.1\r\n\r\n", b"\x80\x2e\x01"]
)
def test_a_client_without_tls_gets_no_alert_and_a_log_line(
    start: Start, folder: Path, caplog: pytest.LogCaptureFixture, first: bytes
) -> None:
    listening = start(settings(folder))
    with listening.connect() as sock:
        sock.sendall(first)
        # A reset is the end of a connection that had bytes to be read.
        with contextlib.suppress(ConnectionResetError):
            assert sock.recv(100) == b""
    assert "uses no TLS, but the listener SSL requires SSL" in caplog.text
    assert listening.callers == []


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_old_versions_of_tls_are_refused(
    start: Start, folder: Path, version: ssl.TLSVersion
) -> None:
    listening = start(settings(folder))
    context = client(folder)
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = context.maximum_version = version
    with pytest.raises(ssl.SSLError):
        context.wrap_socket(listening.connect(), server_hostname="localhost")


def test_suites_without_aead_are_refused(start: Start, folder: Path) -> None:
    listening = start(settings(folder))
    context = client(folder)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("ECDHE-ECDSA-AES128-SHA256:ECDHE-ECDSA-AES256-SHA")
    with pytest.raises(ssl.SSLError):
        context.wrap_socket(listening.connect(), server_hostname="localhost")
    context.set_ciphers("ECDHE-ECDSA-AES128-GCM-SHA256")
    with context.wrap_socket(listening.connect(), server_hostname="localhost") as tls:
        assert tls.version() == "TLSv1.2"


def test_the_versions_that_the_settings_name_are_spoken(start: Start, folder: Path) -> None:
    listening = start(settings(folder, ssl_enabled_protocols="TLSv1.2"))
    with client(folder).wrap_socket(listening.connect(), server_hostname="localhost") as tls:
        assert tls.version() == "TLSv1.2"


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x16" * 2000,
        b"\x16\x03\x01\xff\xff" + b"\x01" * 3000,
        b"\x16\x03\x01\0\x05\x01\0\0\x01\0",
        b"\x16\x03\x03\0\x04" + b"\0" * 4,
        b"\x16\x03\x01\0\0" * 500,
    ],
)
def test_bytes_that_only_begin_like_tls_close_the_connection(
    start: Start, folder: Path, garbage: bytes
) -> None:
    listening = start({**settings(folder), "socket.connection.setup.timeout.ms": "3000"})
    with listening.connect() as sock, contextlib.suppress(ConnectionError):
        sock.sendall(garbage)
        while sock.recv(1000):
            pass
    assert listening.callers == []
    assert listening.principal(client(folder)) == "User:ANONYMOUS"


def test_half_a_handshake_times_out_without_blocking_others(
    start: Start, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    given = settings(folder)
    listening = start({**given, "socket.connection.setup.timeout.ms": "2000"})
    slow = [listening.connect() for _ in range(50)]
    for sock in slow:
        sock.sendall(b"\x16\x03\x01\x02\0\x01")
    assert listening.principal(client(folder)) == "User:ANONYMOUS"
    for sock in slow:
        with contextlib.suppress(ConnectionResetError):
            assert sock.recv(100) == b""
        sock.close()
    assert "did not finish its TLS handshake within 2 s" in caplog.text


def test_unfinished_handshakes_are_bounded(
    start: Start, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handshakes, "MOST_PER_ADDRESS", 3)
    listening = start(settings(folder))
    sockets = [listening.connect() for _ in range(5)]
    assert [sock.recv(1) for sock in sockets[3:]] == [b"", b""]
    for sock in sockets[:3]:
        sock.settimeout(0.1)
        with pytest.raises(TimeoutError):
            sock.recv(1)
    for sock in sockets:
        sock.close()
    eventually(lambda: accepted(listening, folder), "there is room again")
    monkeypatch.setattr(handshakes, "MOST", 2)
    listening = start(settings(folder))
    sockets = [listening.connect() for _ in range(3)]
    assert sockets[0].recv(1) == b""
    for sock in sockets:
        sock.close()


def accepted(listening: Accepting, folder: Path) -> bool:
    try:
        with client(folder).wrap_socket(listening.connect(), server_hostname="localhost"):
            return True
    except OSError:
        return False


def serial(listening: Accepting, folder: Path) -> str:
    """The serial number of the certificate that the listener shows."""
    with client(folder).wrap_socket(listening.connect(), server_hostname="localhost") as tls:
        shown = tls.getpeercert()
        assert shown is not None
        return str(shown["serialNumber"])


def renew(listening: Accepting, *, always: bool = False) -> None:
    tls = listening.acceptor.tls
    assert tls is not None
    listening.call(lambda: tls.renew(always=always))


def test_a_renewed_certificate_is_used_by_new_connections_and_open_ones_stay(
    start: Start, folder: Path, authority: Authority
) -> None:
    listening = start(settings(folder))
    before = serial(listening, folder)
    with client(folder).wrap_socket(listening.connect(), server_hostname="localhost") as open_one:
        new = authority.issue("CN=broker", hosts=("localhost", "127.0.0.1", "more.lan"))
        write(folder / "broker.pem", new.key_pem(), new.certificate_pem)
        renew(listening)
        after = serial(listening, folder)
        assert int(after, 16) == new.certificate.serial_number
        assert after != before
        open_one.sendall(b"still there")


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ("another key", "the private key does not belong to the certificate"),
        ("another name", "ssl.allow.dn.changes"),
        ("fewer hosts", "lacks the host 127.0.0.1"),
        ("expired", "is valid from"),
        ("no file", "cannot be read"),
        ("garbage", "no PEM block"),
    ],
)
def test_a_renewal_that_is_not_right_is_refused_and_the_old_certificate_stays(
    start: Start, folder: Path, authority: Authority, caplog: pytest.LogCaptureFixture,
    case: str, said: str,
) -> None:  # fmt: skip
    listening = start(settings(folder))
    before = serial(listening, folder)
    new = {
        "another name": authority.issue("CN=other"),
        "fewer hosts": authority.issue("CN=broker", hosts=["localhost"]),
        "expired": authority.issue("CN=broker", days=-1),
    }.get(case, authority.issue("CN=broker"))
    key = authority.issue("CN=broker") if case == "another key" else new
    write(folder / "broker.pem", key.key_pem(), new.certificate_pem)
    if case == "no file":
        (folder / "broker.pem").unlink()
    elif case == "garbage":
        write(folder / "broker.pem", "nothing")
    renew(listening)
    assert said in caplog.text
    assert serial(listening, folder) == before
    good = authority.issue("CN=broker")
    write(folder / "broker.pem", good.key_pem(), good.certificate_pem)
    renew(listening)
    assert int(serial(listening, folder), 16) == good.certificate.serial_number


def test_other_names_are_taken_where_the_settings_allow_them(
    start: Start, folder: Path, authority: Authority
) -> None:
    given = settings(folder, ssl_allow_dn_changes="true", ssl_allow_san_changes="true")
    listening = start(given)
    new = authority.issue("CN=other", hosts=["localhost"])
    write(folder / "broker.pem", new.key_pem(), new.certificate_pem)
    renew(listening)
    assert int(serial(listening, folder), 16) == new.certificate.serial_number


def test_nothing_is_read_again_while_the_files_are_the_same(
    start: Start, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    listening = start(settings(folder))
    renew(listening)
    assert "uses a certificate" not in caplog.text
    renew(listening, always=True)
    assert "listener SSL uses a certificate of CN=broker" in caplog.text


def test_the_end_of_a_certificate_is_announced(
    start: Start, folder: Path, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    soon = authority.issue("CN=broker", days=10)
    write(folder / "broker.pem", soon.key_pem(), soon.certificate_pem)
    listening = start(settings(folder))
    renew(listening)
    warning = "the certificate of listener SSL expires in 10 days"
    assert caplog.text.count(warning) == 1
    tls = listening.acceptor.tls
    assert tls is not None
    assert tls.expiry_warning().startswith(warning)
    later = authority.issue("CN=broker", days=100)
    write(folder / "broker.pem", later.key_pem(), later.certificate_pem)
    renew(listening)
    assert tls.expiry_warning() == ""
