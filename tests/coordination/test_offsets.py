"""Committed offsets: commits, fencing, expiry and deletion."""

import pytest

from headrace.coordination.groups.group import Committer
from headrace.coordination.offsets import OffsetToCommit
from headrace.coordination.outcome import Token
from headrace.coordination.records import OffsetCommit, OffsetCommitKey
from headrace.errors import ErrorCode, KafkaError
from headrace.types import TopicPartition
from tests.coordination.replies import reply_of
from tests.coordination.shard import GROUP, QUICK, WALL_MS, Shard, subscription

MINUTE_MS = 60_000


@pytest.fixture
def shard() -> Shard:
    return Shard({**QUICK, "offsets.retention.minutes": "10"})


def expire(shard: Shard) -> None:
    shard.run(lambda groups, _token, _now: groups.expire_offsets())


def refusal(shard: Shard, *arguments: object, **options: object) -> ErrorCode:
    with pytest.raises(KafkaError) as refused:
        shard.commit(*arguments, **options)  # type: ignore[arg-type]
    return refused.value.code


def test_a_committed_offset_is_there_after_a_restart(shard: Shard) -> None:
    shard.commit(7)
    shard.commit(9)
    shard.restart()
    assert shard.committed() == 9


def test_any_client_may_commit_for_a_group_without_members(shard: Shard) -> None:
    shard.commit(1)
    assert shard.group().describe().state == "Empty"
    assert shard.group().protocol_type == ""
    (member,) = shard.stable(1)
    assert refusal(shard, 2) is ErrorCode.UNKNOWN_MEMBER_ID
    shard.leave((member.member_id, None))
    shard.commit(3)
    assert shard.committed() == 3


@pytest.mark.parametrize(
    ("version", "code"),
    [(8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)],
)
def test_a_generation_of_a_group_that_is_not_there_is_refused(
    shard: Shard, version: int, code: ErrorCode
) -> None:
    assert refusal(shard, 1, "m", 1, version=version) is code
    assert GROUP not in shard.groups.groups


def test_a_member_commits_in_its_generation_and_while_a_rebalance_is_prepared(
    shard: Shard,
) -> None:
    (member,) = shard.stable(1)
    shard.commit(1, member.member_id, 1)
    shard.join()
    shard.commit(2, member.member_id, 1)
    assert shard.committed() == 2


def test_commits_are_refused_before_the_generation_is_assigned(shard: Shard) -> None:
    joined = reply_of(shard.join())
    assert refusal(shard, 1, joined.member_id, 1) is ErrorCode.REBALANCE_IN_PROGRESS


def test_offsets_of_a_group_that_is_not_there_are_none(shard: Shard) -> None:
    assert shard.groups.fetch("nobody", None, -1) == {}


# --- Expiry ---------------------------------------------------------------------------------------


def test_offsets_of_a_simple_consumer_expire_after_their_commit(shard: Shard) -> None:
    shard.commit(1, partition=0)
    shard.advance(5 * MINUTE_MS)
    shard.commit(1, partition=1)
    shard.advance(5 * MINUTE_MS)
    expire(shard)
    assert (shard.committed(0), shard.committed(1)) == (-1, 1)
    shard.advance(5 * MINUTE_MS)
    expire(shard)
    assert GROUP not in shard.groups.groups
    shard.restart()
    assert GROUP not in shard.groups.groups


def test_offsets_of_a_group_expire_from_when_it_became_empty(shard: Shard) -> None:
    (member,) = shard.stable(1, session_ms=1_800_000)
    shard.commit(1, member.member_id, 1)
    shard.advance(9 * MINUTE_MS)
    shard.leave((member.member_id, None))
    shard.advance(9 * MINUTE_MS)
    expire(shard)
    assert shard.committed() == 1
    shard.restart()
    shard.advance(1 * MINUTE_MS)
    expire(shard)
    assert shard.committed() == -1
    assert GROUP not in shard.groups.groups


def test_of_a_living_group_only_offsets_of_other_topics_expire(shard: Shard) -> None:
    (member,) = shard.stable(1, session_ms=1_800_000)
    shard.commit(1, member.member_id, 1, topic="orders")
    shard.commit(1, member.member_id, 1, topic="once")
    shard.advance(11 * MINUTE_MS)
    expire(shard)
    assert (shard.committed(topic="orders"), shard.committed(topic="once")) == (1, -1)
    assert shard.group().state == "Stable"


def test_offsets_of_a_living_group_of_another_kind_stay(shard: Shard) -> None:
    (member,) = shard.stable(1, session_ms=1_800_000, protocol_type="connect")
    shard.commit(1, member.member_id, 1)
    shard.advance(11 * MINUTE_MS)
    expire(shard)
    assert shard.committed() == 1


def test_an_expiry_time_in_the_record_counts(shard: Shard) -> None:
    key = OffsetCommitKey(GROUP, "orders", 0)
    shard.groups.replay(key, OffsetCommit(1, -1, "", WALL_MS, WALL_MS + MINUTE_MS))
    shard.advance(MINUTE_MS)
    expire(shard)
    assert shard.committed() == -1


