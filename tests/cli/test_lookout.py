"""Watching goes on when the process that asks the cluster dies."""

import multiprocessing
import os
import signal
from collections.abc import Iterator

import pytest

from headrace.cli.client import Cluster
from headrace.cli.failures import Failure
from headrace.cli.lookout import Lookout
from headrace.testing.running import RunningBroker
from tests.cli.test_groups import commit
from tests.support.raw import RawClient, create


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    broker = RunningBroker()
    with RawClient(broker.bootstrap_servers) as raw:
        create(raw, "t")
    commit(broker.bootstrap_servers, "g", "t", {0: 0})
    yield Cluster(broker.bootstrap_servers)
    broker.close()


@pytest.fixture
def lookout(cluster: Cluster) -> Iterator[Lookout]:
    looking = Lookout(cluster, "g")
    yield looking
    looking.close()


def the_process() -> int:
    (child,) = multiprocessing.active_children()
    assert child.pid
    return child.pid


def test_the_next_look_finds_the_group_after_the_process_died(lookout: Lookout) -> None:
    assert lookout.look().description.name == "g"
    os.kill(the_process(), signal.SIGKILL)
    with pytest.raises(Failure, match="the client library ended"):
        lookout.look()
    assert lookout.look().lag == 0


def test_one_process_answers_all_looks_and_none_is_left(lookout: Lookout) -> None:
    lookout.look()
    first = the_process()
    lookout.look()
    assert the_process() == first
    lookout.close()
    assert not multiprocessing.active_children()


def test_a_group_that_is_not_there_is_told_as_such(cluster: Cluster) -> None:
    looking = Lookout(cluster, "nobody")
    try:
        with pytest.raises(Failure, match="nobody") as raised:
            looking.look()
        assert raised.value.code == "NOT_FOUND"
    finally:
        looking.close()
