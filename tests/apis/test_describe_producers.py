"""DescribeProducers shows the producer state of a partition."""

from kio.schema.describe_producers.v0.request import DescribeProducersRequest, TopicRequest

from headrace.apis.transactions.describe_producers import describe_producers
from headrace.errors import ErrorCode
from headrace.wire.batch import TRANSACTIONAL
from headrace.wire.primitives import TopicName, i32
from headrace.wire.records import Record, encode_batch
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


def test_an_open_transaction_is_described_until_its_marker(broker: OneBroker) -> None:
    broker.create("t")
    broker.append("t", [NOW])
    partition = broker.replicas.partition("t", 0)
    partition.append_own(open_transaction(), NOW)
    wanted = TopicRequest(name=TopicName("t"), partition_indexes=(i32(0),))
    request = DescribeProducersRequest(topics=(wanted,))

    def described() -> tuple[int, int, int]:
        (found,) = broker.ask(describe_producers, request).topics[0].partitions[0].active_producers
        return found.producer_epoch, found.current_txn_start_offset, found.coordinator_epoch

    assert described() == (0, 1, -1)
    partition.append_marker(7, 1, True, 12, NOW)
    assert described() == (1, -1, 12)


def open_transaction() -> bytearray:
    return encode_batch(
        [Record(0, NOW, b"k", b"v")],
        producer_id=7,
        producer_epoch=0,
        base_sequence=0,
        attributes=TRANSACTIONAL,
    )
