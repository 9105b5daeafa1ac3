"""Brokers that are killed or stopped, one after the other or all at once, with the checker."""

from pathlib import Path

import pytest

from tests.checker.workload import TOPICS
from tests.faults.judged import judged
from tests.support.cluster import RunningCluster

pytestmark = [pytest.mark.java, pytest.mark.endurance, pytest.mark.timeout(300)]


def test_five_kills_of_leaders_and_of_clients_lose_and_repeat_nothing(
    cluster: RunningCluster, tmp_path: Path
) -> None:
    with judged(cluster, tmp_path, "broker", "client") as workload:
        for number in range(5):
            leader = cluster.state(list(TOPICS)[number % 2]).leader
            workload.kill_broker(cluster.brokers[leader])
            workload.go_on(3)
            workload.kill_client(number % 2)
            cluster.wait_until_in_sync(*TOPICS)


def test_all_brokers_killed_at_once_lose_nothing(cluster: RunningCluster, tmp_path: Path) -> None:
    with judged(cluster, tmp_path, "brokers") as workload:
        for _ in range(2):
            for broker in cluster.brokers.values():
                broker.kill()
            workload.struck("brokers", True)
            for broker in cluster.brokers.values():
                broker.start()
            workload.go_on(3)
            cluster.wait_until_in_sync(*TOPICS)


def test_leaders_move_before_a_broker_stops(cluster: RunningCluster, tmp_path: Path) -> None:
    with judged(cluster, tmp_path, "broker") as workload:
        for number, broker in cluster.brokers.items():
            broker.stop()
            image = cluster.image()
            led = {state.leader for name in TOPICS for state in image.topics[name].partitions}
            workload.struck("broker", number not in led)
            workload.go_on(2)
            broker.start()
            assert "after an unclean stop" not in broker.log_file.read_text()
            cluster.wait_until_in_sync(*TOPICS)
