"""The coordinator on real logs: acknowledged operations survive, waiting requests get responses."""

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from headrace.clock import ManualClock
from headrace.cluster.image import OFFSETS_TOPIC
from headrace.coordination.coordinator_topic import java_hash
from headrace.coordination.group_runtime import GroupCoordinator
from headrace.coordination.groups import consumer
from headrace.coordination.groups.consumer import ConsumerHeartbeat, ConsumerHeartbeatReply
from headrace.coordination.groups.group import Committer, Join, Joined, Leaver, Left, Sync, Synced
from headrace.coordination.groups.registry import Groups
from headrace.coordination.offsets import OffsetToCommit
from headrace.coordination.outcome import Outcome, Reply, Token, answer
from headrace.errors import ErrorCode, KafkaError
from headrace.log.log import Log
from headrace.replication.partition import Partition
from headrace.wire.records import Record, encode_batch
from tests.apis.one_broker import OneBroker
from tests.coordination.replies import itself

QUICK_SWEEPS = {"offsets.retention.check.interval.ms": "10"}
SETTINGS = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "3"}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[OneBroker]:
    one = OneBroker(tmp_path, SETTINGS)
    one.create("orders", 4)
    yield one
    one.close()


def restarted(broker: OneBroker) -> GroupCoordinator:
    """A coordinator that knows nothing but the logs of this one."""
    services = broker.services
    return GroupCoordinator(services.settings, services.clock, broker.metadata, broker.replicas)


def commit(
    groups: GroupCoordinator, offset: int, group_id: str = "g", partition: int = 0
) -> object:
    wanted = [OffsetToCommit("orders", partition, offset, 0, "")]

    def operation(shard: Groups, token: Token[str], now_ms: int) -> Outcome:
        outcome = shard.commit(group_id, Committer("", None, -1, 9), wanted, now_ms)
        outcome.replies.append(Reply(token, "done"))
        return outcome

    return groups.run(group_id, operation, itself(str))


def committed(groups: GroupCoordinator, group_id: str = "g", partition: int = 0) -> int:
    def operation(shard: Groups, token: Token[int], _now_ms: int) -> Outcome:
        return answer(token, shard.fetch(group_id, None, -1)["orders"][partition].offset)

    found = groups.run(group_id, operation, itself(int))
    assert isinstance(found, int)
    return found


def joining(group_id: str, member_id: str) -> Join:
    return Join(
        group_id, member_id, None, "c", "/h", 10_000, 60_000, "consumer", (("range", b""),), "",
        False, True,
    )  # fmt: skip


def join(groups: GroupCoordinator, member_id: str, group_id: str = "g") -> object:
    request = joining(group_id, "")
    return groups.run(
        group_id,
        lambda shard, token, now: shard.join(request, token, member_id, now),
        itself(Joined),
    )


@pytest.mark.parametrize(
    ("text", "value"),
    # The last two: a hash of -2^31, and a character of two UTF-16 units.
    [("", 0), ("g", 103), ("Aa", 2112), ("hello", 99_162_322), ("polygenelubricants", 0),
     ("\N{GRINNING FACE}", 1_772_899)],
)  # fmt: skip
def test_groups_have_the_same_partitions_as_in_java(text: str, value: int) -> None:
    assert java_hash(text) == value


def test_the_topic_is_made_when_the_first_group_comes(broker: OneBroker) -> None:
    assert OFFSETS_TOPIC not in broker.metadata.image.topics
    assert list(broker.groups.shards.states()) == []
    assert broker.groups.topic.leader_of("g") == 1
    topic = broker.metadata.image.topics[OFFSETS_TOPIC]
    assert len(topic.partitions) == 3
    assert topic.configs["cleanup.policy"] == "compact"


def test_an_acknowledged_offset_is_in_the_log(broker: OneBroker) -> None:
    assert commit(broker.groups, 7) == "done"
    assert commit(broker.groups, 8) == "done"
    assert committed(restarted(broker)) == 8


