"""CreatePartitions increases the number of partitions."""

from kio.schema.create_partitions.v3.request import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)

from headrace.apis.topics.create_partitions import create_partitions
from headrace.errors import ErrorCode
from headrace.wire.primitives import BrokerId, TopicName, i32, milliseconds
from tests.apis.one_broker import OneBroker

NONE = ErrorCode.NONE


def grow(
    broker: OneBroker,
    *wanted: tuple[str, int],
    brokers: tuple[int, ...] | None = None,
    validate_only: bool = False,
) -> list[tuple[str, int]]:
    topics = tuple(
        CreatePartitionsTopic(
            name=TopicName(name),
            count=i32(count),
            assignments=None
            if brokers is None
            else (CreatePartitionsAssignment(broker_ids=tuple(map(BrokerId, brokers))),),
        )
        for name, count in wanted
    )
    request = CreatePartitionsRequest(
        topics=topics, timeout=milliseconds(0), validate_only=validate_only
    )
    answer = broker.ask(create_partitions, request)
    return [(one.name, ErrorCode(one.error_code)) for one in answer.results]


def test_new_partitions_can_be_written_and_old_ones_keep_their_records(broker: OneBroker) -> None:
    broker.create("t")
    broker.append("t", [1_700_000_000_000])
    assert grow(broker, ("t", 3)) == [("t", NONE)]
    broker.append("t", [1_700_000_000_000], index=2)
    assert broker.replicas.partition("t", 0).replica.high_watermark == 1


def test_a_refused_increase_has_a_reason(broker: OneBroker) -> None:
    broker.create("t", 2)
    assert grow(broker, ("t", 2)) == [("t", ErrorCode.INVALID_PARTITIONS)]
    assert grow(broker, ("none", 2)) == [("none", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
    assert grow(broker, ("t", 3), ("t", 4)) == [("t", ErrorCode.INVALID_REQUEST)]
    assert grow(broker, ("t", 3), brokers=(9,)) == [("t", ErrorCode.INVALID_REPLICA_ASSIGNMENT)]
    assert grow(broker, ("t", 3), brokers=(1,), validate_only=True) == [("t", NONE)]
    assert len(broker.metadata.image.topics["t"].partitions) == 2
