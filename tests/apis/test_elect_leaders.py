"""ElectLeaders says why there is no election."""

import pytest
from kio.schema.elect_leaders.v2.request import ElectLeadersRequest, TopicPartitions

from headrace.apis.elect_leaders import elect_leaders
from headrace.errors import ErrorCode, KafkaError
from headrace.wire.primitives import TopicName, i8, i32
from tests.apis.one_broker import OneBroker


def test_no_election_is_needed(broker: OneBroker) -> None:
    broker.create("t", 2)
    wanted = TopicPartitions(topic=TopicName("t"), partitions=(i32(0), i32(5)))
    for kind in (0, 1):
        some = ElectLeadersRequest(election_type=i8(kind), topic_partitions=(wanted,))
        (topic,) = broker.ask(elect_leaders, some).replica_election_results
        assert [(p.partition_id, ErrorCode(p.error_code)) for p in topic.partition_result] == [
            (0, ErrorCode.ELECTION_NOT_NEEDED),
            (5, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ]
        every = ElectLeadersRequest(election_type=i8(kind), topic_partitions=None)
        (topic,) = broker.ask(elect_leaders, every).replica_election_results
        assert (topic.topic, topic.partition_result) == ("t", ())
    with pytest.raises(KafkaError) as caught:
        broker.ask(elect_leaders, ElectLeadersRequest(election_type=i8(7), topic_partitions=None))
    assert caught.value.code is ErrorCode.INVALID_REQUEST