# --- Deleting -------------------------------------------------------------------------------------


def delete(shard: Shard, group_id: str = GROUP) -> ErrorCode:
    token: Token[ErrorCode] = shard.run(lambda groups, token, _: groups.delete(group_id, token))
    return reply_of(token)


def test_a_deleted_group_is_gone_with_its_offsets_for_good(shard: Shard) -> None:
    (member,) = shard.stable(1)
    shard.commit(5, member.member_id, 1)
    assert delete(shard) is ErrorCode.NON_EMPTY_GROUP
    shard.leave((member.member_id, None))
    assert delete(shard) is ErrorCode.NONE
    assert delete(shard) is ErrorCode.GROUP_ID_NOT_FOUND
    shard.restart()
    assert shard.committed() == -1
    assert shard.groups.groups == {}


def delete_offsets(shard: Shard, *partitions: TopicPartition) -> tuple[ErrorCode, ...]:
    token: Token[tuple[ErrorCode, ...]] = shard.run(
        lambda groups, token, _: groups.delete_offsets(GROUP, partitions, token)
    )
    return reply_of(token)


def test_offsets_of_subscribed_topics_are_not_deleted(shard: Shard) -> None:
    (member,) = shard.stable(1)
    shard.commit(1, member.member_id, 1, topic="orders")
    shard.commit(1, member.member_id, 1, topic="once")
    results = delete_offsets(shard, TopicPartition("orders", 0), TopicPartition("once", 0))
    assert results == (ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NONE)
    shard.restart()
    assert (shard.committed(topic="orders"), shard.committed(topic="once")) == (1, -1)


def test_offsets_of_a_group_with_unknown_topics_are_not_deleted(shard: Shard) -> None:
    with pytest.raises(KafkaError) as refused:
        delete_offsets(shard, TopicPartition("orders", 0))
    assert refused.value.code is ErrorCode.GROUP_ID_NOT_FOUND
    shard.stable(1, protocol_type="connect")
    with pytest.raises(KafkaError) as refused:
        delete_offsets(shard, TopicPartition("orders", 0))
    assert refused.value.code is ErrorCode.NON_EMPTY_GROUP


def test_offsets_of_a_deleted_topic_go(shard: Shard) -> None:
    shard.commit(1, topic="orders")
    shard.commit(1, topic="other")
    image = shard.groups.image
    gone = frozenset({"orders"})
    shard.run(lambda groups, _, now: groups.topics_changed(image, gone, gone, now))
    assert (shard.committed(topic="orders"), shard.committed(topic="other")) == (-1, 1)


def test_a_subscription_that_cannot_be_read_keeps_everything(shard: Shard) -> None:
    for broken in (b"", b"\0\0\0\0\0\x09", subscription("orders")[:9]):
        shard = Shard({**QUICK, "offsets.retention.minutes": "10"})
        (member,) = shard.stable(1, protocols=(("range", broken),), session_ms=1_800_000)
        shard.commit(1, member.member_id, 1)
        shard.advance(11 * MINUTE_MS)
        expire(shard)
        assert shard.committed() == 1


# ------------------------------------------------------------------------------- transactions


def in_transaction(shard: Shard, offset: int, producer_id: int = 5) -> None:
    """Commit an offset in a transaction; the log of this shard does not know it."""
    wanted = [OffsetToCommit("orders", 0, offset, 0, "")]
    who = Committer("", None, -1, 9)
    outcome = shard.groups.commit_in_transaction(GROUP, who, wanted, (producer_id, 0), 0)
    assert outcome.producer == (producer_id, 0)
    for key, value in outcome.records:
        shard.groups.replay_pending(producer_id, key, value)


def test_the_commit_of_a_transaction_does_not_take_back_a_later_offset(shard: Shard) -> None:
    in_transaction(shard, 5)
    shard.commit(9)
    shard.groups.end_transaction(5, commit=True)
    assert shard.committed() == 9


def test_each_transaction_ends_for_itself(shard: Shard) -> None:
    in_transaction(shard, 5, producer_id=1)
    in_transaction(shard, 6, producer_id=2)
    shard.groups.end_transaction(1, commit=False)
    assert shard.groups.offsets.pending(GROUP)
    shard.groups.end_transaction(2, commit=True)
    assert shard.committed() == 6
    assert not shard.groups.offsets.pending(GROUP)


def test_a_group_that_a_transaction_made_is_gone_with_its_abort(shard: Shard) -> None:
    in_transaction(shard, 5)
    assert GROUP in shard.groups.groups
    expire(shard)
    assert GROUP in shard.groups.groups
    shard.groups.end_transaction(5, commit=False)
    assert GROUP not in shard.groups.groups


def test_a_deleted_group_does_not_come_back_with_a_commit(shard: Shard) -> None:
    in_transaction(shard, 5)
    delete(shard)
    shard.groups.end_transaction(5, commit=True)
    assert shard.committed() == -1
