"""A static member shows its partitions, survives faults, and is fenced by its successor."""

import time
import uuid
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import ConsumerGroupState
from confluent_kafka.admin import AdminClient

from headrace.client.config import ClientConfig, parse_bootstrap
from headrace.client.membership import Fenced, GroupMember
from headrace.testing.plugin import BrokerFactory
from headrace.types import TopicPartition
from tests.support.groups import committed
from tests.support.topics import create_topic

MakeMember = Callable[[str, str], GroupMember]


@pytest.fixture
def make_member() -> Iterator[MakeMember]:
    made: list[GroupMember] = []

    def make(bootstrap: str, group: str) -> GroupMember:
        config = ClientConfig(parse_bootstrap(bootstrap), client_id="query")
        made.append(GroupMember(config, group, f"spark-{group}", heartbeat_interval_ms=200))
        return made[-1]

    yield make
    for member in made:
        member.close()


def wait_until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def members(bootstrap: str, group: str) -> list[tuple[str, list[tuple[str, int]]]]:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    found = admin.describe_consumer_groups([group])[group].result(60)
    if found.state != ConsumerGroupState.STABLE:
        return []
    return [
        (m.group_instance_id, sorted((p.topic, p.partition) for p in m.assignment.topic_partitions))
        for m in found.members
    ]


def parts(topic: str, count: int) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in range(count)]


def test_a_member_shows_its_partitions_and_commits(
    bootstrap: str, topic: str, make_member: MakeMember
) -> None:
    group = f"g-{uuid.uuid4().hex[:8]}"
    member = make_member(bootstrap, group)
    member.assign(parts(topic, 1))
    member.commit({TopicPartition(topic, 0): 5})
    assert committed(bootstrap, group) == {(topic, 0): 5}
    assert members(bootstrap, group) == [(f"spark-{group}", [(topic, 0)])]
    member.assign(parts(topic, 2))
    both = [(f"spark-{group}", [(topic, 0), (topic, 1)])]
    wait_until(lambda: members(bootstrap, group) == both, "the new partition is not shown")
    member.commit({TopicPartition(topic, 0): 6, TopicPartition(topic, 1): 1})
    assert committed(bootstrap, group) == {(topic, 0): 6, (topic, 1): 1}
    member.close()
    assert members(bootstrap, group) == []
    assert committed(bootstrap, group) == {(topic, 0): 6, (topic, 1): 1}


def test_a_successor_takes_over_immediately_and_the_older_is_fenced(
    bootstrap: str, topic: str, make_member: MakeMember
) -> None:
    group = f"g-{uuid.uuid4().hex[:8]}"
    older, newer = make_member(bootstrap, group), make_member(bootstrap, group)
    older.assign(parts(topic, 1))
    older.commit({TopicPartition(topic, 0): 1})
    newer.assign(parts(topic, 2))
    newer.commit({TopicPartition(topic, 0): 2})
    with pytest.raises(Fenced, match=group):
        older.commit({TopicPartition(topic, 0): 1})
    assert committed(bootstrap, group) == {(topic, 0): 2}
    assert members(bootstrap, group) == [(f"spark-{group}", [(topic, 0), (topic, 1)])]


def test_a_member_comes_back_after_the_broker_was_restarted(
    headrace_factory: BrokerFactory, make_member: MakeMember
) -> None:
    broker = headrace_factory()
    where = broker.bootstrap_servers
    topic = create_topic(where, "t", 2)
    member = make_member(where, "g")
    member.assign(parts(topic, 2))
    member.commit({TopicPartition(topic, 0): 1})
    broker.kill()
    broker.start()
    member.commit({TopicPartition(topic, 0): 2})
    assert committed(where, "g") == {(topic, 0): 2}
    shown = [("spark-g", [(topic, 0), (topic, 1)])]
    wait_until(lambda: members(where, "g") == shown, "the member is not back")
