"""DescribeProducers shows what a partition remembers of producers."""

from kio.schema.describe_producers.v0.request import DescribeProducersRequest, TopicRequest

from headrace.apis.describe_producers import describe_producers
from headrace.errors import ErrorCode
from headrace.wire.primitives import TopicName, i32
from tests.apis.one_broker import NOW, OneBroker


def test_producers_are_described(broker: OneBroker) -> None:
    broker.create("t")
    broker.append("t", [NOW, NOW + 1], producer_id=7, sequence=0)
    wanted = TopicRequest(name=TopicName("t"), partition_indexes=(i32(0), i32(3)))
    request = DescribeProducersRequest(topics=(wanted,))
    known, missing = broker.ask(describe_producers, request).topics[0].partitions
    (producer,) = known.active_producers
    assert (producer.producer_id, producer.producer_epoch) == (7, 0)
    assert (producer.last_sequence, producer.current_txn_start_offset) == (1, -1)
    assert ErrorCode(missing.error_code) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
