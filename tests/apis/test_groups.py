"""The APIs of groups as clients of old and new versions see them."""

import datetime
import typing
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from headrace.apis.routes import ROUTES
from headrace.errors import ErrorCode
from headrace.wire import codec
from tests.apis.one_broker import OneBroker, over_the_wire
from tests.coordination.shard import subscription
from tests.support.messages import filled, item, part

(OFFSET_COMMIT, OFFSET_FETCH, FIND, JOIN, HEARTBEAT, LEAVE, SYNC, DESCRIBE, LIST, DELETE) = (
    8, 9, 10, 11, 12, 13, 14, 15, 16, 42,
)  # fmt: skip
OFFSET_DELETE = 47

Answer = typing.Any
"""kio's class of a response, which depends on the version."""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[OneBroker]:
    one = OneBroker(
        tmp_path,
        {"group.initial.rebalance.delay.ms": "0", "offset.metadata.max.bytes": "5"},
    )
    one.create("orders", 2)
    yield one
    one.close()


def ask(broker: OneBroker, api: int, version: int, /, **values: object) -> Answer:
    """Send a request of a version with these fields, and the defaults of the others."""
    handler = ROUTES[api].handler
    assert handler is not None
    module, function = handler.split(":")
    found = getattr(import_module(f"headrace.apis.{module}"), function)
    request = filled(codec.request_class(api, version), values)
    return over_the_wire(broker, found, api, version, request)


def commit(
    broker: OneBroker, offset: int, version: int = 9, metadata: str = "", **values: object
) -> list[int]:
    """The errors of partitions 0 and 9 of orders, and 0 of a topic that is not there."""
    topic_class = type(part(OFFSET_COMMIT, version, "topics"))

    def topic(name: str, *indexes: int) -> object:
        partitions = tuple(
            item(
                topic_class, "partitions", partition_index=index, committed_offset=offset,
                committed_metadata=metadata,
            )
            for index in indexes
        )  # fmt: skip
        return part(OFFSET_COMMIT, version, "topics", name=name, partitions=partitions)

    answer = ask(
        broker, OFFSET_COMMIT, version,
        group_id="g", topics=(topic("orders", 0, 9), topic("absent", 0)), **values,
    )  # fmt: skip
    return [int(one.error_code) for topic in answer.topics for one in topic.partitions]


def join(broker: OneBroker, version: int = 9, member_id: str = "", **values: object) -> Answer:
    protocol = part(
        JOIN, version, "protocols", name="range", metadata=subscription("orders", "once")
    )
    return ask(
        broker, JOIN, version,
        group_id="g", member_id=member_id, protocol_type="consumer", protocols=(protocol,),
        session_timeout=datetime.timedelta(seconds=10), **values,
    )  # fmt: skip


def stable(broker: OneBroker) -> Answer:
    joined = join(broker, 3)
    assignment = part(SYNC, 3, "assignments", member_id=joined.member_id, assignment=b"part")
    synced = ask(
        broker, SYNC, 3,
        group_id="g", generation_id=1, member_id=joined.member_id, assignments=(assignment,),
    )  # fmt: skip
    assert (synced.error_code, synced.assignment) == (0, b"part")
    return joined


# --- FindCoordinator ------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(4))
def test_an_old_client_finds_one_coordinator(broker: OneBroker, version: int) -> None:
    answer = ask(broker, FIND, version, key="g")
    assert (answer.error_code, answer.node_id, answer.host, answer.port) == (
        0, 1, "localhost", 9092,
    )  # fmt: skip


def test_a_new_client_finds_several_at_once(broker: OneBroker) -> None:
    answer = ask(broker, FIND, 6, key_type=0, coordinator_keys=("a", "b"))
    assert [(one.key, one.node_id, one.error_code) for one in answer.coordinators] == [
        ("a", 1, 0),
        ("b", 1, 0),
    ]


@pytest.mark.parametrize(
    ("key_type", "code"),
    [(2, ErrorCode.INVALID_REQUEST), (7, ErrorCode.INVALID_REQUEST)],
)
def test_there_is_no_coordinator_of_other_things(
    broker: OneBroker, key_type: int, code: ErrorCode
) -> None:
    (only,) = ask(broker, FIND, 4, key_type=key_type, coordinator_keys=("a",)).coordinators
    assert (only.error_code, only.node_id) == (code, -1)


# --- Membership -----------------------------------------------------------------------------------


def test_a_client_of_version_0_joins_without_a_rebalance_timeout(broker: OneBroker) -> None:
    joined = join(broker, 0)
    assert (joined.error_code, joined.generation_id) == (0, 1)
    (shard,) = [groups for groups in broker.groups.shards.states() if groups.groups]
    (member,) = shard.classic("g").roster.members.values()
    assert member.rebalance_timeout_ms == 10_000
    assert (member.client_id, member.client_host) == ("test", "/127.0.0.1")


@pytest.mark.parametrize(("version", "code"), [(3, 0), (4, 79), (9, 79)])
def test_from_version_4_on_a_member_is_given_its_id_first(
    broker: OneBroker, version: int, code: int
) -> None:
    answer = join(broker, version)
    assert answer.error_code == code
    assert answer.member_id.startswith("test-")


@pytest.mark.parametrize("version", range(6))
def test_leaving_is_answered_in_the_form_of_its_version(broker: OneBroker, version: int) -> None:
    member_id = stable(broker).member_id
    for expected in (ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID):
        if version < 3:
            answer = ask(broker, LEAVE, version, group_id="g", member_id=member_id)
            assert answer.error_code == expected
        else:
            leaver = part(LEAVE, version, "members", member_id=member_id)
            answer = ask(broker, LEAVE, version, group_id="g", members=(leaver,))
            assert (answer.error_code, answer.members[0].error_code) == (0, expected)


