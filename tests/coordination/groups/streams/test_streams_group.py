"""Streams groups: tasks, epochs, internal topics, time-outs, restarts."""

import pytest

from headrace.coordination.groups.group import Committer
from headrace.coordination.groups.streams.tasks import NO_TASKS, TaskSets
from headrace.coordination.groups.streams.topic_setup import (
    ASSIGNMENT_DELAYED,
    MISSING_INTERNAL_TOPICS,
    MISSING_SOURCE_TOPICS,
    SHUTDOWN_APPLICATION,
    STALE_TOPOLOGY,
)
from headrace.coordination.groups.streams.topology import StreamsTopology, Subtopology
from headrace.coordination.offsets import OffsetToCommit
from headrace.coordination.outcome import Token
from headrace.coordination.streams_records import UserEndpoint
from headrace.errors import ErrorCode, KafkaError
from tests.coordination.groups.consumer_shard import GROUP, Client
from tests.coordination.groups.streams.streams_shard import (
    COUNTING,
    StreamsTestShard,
    Thread,
    settle,
    tasks,
)
from tests.coordination.replies import reply_of


def _ready(**settings: str) -> StreamsTestShard:
    named = {name.replace("_", "."): value for name, value in settings.items()} or None
    return StreamsTestShard(named, words=4, counts=4)


def _codes(status: tuple[tuple[int, str], ...]) -> list[int]:
    return [code for code, _ in status]


def test_the_first_member_brings_the_topology_and_gets_all_tasks() -> None:
    shard = _ready()
    thread = Thread(shard, "a")
    reply = thread.join()
    assert reply.tasks == TaskSets(tasks(0, 1, 2, 3))
    assert reply.epoch == shard.streams.persistent.metadata.epoch
    assert not reply.status
    assert shard.streams.persistent.topology == COUNTING
    assert shard.streams.state == "Stable"


def test_a_task_is_revoked_before_another_member_gets_it() -> None:
    shard = _ready()
    first, second = Thread(shard, "a"), Thread(shard, "b")
    first.join()
    first.settle()
    reply = second.join()
    assert reply.tasks == NO_TASKS
    assert shard.streams.state == "Reconciling"
    revoked = first.beat().tasks
    assert revoked is not None
    assert len(revoked.active) == 2
    second.beat()
    assert second.assigned == NO_TASKS, "the first member has not confirmed yet"
    first.settle()
    second.beat()
    assert second.assigned.active | first.assigned.active == tasks(0, 1, 2, 3)
    settle(first, second)
    assert shard.streams.state == "Stable"


def test_standby_tasks_run_on_the_other_process_and_take_over() -> None:
    shard = _ready()
    shard.configure(streams_num_standby_replicas="1")
    first, second = Thread(shard, "a"), Thread(shard, "b")
    first.join()
    second.join()
    settle(first, second)
    assert first.owned.standby == second.owned.active
    assert second.owned.standby == first.owned.active
    second.leave()
    settle(first)
    assert first.owned == TaskSets(tasks(0, 1, 2, 3))


def test_a_change_of_the_standby_replicas_makes_a_new_assignment() -> None:
    shard = _ready()
    first, second = Thread(shard, "a"), Thread(shard, "b")
    first.join()
    second.join()
    settle(first, second)
    shard.configure(streams_num_standby_replicas="1")
    settle(first, second)
    assert len(first.owned.standby) == len(second.owned.standby) == 2


def test_missing_internal_topics_are_created_and_then_tasks_are_assigned() -> None:
    shard = StreamsTestShard(words=3)
    thread = Thread(shard, "a")
    reply = thread.join()
    assert [(one.name, one.partitions) for one in reply.missing] == [("counts", 3)]
    assert _codes(reply.status) == [MISSING_INTERNAL_TOPICS]
    assert shard.streams.state == "NotReady"
    assert reply.tasks == NO_TASKS
    shard.change_topics(counts=3)
    settle(thread)
    assert thread.owned.active == tasks(0, 1, 2)
    assert shard.streams.state == "Stable"


def test_a_deleted_source_topic_takes_all_tasks_away_until_it_is_back() -> None:
    shard = _ready()
    thread = Thread(shard, "a")
    thread.join()
    settle(thread)
    shard.change_topics(removed=("words",))
    assert _codes(thread.beat().status) == [MISSING_SOURCE_TOPICS]
    settle(thread)
    assert thread.owned == NO_TASKS
    shard.change_topics(words=4)
    settle(thread)
    assert len(thread.owned.active) == 4


def test_the_first_assignment_waits_for_more_members() -> None:
    shard = _ready(group_streams_initial_rebalance_delay_ms="3000")
    first, second = Thread(shard, "a"), Thread(shard, "b")
    for thread in (first, second):
        reply = thread.join()
        assert _codes(reply.status) == [ASSIGNMENT_DELAYED]
        assert reply.tasks == NO_TASKS
        assert reply.epoch > 0
    shard.advance(3000)
    settle(first, second)
    assert {len(first.owned.active), len(second.owned.active)} == {2}


