"""Finding brokers and leaders, and retries."""

import pytest

from headrace.client.cluster import GROUP, Cluster
from headrace.client.config import ClientConfig, parse_bootstrap
from headrace.client.errors import ClientError, Unreachable
from headrace.client.offsets import COMMITTED, EARLIEST, LATEST, list_offsets
from headrace.client.producing import produce
from headrace.errors import ErrorCode, KafkaError
from headrace.testing.plugin import BrokerFactory
from headrace.types import TopicPartition
from headrace.wire.records import Record, encode_batch
from tests.client.conftest import Connect
from tests.support.ports import free_port
from tests.support.topics import create_topic


def test_topics_have_their_partitions(cluster: Cluster, topic: str) -> None:
    found = cluster.existing_topics([topic])
    assert len(found[topic].leaders) == 2
    assert topic in cluster.topics(None)


def test_a_topic_that_does_not_exist_is_named_and_not_created(cluster: Cluster) -> None:
    assert cluster.topics(["nowhere"]) == {}
    with pytest.raises(KafkaError, match="nowhere"):
        cluster.leader(TopicPartition("nowhere", 0))
    assert "nowhere" not in cluster.topics(None)


def test_dead_bootstrap_addresses_are_passed_over(
    bootstrap: str, connect: Connect, topic: str
) -> None:
    assert topic in connect(f"127.0.0.1:{free_port()},{bootstrap}").topics(None)


def test_another_broker_is_asked_when_one_cuts_every_request(
    headrace_factory: BrokerFactory, connect: Connect
) -> None:
    bad, good = headrace_factory(), headrace_factory()
    topic = create_topic(good.bootstrap_servers, "t")
    bad.cut("Metadata", 1000)
    cluster = connect(f"{bad.bootstrap_servers},{good.bootstrap_servers}")
    assert topic in cluster.retry("listing topics", lambda: cluster.topics(None))


def test_an_unreachable_cluster_is_given_up_and_named() -> None:
    place = f"127.0.0.1:{free_port()}"
    config = ClientConfig(parse_bootstrap(place), total_timeout_s=0.3, retry_backoff_s=0.01)
    with Cluster(config) as cluster, pytest.raises(Unreachable, match=place):
        cluster.retry("asking", lambda: cluster.topics(None))


def test_offsets_are_found_by_end_and_by_time(cluster: Cluster, topic: str) -> None:
    filled, empty = TopicPartition(topic, 0), TopicPartition(topic, 1)
    records = [Record(0, 1_000 * n, None, b"x") for n in range(10)]
    assert produce(cluster, {filled: encode_batch(records)}) == {filled: 0}
    assert list_offsets(cluster, {filled: EARLIEST, empty: LATEST}) == {filled: 0, empty: 0}
    assert list_offsets(cluster, {filled: LATEST}, COMMITTED) == {filled: 10}
    assert list_offsets(cluster, {filled: 4_500, empty: 0}) == {filled: 5, empty: -1}
    assert list_offsets(cluster, {filled: 9_001}) == {filled: -1}


def test_the_coordinator_of_a_group_is_found(cluster: Cluster) -> None:
    broker = cluster.retry("finding", lambda: cluster.coordinator(GROUP, "a-group"))
    assert broker == cluster.coordinator(GROUP, "a-group")


def test_passing_errors_are_waited_for(headrace_factory: BrokerFactory, connect: Connect) -> None:
    broker = headrace_factory()
    topic = create_topic(broker.bootstrap_servers, "t")
    cluster = connect(broker.bootstrap_servers)
    broker.fail("ListOffsets", ErrorCode.NOT_LEADER_OR_FOLLOWER, 2)
    broker.cut("ListOffsets", 1)
    assert list_offsets(cluster, {TopicPartition(topic, 0): LATEST}) == {
        TopicPartition(topic, 0): 0
    }
    broker.restart()
    assert list_offsets(cluster, {TopicPartition(topic, 0): EARLIEST}) == {
        TopicPartition(topic, 0): 0
    }


def test_a_lasting_error_is_not_repeated(headrace_factory: BrokerFactory, connect: Connect) -> None:
    broker = headrace_factory()
    topic = create_topic(broker.bootstrap_servers, "t")
    broker.fail("ListOffsets", ErrorCode.TOPIC_AUTHORIZATION_FAILED, 1)
    wanted = {TopicPartition(topic, 0): LATEST}
    with pytest.raises(KafkaError, match="TOPIC_AUTHORIZATION_FAILED"):
        list_offsets(connect(broker.bootstrap_servers), wanted)


def test_a_peer_that_is_no_broker_is_refused_in_words(connect: Connect) -> None:
    import socket
    import threading

    listener = socket.create_server(("127.0.0.1", 0))

    def answer() -> None:
        peer, _ = listener.accept()
        with peer:
            peer.recv(1000)
            peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    thread = threading.Thread(target=answer)
    thread.start()
    try:
        with pytest.raises(ClientError, match="is not a response"):
            connect(f"127.0.0.1:{listener.getsockname()[1]}").topics(None)
    finally:
        thread.join()
        listener.close()
