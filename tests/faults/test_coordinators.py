"""Coordinators that die between a decision and its markers: the decision is completed."""

from functools import partial
from pathlib import Path

import pytest

from headrace.cluster.image import TRANSACTIONS_TOPIC
from headrace.coordination.coordinator_topic import java_hash
from headrace.testing.running import RunningBroker
from tests.checker.workload import TOPICS
from tests.faults.judged import judged, wait_for
from tests.support.cluster import RunningCluster

pytestmark = pytest.mark.java

MANY = 10_000


def coordinator_of(cluster: RunningCluster, transactional_id: str) -> int:
    count = len(cluster.image().topics[TRANSACTIONS_TOPIC].partitions)
    return cluster.state(TRANSACTIONS_TOPIC, java_hash(transactional_id) % count).leader


def any_struck(brokers: list[RunningBroker]) -> bool:
    return any(broker.faults_left() < MANY for broker in brokers)


def test_markers_are_written_though_the_coordinator_died_between_the_decision_and_them(
    cluster: RunningCluster, tmp_path: Path
) -> None:
    with judged(cluster, tmp_path, "coordinator") as workload:
        for transactional_id in ("x-0", "x-1"):
            number = coordinator_of(cluster, transactional_id)
            coordinator = cluster.brokers[number]
            others = [one for each, one in cluster.brokers.items() if each != number]
            for other in others:
                other.cut("WriteTxnMarkers", MANY)
            # Whoever is asked for a marker hangs up: a transaction is decided and does not end.
            wait_for(partial(any_struck, others), "markers are due")
            coordinator.kill()
            workload.struck("coordinator", True)
            for other in others:
                other.clear_faults()
            workload.go_on(2)
            coordinator.start()
            cluster.wait_until_in_sync(*TOPICS, TRANSACTIONS_TOPIC)
