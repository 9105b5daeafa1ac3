"""Clients over their quota get a throttle time and are muted; others are not affected."""

import select
import struct
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from kio.schema.create_partitions.v3 import request as growing
from kio.schema.create_partitions.v3.response import CreatePartitionsResponse
from kio.schema.create_topics.v5 import request as creating_v5
from kio.schema.create_topics.v5.response import CreateTopicsResponse as CreateTopicsResponseV5
from kio.schema.create_topics.v7 import request as creating
from kio.schema.create_topics.v7.response import CreateTopicsResponse
from kio.schema.delete_topics.v6 import request as deleting
from kio.schema.delete_topics.v6.response import DeleteTopicsResponse

from headrace.client.cluster import Cluster
from headrace.client.config import ClientConfig, parse_bootstrap
from headrace.client.connection import Connection
from headrace.client.quotas import Entity, alter_quotas, list_quotas
from headrace.errors import ErrorCode
from headrace.testing.plugin import BrokerFactory
from headrace.testing.running import RunningBroker
from headrace.wire.primitives import TopicName, i16, i32, milliseconds
from tests.support.raw import RawClient, batch_of, create, frame, produce
from tests.support.stores import eventually

LIMIT = 10_000
FULL_S = 2
"""The time that a rate is measured over at least, with the windows of this broker."""
BATCH = bytes(batch_of(b"x" * 4_900))
RAW: Entity = {"client-id": "raw"}
METADATA = frame(3, 4, struct.pack(">i", 0) + b"\0")


@pytest.fixture
def broker(headrace_factory: BrokerFactory) -> RunningBroker:
    return headrace_factory(
        {
            "quota.window.num": str(FULL_S + 1),
            "controller.quota.window.num": "2",
            "num.partitions": "1",
        }
    )


@pytest.fixture
def cluster(broker: RunningBroker) -> Iterator[Cluster]:
    with Cluster(ClientConfig(parse_bootstrap(broker.bootstrap_servers))) as connected:
        yield connected


def produce_throttle_ms(answer: bytes) -> int:
    return int(struct.unpack_from(">i", answer, len(answer) - 5)[0])


def metadata_throttle_ms(answer: bytes) -> int:
    return int(struct.unpack_from(">i", answer, 4)[0])


def no_answer(client: RawClient) -> bool:
    return not select.select([client.socket], [], [], 0)[0]


class Fetched(NamedTuple):
    throttle_ms: int
    topics: int
    size: int


def fetch(client: RawClient, topic: str, offset: int = 0, replica: int = -1) -> Fetched:
    """Fetch v4: the throttle time, how many topics are in the response, and its size."""
    name = topic.encode()
    body = struct.pack(">iiiib", replica, 0, 1, 1_000_000, 0)
    body += struct.pack(">ih", 1, len(name)) + name + struct.pack(">iiqi", 1, 0, offset, 1_000_000)
    answer = client.ask(frame(1, 4, body))
    throttle_ms, topics = struct.unpack_from(">ii", answer, 4)
    return Fetched(throttle_ms, topics, len(answer))


def test_a_producer_over_its_quota_gets_a_throttle_time_and_is_muted(
    broker: RunningBroker, cluster: Cluster
) -> None:
    with RawClient(broker.bootstrap_servers) as client, RawClient(broker.bootstrap_servers) as same:
        create(client, "orders")
        request = produce("orders", BATCH)
        assert produce_throttle_ms(client.ask(request)) == 0
        alter_quotas(cluster, RAW, {"producer_byte_rate": 500})
        began = time.monotonic()
        answer = client.ask(produce("orders", batch_of(b"x" * 30_000)))
        throttle_ms = produce_throttle_ms(answer)
        size = len(produce("orders", batch_of(b"x" * 30_000))) - 4
        most_ms = (size / 500 - FULL_S) * 1000
        assert most_ms - 1000 <= throttle_ms <= most_ms + 1
        client.send(METADATA)
        assert metadata_throttle_ms(same.ask(METADATA)) == 0, "only producing is limited"
        assert produce_throttle_ms(same.ask(request)) >= 1000, "clients share the quota of their id"
        assert cluster.brokers(), "another client is served"
        waited_ms = (time.monotonic() - began) * 1000
        assert no_answer(client) or waited_ms >= throttle_ms


