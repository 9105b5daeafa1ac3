"""Kafka's rules for changes to the cluster, each with its error code."""

import uuid

import pytest

from headrace.cluster.controller import (
    Alteration,
    ConfigChange,
    Defaults,
    Growth,
    NewTopic,
    Operation,
    alter_configs,
    check_topic_name,
    create_topics,
    grow_topic,
)
from headrace.cluster.image import Broker, Image, Topic
from headrace.errors import ErrorCode, KafkaError

DEFAULTS = Defaults(partitions=2, replication_factor=1)


def cluster(brokers: int = 3) -> Image:
    image = Image()
    for number in range(brokers):
        image = image.with_broker(Broker(number, "host", 9092))
    return image


def create(image: Image, *wanted: NewTopic) -> list[Topic | KafkaError]:
    return create_topics(image, wanted, DEFAULTS, uuid.uuid4)


def created(image: Image, *wanted: NewTopic) -> Image:
    results = create(image, *wanted)
    topics = [one for one in results if isinstance(one, Topic)]
    assert len(topics) == len(wanted), results
    return image.with_topics(topics)


def refusal(image: Image, *wanted: NewTopic) -> ErrorCode:
    result = create(image, *wanted)[-1]
    assert isinstance(result, KafkaError), result
    return result.code


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "x" * 249, "...", "__consumer_offsets"])
def test_a_good_name_is_accepted(name: str) -> None:
    check_topic_name(name)


@pytest.mark.parametrize(
    "name", ["", ".", "..", "x" * 250, "a/b", "../x", "a\0b", "ä", "a b", "a\n", "a:b"]
)
def test_a_bad_name_is_an_invalid_topic(name: str) -> None:
    assert refusal(cluster(), NewTopic(name)) is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_names_that_differ_in_dots_and_underscores_collide() -> None:
    image = created(cluster(), NewTopic("a.b"))
    assert refusal(image, NewTopic("a_b")) is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert refusal(cluster(), NewTopic("c_d"), NewTopic("c.d")) is ErrorCode.INVALID_TOPIC_EXCEPTION
    gone = image.with_topics((), [image.topics["a.b"]])
    assert created(gone, NewTopic("a_b")).topics.keys() == {"a_b"}


def test_a_topic_that_exists_is_not_created_again() -> None:
    image = created(cluster(), NewTopic("t_1"))
    assert refusal(image, NewTopic("t_1")) is ErrorCode.TOPIC_ALREADY_EXISTS
    assert refusal(cluster(), NewTopic("t"), NewTopic("t")) is ErrorCode.TOPIC_ALREADY_EXISTS