def test_assignments_are_at_least_an_interval_apart() -> None:
    shard = _ready(
        group_streams_initial_rebalance_delay_ms="0", group_streams_assignment_interval_ms="1000"
    )
    first, second = Thread(shard, "a"), Thread(shard, "b")
    first.join()
    assert _codes(second.join().status) == [ASSIGNMENT_DELAYED]
    shard.advance(1000)
    assert not second.beat().status
    settle(first, second)
    assert len(second.owned.active) == 2


def test_a_member_without_heartbeats_loses_its_tasks() -> None:
    shard = _ready()
    first, second = Thread(shard, "a"), Thread(shard, "b")
    first.join()
    second.join()
    settle(first, second)
    shard.advance(40_000)
    first.beat()
    shard.advance(6000)
    settle(first)
    assert first.owned.active == tasks(0, 1, 2, 3)
    with pytest.raises(KafkaError) as caught:
        second.beat()
    assert caught.value.code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_does_not_revoke_in_time_is_removed() -> None:
    shard = _ready()
    first, second = Thread(shard, "a"), Thread(shard, "b")
    first.join()
    settle(first)
    second.join()
    first.beat()
    for _ in range(7):
        shard.advance(9000)
        if "a" in shard.streams.persistent.members:
            first.beat()
        second.beat()
    assert shard.streams.persistent.members.keys() == {"b"}
    settle(second)
    assert second.owned.active == tasks(0, 1, 2, 3)


def test_a_group_is_the_same_after_a_restart() -> None:
    shard = _ready()
    shard.configure(streams_num_standby_replicas="1")
    first, second = Thread(shard, "a", endpoint=UserEndpoint("h", 80)), Thread(shard, "b")
    first.join()
    settle(first)
    second.join()
    first.beat()
    before = shard.streams.persistent
    shard.restart()
    after = shard.streams.persistent
    assert after is not before
    assert (after.members, after.targets) == (before.members, before.targets)
    assert (after.metadata, after.target) == (before.metadata, before.target)
    assert after.topology == COUNTING
    assert shard.streams.state == "Reconciling"
    settle(first, second)
    assert first.owned.active | second.owned.active == tasks(0, 1, 2, 3)
    shard.advance(60_000)
    assert shard.streams.is_empty(), "sessions begin again after a restart"


def test_an_old_epoch_is_fenced_unless_its_answer_was_lost() -> None:
    shard = _ready()
    first, second = Thread(shard, "a"), Thread(shard, "b")
    first.join()
    settle(first)
    old = first.epoch
    second.join()
    first.settle()
    settle(first, second)
    assert first.epoch > old
    for epoch in (first.epoch + 1, old - 1):
        with pytest.raises(KafkaError) as caught:
            shard.streams_beat(first.request(epoch=epoch, owned=first.owned))
        assert caught.value.code == ErrorCode.FENCED_MEMBER_EPOCH
    previous = shard.streams.persistent.members["a"].current.previous_epoch
    assert shard.streams_beat(first.request(epoch=previous, owned=first.owned)).epoch == first.epoch
    with pytest.raises(KafkaError):
        shard.streams_beat(first.request(epoch=previous, owned=TaskSets(tasks(0, 1, 2, 3))))


def test_a_member_that_joins_again_is_told_its_tasks() -> None:
    shard = _ready()
    thread = Thread(shard, "a")
    thread.join()
    settle(thread)
    assert thread.join().tasks == TaskSets(tasks(0, 1, 2, 3))


def test_other_topologies_and_tasks_are_refused() -> None:
    shard = _ready()
    Thread(shard, "a").join()
    other = StreamsTopology(0, (Subtopology("0", ("words",)),))
    with pytest.raises(KafkaError) as caught:
        Thread(shard, "b", topology=other).join()
    assert caught.value.code == ErrorCode.INVALID_REQUEST
    thread = Thread(shard, "c")
    thread.join()
    with pytest.raises(KafkaError) as caught:
        thread.beat(owned=TaskSets(tasks(9)))
    assert caught.value.code == ErrorCode.INVALID_REQUEST


def test_a_member_with_an_older_topology_is_told() -> None:
    shard = _ready()
    Thread(shard, "a", topology=StreamsTopology(3, COUNTING.subtopologies)).join()
    old = Thread(shard, "b")
    assert STALE_TOPOLOGY in _codes(old.join().status)


