"""A refused request gets its own response in its own version, with the error in it."""

from typing import Any

import pytest
from kio.schema.alter_replica_log_dirs.v2.request import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from kio.schema.find_coordinator.v6.request import FindCoordinatorRequest
from kio.schema.types import ProducerId, TopicName
from kio.schema.write_txn_markers.v2.request import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

from headrace.errors import ErrorCode, KafkaError
from headrace.wire import codec
from headrace.wire.primitives import i8, i16, i32, i64
from headrace.wire.refusal import refusal

REFUSED = KafkaError(ErrorCode.ILLEGAL_SASL_STATE)


@pytest.mark.parametrize("version", range(7))
def test_every_coordinator_key_gets_the_error(version: int) -> None:
    request = FindCoordinatorRequest(key_type=i8(0), coordinator_keys=("group",))
    response = refusal(10, request, REFUSED)
    encoded = codec.encode(10, version, response)
    decoded: Any = codec.decode_response(version, codec.response_class(10, version), encoded, 0)
    answers = decoded.coordinators if version >= 4 else (decoded,)
    assert [int(one.error_code) for one in answers] == [ErrorCode.ILLEGAL_SASL_STATE]


def test_every_partition_gets_the_error_under_its_own_number() -> None:
    marker = WritableTxnMarker(
        producer_id=ProducerId(i64(7)), producer_epoch=i16(0), transaction_result=True,
        topics=(WritableTxnMarkerTopic(name=TopicName("t"), partition_indexes=(i32(3), i32(5))),),
        coordinator_epoch=i32(0),
    )  # fmt: skip
    refused: Any = refusal(27, WriteTxnMarkersRequest(markers=(marker,)), REFUSED)
    (topic,) = refused.markers[0].topics
    assert (refused.markers[0].producer_id, topic.name) == (7, "t")
    assert [(one.partition_index, int(one.error_code)) for one in topic.partitions] == [
        (3, ErrorCode.ILLEGAL_SASL_STATE),
        (5, ErrorCode.ILLEGAL_SASL_STATE),
    ]
    folders = tuple(
        AlterReplicaLogDir(
            path=path,
            topics=(AlterReplicaLogDirTopic(name=TopicName(name), partitions=(i32(4),)),),
        )
        for path, name in (("/a", "one"), ("/b", "two"))
    )
    answer: Any = refusal(34, AlterReplicaLogDirsRequest(dirs=folders), REFUSED)
    assert [
        (one.topic_name, part.partition_index, int(part.error_code))
        for one in answer.results
        for part in one.partitions
    ] == [("one", 4, ErrorCode.ILLEGAL_SASL_STATE), ("two", 4, ErrorCode.ILLEGAL_SASL_STATE)]
