"""The pytest plugin that comes with Headrace: the real broker in a test.

    def test_orders_arrive(headrace):
        producer = Producer({"bootstrap.servers": headrace.bootstrap_servers})
        ...

`headrace` is one broker for the whole test session. `headrace_factory` starts brokers with settings
for one test, which may stop, kill or damage them. `headrace_factory(secure=True)` starts one with
TLS, logins and ACLs.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

import pytest

from headrace.testing.running import RunningBroker

BrokerFactory: TypeAlias = Callable[..., RunningBroker]


@pytest.fixture(scope="session")
def headrace() -> Iterator[RunningBroker]:
    """A broker that all tests of the session share."""
    broker = RunningBroker()
    yield broker
    broker.close()


@pytest.fixture
def headrace_factory() -> Iterator[BrokerFactory]:
    """Starts brokers with given settings; they are stopped at the end of the test."""
    brokers: list[RunningBroker] = []

    def start(
        settings: Mapping[str, str] | None = None,
        node_id: int = 1,
        folders: int = 1,
        *,
        secure: bool = False,
    ) -> RunningBroker:
        broker = RunningBroker(settings, node_id, folders, secure=secure)
        brokers.append(broker)
        return broker

    yield start
    for broker in brokers:
        broker.close()
