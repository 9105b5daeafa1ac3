"""Ranges of a partition are fetched completely and once, under all faults."""

import uuid

import pytest
from confluent_kafka import TopicPartition as RdPartition
from confluent_kafka.admin import AdminClient

from headrace.client.cluster import Cluster
from headrace.client.config import ClientConfig, parse_bootstrap
from headrace.client.errors import ClientError
from headrace.client.fetching import DataLoss, FetchPlan, fetch_range, whole_batches
from headrace.client.producing import produce
from headrace.errors import ErrorCode, KafkaError
from headrace.testing.plugin import BrokerFactory
from headrace.types import TopicPartition
from headrace.wire.batch import read_header
from headrace.wire.records import Record, encode_batch, iterate
from tests.client.conftest import Connect
from tests.support.topics import create_topic


def fill(cluster: Cluster, partition: TopicPartition, batches: int, records: int = 10) -> None:
    for number in range(batches):
        values = [Record(0, 1, None, b"%d" % (number * records + n)) for n in range(records)]
        produce(cluster, {partition: encode_batch(values)})


def values(cluster: Cluster, plan: FetchPlan, start: int, stop: int) -> list[int]:
    found: list[int] = []
    for fetched in fetch_range(cluster, plan, start, stop):
        for at in fetched.positions:
            end = at + read_header(fetched.data, at).size_bytes
            found += [
                int(record.value or b"")
                for record in iterate(fetched.data, at, end, 1 << 20)
                if start <= record.offset < stop
            ]
    return found


@pytest.mark.parametrize("max_bytes", [1, 300, 1 << 20])
def test_a_range_arrives_whole_in_answers_of_any_size(
    cluster: Cluster, topic: str, max_bytes: int
) -> None:
    partition = TopicPartition(topic, 1)
    fill(cluster, partition, 12)
    plan = FetchPlan(partition, max_bytes=max_bytes)
    assert values(cluster, plan, 7, 113) == list(range(7, 113))


def test_a_range_survives_cuts_errors_and_a_restart(
    headrace_factory: BrokerFactory, connect: Connect
) -> None:
    broker = headrace_factory()
    partition = TopicPartition(create_topic(broker.bootstrap_servers, "t"), 0)
    cluster = connect(broker.bootstrap_servers)
    fill(cluster, partition, 20)
    broker.fail("Fetch", ErrorCode.NOT_LEADER_OR_FOLLOWER, 2)
    found: list[int] = []
    plan = FetchPlan(partition, max_bytes=200)
    for answers, fetched in enumerate(fetch_range(cluster, plan, 0, 200)):
        for at in fetched.positions:
            end = at + read_header(fetched.data, at).size_bytes
            found += [r.offset for r in iterate(fetched.data, at, end, 1 << 20)]
        if answers == 2:
            broker.cut("Fetch", 1)
        if answers == 5:
            broker.kill()
            broker.start()
    assert found == list(range(200))


def test_records_that_were_deleted_are_reported_with_where_to_go_on(
    cluster: Cluster, topic: str, bootstrap: str
) -> None:
    partition = TopicPartition(topic, 0)
    fill(cluster, partition, 3)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.delete_records([RdPartition(topic, 0, 12)]).values():
        future.result(60)
    with pytest.raises(DataLoss, match="begins at offset 12") as caught:
        values(cluster, FetchPlan(partition), 5, 30)
    assert caught.value.resume_at == 12
    assert values(cluster, FetchPlan(partition), 12, 30) == list(range(12, 30))


def test_a_log_that_ends_too_early_is_reported(cluster: Cluster, topic: str) -> None:
    partition = TopicPartition(topic, 0)
    fill(cluster, partition, 1)
    with pytest.raises(DataLoss, match="ends at offset 10, before 50"):
        values(cluster, FetchPlan(partition), 50, 60)


def test_a_topic_that_vanished_is_named(bootstrap: str) -> None:
    cluster = Cluster(ClientConfig(parse_bootstrap(bootstrap), total_timeout_s=0.3))
    name = f"gone-{uuid.uuid4().hex[:8]}"
    with cluster, pytest.raises(KafkaError, match=name):
        values(cluster, FetchPlan(TopicPartition(name, 0)), 0, 1)


def test_half_a_batch_at_the_end_is_left_for_the_next_answer() -> None:
    batch = encode_batch([Record(0, 1, None, b"x")])
    data = batch * 2 + batch[:-1]
    assert whole_batches(data, 0, len(data)) == ([0, len(batch)], 2 * len(batch))


def test_old_record_formats_are_refused_in_words() -> None:
    batch = encode_batch([Record(0, 1, None, b"x")])
    batch[16] = 1
    with pytest.raises(ClientError, match="format 1"):
        whole_batches(batch, 0, len(batch))
