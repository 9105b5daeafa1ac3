"""AlterPartitionReassignments grants what changes nothing and refuses the rest."""

from kio.schema.alter_partition_reassignments.v1.request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)

from headrace.apis.alter_partition_reassignments import alter_partition_reassignments
from headrace.errors import ErrorCode
from headrace.wire.primitives import BrokerId, TopicName, i32
from tests.apis.one_broker import NODE, OneBroker


def _answer(broker: OneBroker, wanted: list[int] | None, index: int = 0) -> ErrorCode:
    replicas = None if wanted is None else tuple(BrokerId(node) for node in wanted)
    partition = ReassignablePartition(partition_index=i32(index), replicas=replicas)
    topic = ReassignableTopic(name=TopicName("t"), partitions=(partition,))
    response = broker.ask(
        alter_partition_reassignments, AlterPartitionReassignmentsRequest(topics=(topic,))
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
