"""A broker with several listeners: each client is told the addresses of its own."""

import subprocess
import sys
from collections.abc import Iterator
from functools import partial

import pytest
from kio.schema.describe_cluster.v2.request import DescribeClusterRequest
from kio.schema.describe_cluster.v2.response import DescribeClusterResponse
from kio.schema.describe_quorum.v2.request import DescribeQuorumRequest
from kio.schema.describe_quorum.v2.response import DescribeQuorumResponse
from kio.schema.find_coordinator.v6.request import FindCoordinatorRequest
from kio.schema.find_coordinator.v6.response import FindCoordinatorResponse
from kio.schema.metadata.v13.request import MetadataRequest
from kio.schema.metadata.v13.response import MetadataResponse

from headrace.client.config import ClientConfig
from headrace.client.connection import Connection
from headrace.types import Address
from headrace.wire.primitives import i8
from tests.support.stores import eventually

SETTINGS = (
    "listeners=CLIENTS://127.0.0.1:0,BROKERS://localhost:0",
    "listener.security.protocol.map=CLIENTS:PLAINTEXT,BROKERS:PLAINTEXT",
    "inter.broker.listener.name=BROKERS",
)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Address, Address]]:
    """Where a broker listens for clients and for brokers."""
    folder = tmp_path_factory.mktemp("broker")
    words = ["serve", "--data-dir", str(folder)]
    for setting in SETTINGS:
        words += ["--set", setting]
    process = subprocess.Popen(
        [sys.executable, "-m", "headrace.cli", *words], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    first, second, *_ = process.stdout.readline().partition("ready on ")[2].split(", ")
    try:
        yield address(first), address(second.removeprefix("BROKERS://"))
    finally:
        process.terminate()
        process.wait(60)


def address(text: str) -> Address:
    host, _, port = text.rpartition(":")
    return Address(host, int(port))


def test_every_answer_names_the_addresses_of_the_listener_that_was_asked(
    broker: tuple[Address, Address],
) -> None:
    assert broker[0].host != broker[1].host
    for asked in broker:
        with Connection(asked, ClientConfig((asked,))) as connection:
            wanted = MetadataRequest(topics=(), include_topic_authorized_operations=False)
            metadata = connection.ask(wanted, MetadataResponse)
            assert [(one.host, one.port) for one in metadata.brokers] == [(asked.host, asked.port)]
            request = DescribeClusterRequest(
                include_cluster_authorized_operations=False, include_fenced_brokers=False
            )
            described = connection.ask(request, DescribeClusterResponse)
            assert [(one.host, one.port) for one in described.brokers] == [(asked.host, asked.port)]
            quorum = connection.ask(DescribeQuorumRequest(topics=()), DescribeQuorumResponse)
            [listener] = quorum.nodes[0].listeners
            assert (listener.host, int(listener.port)) == (asked.host, asked.port)
            eventually(partial(is_coordinator, connection, asked), "a coordinator is named")


def is_coordinator(connection: Connection, expected: Address) -> bool:
    request = FindCoordinatorRequest(key_type=i8(0), coordinator_keys=("g",))
    [found] = connection.ask(request, FindCoordinatorResponse).coordinators
    return Address(found.host, int(found.port)) == expected
