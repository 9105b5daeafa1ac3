"""TLS to ZooKeeper: a real server with a secure client port, and brokers over it."""

import socket
import ssl
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.broker.metadata_stores import open_store
from headrace.cluster.store import Create, StoreError, StoreNode
from headrace.cluster.zookeeper_connection import ConnectionHandler
from headrace.cluster.zookeeper_store import ZookeeperStore
from headrace.errors import SettingError
from headrace.settings import Settings
from tests.security.authority import Authority, write
from tests.security.tls_broker import Served
from tests.support import zookeeper as support
from tests.support.cluster import QUICK
from tests.support.ports import free_port
from tests.support.zookeeper import ZooKeeper

pytestmark = [pytest.mark.java, pytest.mark.slow]
PASSWORD = "zk-planted-secret"
LOGIN = "headrace:digest-planted-secret"
PATIENCE_S = 60


class SecureZooKeeper:
    """A ZooKeeper that asks clients for certificates, and files of all kinds."""

    def __init__(self, folder: Path) -> None:
        if reason := support.missing():
            pytest.skip(reason)
        self.folder = folder
        self.authority = Authority()
        server = self.authority.issue("CN=zookeeper", hosts=("127.0.0.1",))
        client = self.authority.issue("CN=broker")
        self.ca = write(folder / "ca.pem", self.authority.pem)
        self.client_pem = write(folder / "client.pem", client.key_pem(), client.certificate_pem)
        self.client_p12 = folder / "client.p12"
        self.client_p12.write_bytes(client.pkcs12(PASSWORD))
        own = write(folder / "server.pem", server.key_pem(), server.certificate_pem)
        self.port = free_port()
        lines = (
            "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory",
            f"secureClientPort={self.port}",
            "secureClientPortAddress=127.0.0.1",
            f"ssl.keyStore.location={own}",
            "ssl.keyStore.type=PEM",
            f"ssl.trustStore.location={self.ca}",
            "ssl.trustStore.type=PEM",
        )
        self.server = ZooKeeper(folder / "zookeeper", lines=lines)

    def settings(self, chroot: str = "/headrace", **changes: str) -> dict[str, str]:
        """Settings of a broker; changes have underscores for dots, and an empty one removes."""
        given = {
            "headrace.metadata": f"zookeeper://127.0.0.1:{self.port}{chroot}",
            "zookeeper.ssl.client.enable": "true",
            "zookeeper.clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNetty",
            "zookeeper.ssl.truststore.location": self.ca,
            "zookeeper.ssl.keystore.location": self.client_pem,
            **{f"zookeeper.{name.replace('_', '.')}": text for name, text in changes.items()},
        }
        return {name: text for name, text in given.items() if text}


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureZooKeeper]:
    made = SecureZooKeeper(tmp_path_factory.mktemp("secure"))
    with made.server:
        yield made


@pytest.fixture
def chroot() -> str:
    return f"/{uuid.uuid4().hex}"


def opened(settings: Mapping[str, str]) -> ZookeeperStore:
    store = open_store(Settings.parse(settings), "").store
    assert isinstance(store, ZookeeperStore)
    return store


def test_a_store_works_over_tls_with_pem_and_with_pkcs12(
    secure: SecureZooKeeper, chroot: str
) -> None:
    store = opened(secure.settings(chroot))
    store.commit([Create("/a", b"1")])
    other = opened(
        secure.settings(
            chroot,
            ssl_keystore_location=str(secure.client_p12),
            ssl_keystore_password=PASSWORD,
        )
    )
    assert other.get("/a") == StoreNode(b"1", 0)
    other.close()
    store.close()


def test_bytes_that_are_already_decrypted_are_ready_to_be_read(tmp_path: Path) -> None:
    """Two responses in one TLS record: the network has nothing more when the first was read."""
    authority = Authority()
    issued = authority.issue("CN=zookeeper")
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(write(tmp_path / "s.pem", issued.key_pem(), issued.certificate_pem))
    handler = ConnectionHandler(10, lambda: ssl.create_default_context(cadata=authority.pem))
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            sock, _ = listener.accept()
            with serving.wrap_socket(sock, server_side=True) as served:
                served.sendall(b"firstsecond")
                served.recv(1)

        thread = threading.Thread(target=serve)
        thread.start()
        with handler.create_connection(listener.getsockname(), "localhost", 10) as client:
            assert client.recv(5) == b"first"
            assert handler.select([client], [], [], 1) == ([client], [], [])
            assert client.recv(6) == b"second"
            assert handler.select([client], [], [], 0.01) == ([], [], [])
        thread.join()


