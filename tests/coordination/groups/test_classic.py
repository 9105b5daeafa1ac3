"""Classic groups: the handshake, generations, static members, timeouts, leaving, restarts."""

import pytest

from headrace.coordination.groups.rebalance import COMPLETING, EMPTY, PREPARING, STABLE
from headrace.errors import ErrorCode, KafkaError
from tests.coordination.replies import reply_of
from tests.coordination.shard import GROUP, QUICK, Shard, subscription

RANGE = ("range", subscription("orders"))
STICKY = ("sticky", subscription("orders"))


@pytest.fixture
def shard() -> Shard:
    return Shard()


# --- Joining --------------------------------------------------------------------------------------


def test_a_lone_member_is_answered_at_once_and_leads(shard: Shard) -> None:
    joined = reply_of(shard.join())
    assert (joined.error, joined.generation, joined.protocol_name) == (0, 1, "range")
    assert joined.leader == joined.member_id
    assert [member.member_id for member in joined.members] == [joined.member_id]
    assert shard.group().state == COMPLETING


def test_a_member_without_an_id_is_given_one_first(shard: Shard) -> None:
    asked = reply_of(shard.join(requires_member_id=True))
    assert asked.error is ErrorCode.MEMBER_ID_REQUIRED
    assert asked.generation == -1
    assert shard.group().state == EMPTY
    joined = reply_of(shard.join(asked.member_id, requires_member_id=True))
    assert (joined.error, joined.member_id) == (0, asked.member_id)


def test_an_id_that_was_given_out_and_not_used_is_forgotten(shard: Shard) -> None:
    asked = reply_of(shard.join(requires_member_id=True, session_ms=6000))
    shard.advance(6001)
    assert GROUP not in shard.groups.groups
    late = reply_of(shard.join(asked.member_id))
    assert late.error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_rebalance_waits_for_those_who_were_given_an_id(shard: Shard) -> None:
    (first,) = shard.stable(1)
    asked = reply_of(shard.join(requires_member_id=True))
    rejoin = shard.join(first.member_id)
    assert not rejoin.answered
    newcomer = shard.join(asked.member_id)
    assert len(reply_of(rejoin).members) == 2
    assert reply_of(newcomer).generation == 2


def test_the_first_generation_is_held_open_for_others() -> None:
    shard = Shard({"group.initial.rebalance.delay.ms": "3000"})
    first = shard.join()
    shard.advance(2000)
    second = shard.join()
    shard.advance(3500)
    assert not first.answered
    shard.advance(1000)
    assert reply_of(first).generation == reply_of(second).generation == 1
    assert len(reply_of(first).members) == 2


def test_the_first_generation_is_held_open_no_longer_than_the_rebalance_timeout() -> None:
    shard = Shard({"group.initial.rebalance.delay.ms": "3000"})
    tokens = []
    for _ in range(5):
        tokens.append(shard.join(rebalance_ms=7000))
        shard.advance(2000)
    assert all(token.answered for token in tokens[:3])


def test_an_empty_group_id_is_refused(shard: Shard) -> None:
    assert reply_of(shard.join(group_id="")).error is ErrorCode.INVALID_GROUP_ID


@pytest.mark.parametrize("session_ms", [5999, 1_800_001])
def test_a_session_timeout_outside_the_limits_is_refused(shard: Shard, session_ms: int) -> None:
    refused = reply_of(shard.join(session_ms=session_ms))
    assert refused.error is ErrorCode.INVALID_SESSION_TIMEOUT


