"""AlterPartitionReassignments begins and stops moves, and its counterpart lists them."""

from kio.schema.alter_partition_reassignments.v1.request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from kio.schema.list_partition_reassignments.v0.request import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)

from headrace.apis.cluster.alter_partition_reassignments import alter_partition_reassignments
from headrace.apis.cluster.list_partition_reassignments import list_partition_reassignments
from headrace.cluster.image import Broker
from headrace.cluster.membership import IsrChange, Membership, Rules
from headrace.cluster.registration import Registration
from headrace.errors import ErrorCode
from headrace.types import TopicPartition
from headrace.wire.primitives import BrokerId, TopicName, i32
from tests.apis.one_broker import NODE, OneBroker

OTHER = 2


def _answer(
    broker: OneBroker, wanted: list[int] | None, index: int = 0, *, may_resize: bool = True
) -> ErrorCode:
    replicas = None if wanted is None else tuple(BrokerId(node) for node in wanted)
    partition = ReassignablePartition(partition_index=i32(index), replicas=replicas)
    topic = ReassignableTopic(name=TopicName("t"), partitions=(partition,))
    response = broker.ask(
        alter_partition_reassignments,
        AlterPartitionReassignmentsRequest(
            topics=(topic,), allow_replication_factor_change=may_resize
        ),
    )
    assert ErrorCode(response.error_code) is ErrorCode.NONE
    ((answer,),) = [one.partitions for one in response.responses]
    assert (answer.error_message is None) == (answer.error_code == 0)
    return ErrorCode(answer.error_code)


def test_the_brokers_that_hold_a_partition_may_hold_it(broker: OneBroker) -> None:
    broker.create("t")
    assert _answer(broker, [NODE]) is ErrorCode.NONE


def test_what_cannot_be_is_refused_with_kafkas_code(broker: OneBroker) -> None:
    broker.create("t")
    for impossible in ([], [NODE, NODE], [NODE, 77]):
        assert _answer(broker, impossible) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert _answer(broker, None) is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    assert _answer(broker, [NODE], index=9) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _listed(broker: OneBroker, *indexes: int) -> dict[int, tuple[tuple[int, ...], ...]]:
    """By partition of `t`: all replicas, those that come, those that go."""
    named = ListPartitionReassignmentsTopics(
        name=TopicName("t"), partition_indexes=tuple(map(i32, indexes))
    )
    request = ListPartitionReassignmentsRequest(topics=(named,) if indexes else None)
    return {
        row.partition_index: (row.replicas, row.adding_replicas, row.removing_replicas)
        for topic in broker.ask_in_steps(list_partition_reassignments, request).topics
        for row in topic.partitions
    }


def _know_another(broker: OneBroker) -> None:
    """A second broker was here once, and is dead."""
    Registration(broker.metadata).join(Broker(OTHER, "localhost", 9093), "another folder")
    broker.metadata.refresh()


def test_a_move_is_listed_until_it_is_done_or_stopped(broker: OneBroker) -> None:
    broker.create("t", 2)
    _know_another(broker)
    assert _listed(broker) == {}
    assert _answer(broker, [OTHER], 1) is ErrorCode.NONE
    moving = {1: ((OTHER, NODE), (OTHER,), (NODE,))}
    assert _listed(broker) == _listed(broker, 0, 1) == moving
    assert _listed(broker, 0) == _listed(broker, 9) == {}
    assert _answer(broker, [OTHER], 1) is ErrorCode.NONE
    assert _answer(broker, None, 1) is ErrorCode.NONE
    assert _listed(broker) == {}
    assert _answer(broker, None, 1) is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


def test_a_caller_may_forbid_another_number_of_replicas(broker: OneBroker) -> None:
    broker.create("t")
    _know_another(broker)
    more = [NODE, OTHER]
    assert _answer(broker, more, may_resize=False) is ErrorCode.INVALID_REPLICATION_FACTOR
    assert _answer(broker, more) is ErrorCode.NONE
    assert _listed(broker) == {0: ((NODE, OTHER), (OTHER,), ())}


def test_a_leader_cannot_count_a_replica_that_a_stopped_move_took_away(broker: OneBroker) -> None:
    broker.create("t")
    _know_another(broker)
    assert _answer(broker, [NODE, OTHER]) is ErrorCode.NONE
    assert _answer(broker, None) is ErrorCode.NONE
    membership = Membership(broker.metadata, NODE, lambda _: Rules(1, False))
    state = broker.metadata.image.topics["t"].partitions[0]
    change = IsrChange(
        TopicPartition("t", 0), state.leader_epoch, state.partition_epoch, (NODE, OTHER)
    )
    membership.alter_isr([change])
    assert broker.metadata.image.topics["t"].partitions[0].isr == (NODE,)
