"""An idempotent producer with five requests in flight, and leaders that change under it."""

from pathlib import Path

import pytest

from headrace.errors import ErrorCode
from tests.support.cluster import RunningCluster
from tests.support.raw import RawClient, batch_of, produce, produce_error
from tests.support.traffic import Writer, check

IN_FLIGHT = 5
PRODUCER = {"producer_id": 4711, "producer_epoch": 0}


def send(cluster: RunningCluster, *sequences: int) -> list[tuple[ErrorCode, int]]:
    """Batches of two records with these sequences, all in flight at once; what becomes of each."""
    leader = cluster.brokers[cluster.leader("t")]
    answers = []
    with RawClient(leader.bootstrap_servers, 60) as client:
        for sequence in sequences:
            batch = batch_of(b"a", b"b", base_sequence=sequence, **PRODUCER)
            client.send(produce("t", batch, acks=-1))
        for _ in sequences:
            code, offset = produce_error(client.answer(), "t")
            answers.append((ErrorCode(code), offset))
    return answers


def test_a_new_leader_knows_the_last_five_batches_of_every_producer(tmp_path: Path) -> None:
    """Answers to all that were in flight are lost with their leader; each is sent once more."""
    with RunningCluster(tmp_path / "metadata") as cluster:
        cluster.create("t", 1, min_insync_replicas="2")
        sequences = range(0, 2 * (IN_FLIGHT + 1), 2)
        first = send(cluster, *sequences)
        assert first == [(ErrorCode.NONE, sequence) for sequence in sequences]
        leader = cluster.leader("t")
        cluster.brokers[leader].kill()
        cluster.wait_for("t", lambda found: found.partitions[0].leader not in (-1, leader))
        assert send(cluster, *sequences[1:]) == first[1:]
        oldest, gap, following = send(cluster, 0, 100, 2 * (IN_FLIGHT + 1))
        assert oldest[0] is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert gap[0] is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert following == (ErrorCode.NONE, 2 * (IN_FLIGHT + 1))


def test_the_last_five_batches_of_every_producer_survive_a_clean_restart(tmp_path: Path) -> None:
    """A producer whose answers were lost with a rolling restart sends all of them once more."""
    with RunningCluster(tmp_path / "metadata", count=1) as cluster:
        cluster.create("t", 1, factor=1)
        sequences = range(0, 2 * (IN_FLIGHT + 1), 2)
        first = send(cluster, *sequences)
        (broker,) = cluster.brokers.values()
        broker.restart()
        assert send(cluster, *sequences[1:]) == first[1:]
        broker.restart()
        assert send(cluster, *sequences[1:]) == first[1:]
        oldest, following = send(cluster, 0, 2 * (IN_FLIGHT + 1))
        assert oldest[0] is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert following == (ErrorCode.NONE, 2 * (IN_FLIGHT + 1))


@pytest.mark.slow
def test_librdkafka_with_five_in_flight_repeats_nothing_when_several_leaders_change(
    tmp_path: Path,
) -> None:
    with RunningCluster(tmp_path / "metadata") as cluster:
        cluster.create("t", 3, min_insync_replicas="2")
        writer = Writer(cluster, "t", **{"max.in.flight.requests.per.connection": str(IN_FLIGHT)})
        writer.wait_for_more()
        for broker in list(cluster.brokers.values())[:2]:
            # After the first, one broker leads two of the three.
            broker.kill()
            writer.wait_for_more()
            broker.start()
            cluster.wait_for("t", lambda found: all(
                len(one.isrs) == 3 for one in found.partitions.values()
            ))  # fmt: skip
        writer.stop()
        check(cluster, "t", writer)