def test_a_throttled_connection_is_read_again_when_the_time_is_over(
    broker: RunningBroker, cluster: Cluster
) -> None:
    with RawClient(broker.bootstrap_servers) as client:
        create(client, "orders")
        alter_quotas(cluster, RAW, {"producer_byte_rate": LIMIT})
        request = produce("orders", bytes(batch_of(b"x" * 15_000)))
        began = time.monotonic()
        sent = said_s = 0.0
        while said_s < 3:
            # What is sent together is read at once: the rest waits in the broker's buffer.
            client.send(request + request)
            for _ in range(2):
                said_s += produce_throttle_ms(client.answer()) / 1000
            sent += 2 * (len(request) - 4)
        client.ask(METADATA)
        took_s = time.monotonic() - began
        assert took_s >= said_s * 0.99
        assert sent <= 1.2 * LIMIT * (took_s + FULL_S)
        assert sent >= 0.8 * LIMIT * said_s


def test_requests_without_an_answer_are_throttled_too(
    broker: RunningBroker, cluster: Cluster
) -> None:
    with RawClient(broker.bootstrap_servers) as client:
        create(client, "orders")
        alter_quotas(cluster, RAW, {"producer_byte_rate": 500})
        began = time.monotonic()
        client.send(produce("orders", batch_of(b"x" * 30_000), acks=0) + METADATA)
        assert cluster.brokers()
        time.sleep(0.2)
        assert no_answer(client) or time.monotonic() - began > 50


def test_a_fetch_over_the_quota_is_answered_empty_and_not_counted(
    broker: RunningBroker, cluster: Cluster
) -> None:
    with RawClient(broker.bootstrap_servers) as client:
        create(client, "orders")
        for _ in range(20):
            client.ask(produce("orders", BATCH))
        everything = fetch(client, "orders")
        assert everything.size > 20 * len(BATCH)
        alter_quotas(cluster, RAW, {"consumer_byte_rate": LIMIT})
        first = fetch(client, "orders")
        assert first.throttle_ms == 0
        assert 15_000 < first.size <= LIMIT * FULL_S + 200, "as many bytes as all windows allow"
        began = time.monotonic()
        second = fetch(client, "orders")
        assert second.topics == 0
        assert 0 < second.throttle_ms <= 2000
        empty = 1
        while (again := fetch(client, "orders")).topics == 0:
            assert 0 < again.throttle_ms <= 2000, "what was withheld does not count"
            empty += 1
        assert time.monotonic() - began >= second.throttle_ms / 1000
        assert again.size == first.size
        assert empty < 5


def test_a_batch_that_is_larger_than_the_quota_gets_through(
    broker: RunningBroker, cluster: Cluster
) -> None:
    with RawClient(broker.bootstrap_servers) as client:
        create(client, "orders")
        client.ask(produce("orders", batch_of(b"x" * 3_000)))
        alter_quotas(cluster, RAW, {"consumer_byte_rate": 1_000})
        large = fetch(client, "orders")
        assert large.size > 3_000
        assert 0 < large.throttle_ms <= 2000


def test_followers_are_not_throttled(broker: RunningBroker, cluster: Cluster) -> None:
    with (
        RawClient(broker.bootstrap_servers) as client,
        RawClient(broker.bootstrap_servers) as consumer,
        RawClient(broker.bootstrap_servers) as follower,
    ):
        create(client, "orders")
        client.ask(produce("orders", BATCH))
        alter_quotas(cluster, RAW, {"consumer_byte_rate": 1, "request_percentage": 0.000001})
        client.ask(METADATA)
        assert fetch(consumer, "orders").throttle_ms > 0, "the quota is used up"
        for _ in range(3):
            fetched = fetch(follower, "orders", replica=7)
            assert fetched.throttle_ms == 0
            assert fetched.topics == 1


def test_request_time_over_the_quota_throttles_for_a_window_at_most(
    broker: RunningBroker, cluster: Cluster
) -> None:
    with RawClient(broker.bootstrap_servers) as client, RawClient(broker.bootstrap_servers) as same:
        assert metadata_throttle_ms(client.ask(METADATA)) == 0
        alter_quotas(cluster, RAW, {"request_percentage": 0.000001})
        assert metadata_throttle_ms(client.ask(METADATA)) == 0, "its time is not known before"
        assert metadata_throttle_ms(same.ask(METADATA)) == 1000
        alter_quotas(cluster, RAW, {}, ["request_percentage"])
        assert list_quotas(cluster, {}) == []
        assert metadata_throttle_ms(client.ask(METADATA)) == 0
        assert metadata_throttle_ms(same.ask(METADATA)) == 0


