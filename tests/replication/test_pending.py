"""Partitions that need a change of the cluster's metadata."""

from pathlib import Path

import pytest

from headrace.cluster.image import PartitionState
from headrace.replication.partition import Partition
from headrace.replication.pending import PendingPartitions
from tests.apis.one_broker import OneBroker


@pytest.fixture
def partition(tmp_path: Path) -> Partition:
    broker = OneBroker(tmp_path)
    broker.create("t", 1)
    return broker.replicas.partition("t", 0)


def test_a_partition_without_other_replicas_is_ignored(partition: Partition) -> None:
    pending, calls = PendingPartitions(), []
    pending.on_add = lambda: calls.append(1)
    pending.add(partition)
    assert (pending.offsets, calls) == ({}, [])


def test_the_lowest_reported_offset_of_a_partition_is_kept(partition: Partition) -> None:
    partition.use_state(PartitionState(1, 1, (1, 2), (1,)))
    pending, calls = PendingPartitions(), []
    pending.on_add = lambda: calls.append(1)
    for offset in (7, 3, 5):
        pending.add(partition, offset)
    assert pending.offsets == {partition: 3}
    assert len(calls) == 3
