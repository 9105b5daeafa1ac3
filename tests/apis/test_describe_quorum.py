"""DescribeQuorum shows the controller as a quorum of one."""

from kio.schema.describe_quorum.v2.request import DescribeQuorumRequest, PartitionData, TopicData

from headrace.apis.cluster.describe_quorum import METADATA_TOPIC, describe_quorum
from headrace.errors import ErrorCode
from headrace.wire.primitives import TopicName, i32
from tests.apis.one_broker import NODE, NOW, OneBroker


def _request(topic: str) -> DescribeQuorumRequest:
    partition = PartitionData(partition_index=i32(0))
    return DescribeQuorumRequest(
        topics=(TopicData(topic_name=TopicName(topic), partitions=(partition,)),)
    )


def test_the_controller_is_the_only_voter_and_has_seen_every_change(broker: OneBroker) -> None:
    broker.create("t")
    response = broker.ask(describe_quorum, _request(METADATA_TOPIC))
    ((quorum,),) = [topic.partitions for topic in response.topics]
    assert ErrorCode(quorum.error_code) is ErrorCode.NONE
    assert quorum.leader_id == broker.metadata.image.controller_id == NODE
    assert quorum.high_watermark == broker.metadata.image.version > 0
    (voter,) = quorum.current_voters
    assert (voter.replica_id, voter.log_end_offset) == (NODE, quorum.high_watermark)
    assert voter.last_caught_up_timestamp == NOW
    ((listener,),) = [node.listeners for node in response.nodes]
    assert (listener.host, listener.port) == ("localhost", 9092)


def test_another_topic_has_no_quorum(broker: OneBroker) -> None:
    broker.create("t")
    ((quorum,),) = [t.partitions for t in broker.ask(describe_quorum, _request("t")).topics]
    assert ErrorCode(quorum.error_code) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
