"""Floods of clients that are not known: memory stays bounded, and known clients are served.

What a bystander feels of a flood is measured by `benchmarks.security`.
"""

import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from headrace.client.cluster import Cluster
from headrace.client.config import client_config
from tests.security.hostile import ATTACKS, large_login
from tests.security.secured import SecuredBroker
from tests.support.raw import RawClient, batch_of, create, produce, produce_error
from tests.support.stores import eventually

SETUP_S = 3
MIB = 1024 * 1024
TLS = ("half-open", "partial", "drip", "garbage", "noise", "http", "plain-kafka", "large-hello",
       "huge-hello", "silent")  # fmt: skip
PLAIN = ("huge-frame", "negative-frame", "silent", "large-login", "failed-login", "half-open")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[SecuredBroker]:
    settings = {"socket.connection.setup.timeout.ms": str(SETUP_S * 1000)}
    with SecuredBroker(tmp_path, {"alice": "alice-password"}, settings) as running:
        yield running


def peak_bytes(broker: SecuredBroker) -> int:
    """The most memory that the broker has used so far."""
    status = Path(f"/proc/{broker.pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def open_sockets(broker: SecuredBroker) -> int:
    found = 0
    for link in Path(f"/proc/{broker.pid}/fd").iterdir():
        try:
            found += os.readlink(link).startswith("socket:")
        except FileNotFoundError:
            continue
    return found


def log_in(broker: SecuredBroker, protocol: str) -> None:
    config = {
        "bootstrap.servers": broker.addresses[protocol],
        "security.protocol": protocol,
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "alice",
        "sasl.password": "alice-password",
        "ssl.ca.location": broker.ca,
    }
    with Cluster(client_config(config)) as cluster:
        assert list(cluster.brokers()) == [1]


def attack_at_once(broker: SecuredBroker, listener: str, kinds: tuple[str, ...]) -> None:
    """Run all attacks at the same time, and let a known client work and log in meanwhile."""
    with RawClient(broker.addresses["PLAINTEXT"]) as bystander, ExitStack() as undo:
        create(bystander, "orders")
        log_in(broker, listener)
        before, sockets = peak_bytes(broker), open_sockets(broker)
        command = [sys.executable, "-m", "tests.security.hostile", broker.addresses[listener]]
        attackers = [
            undo.enter_context(
                subprocess.Popen([*command, kind, "300", "5"], stdout=subprocess.PIPE, text=True)
            )
            for kind in kinds
        ]
        number = 0
        while any(one.poll() is None for one in attackers):
            answer = bystander.ask(produce("orders", batch_of(b"x" * 100)))
            assert produce_error(answer, "orders") == (0, number)
            number += 1
        assert number > 0
        for attacker in attackers:
            assert attacker.stdout is not None
            done = json.loads(attacker.stdout.read())
            assert done["opened"] > 100
        assert peak_bytes(broker) - before < 128 * MIB
        eventually(lambda: open_sockets(broker) <= sockets, "all of them are closed")
        log_in(broker, listener)


@pytest.mark.slow
def test_a_listener_with_tls_stands_floods_of_handshakes(broker: SecuredBroker) -> None:
    attack_at_once(broker, "SASL_SSL", TLS)


@pytest.mark.slow
def test_a_listener_with_logins_stands_floods_of_clients_that_do_not_log_in(
    broker: SecuredBroker,
) -> None:
    attack_at_once(broker, "SASL_PLAINTEXT", PLAIN)


def test_every_attack_is_part_of_a_test() -> None:
    assert set(ATTACKS) == {*TLS, *PLAIN}


def test_large_logins_leave_the_memory_of_requests_alone(broker: SecuredBroker) -> None:
    before = peak_bytes(broker)
    with ExitStack() as undo:
        for _ in range(200):
            sock = undo.enter_context(
                socket.create_connection(("127.0.0.1", broker.port("SASL_PLAINTEXT")), 60)
            )
            sock.setblocking(False)
            sock.send(large_login())
        log_in(broker, "SASL_PLAINTEXT")
        assert peak_bytes(broker) - before < 64 * MIB


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the command openssl")
@pytest.mark.parametrize("group", ["ffdhe2048", "ffdhe8192"])
def test_an_expensive_handshake_is_refused_and_logged(broker: SecuredBroker, group: str) -> None:
    command = ["openssl", "s_client", "-connect", broker.addresses["SSL"], "-tls1_3"]
    ran = subprocess.run(
        [*command, "-groups", group], input="", capture_output=True, text=True, timeout=60,
        check=False,
    )  # fmt: skip
    assert ran.returncode != 0
    eventually(lambda: "offers no elliptic curve" in broker.log(), "the cause is logged")


def test_a_hello_that_arrives_in_pieces_is_a_handshake(broker: SecuredBroker) -> None:
    context = ssl.create_default_context(cafile=broker.ca)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    with socket.create_connection(("127.0.0.1", broker.port("SSL")), 60) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                data = outgoing.read()
                for at in range(0, len(data), 7):
                    sock.sendall(data[at : at + 7])
                incoming.write(sock.recv(65536))
        assert tls.version() == "TLSv1.3"
