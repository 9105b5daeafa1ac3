"""Logs that lost their end or diverged: no offset is reused, and replicas become equal."""

import shutil
from pathlib import Path

import pytest

from headrace.errors import ErrorCode
from tests.checker.workload import TOPICS
from tests.faults.conftest import MakeCluster
from tests.faults.judged import (
    Writer,
    judged,
    led_by_another,
    log_bytes,
    place,
    same_replicas,
    values,
    wait_for,
)
from tests.support.cluster import RunningCluster
from tests.support.mounts import power_cut_disk
from tests.support.network import Network

pytestmark = pytest.mark.java


def test_a_log_that_lost_its_end_while_its_broker_was_down_costs_no_offset(
    cluster: RunningCluster,
) -> None:
    cluster.create("orders", min_insync_replicas="2")
    last = cluster.state("orders").leader
    writer = Writer(cluster.brokers[last])
    for number in range(10):
        assert writer.write("orders", b"%d" % number) == (ErrorCode.NONE, number)
    for number in sorted(cluster.brokers, key=lambda number: number == last):
        cluster.brokers[number].stop()
    (segment,) = (cluster.brokers[last].data_dir / "orders-0").glob("*.log")
    segment.write_bytes(segment.read_bytes()[:-100])
    cluster.brokers[last].start()
    assert cluster.state("orders").leader == -1, "nobody knows what it has lost"
    for number in cluster.brokers.keys() - {last}:
        cluster.brokers[number].start()
    state = cluster.wait_for_state("orders", lambda state: state.leader not in (-1, last))
    cluster.wait_until_in_sync("orders")
    again = Writer(cluster.brokers[state.leader])
    assert again.write("orders", b"10") == (ErrorCode.NONE, 10)
    assert values(cluster, "orders") == [b"%d" % number for number in range(11)]
    same_replicas(cluster, "orders")


def test_logs_that_grew_apart_become_that_of_the_leader_even_if_it_led_before(
    cluster: RunningCluster, network: Network
) -> None:
    """KIP-279: the leader's epochs and a follower's alternate. An unclean election made it so."""
    cluster.create("orders", min_insync_replicas="1", unclean_leader_election_enable="true")
    before = cluster.state("orders")
    first = before.leader
    writer = Writer(cluster.brokers[first])
    assert writer.write("orders", b"common") == (ErrorCode.NONE, 0)
    for other in cluster.brokers.keys() - {first}:
        network.cut(place(first), place(other))
    assert writer.write("orders", b"a1", b"a2", acks=1) == (ErrorCode.NONE, 1)
    cluster.brokers[first].kill()
    state = cluster.wait_for_state("orders", led_by_another(before))
    network.heal()
    second = state.leader
    (third,) = cluster.brokers.keys() - {first, second}
    cluster.brokers[third].kill()
    writer = Writer(cluster.brokers[second])
    assert writer.write("orders", b"b1", acks=1) == (ErrorCode.NONE, 1)
    assert writer.write("orders", b"b2", b"b3", b"b4", acks=1) == (ErrorCode.NONE, 2)
    cluster.brokers[second].kill()
    wait_for(lambda: not cluster.image().brokers, "nobody is left")
    cluster.brokers[first].start()
    cluster.wait_for_state("orders", lambda state: state.leader == first)
    assert Writer(cluster.brokers[first]).write("orders", b"c1", acks=1) == (ErrorCode.NONE, 3)
    for number in (second, third):
        cluster.brokers[number].start()
    cluster.wait_until_in_sync("orders")
    same_replicas(cluster, "orders")
    assert values(cluster, "orders") == [b"common", b"a1", b"a2", b"c1"]
    assert "truncating orders-0 from 5 to 1" in cluster.brokers[second].log_file.read_text()


def test_a_power_cut_among_pauses_splits_nothing(make_cluster: MakeCluster, tmp_path: Path) -> None:
    with power_cut_disk(tmp_path) as disk:
        home = disk.path / "broker"
        home.mkdir()
        cluster = make_cluster(homes={3: home})
        with judged(cluster, tmp_path, "power") as workload:
            paused = [cluster.brokers[1], cluster.brokers[2]]
            for broker in paused:
                broker.pause()
            disk.cut()
            cluster.brokers[3].kill()
            workload.struck("power", True)
            disk.unmount()
            disk.mount()
            cluster.brokers[3].start()
            for broker in paused:
                broker.go_on()
            cluster.brokers[3].pause()
            cluster.wait_for_state("left", lambda state: state.leader in (1, 2))
            workload.go_on(2)
            cluster.brokers[3].go_on()
            cluster.wait_until_in_sync(*TOPICS)
        cluster.close()


def test_a_bit_that_flipped_in_one_replica_is_not_served_nor_spread_but_fetched_again(
    cluster: RunningCluster,
) -> None:
    """The replica that has it leads, and another one has lost everything."""
    cluster.create("orders", min_insync_replicas="2")
    healthy = cluster.state("orders").leader
    rotten, empty = sorted(cluster.brokers.keys() - {healthy})
    writer = Writer(cluster.brokers[healthy])
    for number in range(5):
        assert writer.write("orders", b"value %d" % number) == (ErrorCode.NONE, number)
    cluster.brokers[rotten].stop()
    (segment,) = (cluster.brokers[rotten].data_dir / "orders-0").glob("*.log")
    segment.write_bytes(segment.read_bytes().replace(b"value 2", b"value 3"))
    cluster.brokers[rotten].start()
    cluster.wait_until_in_sync("orders")
    cluster.brokers[healthy].stop()
    cluster.brokers[empty].stop()
    shutil.rmtree(cluster.brokers[empty].data_dir / "orders-0")
    cluster.wait_for_state("orders", lambda state: state.leader == rotten)
    cluster.brokers[empty].start()
    said = cluster.brokers[rotten].log_file
    wait_for(lambda: "is damaged at position" in said.read_text(), "somebody reads what is rotten")
    wait_for(
        lambda: b"value 1" in log_bytes(cluster.brokers[empty], "orders-0"),
        "what comes before it is copied",
    )
    assert empty not in cluster.state("orders").isr
    cluster.brokers[healthy].start()
    cluster.wait_for_state("orders", lambda state: state.leader == healthy)
    cluster.wait_until_in_sync("orders")
    assert values(cluster, "orders") == [b"value %d" % number for number in range(5)]
    same_replicas(cluster, "orders")
