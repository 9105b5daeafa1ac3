"""DeleteRecords moves the log start offset."""

import asyncio
from pathlib import Path

from kio.schema.delete_records.v2.request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)

from headrace.apis.records.delete_records import delete_records
from headrace.errors import ErrorCode
from headrace.wire.primitives import TopicName, i32, i64, milliseconds
from tests.apis.one_broker import NOW, OneBroker

NONE = ErrorCode.NONE


def forget(broker: OneBroker, offset: int, topic: str = "t") -> tuple[int, int]:
    wanted = DeleteRecordsPartition(partition_index=i32(0), offset=i64(offset))
    request = DeleteRecordsRequest(
        topics=(DeleteRecordsTopic(name=TopicName(topic), partitions=(wanted,)),),
        timeout=milliseconds(0),
    )
    answer = asyncio.run(broker.ask(delete_records, request)).topics[0].partitions[0]
    return ErrorCode(answer.error_code), answer.low_watermark


def test_records_are_forgotten_up_to_an_offset_or_all(broker: OneBroker) -> None:
    broker.create("t")
    broker.append("t", [NOW] * 5)
    assert forget(broker, 3) == (NONE, 3)
    assert forget(broker, 6) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert forget(broker, -2) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert forget(broker, -1) == (NONE, 5)
    assert forget(broker, 0, topic="x") == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)


def test_a_compacted_topic_keeps_its_records(broker: OneBroker) -> None:
    broker.create("t", cleanup_policy="compact")
    assert forget(broker, 0) == (ErrorCode.POLICY_VIOLATION, -1)


def test_what_was_forgotten_stays_forgotten_whatever_happens_next(broker: OneBroker) -> None:
    broker.create("t")
    broker.append("t", [NOW] * 5)
    assert forget(broker, 3) == (NONE, 3)
    saved = Path(broker.directories.first.path, "log-start-offset-checkpoint").read_text()
    assert saved.split("\n")[2] == "t 0 3"
