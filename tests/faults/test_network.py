"""Networks that are cut between brokers, in one direction or both: safe, and live once healed."""

from pathlib import Path

import pytest

from headrace.errors import ErrorCode
from tests.checker.workload import TOPICS
from tests.faults.conftest import ZOOKEEPER
from tests.faults.judged import Writer, judged, led_by_another, place, same_replicas
from tests.support.cluster import RunningCluster
from tests.support.network import Network

pytestmark = pytest.mark.java


def test_a_leader_without_followers_refuses_what_could_be_lost_until_it_has_them_again(
    cluster: RunningCluster, network: Network, tmp_path: Path
) -> None:
    cluster.create("orders", min_insync_replicas="2")
    with judged(cluster, tmp_path, "network") as workload:
        leader = cluster.state("orders").leader
        followers = cluster.brokers.keys() - {leader}
        writer = Writer(cluster.brokers[leader])
        assert writer.write("orders", b"before") == (ErrorCode.NONE, 0)
        for follower in followers:
            network.cut(place(leader), place(follower))
        appended, _ = writer.write("orders", b"appended")
        assert appended is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        state = cluster.wait_for_state("orders", lambda state: state.isr == (leader,))
        # Whoever left first may have missed what the other two went on to commit.
        assert state.eligible
        assert set(state.eligible) <= followers
        workload.struck("network", True)
        assert writer.write("orders", b"refused")[0] is ErrorCode.NOT_ENOUGH_REPLICAS
        network.heal()
        cluster.wait_until_in_sync("orders")
        assert writer.write("orders", b"after") == (ErrorCode.NONE, 2)
    same_replicas(cluster, "orders")


def test_answers_that_get_lost_and_requests_that_get_lost_put_followers_out_until_it_heals(
    cluster: RunningCluster, network: Network, tmp_path: Path
) -> None:
    with judged(cluster, tmp_path, "network") as workload:
        leader = cluster.state("left").leader
        first, second = (place(number) for number in cluster.brokers if number != leader)
        network.cut(place(leader), first, one_way=True)
        network.cut(second, place(leader), one_way=True)
        cluster.wait_for_state("left", lambda state: state.isr == (leader,))
        workload.struck("network", True)
        network.heal()
        cluster.wait_until_in_sync(*TOPICS)


def test_a_broker_cut_off_from_zookeeper_leads_nothing_until_it_heals(
    cluster: RunningCluster, network: Network, tmp_path: Path
) -> None:
    with judged(cluster, tmp_path, "network") as workload:
        before = cluster.state("left")
        network.cut(ZOOKEEPER, place(before.leader), one_way=True)
        cluster.wait_for_state("left", led_by_another(before))
        workload.struck("network", True)
        network.heal()
        cluster.wait_until_in_sync(*TOPICS)


def test_two_that_reach_each_other_only_by_a_third_stay_one_cluster(
    cluster: RunningCluster, network: Network, tmp_path: Path
) -> None:
    with judged(cluster, tmp_path, "network") as workload:
        network.cut("b1", "b3")
        cluster.wait_for_state("left", lambda state: len(state.isr) == 2)
        workload.struck("network", True)
        network.heal()
        cluster.wait_until_in_sync(*TOPICS)
