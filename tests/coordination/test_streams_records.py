"""Records of streams groups: what is written is read again, and the bytes are Kafka's."""

import pytest

from headrace.coordination.groups.streams.tasks import TaskId, TaskSets
from headrace.coordination.groups.streams.topology import (
    CopartitionGroup,
    InternalTopicSpec,
    StreamsTopology,
    Subtopology,
)
from headrace.coordination.records import UnknownRecord
from headrace.coordination.streams_records import (
    StreamsCurrentAssignment,
    StreamsCurrentKey,
    StreamsGroupMetadata,
    StreamsGroupMetadataKey,
    StreamsKey,
    StreamsMemberKey,
    StreamsMemberMetadata,
    StreamsTarget,
    StreamsTargetKey,
    StreamsTargetMetadata,
    StreamsTargetMetadataKey,
    StreamsTopologyKey,
    StreamsTopologyRecord,
    StreamsValue,
    UserEndpoint,
    decode,
)

ONE, TWO, THREE = TaskId("0", 1), TaskId("0", 300), TaskId("1", 0)
TOPOLOGY = StreamsTopology(
    2,
    (
        Subtopology(
            "0",
            ("a", "b"),
            ("x.*",),
            (InternalTopicSpec("store", 0, 3, (("cleanup.policy", "compact"),)),),
            ("out",),
            (InternalTopicSpec("in", 4),),
            (CopartitionGroup((0, 1), (0,), (0,)),),
        ),
        Subtopology("1"),
    ),
)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (StreamsGroupMetadataKey("g"), StreamsGroupMetadata(7)),
        (
            StreamsGroupMetadataKey("g"),
            StreamsGroupMetadata(7, -5, 0, (("num.standby.replicas", "1"),)),
        ),
        (StreamsMemberKey("g", "é"), StreamsMemberMetadata()),
        (
            StreamsMemberKey("g", "m"),
            StreamsMemberMetadata(
                "i", "r", "c", "/h", 300_000, 1, "p", UserEndpoint("host", 65_535), (("k", "v"),)
            ),
        ),
        (StreamsTargetMetadataKey("g"), StreamsTargetMetadata(3)),
        (StreamsTargetMetadataKey("g"), StreamsTargetMetadata(3, 1_700_000_000_000)),
        (
            StreamsTargetKey("g", "m"),
            StreamsTarget(TaskSets(frozenset({ONE, TWO, THREE}), frozenset({ONE}))),
        ),
        (
            StreamsCurrentKey("g", "m"),
            StreamsCurrentAssignment(
                5,
                4,
                2,
                TaskSets(frozenset({ONE, THREE}), frozenset({TWO})),
                TaskSets(frozenset({TWO}), frozenset(), frozenset({ONE})),
                {ONE: 2, THREE: 5, TWO: 3},
            ),
        ),
        (StreamsTopologyKey("g"), StreamsTopologyRecord(TOPOLOGY)),
    ],
)
def test_what_is_written_is_read_again(key: StreamsKey, value: StreamsValue) -> None:
    assert decode(key.encode(), value.encode()) == (key, value)
    assert decode(key.encode(), None) == (key, None)


def test_the_bytes_are_those_of_kafka() -> None:
    assert StreamsCurrentKey("g", "me").encode() == b"\0\x16\0\x01g\0\x02me"
    assert StreamsTopologyKey("g").encode() == b"\0\x17\0\x01g"
    metadata = StreamsGroupMetadata(2, 1, 0).encode()
    assert metadata == b"\0\0\0\0\0\x02\0\0\0\0\0\0\0\x01\x01\0\x04\0\0\0\0"
    member = StreamsMemberMetadata(process_id="p", endpoint=UserEndpoint("h", 258)).encode()
    assert member.endswith(b"\x02p\x01\x02h\x01\x02\0\x01\0")
    current = StreamsCurrentAssignment(2, 1, 1, TaskSets(frozenset({ONE})), epochs={ONE: 2})
    tasks = b"\x02\x020\x02\0\0\0\x01\x01\0\x05\x02\0\0\0\x02"
    head = b"\0\0\0\0\0\x02\0\0\0\x01\x01"
    assert current.encode() == head + tasks + b"\x01" * 5 + b"\0"


def test_tasks_of_older_versions_have_the_epoch_of_the_member() -> None:
    head = b"\0\0\0\0\0\x07\0\0\0\x06\x01"
    raw = head + b"\x02\x020\x02\0\0\0\x01\0" + b"\x01" * 5 + b"\0"
    _, found = decode(StreamsCurrentKey("g", "m").encode(), raw)
    assert isinstance(found, StreamsCurrentAssignment)
    assert found.epochs == {ONE: 7}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"\0\x12\0\1g", b"\0\0"),
        (StreamsTopologyKey("g").encode(), b"\0\1"),
        (StreamsTopologyKey("g").encode(), b"\0\0\0"),
        (StreamsTopologyKey("g").encode(), b"\0\0\0\0\0\0\x03\xff"),
        (b"\0", b"\0\0"),
    ],
)
def test_unknown_and_malformed_records_are_reported(key: bytes, value: bytes) -> None:
    with pytest.raises(UnknownRecord):
        decode(key, value)
