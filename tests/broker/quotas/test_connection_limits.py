"""Connections beyond a limit wait, are held, or are closed, as Kafka does it."""

from contextlib import ExitStack

import pytest

from headrace.apis.context import Caller
from headrace.broker.quotas.connection_limits import ConnectionLimits
from headrace.client.cluster import Cluster
from headrace.client.config import ClientConfig, parse_bootstrap
from headrace.client.quotas import alter_quotas
from headrace.security.state import QuotaEntity
from headrace.settings import Settings
from headrace.testing.plugin import BrokerFactory
from tests.support.raw import RawClient, frame

VERSIONS = frame(18, 0, b"")
PATIENCE_S = 60
TWO_LISTENERS = {
    "listeners": "INSIDE://localhost:9092,OUTSIDE://localhost:9093",
    "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
    "inter.broker.listener.name": "INSIDE",
}


class Counted:
    """Limits with a clock that moves only when told, and quotas of addresses."""

    def __init__(self, settings: dict[str, str]) -> None:
        self.set(settings)
        self.now = 0.0
        self.quotas: dict[QuotaEntity, dict[str, float]] = {}
        self.limits = ConnectionLimits(lambda: self.settings, lambda: self.quotas, lambda: self.now)

    def set(self, settings: dict[str, str]) -> None:
        self.settings = Settings.parse({**TWO_LISTENERS, **settings})

    def open(self, address: str = "10.0.0.7:1", listener: str = "OUTSIDE") -> Caller:
        caller = Caller(address, listener)
        self.limits.opened(caller)
        return caller


def test_the_listener_between_brokers_is_not_bound_by_the_limit_of_the_broker() -> None:
    counted = Counted({"max.connections": "2"})
    counted.open()
    last = counted.open()
    assert "max.connections=2" in counted.limits.is_full("OUTSIDE")
    assert not counted.limits.is_full("INSIDE")
    counted.limits.closed(last)
    assert not counted.limits.is_full("OUTSIDE")


def test_a_listener_can_have_a_limit_of_its_own() -> None:
    counted = Counted({"listener.name.inside.max.connections": "1"})
    counted.open(listener="INSIDE")
    assert "listener INSIDE" in counted.limits.is_full("INSIDE")
    assert not counted.limits.is_full("OUTSIDE")


def test_an_address_can_have_a_limit_of_its_own() -> None:
    counted = Counted(
        {"max.connections.per.ip": "1", "max.connections.per.ip.overrides": "10.0.0.8:2, ::1:0"}
    )
    for address in ("10.0.0.7:1", "10.0.0.8:1"):
        assert not counted.limits.is_too_many("OUTSIDE", address.partition(":")[0])
        counted.open(address)
    assert "per.ip=1" in counted.limits.is_too_many("OUTSIDE", "10.0.0.7")
    assert not counted.limits.is_too_many("OUTSIDE", "10.0.0.8")
    counted.open("10.0.0.8:2")
    assert "per.ip=2" in counted.limits.is_too_many("OUTSIDE", "10.0.0.8")
    assert "per.ip=0" in counted.limits.is_too_many("OUTSIDE", "::1")
    counted.set({"max.connections.per.ip": "2"})
    assert not counted.limits.is_too_many("OUTSIDE", "10.0.0.7"), "it counts at once"


def test_connections_that_come_too_fast_make_their_listener_wait() -> None:
    counted = Counted({"max.connection.creation.rate": "2"})
    waits = [counted.limits.throttle_s("OUTSIDE") for _ in range(21)]
    assert waits[:20] == [0.0] * 20, "as many as ten windows allow"
    assert waits[20] == pytest.approx(0.5)
    assert [counted.limits.throttle_s("OUTSIDE") for _ in range(30)][-1] == 1, "a window at most"
    assert counted.limits.throttle_s("INSIDE") == 0
    counted.set({"max.connection.creation.rate": "1000"})
    assert counted.limits.throttle_s("OUTSIDE") == 0


def test_an_address_that_connects_too_fast_is_throttled_alone() -> None:
    counted = Counted({"max.connection.creation.rate": "2"})
    counted.quotas = {
        (("ip", "10.0.0.7"),): {"connection_creation_rate": 1.0},
        (("ip", None),): {"connection_creation_rate": 1000.0},
    }
    for _ in range(10):
        assert counted.limits.throttle_address_s("OUTSIDE", "10.0.0.7") == 0
    for _ in range(100):
        assert counted.limits.throttle_s("OUTSIDE") == 0, "what is closed does not count"
        assert counted.limits.throttle_address_s("OUTSIDE", "::ffff:10.0.0.7") == 1
    assert counted.limits.throttle_address_s("OUTSIDE", "10.0.0.8") == 0


def is_closed(client: RawClient) -> bool:
    client.socket.settimeout(PATIENCE_S)
    try:
        client.send(VERSIONS)
        return client.socket.recv(1) == b""
    except (ConnectionResetError, BrokenPipeError):
        return True


def test_too_many_connections_of_an_address_are_closed_at_once(
    headrace_factory: BrokerFactory,
) -> None:
    broker = headrace_factory({"max.connections.per.ip": "3"})
    with ExitStack() as opened:
        clients: list[RawClient] = []
        while len(clients) < 10:
            client = opened.enter_context(RawClient(broker.bootstrap_servers))
            if is_closed(client):
                break
            clients.append(client)
        # The broker itself looks once whether its advertised address can be reached.
        assert len(clients) in (2, 3)
        for client in clients:
            client.send(VERSIONS)
            assert client.socket.recv(1) != b"", "it is still served"


def test_connections_of_an_address_over_its_quota_are_closed(
    headrace_factory: BrokerFactory,
) -> None:
    broker = headrace_factory({"quota.window.num": "60"})
    config = ClientConfig(parse_bootstrap(broker.bootstrap_servers))
    with Cluster(config) as cluster:
        quota = {"connection_creation_rate": 1.0}
        alter_quotas(cluster, {"ip": "127.0.0.1"}, quota)
        closed = 0
        for _ in range(65):
            with RawClient(broker.bootstrap_servers) as client:
                closed += is_closed(client)
        assert closed, "59 windows allow 59 connections"
        alter_quotas(cluster, {"ip": "127.0.0.1"}, {}, quota)
        with RawClient(broker.bootstrap_servers) as client:
            client.ask(VERSIONS)
