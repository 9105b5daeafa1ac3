"""Elections and changes of in-sync replicas are counted where they happen."""

from types import SimpleNamespace
from typing import Any, cast

from headrace.broker.metrics.cluster import ClusterMetrics
from headrace.broker.metrics.values import Metrics
from headrace.cluster.image import NO_LEADER, PartitionState
from headrace.cluster.metadata import Metadata
from headrace.replication.replicas import Replicas

ME, OTHER = 1, 2
ELECTIONS = "headrace_leader_elections_total"


class Watched:
    """The metrics of broker 1 about one partition."""

    def __init__(self) -> None:
        self.metrics = Metrics()
        metadata: Any = SimpleNamespace(image=None, listeners=[])
        replicas: Any = SimpleNamespace(node_id=ME, shared_out={})
        ClusterMetrics(
            self.metrics,
            cast(Metadata, metadata),
            cast(Replicas, replicas),
            lambda _: None,  # type: ignore[arg-type, return-value]
        )
        self._changed = metadata.listeners[0]

    def change(self, was: PartitionState, is_now: PartitionState) -> None:
        self._changed(image(was), image(is_now))

    def elections(self) -> tuple[float, float]:
        """Clean and unclean ones."""
        return self.metrics.get(ELECTIONS, "clean"), self.metrics.get(ELECTIONS, "unclean")


def image(state: PartitionState) -> SimpleNamespace:
    return SimpleNamespace(topics={"orders": SimpleNamespace(id=7, partitions=(state,))})


def led_by(leader: int, *isr: int) -> PartitionState:
    return PartitionState(leader, 0, (ME, OTHER), isr)


def test_a_broker_counts_the_elections_that_it_wins() -> None:
    watched = Watched()
    watched.change(led_by(OTHER, ME, OTHER), led_by(ME, ME))
    assert watched.elections() == (1, 0)
    watched.change(led_by(ME, ME), led_by(OTHER, ME, OTHER))  # the other one counts it
    watched.change(led_by(ME, ME), led_by(ME, ME, OTHER))
    assert watched.elections() == (1, 0)


def test_a_leader_that_was_not_in_sync_is_an_unclean_election() -> None:
    watched = Watched()
    watched.change(led_by(NO_LEADER, OTHER), led_by(ME, ME))
    assert watched.elections() == (0, 1)


def test_changes_of_the_in_sync_set_are_counted_by_the_leader() -> None:
    watched = Watched()
    watched.change(led_by(ME, ME, OTHER), led_by(ME, ME))
    watched.change(led_by(ME, ME), led_by(ME, ME, OTHER))
    watched.change(led_by(ME, ME, OTHER), led_by(ME, ME))
    assert watched.metrics.get("headrace_isr_shrinks_total") == 2
    assert watched.metrics.get("headrace_isr_expands_total") == 1