@pytest.mark.parametrize(
    ("new", "code"),
    [
        (NewTopic("t", partitions=0), ErrorCode.INVALID_PARTITIONS),
        (NewTopic("t", partitions=-2), ErrorCode.INVALID_PARTITIONS),
        (NewTopic("t", partitions=2**31 - 1), ErrorCode.INVALID_PARTITIONS),
        (NewTopic("t", replication_factor=0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic("t", replication_factor=-2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic("t", replication_factor=4), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic("t", 1, -1, ((0, (1,)),)), ErrorCode.INVALID_REQUEST),
        (NewTopic("t", -1, 1, ((0, (1,)),)), ErrorCode.INVALID_REQUEST),
        (NewTopic("t", assignments=((0, ()),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", assignments=((0, (9,)),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", assignments=((0, (1, 1)),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", assignments=((1, (1,)),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", assignments=((0, (1,)), (0, (2,)))), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", assignments=((0, (1,)), (1, (1, 2)))), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("t", configs=(("no.such", "1"),)), ErrorCode.INVALID_CONFIG),
        (NewTopic("t", configs=(("retention.ms", "x"),)), ErrorCode.INVALID_CONFIG),
        (NewTopic("t", configs=(("retention.ms", None),)), ErrorCode.INVALID_CONFIG),
    ],
)
def test_a_topic_that_cannot_be_is_refused(new: NewTopic, code: ErrorCode) -> None:
    assert refusal(cluster(), new) is code


def test_minus_one_takes_the_defaults() -> None:
    topic = created(cluster(), NewTopic("t")).topics["t"]
    assert [len(state.replicas) for state in topic.partitions] == [1, 1]


def test_assignments_are_taken_as_given() -> None:
    new = NewTopic("t", assignments=((1, (2, 0)), (0, (0, 1))))
    topic = created(cluster(), new).topics["t"]
    assert [(s.leader, s.replicas, s.isr) for s in topic.partitions] == [
        (0, (0, 1), (0, 1)),
        (2, (2, 0), (2, 0)),
    ]


def test_one_bad_topic_does_not_hold_up_the_others() -> None:
    good, bad, other = create(cluster(), NewTopic("a"), NewTopic("b", 0), NewTopic("c"))
    assert isinstance(good, Topic)
    assert isinstance(other, Topic)
    assert isinstance(bad, KafkaError)


def test_equal_partition_states_are_one_object() -> None:
    image = created(cluster(1), NewTopic("a", 1000), NewTopic("b", 10))
    states = {id(state) for topic in image.topics.values() for state in topic.partitions}
    assert len(states) == 1
    grown = grow_topic(image, Growth("a", 2000))
    assert {id(state) for state in grown.partitions} == states


def test_a_topic_grows_with_the_replication_it_has() -> None:
    image = created(cluster(), NewTopic("t", 2, 2))
    grown = grow_topic(image, Growth("t", 5))
    assert grown.partitions[:2] == image.topics["t"].partitions
    assert [len(state.replicas) for state in grown.partitions] == [2] * 5


@pytest.mark.parametrize(
    ("growth", "code"),
    [
        (Growth("none", 3), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (Growth("t", 2), ErrorCode.INVALID_PARTITIONS),
        (Growth("t", 1), ErrorCode.INVALID_PARTITIONS),
        (Growth("t", -1), ErrorCode.INVALID_PARTITIONS),
        (Growth("t", 10**9), ErrorCode.INVALID_PARTITIONS),
        (Growth("t", 4, ((0,),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (Growth("t", 3, ((9,),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (Growth("t", 3, ((0, 1),)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_growth_that_cannot_be_is_refused(growth: Growth, code: ErrorCode) -> None:
    image = created(cluster(), NewTopic("t", 2))
    with pytest.raises(KafkaError) as caught:
        grow_topic(image, growth)
    assert caught.value.code is code


def altered(image: Image, *changes: ConfigChange, fresh: bool = False) -> dict[str, str]:
    topic = alter_configs(image, Alteration("topic", "t", changes, fresh))
    assert isinstance(topic, Topic)
    return dict(topic.configs)


def test_operations_on_configs() -> None:
    image = created(cluster(), NewTopic("t", configs=(("retention.ms", "5"),)))
    to = ConfigChange
    assert altered(image, to("segment.ms", Operation.SET, "9")) == {
        "retention.ms": "5",
        "segment.ms": "9",
    }
    assert altered(image, to("retention.ms", Operation.DELETE, None)) == {}
    assert altered(image, to("segment.ms", Operation.DELETE, None)) == {"retention.ms": "5"}
    both = altered(image, to("cleanup.policy", Operation.APPEND, "compact,delete"))
    assert both["cleanup.policy"] == "delete,compact"
    less = altered(
        image,
        to("cleanup.policy", Operation.SET, "compact,delete"),
        to("cleanup.policy", Operation.SUBTRACT, "delete"),
    )
    assert less["cleanup.policy"] == "compact"
    assert altered(image, to("segment.ms", Operation.SET, "9"), fresh=True) == {"segment.ms": "9"}


@pytest.mark.parametrize(
    ("of", "change", "code"),
    [
        ("topic", ("retention.ms", Operation.APPEND, "1"), ErrorCode.INVALID_CONFIG),
        ("topic", ("retention.ms", Operation.SET, "soon"), ErrorCode.INVALID_CONFIG),
        ("topic", ("retention", Operation.SET, "1"), ErrorCode.INVALID_CONFIG),
        ("broker", ("log.retention.ms", Operation.SET, "soon"), ErrorCode.INVALID_REQUEST),
        ("broker", ("broker.id", Operation.SET, "2"), ErrorCode.INVALID_REQUEST),
        ("broker", ("no.such", Operation.SET, "2"), ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_config_that_cannot_be_is_refused(
    of: str, change: tuple[str, Operation, str], code: ErrorCode
) -> None:
    image = created(cluster(), NewTopic("t"))
    name = "t" if of == "topic" else "0"
    with pytest.raises(KafkaError) as caught:
        alter_configs(image, Alteration(of, name, (ConfigChange(*change),)))  # type: ignore[arg-type]
    assert caught.value.code is code


def test_configs_of_an_unknown_topic_cannot_be_altered() -> None:
    with pytest.raises(KafkaError) as caught:
        alter_configs(cluster(), Alteration("topic", "t", ()))
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_topic_that_was_only_decided_on_takes_no_name() -> None:
    """The decision may not be written: validate-only, or a store whose disk is full."""
    image = cluster()
    create(image, NewTopic("orders_raw"))
    assert isinstance(create(image, NewTopic("orders_raw"))[0], Topic)
    image = created(image, NewTopic("a.b"))
    create(image, NewTopic("orders_raw"))
    assert isinstance(create(image, NewTopic("orders_raw"))[0], Topic)
