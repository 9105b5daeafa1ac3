"""Three brokers and three ZooKeeper servers in a network whose links can be cut."""

import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.support import zookeeper
from tests.support.cluster import RunningCluster
from tests.support.network import Network

BROKERS = ("b1", "b2", "b3")
ZOOKEEPER = "zk"

SESSION_S = 6
SETTINGS = {
    "zookeeper.session.timeout.ms": str(SESSION_S * 1000),
    "replica.lag.time.max.ms": "5000",
}
"""Long enough for a machine that has much to do: only what a test strikes shall be missed."""

MakeCluster = Callable[..., RunningCluster]


@pytest.fixture(scope="session")
def whole_network() -> Iterator[Network]:
    if reason := zookeeper.missing():
        pytest.skip(reason)
    with Network(*BROKERS, ZOOKEEPER) as network:
        yield network


@pytest.fixture(scope="session")
def ensemble(
    whole_network: Network, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[zookeeper.ZooKeeper]:
    place = whole_network.places[ZOOKEEPER]
    folder = tmp_path_factory.mktemp("zookeeper")
    with zookeeper.ZooKeeper(folder, 3, place.host, place.under) as running:
        yield running


@pytest.fixture
def network(whole_network: Network) -> Iterator[Network]:
    """The places `b1` to `b3` of brokers 1 to 3, and `zk`."""
    yield whole_network
    whole_network.heal()


@pytest.fixture
def make_cluster(
    network: Network, ensemble: zookeeper.ZooKeeper, tmp_path: Path
) -> Iterator[MakeCluster]:
    made: list[RunningCluster] = []

    def make(
        settings: Mapping[str, str] | None = None, homes: Mapping[int, Path] | None = None
    ) -> RunningCluster:
        cluster = RunningCluster(
            tmp_path / "metadata",
            settings={**SETTINGS, **(settings or {})},
            metadata=ensemble.address(f"/{uuid.uuid4().hex[:8]}"),
            places=[network.places[name] for name in BROKERS],
            homes=homes,
        )
        made.append(cluster)
        return cluster

    yield make
    network.heal()
    for cluster in made:
        for number, broker in cluster.brokers.items():
            if broker.log_file.exists():
                shutil.copy(broker.log_file, tmp_path / f"broker{number}.log")
        cluster.close()


@pytest.fixture
def cluster(make_cluster: MakeCluster) -> RunningCluster:
    return make_cluster()
