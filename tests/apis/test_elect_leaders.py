"""ElectLeaders elects leaders where possible and returns errors for the rest."""

from dataclasses import replace

import pytest
from kio.schema.elect_leaders.v2.request import ElectLeadersRequest, TopicPartitions

from headrace.apis.cluster.elect_leaders import elect_leaders
from headrace.cluster.image import NO_LEADER, Image, PartitionState, Topic
from headrace.errors import ErrorCode, KafkaError
from headrace.wire.primitives import TopicName, i8, i32
from tests.apis.one_broker import NODE, OneBroker

PREFERRED, UNCLEAN = 0, 1
DEAD = 2


def elect(broker: OneBroker, kind: int, *indexes: int) -> dict[int, ErrorCode]:
    """For these partitions of `t`, or for everything, what came of it."""
    wanted = (TopicPartitions(topic=TopicName("t"), partitions=tuple(map(i32, indexes))),)
    request = ElectLeadersRequest(
        election_type=i8(kind), topic_partitions=wanted if indexes else None
    )
    (topic,) = broker.ask(elect_leaders, request).replica_election_results
    assert topic.topic == "t"
    for row in topic.partition_result:
        assert (row.error_message is None) == (row.error_code == 0)
    return {int(row.partition_id): ErrorCode(row.error_code) for row in topic.partition_result}


def use_states(broker: OneBroker, topic: Topic, *states: PartitionState) -> None:
    def decide(_image: Image) -> list[Topic]:
        return [replace(topic, partitions=states)]

    broker.metadata.alter_partitions(decide)


def test_no_election_is_needed_where_the_right_one_leads(broker: OneBroker) -> None:
    broker.create("t", 2)
    for kind in (PREFERRED, UNCLEAN):
        assert elect(broker, kind, 0, 5) == {
            0: ErrorCode.ELECTION_NOT_NEEDED,
            5: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
        assert elect(broker, kind) == {}


def test_the_first_replica_leads_again_if_it_is_in_sync(broker: OneBroker) -> None:
    topic = broker.create("t", 3)
    here_first, both = (NODE, DEAD), (NODE, DEAD)
    use_states(
        broker,
        topic,
        PartitionState(DEAD, 3, here_first, both),
        PartitionState(DEAD, 3, here_first, (DEAD,)),
        PartitionState(NODE, 3, (DEAD, NODE), both),
    )
    assert elect(broker, PREFERRED) == {
        0: ErrorCode.NONE,
        1: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        2: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
    }
    states = broker.metadata.image.topics["t"].partitions
    assert [(state.leader, state.leader_epoch) for state in states] == [
        (NODE, 4), (DEAD, 3), (NODE, 3),
    ]  # fmt: skip


def test_an_unclean_election_takes_any_live_replica(broker: OneBroker) -> None:
    topic = broker.create("t", 2)
    use_states(
        broker,
        topic,
        PartitionState(NO_LEADER, 3, (DEAD, NODE), (), eligible=(DEAD,)),
        PartitionState(NO_LEADER, 3, (DEAD,), (), eligible=(DEAD,)),
    )
    assert elect(broker, UNCLEAN, 0, 1) == {
        0: ErrorCode.NONE,
        1: ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
    }
    state = broker.metadata.image.topics["t"].partitions[0]
    assert (state.leader, state.isr) == (NODE, (NODE,))


def test_another_kind_of_election_is_refused(broker: OneBroker) -> None:
    with pytest.raises(KafkaError) as caught:
        broker.ask(elect_leaders, ElectLeadersRequest(election_type=i8(7), topic_partitions=None))
    assert caught.value.code is ErrorCode.INVALID_REQUEST
