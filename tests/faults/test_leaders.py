"""Leaders and controllers that are cut off or paused: their outdated state has no effect."""

import time
from pathlib import Path

import pytest

from headrace.errors import ErrorCode
from tests.checker.workload import TOPICS
from tests.faults.conftest import SESSION_S, ZOOKEEPER
from tests.faults.judged import (
    Writer,
    judged,
    led_by_another,
    place,
    same_replicas,
    values,
    wait_for,
)
from tests.support.cluster import PATIENCE_S, RunningCluster
from tests.support.network import Network
from tests.support.zookeeper import ZooKeeper

pytestmark = pytest.mark.java


def test_a_leader_without_zookeeper_acknowledges_nothing_once_another_leads(
    cluster: RunningCluster, network: Network, tmp_path: Path
) -> None:
    cluster.create("orders", min_insync_replicas="2")
    with judged(cluster, tmp_path, "leader") as workload:
        before = cluster.state("orders")
        old = cluster.brokers[before.leader]
        writer = Writer(old)
        assert writer.write("orders", b"before") == (ErrorCode.NONE, 0)
        network.cut(place(before.leader), ZOOKEEPER)
        after = cluster.wait_for_state("orders", led_by_another(before))
        workload.struck("leader", True)
        # It does not know yet, most likely: what it takes now is in its log and nowhere else.
        unsafe, _ = writer.write("orders", b"lost", acks=1)
        refused, _ = writer.write("orders", b"never")
        assert refused is not ErrorCode.NONE
        new = Writer(cluster.brokers[after.leader])
        assert new.write_as_new_leader("orders", b"after") == (ErrorCode.NONE, 1)
        network.heal()
    cluster.wait_until_in_sync("orders")
    same_replicas(cluster, "orders")
    assert values(cluster, "orders") == [b"before", b"after"]
    if unsafe is ErrorCode.NONE:
        assert "truncating orders-0 from" in old.log_file.read_text()


def test_a_leader_that_stood_still_acknowledges_nothing_of_what_waited_for_it(
    cluster: RunningCluster, tmp_path: Path
) -> None:
    cluster.create("orders", min_insync_replicas="2")
    with judged(cluster, tmp_path, "leader") as workload:
        before = cluster.state("orders")
        old = cluster.brokers[before.leader]
        writers = [Writer(old) for _ in range(5)]
        assert writers[0].write("orders", b"before") == (ErrorCode.NONE, 0)
        old.pause()
        for number, writer in enumerate(writers):
            for each in range(5):
                writer.send("orders", b"never %d %d" % (number, each))
        after = cluster.wait_for_state("orders", led_by_another(before))
        workload.struck("leader", True)
        new = Writer(cluster.brokers[after.leader])
        assert new.write_as_new_leader("orders", b"after") == (ErrorCode.NONE, 1)
        time.sleep(SESSION_S)  # the second session
        old.go_on()
        for writer in writers:
            for _ in range(5):
                code, _ = writer.answer("orders")
                assert code is not ErrorCode.NONE
    cluster.wait_until_in_sync("orders")
    same_replicas(cluster, "orders")
    assert values(cluster, "orders") == [b"before", b"after"]


def test_a_controller_that_is_cut_off_decides_nothing_more(
    cluster: RunningCluster, network: Network, tmp_path: Path
) -> None:
    with judged(cluster, tmp_path, "controller") as workload:
        first = cluster.image().controller_id
        network.isolate(place(first))
        second = first
        deadline = time.monotonic() + PATIENCE_S
        while second in (first, -1):
            assert time.monotonic() < deadline, "nobody else became the controller"
            second = cluster.image().controller_id
            time.sleep(0.05)
        workload.struck("controller", True)
        # The new one decides: somebody else dies, and comes back.
        (third,) = cluster.brokers.keys() - {first, second}
        cluster.brokers[third].kill()
        network.heal()
        cluster.brokers[third].start()
        cluster.wait_until_in_sync(*TOPICS)
        assert cluster.image().controller_id == second


def test_leaders_go_on_when_zookeeper_comes_back_after_more_than_a_session(
    cluster: RunningCluster, ensemble: ZooKeeper, tmp_path: Path
) -> None:
    with judged(cluster, tmp_path, "zookeeper") as workload:
        ensemble.kill()
        wait_for(
            lambda: all(
                "leads no partitions" in broker.log_file.read_text()
                for broker in cluster.brokers.values()
            ),
            "brokers without metadata step down",
        )
        workload.struck("zookeeper", True)
        ensemble.start()
        workload.go_on(2)