def topic_v7(name: str, partitions: int) -> creating.CreatableTopic:
    return creating.CreatableTopic(
        name=TopicName(name), num_partitions=i32(partitions), replication_factor=i16(1),
        assignments=(), configs=(),
    )  # fmt: skip


def error_codes(response: Any, field: str = "topics") -> dict[str, int]:
    return {str(one.name): int(one.error_code) for one in getattr(response, field)}


def throttle_ms(response: Any) -> int:
    return int(response.throttle_time.total_seconds() * 1000)


def test_changes_of_partitions_over_the_quota_are_refused(
    broker: RunningBroker, cluster: Cluster
) -> None:
    exceeded = int(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
    config = ClientConfig(parse_bootstrap(broker.bootstrap_servers))
    alter_quotas(cluster, {"client-id": config.client_id}, {"controller_mutation_rate": 1e-9})

    def ask(request: Any, shape: type[Any]) -> Any:
        # A throttled connection would not be read for a long time.
        with Connection(config.bootstrap[0], config) as connection:
            return connection.ask(request, shape)

    wanted = (topic_v7("a", 1), topic_v7("b", 3), topic_v7("c", 1))
    request = creating.CreateTopicsRequest(topics=wanted, timeout=milliseconds(1000))
    response = ask(request, CreateTopicsResponse)
    codes = error_codes(response)
    assert codes["a"] == 0, "the bucket is full at first"
    assert codes["b"] == codes["c"] == exceeded
    assert throttle_ms(response) > 60_000
    grow = growing.CreatePartitionsRequest(
        topics=(
            growing.CreatePartitionsTopic(name=TopicName("a"), count=i32(5), assignments=None),
        ),
        timeout=milliseconds(1000),
        validate_only=False,
    )
    response = ask(grow, CreatePartitionsResponse)
    assert error_codes(response, "results") == {"a": exceeded}
    remove = deleting.DeleteTopicsRequest(
        topics=(deleting.DeleteTopicState(name=TopicName("a"), topic_id=None),),
        timeout=milliseconds(1000),
    )
    response = ask(remove, DeleteTopicsResponse)
    assert error_codes(response, "responses") == {"a": exceeded}
    old = creating_v5.CreateTopicsRequest(
        topics=(
            creating_v5.CreatableTopic(
                name=TopicName("old"), num_partitions=i32(2), replication_factor=i16(1),
                assignments=(), configs=(),
            ),
        ),
        timeout=milliseconds(1000),
    )  # fmt: skip
    response = ask(old, CreateTopicsResponseV5)
    assert error_codes(response) == {"old": 0}, "old versions do not know the error"
    assert throttle_ms(response) > 60_000


def metadata_of(topic: str) -> bytes:
    """Metadata v4 of a topic, which is created if it is missing."""
    name = topic.encode()
    return frame(3, 4, struct.pack(">ih", 1, len(name)) + name + b"\x01")


def topic_error(answer: bytes, topic: str) -> int:
    """The error code before the topic's name in the response."""
    at = answer.index(struct.pack(">h", len(topic)) + topic.encode())
    return int(struct.unpack_from(">h", answer, at - 2)[0])


def test_topics_that_metadata_creates_count_as_changes_of_partitions(
    broker: RunningBroker, cluster: Cluster
) -> None:
    with RawClient(broker.bootstrap_servers) as client:
        alter_quotas(cluster, RAW, {"controller_mutation_rate": 0.1})
        codes = []
        for number in range(10):
            topic = f"created-{number}"
            answer = client.ask(metadata_of(topic))
            codes.append(topic_error(answer, topic))
            assert metadata_throttle_ms(answer) == 0, "as in Kafka, only the creation is refused"
        assert codes[0] == ErrorCode.NONE
        assert codes[-1] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        alter_quotas(cluster, RAW, {"controller_mutation_rate": 1000})
        eventually(
            lambda: topic_error(client.ask(metadata_of("created-9")), "created-9") == 0,
            "it is created when the quota allows it",
        )


def test_quotas_count_after_a_restart(broker: RunningBroker, cluster: Cluster) -> None:
    alter_quotas(cluster, RAW, {"request_percentage": 0.000001})
    broker.restart()
    with RawClient(broker.bootstrap_servers) as client:
        assert metadata_throttle_ms(client.ask(METADATA)) == 0
        assert metadata_throttle_ms(client.ask(METADATA)) == 1000