def test_many_nodes_are_written_and_read_at_once(secure: SecureZooKeeper, chroot: str) -> None:
    store = opened(secure.settings(chroot))
    for number in range(3):
        store.commit([Create(f"/many/{number}-{one}", b"x" * 100) for one in range(400)])
    again = opened(secure.settings(chroot))
    assert len(again.children("/many")) == 1200
    again.close()
    store.close()


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("wrong authority", "its certificate is refused: unable to get local issuer certificate"),
        ("no authority", "its certificate is refused"),
        ("another host", "its certificate is refused: Hostname mismatch"),
        ("foreign certificate", "alert"),
        ("no certificate", "alert"),
    ],
)
def test_a_refused_certificate_refuses_the_start_and_says_why(
    secure: SecureZooKeeper, chroot: str, tmp_path: Path, what: str, said: str
) -> None:
    foreign = Authority("Other")
    issued = foreign.issue("CN=broker")
    settings = secure.settings(chroot)
    if what == "wrong authority":
        settings["zookeeper.ssl.truststore.location"] = write(tmp_path / "ca.pem", foreign.pem)
    elif what == "no authority":
        del settings["zookeeper.ssl.truststore.location"]
    elif what == "another host":
        settings["headrace.metadata"] = f"zookeeper://localhost:{secure.port}{chroot}"
    elif what == "foreign certificate":
        settings["zookeeper.ssl.keystore.location"] = write(
            tmp_path / "client.pem", issued.key_pem(), issued.certificate_pem
        )
    else:
        del settings["zookeeper.ssl.keystore.location"]
    with pytest.raises(StoreError, match=f"no TLS connection to ZooKeeper .*{said}"):
        opened(settings)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"ssl_client_enable": ""}, "zookeeper.ssl.keystore.location has no effect without TLS"),
        ({"clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNIO"}, "ClientCnxnSocketNetty"),
        ({"ssl_keystore_location": "/nowhere.pem"}, "zookeeper.ssl.keystore.location=/nowhere.pem"),
        ({"ssl_keystore_type": "JKS"}, "zookeeper.ssl.keystore.type=PKCS12"),
        ({"ssl_truststore_location": "/nowhere"}, "zookeeper.ssl.truststore.location=/nowhere"),
        ({"ssl_cipher_suites": "TLS_NULL"}, "zookeeper.ssl.cipher.suites"),
        ({"ssl_crl_enable": "true"}, "zookeeper.ssl.crl.enable=true: this version does not"),
        ({"ssl_ocsp_enable": "true"}, "zookeeper.ssl.ocsp.enable=true: this version does not"),
    ],
)
def test_a_setting_that_cannot_be_honoured_refuses_the_start(
    secure: SecureZooKeeper, chroot: str, changes: dict[str, str], named: str
) -> None:
    with pytest.raises(SettingError, match=named):
        opened(secure.settings(chroot, **changes))


def test_tls_without_a_zookeeper_refuses_the_start(secure: SecureZooKeeper, tmp_path: Path) -> None:
    settings = {**secure.settings(), "headrace.metadata": f"sqlite:{tmp_path}"}
    with pytest.raises(SettingError, match="the metadata are not in a ZooKeeper"):
        opened(settings)


def test_brokers_form_a_cluster_over_tls_and_one_with_a_wrong_authority_does_not_start(
    secure: SecureZooKeeper, chroot: str, tmp_path: Path
) -> None:
    common = {
        **QUICK,
        **secure.settings(chroot),
        "zookeeper.ssl.keystore.location": str(secure.client_p12),
        "zookeeper.ssl.keystore.password": PASSWORD,
        "headrace.metadata.login": LOGIN,
        "listeners": "PLAINTEXT://127.0.0.1:0",
    }
    running = [Served(tmp_path / str(number), common, number) for number in (1, 2)]
    try:
        servers = ",".join(one.addresses[0] for one in running)
        admin = AdminClient({"bootstrap.servers": servers})
        deadline = time.monotonic() + PATIENCE_S
        while len(admin.list_topics(timeout=PATIENCE_S).brokers) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        admin.create_topics([NewTopic("orders", 2, 2)])["orders"].result(PATIENCE_S)
        producer = Producer({"bootstrap.servers": servers, "acks": "all"})
        failed: list[object] = []
        for number in range(100):
            producer.produce(
                "orders", b"%d" % number, on_delivery=lambda e, _: failed.append(e) if e else None
            )
        assert producer.flush(PATIENCE_S) == 0
        assert failed == []
        stranger = write(tmp_path / "other.pem", Authority("Other").pem)
        config = tmp_path / "third.properties"
        given = {**common, "zookeeper.ssl.truststore.location": stranger, "node.id": "3"}
        config.write_text("".join(f"{name}={text}\n" for name, text in given.items()))
        refused = subprocess.run(
            [
                *(sys.executable, "-m", "headrace.cli", "serve", "--config", str(config)),
                *("--data-dir", str(tmp_path / "3")),
            ],
            capture_output=True, text=True, timeout=PATIENCE_S, check=False,
        )  # fmt: skip
        assert refused.returncode != 0
        assert "its certificate is refused" in refused.stderr
        assert "zookeeper.ssl.truststore.location" in refused.stderr
        assert "Traceback" not in refused.stderr
    finally:
        for one in running:
            one.stop()
    written = [refused.stderr, refused.stdout]
    written += [path.read_text(errors="replace") for path in tmp_path.rglob("*log*.txt")]
    for text in written:
        assert PASSWORD not in text
        assert "digest-planted-secret" not in text


def test_a_renewed_client_certificate_is_used_for_the_next_connection(
    secure: SecureZooKeeper, chroot: str, tmp_path: Path
) -> None:
    client = secure.authority.issue("CN=broker")
    file = write(tmp_path / "client.pem", client.key_pem(), client.certificate_pem)
    store = opened(secure.settings(chroot, ssl_keystore_location=file))
    foreign = Authority("Other").issue("CN=broker")
    write(tmp_path / "client.pem", foreign.key_pem(), foreign.certificate_pem)
    server = secure.server.servers[0]
    server.kill()
    server.start()
    server.wait_until_it_serves()
    refusals: dict[str, str] = store._client.handler.refusals
    deadline = time.monotonic() + PATIENCE_S
    while not refusals:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    write(tmp_path / "client.pem", client.key_pem(), client.certificate_pem)
    while refusals:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    while True:
        try:
            store.commit([Create("/after", b"1")])
            break
        except StoreError:
            assert time.monotonic() < deadline
            time.sleep(0.1)
    store.close()
