"""For the tests of clusters: a ZooKeeper that all of them share."""

from collections.abc import Iterator

import pytest

from tests.support.zookeeper import ZooKeeper, missing


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    reason = missing()
    if reason is not None:
        pytest.skip(reason)
    with ZooKeeper(tmp_path_factory.mktemp("zookeeper")) as running:
        yield running
