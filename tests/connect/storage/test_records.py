"""Records of the internal topics, byte for byte as Kafka Connect writes them."""

import json

import pytest

from headrace.connect.storage.records import (
    CommitChange,
    ConfigChange,
    ConnectorChange,
    GenerationChange,
    LoggerChange,
    MalformedRecord,
    SourceOffsetChange,
    StatusRecord,
    TargetChange,
    TargetState,
    TaskChange,
    TopicUse,
    decode_config,
    decode_offset,
    decode_topic_use,
    encode_config,
    encode_offset,
    encode_status,
    encode_topic_use,
)

WRITTEN = [
    (ConnectorChange("a-b", {"x": "1"}), b"connector-a-b", b'{"properties":{"x":"1"}}'),
    (ConnectorChange("a", None), b"connector-a", None),
    (TaskChange("a-b", 3, {"x": "1"}), b"task-a-b-3", b'{"properties":{"x":"1"}}'),
    (CommitChange("a", 2), b"commit-a", b'{"tasks":2}'),
    (
        TargetChange("a", TargetState.STARTED),
        b"target-state-a",
        b'{"state":"STARTED","state.v2":"STARTED"}',
    ),
    (
        TargetChange("a", TargetState.STOPPED),
        b"target-state-a",
        b'{"state":"PAUSED","state.v2":"STOPPED"}',
    ),
    (TargetChange("a", None), b"target-state-a", None),
    (LoggerChange("org.x", "WARN"), b"logger-cluster-org.x", b'{"level":"WARN"}'),
    (
        GenerationChange("a", 2, {"topics": "t"}, "f"),
        b"headrace-generation-a",
        b'{"generation":2,"basis":{"topics":"t"},"folder":"f"}',
    ),
]


@pytest.mark.parametrize(("change", "key", "value"), WRITTEN)
def test_changes_of_configs_are_written_as_kafka_connect_writes_them(
    change: ConfigChange, key: bytes, value: bytes | None
) -> None:
    assert encode_config(change) == (key, value)
    assert decode_config(key, value) == change


def test_a_target_state_of_an_old_worker_is_read() -> None:
    found = decode_config(b"target-state-a", b'{"state":"PAUSED"}')
    assert found == TargetChange("a", TargetState.PAUSED)


@pytest.mark.parametrize("key", [b"session-key", b"tasks-fencing-a", b"restart-connector-a"])
def test_other_keys_of_kafka_connect_are_skipped(key: bytes) -> None:
    assert decode_config(key, b"{}") is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"connector-a", b"no json"),
        (b"connector-a", b"[]"),
        (b"connector-a", b"{}"),
        (b"task-a", b"{}"),
        (b"commit-a", b"{}"),
        (b"target-state-a", b'{"state":"LOST"}'),
        (b"\xff", None),
    ],
)
def test_a_malformed_record_is_an_error_and_not_a_change(key: bytes, value: bytes | None) -> None:
    with pytest.raises(MalformedRecord):
        decode_config(key, value)


def test_an_offset_keeps_the_bytes_of_its_key() -> None:
    key = b'["c",{"b":1,"a":"x"}]'
    found = decode_offset(key, b'{"position":6}')
    assert found == SourceOffsetChange("c", {"a": "x", "b": 1}, {"position": 6})
    assert encode_offset(SourceOffsetChange("c", found.partition, None, found.key)) == (key, None)
    assert encode_offset(SourceOffsetChange("c", {"a": 1}, {"n": 2})) == (
        b'["c",{"a":1}]',
        b'{"n":2}',
    )


@pytest.mark.parametrize("key", [b"{}", b'["c"]', b'["c",1]', b"x", None])
def test_an_offset_without_connector_and_partition_is_an_error(key: bytes | None) -> None:
    with pytest.raises(MalformedRecord):
        decode_offset(key, b"{}")


def test_states_and_topics_are_written_as_kafka_connect_writes_them() -> None:
    status = StatusRecord("RUNNING", "h:1", None, 4)
    key, value = encode_status("a", 2, status)
    assert key == b"status-task-a-2"
    assert json.loads(value or b"") == {
        "state": "RUNNING",
        "trace": None,
        "worker_id": "h:1",
        "generation": 4,
    }
    assert encode_status("a", None, None) == (b"status-connector-a", None)
    use = TopicUse("t", "a-b", 0, 17)
    key, value = encode_topic_use(use)
    assert key == b"status-topic-t:connector-a-b"
    assert value == b'{"topic":{"name":"t","connector":"a-b","task":0,"discoverTimestamp":17}}'
    assert decode_topic_use(key, value) == use
    assert decode_topic_use(key, None) == TopicUse("t", "a-b", -1)
    assert decode_topic_use(b"status-connector-a", b"{}") is None