def test_a_log_too_large_to_read_at_once_is_read_while_clients_wait(broker: OneBroker) -> None:
    for offset in range(1500):
        commit(broker.groups, offset, partition=offset % 4)

    async def use() -> int:
        groups = restarted(broker)
        groups.start()
        with pytest.raises(KafkaError) as refused:
            committed(groups)
        assert refused.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        with pytest.raises(KafkaError):
            list(groups.shards.states())
        while True:
            await asyncio.sleep(0)
            with contextlib.suppress(KafkaError):
                return committed(groups, partition=3)

    assert asyncio.run(use()) == 1499


def test_a_damaged_log_is_not_served(broker: OneBroker) -> None:
    commit(broker.groups, 7)
    index = broker.groups.topic.partition_of("g")
    log = broker.replicas.partition(OFFSETS_TOPIC, index).replica.log
    (segment,) = Path(log.folder).glob("*.log")
    data = bytearray(segment.read_bytes())
    data[-3] ^= 1
    with segment.open("r+b") as file:
        file.write(data)
    for _ in range(2):
        with pytest.raises(KafkaError) as refused:
            committed(restarted(broker))
        assert refused.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_a_log_that_could_not_be_opened_is_read_when_it_can_be(
    broker: OneBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, failures = broker.replicas.folders.open_log, [ErrorCode.KAFKA_STORAGE_ERROR] * 2

    def sometimes(partition: Partition) -> Log:
        if failures and partition.name.topic == OFFSETS_TOPIC:
            raise KafkaError(failures.pop(), "there is no room")
        return real(partition)

    monkeypatch.setattr(broker.replicas.folders, "open_log", sometimes)
    monkeypatch.setattr(broker.replicas.folders, "create_few", lambda: None)
    clock = cast(ManualClock, broker.services.clock)
    for pause_ms in (1000, 2000):
        for _ in range(2):  # who asks does not try it
            with pytest.raises(KafkaError) as refused:
                commit(broker.groups, 7)
            assert refused.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        clock.advance(pause_ms)
        broker.groups.fire_timers()
    assert commit(broker.groups, 7) == "done"
    assert committed(broker.groups) == 7


def test_an_unexpected_error_ends_neither_reading_nor_timers_nor_sweeps(
    broker: OneBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(broker.groups, 7)
    join(broker.groups, "m-1")
    broken = {Groups.replay, Groups.expire, Groups.expire_offsets}

    def break_once(name: str) -> None:
        real = getattr(Groups, name)

        def once(self: Groups, *args: object) -> object:
            if real in broken:
                broken.discard(real)
                raise RuntimeError("a bug")
            return real(self, *args)

        monkeypatch.setattr(Groups, name, once)

    for name in ("replay", "expire", "expire_offsets"):
        break_once(name)
    clock = cast(ManualClock, broker.services.clock)

    async def use() -> None:
        groups = restarted(broker)
        monkeypatch.setattr(groups, "_settings", broker.services.settings.replace(QUICK_SWEEPS))
        groups.start()
        with pytest.raises(KafkaError) as refused:
            committed(groups)
        assert refused.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        clock.advance(1000)
        groups.fire_timers()
        assert committed(groups) == 7
        groups.stop()

    asyncio.run(use())
    clock.advance(10_001)
    broker.groups.fire_timers()
    shard = next(groups for groups in broker.groups.shards.states() if "g" in groups.groups)
    assert shard.groups["g"].state != "Empty"
    clock.advance(5001)
    broker.groups.fire_timers()
    assert shard.groups["g"].state == "Empty"

    async def sweep() -> None:
        groups = restarted(broker)
        monkeypatch.setattr(groups, "_settings", broker.services.settings.replace(QUICK_SWEEPS))
        groups.start()
        clock.advance(10_081 * 60_000)
        for _ in range(1000):
            if all(not one.groups for one in groups.shards.states()):
                break
            await asyncio.sleep(0.01)
        groups.stop()

    asyncio.run(sweep())
    assert not broken
    assert all(not groups.groups for groups in restarted(broker).shards.states())


def test_a_record_of_a_later_version_is_passed_over(broker: OneBroker) -> None:
    commit(broker.groups, 7)
    partition = broker.replicas.partition(OFFSETS_TOPIC, broker.groups.topic.partition_of("g"))
    strange = [Record(0, 0, b"\0\x63what", b"\0\0"), Record(0, 0, b"\0\1", b"\0\1")]
    partition.append_own(encode_batch(strange), 0)
    assert committed(restarted(broker)) == 7


def test_waiting_requests_are_answered_by_the_completing_operation(broker: OneBroker) -> None:
    async def use() -> tuple[Joined, Synced]:
        groups = broker.groups
        first = cast(Joined, join(groups, "m-1"))
        assert first.generation == 1
        waiting = join(groups, "m-2")
        assert asyncio.iscoroutine(waiting)
        task = asyncio.ensure_future(waiting)
        request = joining("g", "m-1")
        groups.run(
            "g", lambda shard, token, now: shard.join(request, token, "", now), itself(Joined)
        )
        joined = cast(Joined, await task)
        follower = Sync("g", 2, "m-2", None, None, None, ())
        leader = Sync("g", 2, "m-1", None, None, None, (("m-2", b"part"),))
        part = groups.run("g", lambda s, token, now: s.sync(follower, token, now), itself(Synced))
        assert asyncio.iscoroutine(part)
        task = asyncio.ensure_future(part)
        groups.run("g", lambda s, token, now: s.sync(leader, token, now), itself(Synced))
        return joined, cast(Synced, await task)

    joined, synced = asyncio.run(use())
    assert (joined.generation, synced.assignment) == (2, b"part")


def test_a_disconnected_waiting_client_affects_no_other(broker: OneBroker) -> None:
    async def use() -> None:
        groups = broker.groups
        join(groups, "m-1")
        waiting = join(groups, "m-2")
        assert asyncio.iscoroutine(waiting)
        task = asyncio.ensure_future(waiting)
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.sleep(0)
        clock = cast(ManualClock, broker.services.clock)
        clock.advance(400_000)
        groups.fire_timers()

    asyncio.run(use())


def test_timers_fire_on_the_steady_clock(broker: OneBroker) -> None:
    join(broker.groups, "m-1")
    clock = cast(ManualClock, broker.services.clock)
    shard = next(groups for groups in broker.groups.shards.states() if "g" in groups.groups)
    clock.advance(9000)
    broker.groups.fire_timers()
    assert shard.groups["g"].state != "Empty"
    clock.advance(1001)
    broker.groups.fire_timers()
    assert shard.groups["g"].state == "Empty"


def test_offsets_of_a_deleted_topic_are_forgotten_for_good(broker: OneBroker) -> None:
    commit(broker.groups, 7)
    broker.metadata.delete_topics(["orders"])
    broker.create("orders", 4)
    with pytest.raises(KeyError):
        committed(restarted(broker))


def test_old_offsets_are_forgotten(broker: OneBroker) -> None:
    commit(broker.groups, 7)
    cast(ManualClock, broker.services.clock).advance(10_081 * 60_000)
    broker.groups.expire_offsets()
    assert all(not groups.groups for groups in restarted(broker).shards.states())


def test_without_enough_replicas_nothing_is_acknowledged_or_changed(broker: OneBroker) -> None:
    commit(broker.groups, 7)
    partition = broker.replicas.partition(OFFSETS_TOPIC, broker.groups.topic.partition_of("g"))
    partition.isr = 0
    with pytest.raises(KafkaError) as refused:
        commit(broker.groups, 8)
    assert refused.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert committed(broker.groups) == 7


def test_refused_records_are_logged_once_in_ten_seconds(
    broker: OneBroker, caplog: pytest.LogCaptureFixture
) -> None:
    commit(broker.groups, 7)
    broker.replicas.partition(OFFSETS_TOPIC, broker.groups.topic.partition_of("g")).isr = 0
    for _ in range(2):
        for _ in range(3):
            with pytest.raises(KafkaError):
                commit(broker.groups, 8)
        cast(ManualClock, broker.services.clock).advance(10_000)
    assert len(caplog.messages) == 2
    assert "0 in-sync replicas" in caplog.messages[0]


def test_a_name_that_no_record_can_hold_is_refused(broker: OneBroker) -> None:
    name = "g" * 40_000
    with pytest.raises(KafkaError) as refused:
        commit(broker.groups, 7, group_id=name)
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    assert all(name not in groups.groups for groups in broker.groups.shards.states())


def test_a_response_waits_for_the_flush_if_the_topic_requires_it(tmp_path: Path) -> None:
    broker = OneBroker(tmp_path, SETTINGS)
    broker.create("orders", 4)
    broker.create(OFFSETS_TOPIC, 3, cleanup_policy="compact", flush_messages="1")

    async def use() -> None:
        answer = commit(broker.groups, 7)
        assert asyncio.iscoroutine(answer)
        read = asyncio.ensure_future(_await(broker.groups))
        assert await answer == "done"
        assert await read == 7

    async def _await(groups: GroupCoordinator) -> int:
        def operation(shard: Groups, token: Token[int], _now_ms: int) -> Outcome:
            return answer(token, shard.fetch("g", None, -1)["orders"][0].offset)

        found = groups.run("g", operation, itself(int))
        # Nobody hears of an offset that a crash could still undo.
        assert asyncio.iscoroutine(found)
        return await found

    asyncio.run(use())
    broker.close()


def beat(
    groups: GroupCoordinator, member_id: str, epoch: int, group_id: str = "g"
) -> ConsumerHeartbeatReply:
    """A heartbeat of a consumer group's member that reads orders and returns."""
    request = ConsumerHeartbeat(
        group_id, member_id, epoch, None, None, 60_000, ("orders", "returns"), None, None, {}, "c",
        "/h",
    )  # fmt: skip
    found = groups.run(
        group_id,
        lambda shard, token, now: consumer.heartbeat(shard, request, token, now),
        itself(ConsumerHeartbeatReply),
    )
    assert isinstance(found, ConsumerHeartbeatReply)
    return found


def test_a_member_whose_leave_was_refused_expires_with_its_session(broker: OneBroker) -> None:
    beat(broker.groups, "a", 0)
    partition = broker.replicas.partition(OFFSETS_TOPIC, broker.groups.topic.partition_of("g"))
    partition.isr = 0
    with pytest.raises(KafkaError) as refused:
        beat(broker.groups, "a", -1)
    assert refused.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    clock = cast(ManualClock, broker.services.clock)
    clock.advance(45_000)
    broker.groups.fire_timers()  # is refused too, and tried again
    partition.isr = 1
    shard = next(groups for groups in broker.groups.shards.states() if "g" in groups.groups)
    assert shard.groups["g"].state != "Empty"
    clock.advance(5001)
    broker.groups.fire_timers()
    assert shard.groups["g"].state == "Empty"


def test_a_heartbeat_whose_records_are_refused_keeps_the_session_up(broker: OneBroker) -> None:
    beat(broker.groups, "a", 0)
    partition = broker.replicas.partition(OFFSETS_TOPIC, broker.groups.topic.partition_of("g"))
    broker.create("returns", 1)  # the next heartbeat makes a target
    clock = cast(ManualClock, broker.services.clock)
    clock.advance(40_000)
    partition.isr = 0
    with pytest.raises(KafkaError):
        beat(broker.groups, "a", 1)
    partition.isr = 1
    clock.advance(10_000)
    broker.groups.fire_timers()
    assert beat(broker.groups, "a", 1).epoch == 2


def how_many(left: tuple[Left, ...]) -> int:
    return len(left)


def test_a_classic_group_whose_end_was_refused_ends_when_its_members_expire(
    broker: OneBroker,
) -> None:
    join(broker.groups, "m-1")
    partition = broker.replicas.partition(OFFSETS_TOPIC, broker.groups.topic.partition_of("g"))
    shard = next(groups for groups in broker.groups.shards.states() if "g" in groups.groups)
    partition.isr = 0
    leaver = [Leaver("m-1", None)]
    with pytest.raises(KafkaError):
        broker.groups.run(
            "g", lambda groups, token, now: groups.leave("g", leaver, token, now), how_many
        )
    assert shard.groups["g"].state == "CompletingRebalance"
    partition.isr = 1
    clock = cast(ManualClock, broker.services.clock)
    clock.advance(10_001)
    broker.groups.fire_timers()
    assert shard.groups["g"].state == "Empty"


def test_followers_go_on_waiting_when_the_leaders_assignment_is_refused(broker: OneBroker) -> None:
    async def use() -> None:
        groups = broker.groups
        join(groups, "m-1")
        waiting = join(groups, "m-2")
        assert asyncio.iscoroutine(waiting)
        joined = asyncio.ensure_future(waiting)
        request = joining("g", "m-1")
        groups.run(
            "g", lambda shard, token, now: shard.join(request, token, "", now), itself(Joined)
        )
        await joined
        follower = Sync("g", 2, "m-2", None, None, None, ())
        leader = Sync("g", 2, "m-1", None, None, None, (("m-2", b"part"),))
        part = groups.run("g", lambda s, token, now: s.sync(follower, token, now), itself(Synced))
        assert asyncio.iscoroutine(part)
        task = asyncio.ensure_future(part)
        partition = broker.replicas.partition(OFFSETS_TOPIC, groups.topic.partition_of("g"))
        partition.isr = 0
        with pytest.raises(KafkaError):
            groups.run("g", lambda s, token, now: s.sync(leader, token, now), itself(Synced))
        await asyncio.sleep(0)
        assert not task.done()
        partition.isr = 1
        groups.run("g", lambda s, token, now: s.sync(leader, token, now), itself(Synced))
        assert (await task).assignment == b"part"

    asyncio.run(use())


def test_a_change_of_topics_that_was_refused_is_made_later(broker: OneBroker) -> None:
    answer = beat(broker.groups, "a", 0)
    commit(broker.groups, 7, "other")
    indexes = [broker.groups.topic.partition_of(name) for name in ("g", "other")]
    partitions = [broker.replicas.partition(OFFSETS_TOPIC, index) for index in indexes]
    for partition in partitions:
        partition.isr = 0
    broker.create("returns", 1)
    broker.metadata.delete_topics(["orders"])
    broker.create("orders", 4)
    for partition in partitions:
        partition.isr = 1
    assert committed(broker.groups, "other") == 7
    cast(ManualClock, broker.services.clock).advance(5001)
    broker.groups.fire_timers()
    assert beat(broker.groups, "a", answer.epoch).epoch == answer.epoch + 1
    with pytest.raises(KeyError):
        committed(restarted(broker), "other")


def test_a_shard_whose_records_were_not_committed_is_read_again_without_being_asked(
    tmp_path: Path,
) -> None:
    broker = OneBroker(tmp_path, SETTINGS)
    broker.create(OFFSETS_TOPIC, 1, cleanup_policy="compact", flush_messages="1")

    async def use() -> None:
        groups = broker.groups
        groups.start()
        partition = broker.replicas.partition(OFFSETS_TOPIC, 0)
        asked = commit(groups, 7)
        assert asyncio.iscoroutine(asked)
        partition.replica.waiters.fail(KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND))
        with pytest.raises(KafkaError) as refused:
            await asked
        assert refused.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert not groups.shards
        for _ in range(10):
            await asyncio.sleep(0)
        assert groups.shards
        groups.stop()

    asyncio.run(use())
    broker.close()
