"""The controller's rules for forks."""

import uuid
from dataclasses import replace

import pytest

from headrace.cluster.controller import (
    Alteration,
    ConfigChange,
    Defaults,
    NewTopic,
    Operation,
    alter_configs,
    create_topics,
)
from headrace.cluster.image import NO_LEADER, Broker, Image, PartitionState, Topic
from headrace.errors import ErrorCode, KafkaError
from headrace.types import encode_uuid

PARENT = Topic(
    "orders",
    uuid.UUID(int=5),
    (
        PartitionState(2, 7, (1, 2, 3), (2, 3), 4, eligible=(1,)),
        PartitionState(3, 1, (3, 1, 2), (3, 1, 2), 2, adding=(2,)),
    ),
    {"retention.ms": "1000"},
)
OFFSETS = (("fork.of", "orders"), ("fork.offsets", "10,20"))


def cluster(parent: Topic = PARENT) -> Image:
    image = Image().with_topics([parent])
    for number in (1, 2, 3):
        image = image.with_broker(Broker(number, "host", 9092))
    return image


def create(new: NewTopic, image: Image | None = None) -> Topic | KafkaError:
    (result,) = create_topics(image or cluster(), [new], Defaults(1, 1), uuid.uuid4)
    return result


def test_a_fork_has_the_replicas_of_its_parent_and_newer_epochs() -> None:
    fork = create(NewTopic("test", configs=OFFSETS))
    assert isinstance(fork, Topic)
    first, second = fork.partitions
    assert first == PartitionState(2, 8, (1, 2, 3), (2, 3), 0, eligible=(1,))
    assert second == PartitionState(3, 2, (3, 1, 2), (3, 1, 2), 0)
    assert fork.configs == {**dict(OFFSETS), "fork.of.id": encode_uuid(PARENT.id)}
    assert create(NewTopic("test", 2, 3, configs=OFFSETS)) != fork, "another id"


@pytest.mark.parametrize(
    ("new", "code"),
    [
        (NewTopic("t", configs=(("fork.of", "none"), ("fork.offsets", "1,2"))), "INVALID_CONFIG"),
        (NewTopic("t", configs=(("fork.of", "t"), ("fork.offsets", "1,2"))), "INVALID_CONFIG"),
        (NewTopic("t", configs=OFFSETS[:1]), "INVALID_CONFIG"),
        (NewTopic("t", configs=OFFSETS[1:]), "INVALID_CONFIG"),
        (NewTopic("t", configs=(OFFSETS[0], ("fork.offsets", "1"))), "INVALID_CONFIG"),
        (NewTopic("t", configs=(OFFSETS[0], ("fork.offsets", "1,-1"))), "INVALID_CONFIG"),
        (NewTopic("t", configs=(*OFFSETS, ("fork.of.id", "x"))), "INVALID_CONFIG"),
        (NewTopic("t", 3, configs=OFFSETS), "INVALID_PARTITIONS"),
        (NewTopic("t", -1, 2, configs=OFFSETS), "INVALID_REPLICATION_FACTOR"),
        (
            NewTopic("t", assignments=((0, (1,)), (1, (1,))), configs=OFFSETS),
            "INVALID_REPLICA_ASSIGNMENT",
        ),
    ],
)
def test_other_forks_are_refused(new: NewTopic, code: str) -> None:
    error = create(new)
    assert isinstance(error, KafkaError)
    assert error.code is ErrorCode[code]


def test_a_parent_without_a_leader_cannot_be_forked_now() -> None:
    leaderless = replace(PARENT.partitions[0], leader=NO_LEADER)
    parent = replace(PARENT, partitions=(leaderless, PARENT.partitions[1]))
    error = create(NewTopic("test", configs=OFFSETS), cluster(parent))
    assert isinstance(error, KafkaError)
    assert error.code is ErrorCode.LEADER_NOT_AVAILABLE


def test_where_a_topic_was_forked_cannot_be_altered() -> None:
    fork = create(NewTopic("test", configs=OFFSETS))
    assert isinstance(fork, Topic)
    image = cluster().with_topics([fork])

    def alter(*changes: ConfigChange, name: str = "test", fresh: bool = False) -> Topic:
        altered = alter_configs(image, Alteration("topic", name, changes, fresh))
        assert isinstance(altered, Topic)
        return altered

    for change in (
        ConfigChange("fork.of", Operation.DELETE, None),
        ConfigChange("fork.offsets", Operation.SET, "1,2"),
        ConfigChange("fork.of.id", Operation.SET, "x"),
    ):
        with pytest.raises(KafkaError, match="never altered"):
            alter(change)
    with pytest.raises(KafkaError, match="never altered"):
        alter(ConfigChange("fork.of", Operation.SET, "test"), name="orders")
    kept = alter(ConfigChange("retention.ms", Operation.SET, "5"), fresh=True)
    assert kept.configs == {**fork.configs, "retention.ms": "5"}
