"""In-sync sets written by a leader with outdated metadata."""

from random import Random

import pytest

from headrace.clock import ManualClock
from headrace.cluster.controller import Defaults, NewTopic
from headrace.cluster.image import Broker, PartitionState
from headrace.cluster.membership import IsrChange, Membership, Rules
from headrace.cluster.metadata import Metadata
from headrace.errors import ErrorCode, KafkaError
from headrace.types import TopicPartition
from tests.simulation.store import Ensemble

PARTITION = TopicPartition("t", 0)


class Member:
    """A broker's part in the cluster."""

    def __init__(self, ensemble: Ensemble, node: int) -> None:
        self.node = node
        self.metadata = Metadata(ensemble.open(), node, ManualClock())
        self.metadata.load()
        self.membership = Membership(self.metadata, node, lambda topic: Rules(1, False))
        self.epoch = self.start(clean=True)

    def start(self, *, clean: bool) -> int:
        broker = Broker(self.node, "localhost", self.node)
        self.epoch = self.membership.join(broker, "folder", clean=clean).epoch
        return self.epoch

    @property
    def state(self) -> PartitionState:
        return self.metadata.image.topics["t"].partitions[0]

    def in_sync(self) -> tuple[int, ...]:
        return self.state.isr

    def ask(self, *isr: int, joining: "Member | None" = None) -> None:
        """Write down who is in sync, as this one knows the partition."""
        starts = () if joining is None else ((joining.node, joining.epoch),)
        state = self.state
        change = IsrChange(PARTITION, state.leader_epoch, state.partition_epoch, isr, starts)
        self.membership.alter_isr([change])


@pytest.fixture
def members() -> tuple[Member, Member, Member]:
    """The first leads; nobody hears anything but by what it does itself."""
    ensemble = Ensemble(Random(1), lambda delay_s, work: None)
    first, second, third = (Member(ensemble, node) for node in (1, 2, 3))
    new = NewTopic("t", assignments=((0, (1, 2, 3)),))
    third.metadata.create_topic(new, Defaults(1, 3))
    for store, member in zip(ensemble.stores, (first, second, third), strict=True):
        while member.metadata.image.topics.keys() != {"t"}:
            store.hear()
            member.metadata.refresh()
    return first, second, third


def test_who_restarted_uncleanly_is_not_put_back_by_a_leader_that_lets_another_in(
    members: tuple[Member, Member, Member],
) -> None:
    leader, second, third = members
    leader.ask(1, 3)
    third.start(clean=False)
    leader.ask(1, 3, 2, joining=second)
    assert leader.in_sync() == (1,)
    leader.ask(1, 2, joining=second)
    assert leader.in_sync() == (1, 2)


def test_who_restarted_since_it_fetched_is_not_let_in(
    members: tuple[Member, Member, Member],
) -> None:
    leader, second, _ = members
    leader.ask(1, 3)
    fetched_as = second.epoch
    second.start(clean=False)
    second.epoch = fetched_as
    with pytest.raises(KafkaError) as raised:
        leader.ask(1, 3, 2, joining=second)
    assert raised.value.code is ErrorCode.STALE_BROKER_EPOCH
    assert leader.in_sync() == (1, 3)