def test_an_unknown_member_gets_an_error(shard: Shard) -> None:
    assert reply_of(shard.join("who")).error is ErrorCode.UNKNOWN_MEMBER_ID
    shard.stable(1)
    assert reply_of(shard.join("who")).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert shard.heartbeat("who", 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_full_group_refuses_members() -> None:
    shard = Shard({**QUICK, "group.max.size": "2"})
    members = shard.stable(2)
    refused = reply_of(shard.join())
    assert (refused.error, refused.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    assert shard.heartbeat(members[0].member_id, 2) is ErrorCode.NONE


def test_a_group_over_its_size_after_a_restart_loses_the_last_to_come() -> None:
    shard = Shard()
    members = [one.member_id for one in shard.stable(3)]
    shard.settings = shard.settings.replace({"group.max.size": "2"})
    shard.restart()
    assert shard.heartbeat(members[0], 3) is ErrorCode.REBALANCE_IN_PROGRESS
    tokens = [shard.join(member) for member in members]
    assert reply_of(tokens[2]).error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert {reply_of(token).generation for token in tokens[:2]} == {4}


# --- Protocols ------------------------------------------------------------------------------------


def test_the_protocol_is_the_one_most_members_like_best_of_those_all_speak(shard: Shard) -> None:
    first = reply_of(shard.join(protocols=(RANGE, STICKY)))
    second = shard.join(protocols=(STICKY, RANGE))
    third = shard.join(protocols=(STICKY, RANGE, ("other", b"")))
    shard.join(first.member_id, protocols=(RANGE, STICKY))
    assert reply_of(second).protocol_name == reply_of(third).protocol_name == "sticky"


@pytest.mark.parametrize(
    ("protocol_type", "protocols"),
    [("connect", (RANGE,)), ("consumer", (STICKY,)), ("consumer", ()), ("", (RANGE,))],
)
def test_a_member_with_another_protocol_is_refused(
    shard: Shard, protocol_type: str, protocols: tuple[tuple[str, bytes], ...]
) -> None:
    shard.stable(1)
    refused = reply_of(shard.join(protocol_type=protocol_type, protocols=protocols))
    assert refused.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_an_empty_group_may_change_its_protocol_type(shard: Shard) -> None:
    (member,) = shard.stable(1)
    shard.leave((member.member_id, None))
    joined = reply_of(shard.join(protocol_type="connect", protocols=(("sessioned", b""),)))
    assert (joined.error, joined.protocol_type, joined.generation) == (0, "connect", 3)


def test_a_sync_under_another_protocol_is_refused(shard: Shard) -> None:
    joined = reply_of(shard.join())
    for wrong in ({"protocol_type": "connect"}, {"protocol_name": "sticky"}):
        token = shard.sync(joined.member_id, 1, **wrong)  # type: ignore[arg-type]
        assert reply_of(token).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


# --- Syncing --------------------------------------------------------------------------------------


def test_followers_wait_for_the_leaders_assignment(shard: Shard) -> None:
    first = reply_of(shard.join())
    newcomer = shard.join()
    rejoin = shard.join(first.member_id)
    leader, follower = reply_of(rejoin), reply_of(newcomer)
    waiting = shard.sync(follower.member_id, 2)
    assert not waiting.answered
    shard.sync(leader.member_id, 2, {follower.member_id: b"yours", leader.member_id: b"mine"})
    assert reply_of(waiting).assignment == b"yours"
    assert shard.group().state == STABLE


def test_a_member_that_the_leader_forgot_gets_an_empty_assignment(shard: Shard) -> None:
    members = shard.stable(2)
    group = shard.group()
    leader = next(one for one in members if one.leader == one.member_id)
    rejoin = shard.join(leader.member_id)
    tokens = [shard.join(one.member_id) for one in members if one is not leader]
    generation = reply_of(rejoin).generation
    follower = reply_of(tokens[0])
    waiting = shard.sync(follower.member_id, generation)
    shard.sync(leader.member_id, generation, {leader.member_id: b"all"})
    assert (reply_of(waiting).error, reply_of(waiting).assignment) == (0, b"")
    assert group.state == STABLE


def test_a_newcomer_sends_those_who_wait_for_their_assignment_back(shard: Shard) -> None:
    members = shard.stable(2)
    follower = next(one for one in members if one.leader != one.member_id)
    shard.join(follower.leader)
    shard.join(follower.member_id)
    waiting = shard.sync(follower.member_id, 3)
    assert not waiting.answered
    shard.join()
    assert reply_of(waiting).error is ErrorCode.REBALANCE_IN_PROGRESS
    assert shard.group().state == PREPARING


def test_a_member_that_never_syncs_is_removed(shard: Shard) -> None:
    first = reply_of(shard.join(rebalance_ms=20_000, session_ms=30_000))
    newcomer = shard.join(rebalance_ms=20_000, session_ms=30_000)
    rejoin = shard.join(first.member_id, rebalance_ms=20_000, session_ms=30_000)
    leader, follower = reply_of(rejoin), reply_of(newcomer)
    shard.sync(leader.member_id, 2, {leader.member_id: b""})
    shard.advance(20_001)
    assert shard.heartbeat(follower.member_id, 2) is ErrorCode.UNKNOWN_MEMBER_ID
    assert shard.heartbeat(leader.member_id, 2) is ErrorCode.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize("generation", [0, 2])
def test_another_generation_is_illegal(shard: Shard, generation: int) -> None:
    (member,) = shard.stable(1)
    wrong = ErrorCode.ILLEGAL_GENERATION
    assert shard.heartbeat(member.member_id, generation) is wrong
    assert reply_of(shard.sync(member.member_id, generation)).error is wrong
    with pytest.raises(KafkaError) as refused:
        shard.commit(1, member.member_id, generation)
    assert refused.value.code is wrong


def test_a_member_whose_answer_got_lost_gets_it_again(shard: Shard) -> None:
    members = shard.stable(2)
    follower = next(one for one in members if one.leader != one.member_id)
    again = reply_of(shard.join(follower.member_id))
    assert (again.generation, again.leader) == (2, follower.leader)
    token = shard.sync(follower.member_id, 2)
    assert reply_of(token).assignment == follower.member_id.encode()


def test_a_member_that_syncs_twice_gets_two_responses(shard: Shard) -> None:
    (first,) = shard.stable(1)
    shard.join()
    shard.advance(1)
    newcomer = shard.join()
    assert not newcomer.answered
    one, two = shard.join(first.member_id), shard.join(first.member_id)
    assert one.answered
    assert two.answered


# --- Rebalancing ----------------------------------------------------------------------------------


def test_heartbeats_call_members_to_a_rebalance(shard: Shard) -> None:
    (first,) = shard.stable(1)
    newcomer = shard.join()
    assert shard.heartbeat(first.member_id, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    rejoin = shard.join(first.member_id)
    assert reply_of(newcomer).generation == reply_of(rejoin).generation == 2


def test_a_leader_that_joins_again_makes_a_new_generation(shard: Shard) -> None:
    (leader,) = shard.stable(1)
    assert reply_of(shard.join(leader.member_id)).generation == 2


def test_a_member_that_subscribes_to_something_else_makes_a_new_generation(shard: Shard) -> None:
    members = shard.stable(2)
    follower = next(one for one in members if one.leader != one.member_id)
    token = shard.join(follower.member_id, protocols=(("range", subscription("other")),))
    assert not token.answered
    shard.join(follower.leader)
    assert reply_of(token).generation == 3
    assert shard.group().generation.topics == frozenset({"orders", "other"})


def test_a_member_that_does_not_join_again_in_time_is_removed(shard: Shard) -> None:
    members = shard.stable(2, rebalance_ms=8000, session_ms=30_000)
    stays, goes = members[0].member_id, members[1].member_id
    newcomer = shard.join(rebalance_ms=8000)
    rejoin = shard.join(stays, rebalance_ms=8000)
    shard.advance(60_001)
    assert {reply_of(token).generation for token in (newcomer, rejoin)} == {3}
    assert shard.heartbeat(goes, 3) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_silent_leader_is_replaced_by_one_who_joined(shard: Shard) -> None:
    members = shard.stable(2, session_ms=10_000)
    old = members[0].leader
    other = next(one.member_id for one in members if one.member_id != old)
    shard.advance(6000)
    assert shard.heartbeat(other, 2) is ErrorCode.NONE
    shard.advance(6000)
    rejoin = reply_of(shard.join(other))
    assert (rejoin.leader, rejoin.generation) == (other, 3)


def test_a_silent_member_is_removed_after_its_session(shard: Shard) -> None:
    (member,) = shard.stable(1, session_ms=10_000)
    shard.advance(9999)
    assert shard.heartbeat(member.member_id, 1) is ErrorCode.NONE
    shard.advance(9999)
    assert shard.group().state == STABLE
    shard.advance(1)
    assert shard.group().state == EMPTY
    with pytest.raises(KafkaError) as refused:
        shard.commit(1, member.member_id, 1)
    assert refused.value.code is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_commit_is_a_sign_of_life(shard: Shard) -> None:
    (member,) = shard.stable(1, session_ms=10_000)
    shard.advance(8000)
    shard.commit(1, member.member_id, 1)
    shard.advance(8000)
    assert shard.group().state == STABLE


def test_a_member_that_waits_to_join_does_not_expire(shard: Shard) -> None:
    other = shard.stable(1, instance_id="a", session_ms=600_000, rebalance_ms=300_000)[0]
    newcomer = shard.join()
    shard.join(other.member_id, instance_id="a", session_ms=600_000, rebalance_ms=300_000)
    shard.sync_all([reply_of(newcomer)])
    member_id = reply_of(newcomer).member_id
    other_topics = (("range", subscription("other")),)
    rejoin = shard.join(member_id, protocols=other_topics, session_ms=6000)
    shard.advance(60_000)
    assert not rejoin.answered
    shard.join(other.member_id, instance_id="a")
    assert reply_of(rejoin).generation == 3


def test_a_newcomer_that_waits_too_long_is_sent_away(shard: Shard) -> None:
    (first,) = shard.stable(1, session_ms=1_800_000, rebalance_ms=1_800_000)
    newcomer = shard.join(rebalance_ms=1_800_000)
    shard.advance(299_999)
    assert not newcomer.answered
    shard.advance(2)
    assert reply_of(newcomer).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert list(shard.group().roster.members) == [first.member_id]


def test_a_thousand_joins_in_a_storm_converge() -> None:
    shard = Shard({"group.initial.rebalance.delay.ms": "3000"})
    ids = [reply_of(shard.join(requires_member_id=True)).member_id for _ in range(1000)]
    tokens = [shard.join(member_id) for member_id in ids]
    shard.advance(6001)
    joined = [reply_of(token) for token in tokens]
    assert {one.generation for one in joined} == {1}
    shard.sync_all(joined)
    assert shard.group().state == STABLE
    assert len(shard.group().describe().members) == 1000


# --- Leaving --------------------------------------------------------------------------------------


def test_leaving_starts_a_rebalance_at_once(shard: Shard) -> None:
    members = shard.stable(2)
    assert shard.leave((members[1].member_id, None)) == [ErrorCode.NONE]
    assert shard.heartbeat(members[0].member_id, 2) is ErrorCode.REBALANCE_IN_PROGRESS
    assert reply_of(shard.join(members[0].member_id)).generation == 3


def test_the_last_to_leave_leaves_an_empty_group_behind(shard: Shard) -> None:
    (member,) = shard.stable(1)
    assert shard.leave((member.member_id, None)) == [ErrorCode.NONE]
    assert (shard.group().state, shard.group().generation.number) == (EMPTY, 2)
    assert shard.leave((member.member_id, None)) == [ErrorCode.UNKNOWN_MEMBER_ID]


def test_several_leave_at_once_and_each_gets_its_own_answer(shard: Shard) -> None:
    shard.join(instance_id="a")
    static_id = shard.group().roster.static["a"]
    asked = reply_of(shard.join(requires_member_id=True)).member_id
    answers = shard.leave(("", "a"), (asked, None), ("who", None), ("", "b"), (static_id, "a"))
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert answers == [ErrorCode.NONE, ErrorCode.NONE, unknown, unknown, unknown]


def test_leaving_a_group_that_is_not_there_is_an_unknown_member(shard: Shard) -> None:
    assert shard.leave(("m", None)) == [ErrorCode.UNKNOWN_MEMBER_ID]


# --- Static members -------------------------------------------------------------------------------


def test_a_static_member_that_restarts_takes_over_its_assignment_in_silence(shard: Shard) -> None:
    members = shard.stable(2)
    third = shard.join(instance_id="a")
    tokens = [shard.join(one.member_id) for one in members]
    joined = [reply_of(token) for token in (*tokens, third)]
    shard.sync_all(joined)
    old = joined[2].member_id
    again = reply_of(shard.join(instance_id="a"))
    assert (again.error, again.generation) == (0, joined[2].generation)
    assert again.member_id != old
    assert shard.group().state == STABLE
    token = shard.sync(again.member_id, again.generation, instance_id="a")
    assert reply_of(token).assignment == old.encode()
    shard.restart()
    assert shard.heartbeat(again.member_id, again.generation, "a") is ErrorCode.NONE


def test_the_older_of_two_with_one_instance_id_is_fenced(shard: Shard) -> None:
    joined = reply_of(shard.join(instance_id="a"))
    shard.sync_all([joined])
    shard.join(instance_id="a")
    fenced = ErrorCode.FENCED_INSTANCE_ID
    assert shard.heartbeat(joined.member_id, 1, "a") is fenced
    assert reply_of(shard.join(joined.member_id, instance_id="a")).error is fenced
    sync = shard.sync(joined.member_id, 1, instance_id="a")
    assert reply_of(sync).error is fenced
    assert shard.leave((joined.member_id, "a")) == [fenced]
    with pytest.raises(KafkaError) as refused:
        shard.commit(1, joined.member_id, 1, instance_id="a")
    assert refused.value.code is fenced


def test_a_restarted_static_leader_skips_the_assignment(shard: Shard) -> None:
    joined = reply_of(shard.join(instance_id="a"))
    shard.sync_all([joined])
    newer = reply_of(shard.join(instance_id="a"))
    assert (newer.leader, newer.skip_assignment) == (newer.member_id, True)
    assert [member.member_id for member in newer.members] == [newer.member_id]
    older = reply_of(shard.join(instance_id="a", can_skip_assignment=False))
    assert older.leader == newer.member_id != older.member_id
    assert (older.skip_assignment, older.members) == (False, ())


def test_a_static_member_that_comes_back_with_other_protocols_makes_a_rebalance(
    shard: Shard,
) -> None:
    joined = reply_of(shard.join(instance_id="a", protocols=(RANGE, STICKY)))
    shard.sync_all([joined])
    again = reply_of(shard.join(instance_id="a", protocols=(STICKY,)))
    assert (again.generation, again.protocol_name) == (2, "sticky")


def test_one_who_waits_is_fenced_by_its_newer_self(shard: Shard) -> None:
    (first,) = shard.stable(1)
    waiting = shard.join(instance_id="a")
    assert not waiting.answered
    newer = shard.join(instance_id="a")
    assert reply_of(waiting).error is ErrorCode.FENCED_INSTANCE_ID
    shard.join(first.member_id)
    assert reply_of(newer).error is ErrorCode.NONE


def test_static_members_survive_a_rebalance_that_they_miss(shard: Shard) -> None:
    joined = reply_of(shard.join(instance_id="a", session_ms=600_000, rebalance_ms=10_000))
    shard.sync_all([joined])
    newcomer = shard.join(rebalance_ms=10_000)
    shard.advance(10_001)
    answer = reply_of(newcomer)
    assert (answer.generation, len(answer.members)) == (2, 2)
    assert answer.leader == answer.member_id


def test_an_administrator_removes_a_static_member_by_its_instance(shard: Shard) -> None:
    joined = reply_of(shard.join(instance_id="a"))
    shard.sync_all([joined])
    assert shard.leave(("", "a")) == [ErrorCode.NONE]
    assert shard.group().state == EMPTY
    assert shard.heartbeat(joined.member_id, 1, "a") is ErrorCode.UNKNOWN_MEMBER_ID


# --- Restart --------------------------------------------------------------------------------------


def test_members_go_on_after_a_restart_as_if_nothing_had_happened(shard: Shard) -> None:
    members = shard.stable(3)
    shard.restart()
    for member in members:
        assert shard.heartbeat(member.member_id, 3) is ErrorCode.NONE
        token = shard.sync(member.member_id, 3)
        assert reply_of(token).assignment == member.member_id.encode()
    assert shard.group().describe().state == STABLE


def test_members_that_do_not_come_back_after_a_restart_are_removed(shard: Shard) -> None:
    shard.stable(2)
    shard.restart()
    shard.advance(10_001)
    assert shard.group().state in (EMPTY, PREPARING)
    shard.advance(60_001)
    assert shard.group().state == EMPTY


def test_a_generation_that_was_not_assigned_does_not_survive_a_restart(shard: Shard) -> None:
    (member,) = shard.stable(1)
    unfinished = reply_of(shard.join(member.member_id))
    assert unfinished.generation == 2
    shard.restart()
    assert shard.heartbeat(member.member_id, 2) is ErrorCode.ILLEGAL_GENERATION
    assert shard.heartbeat(member.member_id, 1) is ErrorCode.NONE


def test_all_waiting_requests_are_answered_when_the_shard_is_unloaded(shard: Shard) -> None:
    (first,) = shard.stable(1)
    newcomer = shard.join()
    (reply,) = shard.groups.withdraw(ErrorCode.NOT_COORDINATOR)
    reply.send()
    assert reply_of(newcomer).error is ErrorCode.NOT_COORDINATOR
    assert first.member_id in shard.group().roster.members