def test_a_full_group_accepts_no_more_members() -> None:
    shard = _ready(group_streams_initial_rebalance_delay_ms="0", group_streams_max_size="1")
    first = Thread(shard, "a")
    first.join()
    first.join()
    with pytest.raises(KafkaError) as caught:
        Thread(shard, "b").join()
    assert caught.value.code == ErrorCode.GROUP_MAX_SIZE_REACHED


def test_a_shutdown_reaches_all_members_until_the_group_is_empty() -> None:
    shard = _ready()
    first, second = Thread(shard, "a"), Thread(shard, "b")
    first.join()
    second.join()
    assert SHUTDOWN_APPLICATION in _codes(first.beat(shutdown=True).status)
    assert SHUTDOWN_APPLICATION in _codes(second.beat().status)
    first.leave()
    assert SHUTDOWN_APPLICATION in _codes(second.beat().status)
    second.leave()
    assert SHUTDOWN_APPLICATION not in _codes(Thread(shard, "c").join().status)


def test_members_learn_the_endpoints_of_the_others() -> None:
    shard = _ready()
    first = Thread(shard, "a", endpoint=UserEndpoint("one", 8080))
    second = Thread(shard, "b", endpoint=UserEndpoint("two", 8080))
    reply = first.join()
    assert reply.endpoints is not None
    assert [(one.endpoint.host, one.active) for one in reply.endpoints] == [
        ("one", {"words": (0, 1, 2, 3)})
    ]
    assert first.beat().endpoints is None
    second.join()
    settle(first, second)
    found = shard.streams_beat(first.request(endpoint_epoch=0)).endpoints
    assert found is not None
    partitions = {one.endpoint.host: set(one.active.get("words", ())) for one in found}
    assert partitions["one"] | partitions["two"] == {0, 1, 2, 3}
    assert partitions["one"].isdisjoint(partitions["two"])


def test_commits_need_the_epoch_of_the_member_or_a_task_that_it_has_had_since() -> None:
    shard = _ready()
    first, second = Thread(shard, "a"), Thread(shard, "b")
    first.join()
    settle(first)
    early = first.epoch
    second.join()
    settle(first, second)
    group = shard.streams
    kept, lost = (min(one.owned.active).partition for one in (first, second))

    def commit(member: str, epoch: int, partition: int, version: int = 9) -> None:
        offsets = [OffsetToCommit("words", partition, 5, -1, "")]
        group.check_commit(Committer(member, None, epoch, version), 0, offsets)

    commit("a", first.epoch, kept)
    commit("a", early, kept)
    for bad in (("a", early, lost), ("a", first.epoch + 1, kept), ("b", early, lost)):
        with pytest.raises(KafkaError) as caught:
            commit(*bad)
        assert caught.value.code == ErrorCode.STALE_MEMBER_EPOCH
    with pytest.raises(KafkaError) as caught:
        commit("a", first.epoch, kept, version=8)
    assert caught.value.code == ErrorCode.UNSUPPORTED_VERSION
    with pytest.raises(KafkaError) as caught:
        commit("c", 1, kept)
    assert caught.value.code == ErrorCode.UNKNOWN_MEMBER_ID
    group.check_fetch(None, -1)
    group.check_fetch("a", first.epoch)
    with pytest.raises(KafkaError):
        group.check_fetch("a", early)


def test_an_empty_group_is_deleted_with_all_its_records() -> None:
    shard = _ready()
    thread = Thread(shard, "a")
    thread.join()
    token: Token[ErrorCode] = Token()
    shard.run(shard.groups.delete(GROUP, token))
    assert reply_of(token) == ErrorCode.NON_EMPTY_GROUP
    assert shard.streams.subscribes_to("words")
    thread.leave()
    assert not shard.streams.subscribes_to("words")
    token = Token()
    shard.run(shard.groups.delete(GROUP, token))
    assert reply_of(token) == ErrorCode.NONE
    assert GROUP not in shard.groups.groups
    assert not any(shard.log.values())


def test_other_kinds_of_members_are_refused_and_the_kind_is_listed() -> None:
    shard = _ready()
    Thread(shard, "a").join()
    listed = shard.groups.listed(frozenset(), frozenset({"streams"}))
    assert [(one.group_id, one.protocol_type, one.state) for one in listed] == [
        (GROUP, "streams", "Stable")
    ]
    with pytest.raises(KafkaError) as caught:
        Client(shard, "c").join()
    assert caught.value.code == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_heartbeat_for_a_consumer_group_or_for_none_is_refused() -> None:
    shard = StreamsTestShard(orders=1, words=4, counts=4)
    with pytest.raises(KafkaError) as caught:
        Thread(shard, "a", epoch=3).beat()
    assert caught.value.code == ErrorCode.GROUP_ID_NOT_FOUND
    Client(shard, "c").join()
    with pytest.raises(KafkaError) as caught:
        Thread(shard, "a").join()
    assert caught.value.code == ErrorCode.GROUP_ID_NOT_FOUND
