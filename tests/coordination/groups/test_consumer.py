"""Consumer groups of the new protocol, member by member and epoch by epoch."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from headrace.coordination.groups.consumer_member import MemberState, size
from headrace.coordination.groups.group import Committer
from headrace.coordination.outcome import Token
from headrace.errors import ErrorCode, KafkaError
from tests.coordination.groups.consumer_shard import (
    GROUP,
    Client,
    Shard,
    owners,
    partitions,
    settle,
)


@contextmanager
def _refused(code: ErrorCode) -> Iterator[None]:
    with pytest.raises(KafkaError) as refusal:
        yield
    assert refusal.value.code is code


def test_the_first_member_gets_everything_at_once() -> None:
    shard = Shard(orders=3)
    answer = Client(shard, "a").join()
    assert (answer.epoch, answer.assigned) == (1, partitions(orders=3))
    assert answer.heartbeat_interval_ms == 5000
    assert shard.group.state == "Stable"


def test_a_partition_is_given_up_before_it_is_given_away() -> None:
    shard = Shard(orders=4)
    first, second = Client(shard, "a"), Client(shard, "b")
    first.join()
    settle(first)
    assert second.join().assigned == {}
    assert shard.group.state == "Reconciling"

    answer = first.beat()
    assert (answer.epoch, size(first.assigned)) == (1, 2)
    assert second.beat().assigned is None, "its partitions are not free yet"

    assert first.settle()
    assert first.epoch == 2
    assert second.beat().assigned == shard.group.persistent.target_of("b")
    settle(first, second)
    assert len(owners([first, second])) == 4
    assert shard.group.state == "Stable"


def test_a_heartbeat_without_changes_gets_no_assignment() -> None:
    shard = Shard(orders=2)
    client = Client(shard, "a")
    client.join()
    settle(client)
    before = dict(shard.log)
    assert client.beat().assigned is None
    assert shard.log == before


def test_a_full_heartbeat_gets_the_assignment_again() -> None:
    shard = Shard(orders=2)
    client = Client(shard, "a")
    client.join()
    settle(client)
    answer = client.beat(rebalance_timeout_ms=60_000, topics=("orders",), owned=client.owned)
    assert answer.assigned == partitions(orders=2)


def test_the_others_take_over_what_a_leaver_had() -> None:
    shard = Shard(orders=4)
    first, second = Client(shard, "a"), Client(shard, "b")
    first.join()
    second.join()
    settle(first, second)
    assert second.leave().epoch == -1
    settle(first)
    assert first.owned == partitions(orders=4)


def test_a_silent_member_is_out_after_its_session() -> None:
    shard = Shard(orders=4)
    first, second = Client(shard, "a"), Client(shard, "b")
    first.join()
    second.join()
    settle(first, second)
    shard.advance(30_000)
    first.beat()
    shard.advance(15_000)
    with _refused(ErrorCode.UNKNOWN_MEMBER_ID):
        second.beat()
    settle(first)
    assert first.owned == partitions(orders=4)


def test_the_configs_of_a_group_count_from_the_next_heartbeat_on() -> None:
    shard = Shard(orders=4)
    client = Client(shard, "a")
    assert client.join().heartbeat_interval_ms == 5000
    settle(client)
    shard.configure(consumer_session_timeout_ms="60000", consumer_heartbeat_interval_ms="7000")
    assert client.beat().heartbeat_interval_ms == 7000
    shard.advance(59_000)
    assert client.beat().heartbeat_interval_ms == 7000, "its session was longer than the broker's"
    shard.restart()
    shard.advance(59_000)
    assert client.beat().heartbeat_interval_ms == 7000, "also after the log was read"
    shard.configure()
    assert client.beat().heartbeat_interval_ms == 5000
    shard.advance(45_000)
    with _refused(ErrorCode.UNKNOWN_MEMBER_ID):
        client.beat()


def test_a_member_that_does_not_give_up_in_time_is_out() -> None:
    shard = Shard(orders=2)
    first, second = Client(shard, "a"), Client(shard, "b")
    first.join()
    settle(first)
    second.join()
    first.beat()
    assert shard.group.persistent.member("a").current.state == MemberState.UNREVOKED_PARTITIONS
    for _ in range(12):
        shard.advance(5_000)
        second.beat()
        if "a" in shard.group.persistent.members:
            first.beat()
    with _refused(ErrorCode.UNKNOWN_MEMBER_ID):
        first.beat()
    settle(second)
    assert second.owned == partitions(orders=2)


def test_a_wrong_epoch_is_fenced() -> None:
    shard = Shard(orders=2)
    client = Client(shard, "a")
    client.join()
    for epoch in (7, 0):
        with _refused(ErrorCode.FENCED_MEMBER_EPOCH):
            shard.beat(client.request(epoch=epoch, owned=partitions(other=1)))
    with _refused(ErrorCode.UNKNOWN_MEMBER_ID):
        shard.beat(Client(shard, "stranger", epoch=1).request())
    with _refused(ErrorCode.GROUP_ID_NOT_FOUND):
        Shard(orders=1).beat(client.request())


def test_the_answer_with_a_new_epoch_may_get_lost() -> None:
    shard = Shard(orders=2)
    client = Client(shard, "a")
    client.join()
    client.epoch = 0
    answer = client.join()
    assert (answer.epoch, answer.assigned) == (1, partitions(orders=2))


def test_more_than_the_allowed_members_are_refused() -> None:
    shard = Shard({"group.consumer.max.size": "1"}, orders=2)
    Client(shard, "a").join()
    with _refused(ErrorCode.GROUP_MAX_SIZE_REACHED):
        Client(shard, "b").join()


def test_a_storm_of_joins_comes_to_rest_without_a_target_for_each() -> None:
    shard = Shard(orders=600)
    clients = [Client(shard, f"member-{number}") for number in range(300)]
    targets: set[int] = set()
    for client in clients:
        client.join()
        targets.add(shard.group.persistent.target_epoch)
    assert shard.group.persistent.epoch == 300
    assert len(targets) < 100
    assert settle(*clients) < 6
    assert len(owners(clients)) == 600
    assert {size(client.owned) for client in clients} == {2}


# ------------------------------------------------------------------------------ static members


def test_a_returning_static_member_keeps_its_assignment_without_a_rebalance() -> None:
    shard = Shard(orders=4)
    first, second = Client(shard, "a", instance_id="one"), Client(shard, "b")
    first.join()
    second.join()
    settle(first, second)
    had, epoch = first.owned, shard.group.persistent.epoch
    assert first.leave(-2).epoch == -2

    again = Client(shard, "a2", instance_id="one")
    assert again.join().assigned == had
    assert shard.group.persistent.epoch == epoch
    assert shard.group.persistent.instances == {"one": "a2"}
    assert second.beat().assigned is None
    with _refused(ErrorCode.FENCED_INSTANCE_ID):
        first.beat(epoch=epoch)


def test_an_instance_that_is_there_is_not_replaced() -> None:
    shard = Shard(orders=4)
    Client(shard, "a", instance_id="one").join()
    with _refused(ErrorCode.UNRELEASED_INSTANCE_ID):
        Client(shard, "b", instance_id="one").join()


def test_a_static_member_that_stays_away_is_out_after_its_session() -> None:
    shard = Shard(orders=2)
    first, second = Client(shard, "a", instance_id="one"), Client(shard, "b")
    first.join()
    second.join()
    settle(first, second)
    first.leave(-2)
    shard.advance(44_000)
    second.beat()
    shard.advance(1_000)
    settle(second)
    assert second.owned == partitions(orders=2)


# -------------------------------------------------------------------------------------- topics


def test_a_topic_that_grows_or_comes_is_shared_out() -> None:
    shard = Shard(orders=2)
    client = Client(shard, "a", topics=("orders", "returns"))
    client.join()
    settle(client)
    assert client.owned == partitions(orders=2)
    shard.change_topics(orders=3, returns=1, other=5)
    assert shard.group.state == "Assigning"
    settle(client)
    assert client.owned == partitions(orders=3, returns=1)
    shard.change_topics(removed=("orders",))
    settle(client)
    assert client.owned == partitions(returns=1)


def test_a_topic_without_subscribers_changes_nothing() -> None:
    shard = Shard(orders=2)
    Client(shard, "a").join()
    before = dict(shard.log)
    shard.change_topics(other=3)
    assert shard.log == before


def test_an_expression_stands_for_the_topics_that_match_it_now_and_later() -> None:
    shard = Shard(orders=1, order=1, reorders=1)
    client = Client(shard, "a", topics=None, expression="order.*")
    client.join()
    settle(client)
    assert client.owned == partitions(order=1, orders=1)
    shard.change_topics(orderly=2, disorder=1)
    settle(client)
    assert client.owned == partitions(order=1, orders=1, orderly=2)
    shard.change_topics(removed=("orders",))
    settle(client)
    assert client.owned == partitions(order=1, orderly=2)
    client.beat(topics=("reorders",), expression="")
    settle(client)
    assert client.owned == partitions(reorders=1)
    assert not shard.group.persistent.subscriptions.resolved


def test_a_member_with_names_and_an_expression_gets_the_named_topics_first() -> None:
    shard = Shard(orders=2, lit=2)
    client = Client(shard, "a", topics=("lit",), expression="order.*")
    first = client.join()
    assert (first.epoch, first.assigned) == (1, partitions(lit=2))
    shard.advance(1)
    second = client.beat()
    assert (second.epoch, second.assigned) == (2, partitions(lit=2, orders=2))
    settle(client)
    other = Client(shard, "b", topics=("lit",), expression="order.*")
    other.join()
    assert shard.group.persistent.epoch == 3, "an expression that is known counts at once"


def test_an_expression_that_is_added_to_names_does_not_hold_up_a_change_of_the_names() -> None:
    shard = Shard(orders=2, lit=2, other=2)
    client = Client(shard, "a", topics=("lit",))
    client.join()
    settle(client)
    client.beat(topics=("lit", "other"), expression="order.*")
    assert shard.group.persistent.targets["a"] == partitions(lit=2, other=2)
    shard.advance(1)
    settle(client)
    assert client.owned == partitions(lit=2, other=2, orders=2)


def test_an_expression_over_very_many_topics_is_searched_in_pieces() -> None:
    shard = Shard(None, **{f"topic{n}": 1 for n in range(5000)})
    client = Client(shard, "a", topics=None, expression="topic[0-9]*7")
    assert client.join().assigned == {}
    rounds = 0
    while "search" in {key[2] for key in shard.timers} and rounds < 100:
        shard.now_ms += 1
        key = next(key for key in shard.timers if key[2] == "search")
        shard.run(shard.groups.expire(key, shard.now_ms))
        del shard.timers[key]
        rounds += 1
        if not shard.group.persistent.subscriptions.resolved:
            shard.timers[key] = shard.now_ms
    assert rounds > 1
    settle(client)
    assert len(client.owned) == 500


def test_an_expression_that_is_none_is_refused_and_leaves_no_trace() -> None:
    shard = Shard(orders=1)
    with _refused(ErrorCode.INVALID_REGULAR_EXPRESSION):
        Client(shard, "a", topics=None, expression="(order").join()
    assert not shard.log
    assert GROUP not in shard.groups.groups


# ------------------------------------------------------------------------------------- offsets


def test_commits_and_reads_need_the_member_and_its_epoch() -> None:
    shard = Shard(orders=1)
    Client(shard, "a").join()
    group = shard.group
    group.check_commit(Committer("a", None, 1, 9), 0)
    for who, code in (
        (Committer("b", None, 1, 9), ErrorCode.UNKNOWN_MEMBER_ID),
        (Committer("", None, -1, 9), ErrorCode.UNKNOWN_MEMBER_ID),
        (Committer("a", None, 0, 9), ErrorCode.STALE_MEMBER_EPOCH),
        (Committer("a", None, 1, 8), ErrorCode.UNSUPPORTED_VERSION),
    ):
        with _refused(code):
            group.check_commit(who, 0)
    group.check_fetch("a", 1)
    group.check_fetch(None, -1)
    with _refused(ErrorCode.UNKNOWN_MEMBER_ID):
        group.check_fetch("b", 1)
    with _refused(ErrorCode.STALE_MEMBER_EPOCH):
        group.check_fetch("a", 2)


def test_any_client_may_commit_to_a_group_without_members() -> None:
    shard = Shard(orders=1)
    client = Client(shard, "a")
    client.join()
    client.leave()
    assert shard.group.check_commit(Committer("", None, -1, 9), 0) == []


# ------------------------------------------------------------------------------------- restart


def test_a_restart_in_the_middle_changes_nothing() -> None:
    shard = Shard(orders=4, returns=2)
    clients = [Client(shard, name, topics=("orders", "returns")) for name in "abc"]
    for client in clients:
        client.join()
        client.settle()
        shard.restart()
    settle(*clients)
    assert len(owners(clients)) == 6
    assert sorted(size(client.owned) for client in clients) == [2, 2, 2]


def test_members_have_a_session_after_a_restart_to_come_back() -> None:
    shard = Shard(orders=4)
    first, second = Client(shard, "a"), Client(shard, "b")
    first.join()
    second.join()
    settle(first, second)
    shard.restart()
    shard.advance(44_999)
    first.beat()
    shard.advance(1)
    assert list(shard.group.persistent.members) == ["a"]


def test_topics_that_changed_while_it_was_down_are_noticed() -> None:
    shard = Shard(orders=1)
    client = Client(shard, "a", topics=None, expression="order.*")
    client.join()
    settle(client)
    shard.image = Shard(orders=2, order=1).image
    shard.restart()
    shard.advance(10)
    settle(client)
    assert client.owned == partitions(orders=2, order=1)


def test_a_deleted_group_leaves_nothing_in_the_log() -> None:
    shard = Shard(orders=1)
    client = Client(shard, "a", topics=None, expression="o.*")
    client.join()
    client.leave()
    shard.run(shard.groups.delete(GROUP, Token()))
    assert not any(value is not None for value in shard.log.values())
    assert GROUP not in shard.groups.groups


# ------------------------------------------------------------------------------------ assignor


def test_the_assignor_that_most_members_want_is_used() -> None:
    shard = Shard(orders=4, returns=4)
    clients = [
        Client(shard, name, topics=("orders", "returns"), assignor=wanted)
        for name, wanted in (("a", "range"), ("b", "range"), ("c", "uniform"))
    ]
    for client in clients:
        client.join()
    settle(*clients)
    assert shard.group.assignor == "range"
    assert clients[0].owned == partitions(orders={0, 1}, returns={0, 1})
