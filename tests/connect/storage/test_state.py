"""The state that the internal topics describe."""

from headrace.connect.storage.records import (
    CommitChange,
    ConnectorChange,
    GenerationChange,
    SourceOffsetChange,
    TargetChange,
    TargetState,
    TaskChange,
    TopicUse,
)
from headrace.connect.storage.state import ConfigState, OffsetState, TopicState


def test_tasks_count_only_when_all_of_them_are_committed() -> None:
    state = ConfigState()
    state.replay(ConnectorChange("a", {"x": "1"}))
    state.replay(TaskChange("a", 0, {"t": "0"}))
    assert state.connectors["a"].tasks == []
    state.replay(CommitChange("a", 2))
    assert state.connectors["a"].tasks == []
    state.replay(TaskChange("a", 1, {"t": "1"}))
    state.replay(CommitChange("a", 2))
    assert state.connectors["a"].tasks == [{"t": "0"}, {"t": "1"}]
    state.replay(CommitChange("a", 0))
    assert state.connectors["a"].tasks == []


def test_a_changed_config_keeps_the_tasks_and_a_deleted_connector_loses_them() -> None:
    state = ConfigState()
    state.replay(ConnectorChange("a", {"x": "1"}))
    state.replay(TaskChange("a", 0, {}))
    state.replay(CommitChange("a", 1))
    state.replay(ConnectorChange("a", {"x": "2"}))
    assert (state.connectors["a"].config, state.connectors["a"].tasks) == ({"x": "2"}, [{}])
    state.replay(ConnectorChange("a", None))
    assert not state.connectors
    state.replay(ConnectorChange("a", {}))
    assert state.connectors["a"].tasks == []


def test_the_target_state_is_started_unless_a_record_says_otherwise() -> None:
    state = ConfigState()
    state.replay(TargetChange("a", TargetState.PAUSED))
    assert (state.target("a"), state.target("b")) == (TargetState.PAUSED, TargetState.STARTED)
    state.replay(TargetChange("a", None))
    assert state.target("a") is TargetState.STARTED


def test_the_generation_outlives_the_connector() -> None:
    state = ConfigState()
    state.replay(ConnectorChange("a", {}))
    state.replay(GenerationChange("a", 3, {}))
    state.replay(ConnectorChange("a", None))
    assert state.generations["a"].generation == 3


def test_the_newest_offset_of_a_partition_counts_in_any_order_of_its_fields() -> None:
    state = OffsetState()
    state.replay(SourceOffsetChange("a", {"x": 1, "y": 2}, {"n": 1}))
    state.replay(SourceOffsetChange("a", {"y": 2, "x": 1}, {"n": 2}))
    assert [each.offset for each in state.of("a")] == [{"n": 2}]
    state.replay(SourceOffsetChange("a", {"x": 1, "y": 2}, None))
    assert state.of("a") == []


def test_topics_of_a_connector_are_forgotten_when_they_are_reset() -> None:
    state = TopicState()
    state.replay(TopicUse("t", "a"))
    state.replay(TopicUse("u", "a"))
    state.replay(TopicUse("t", "a", -1))
    assert list(state.of("a")) == ["u"]