def test_a_sync_of_version_5_must_name_its_protocol(broker: OneBroker) -> None:
    joined = join(broker, 3)
    answer = ask(broker, SYNC, 5, group_id="g", generation_id=1, member_id=joined.member_id)
    assert answer.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_an_empty_group_id_is_refused(broker: OneBroker) -> None:
    for key in (JOIN, SYNC, HEARTBEAT, LEAVE):
        named = {"protocol_type": "t", "protocol_name": "n"} if key == SYNC else {}
        version = ROUTES[key].max_version
        answer = ask(broker, key, version, **named)
        assert answer.error_code == ErrorCode.INVALID_GROUP_ID


# --- Offsets --------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(2, 10))
def test_each_partition_is_judged_on_its_own(broker: OneBroker, version: int) -> None:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert commit(broker, 7, version) == [ErrorCode.NONE, unknown, unknown]
    too_large = [ErrorCode.OFFSET_METADATA_TOO_LARGE, unknown, unknown]
    assert commit(broker, 8, version, metadata="longer") == too_large


def test_a_commit_that_the_group_refuses_is_refused_everywhere(broker: OneBroker) -> None:
    refused = commit(broker, 7, 8, generation_id_or_member_epoch=3, member_id="who")
    assert refused == [ErrorCode.ILLEGAL_GENERATION] * 3


@pytest.mark.parametrize("version", range(1, 8))
def test_an_old_client_fetches_the_offsets_of_one_group(broker: OneBroker, version: int) -> None:
    commit(broker, 7, metadata="note")
    asked = part(OFFSET_FETCH, version, "topics", name="orders", partition_indexes=(0, 1))
    answer = ask(broker, OFFSET_FETCH, version, group_id="g", topics=(asked,))
    found = [(one.committed_offset, one.metadata) for one in answer.topics[0].partitions]
    assert found == [(7, "note"), (-1, "")]
    if version >= 2:
        answer = ask(broker, OFFSET_FETCH, version, group_id="g", topics=None)
        assert [(topic.name, len(topic.partitions)) for topic in answer.topics] == [("orders", 1)]


@pytest.mark.parametrize("version", [8, 9])
def test_a_new_client_fetches_the_offsets_of_several_groups(
    broker: OneBroker, version: int
) -> None:
    commit(broker, 7)
    asked = [
        part(OFFSET_FETCH, version, "groups", group_id=group_id, topics=None)
        for group_id in ("g", "nobody")
    ]
    known, unknown = ask(broker, OFFSET_FETCH, version, groups=tuple(asked)).groups
    assert known.topics[0].partitions[0].committed_offset == 7
    assert (unknown.group_id, unknown.error_code, unknown.topics) == ("nobody", 0, ())


def test_offsets_are_deleted_unless_they_are_subscribed_to(broker: OneBroker) -> None:
    broker.create("other")
    commit(broker, 7)

    def delete(*topics: str) -> Answer:
        one = item(type(part(OFFSET_DELETE, 0, "topics")), "partitions", partition_index=0)
        asked = [part(OFFSET_DELETE, 0, "topics", name=name, partitions=(one,)) for name in topics]
        return ask(broker, OFFSET_DELETE, 0, group_id="g", topics=tuple(asked))

    stable(broker)
    answer = delete("orders", "other", "absent")
    assert [topic.partitions[0].error_code for topic in answer.topics] == [86, 0, 3]
    assert ask(broker, OFFSET_DELETE, 0, group_id="nobody").error_code == 69


# --- Administration -------------------------------------------------------------------------------


def test_a_group_is_described_with_its_members(broker: OneBroker) -> None:
    member_id = stable(broker).member_id
    (group,) = ask(broker, DESCRIBE, 6, groups=("g",), include_authorized_operations=True).groups
    assert (group.error_code, group.group_state) == (0, "Stable")
    assert (group.protocol_type, group.protocol_data) == ("consumer", "range")
    assert group.authorized_operations > 0
    (member,) = group.members
    assert (member.member_id, member.client_host) == (member_id, "/127.0.0.1")
    assert (member.member_metadata, member.member_assignment) == (
        subscription("orders", "once"),
        b"part",
    )


@pytest.mark.parametrize(("version", "code"), [(0, 0), (5, 0), (6, 69)])
def test_a_group_that_is_not_there_is_dead(broker: OneBroker, version: int, code: int) -> None:
    (group,) = ask(broker, DESCRIBE, version, groups=("nobody",)).groups
    assert (group.error_code, group.group_state) == (code, "Dead")


def test_groups_are_listed_by_state_and_type(broker: OneBroker) -> None:
    stable(broker)
    ask(broker, FIND, 0, key="x")

    def listed(version: int = 5, **filters: object) -> list[str]:
        answer = ask(broker, LIST, version, **filters)
        assert answer.error_code == 0
        return [group.group_id for group in answer.groups]

    assert listed(0) == listed() == ["g"]
    assert listed(states_filter=("stable", "Empty")) == ["g"]
    assert listed(states_filter=("Empty",)) == []
    assert listed(types_filter=("Classic",)) == ["g"]
    assert listed(types_filter=("consumer",)) == []
    (group,) = ask(broker, LIST, 5).groups
    assert (group.protocol_type, group.group_state, group.group_type) == (
        "consumer",
        "Stable",
        "classic",
    )


def test_groups_are_deleted_one_by_one(broker: OneBroker) -> None:
    stable(broker)
    answer = ask(broker, DELETE, 2, groups_names=("g", "nobody", "g"))
    assert {one.group_id: int(one.error_code) for one in answer.results} == {"g": 68, "nobody": 69}
