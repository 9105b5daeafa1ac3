"""The time of the record at an offset: from our broker, from Apache Kafka, and from batches."""

import uuid

import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as LibraryPartition
from confluent_kafka.admin import AdminClient

from headrace.admin.record_times import CACHED_S, Gap, RecordTime, RecordTimes, time_at
from headrace.client.first_batches import PARTITION_BYTES, FirstBatches
from headrace.client.offsets import LATEST, list_offsets
from headrace.errors import ErrorCode
from headrace.types import TopicPartition
from headrace.wire.batch import CONTROL
from headrace.wire.records import Record, encode_batch
from tests.admin.conftest import CountingCluster, MakeTopic, produce
from tests.support.stores import eventually

DAY_2024 = 1_704_067_200_000


def delete_before(bootstrap: str, topic: str, offset: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for deleted in admin.delete_records([LibraryPartition(topic, 0, offset)]).values():
        deleted.result(60)


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_the_time_is_that_of_the_very_record_within_a_batch(
    cluster: CountingCluster, bootstrap: str, make_topic: MakeTopic, compression: str
) -> None:
    topic = make_topic()
    times = [DAY_2024 + 1000 * number for number in range(20)]
    produce(bootstrap, topic, times, compression=compression)
    at = TopicPartition(topic, 0)
    for offset in (0, 7, 19):
        found = RecordTimes().look_up(cluster, {at: offset})
        assert found == {at: RecordTime(times[offset])}


def test_many_partitions_need_few_requests_and_known_ones_none(
    cluster: CountingCluster, bootstrap: str, make_topic: MakeTopic
) -> None:
    topic = make_topic(60)
    for index in range(60):
        produce(bootstrap, topic, [DAY_2024 + index], partition=index)
    wanted = {TopicPartition(topic, index): 0 for index in range(60)}
    times = RecordTimes()
    found = times.look_up(cluster, wanted)
    assert found == {at: RecordTime(DAY_2024 + at.partition) for at in wanted}
    assert cluster.requests <= 4
    before = cluster.requests
    assert times.look_up(cluster, wanted) == found
    assert cluster.requests == before


def test_batches_over_the_limit_of_a_partition_are_fetched_alone(
    cluster: CountingCluster, bootstrap: str, make_topic: MakeTopic
) -> None:
    topic = make_topic(3)
    for index in range(3):
        produce(
            bootstrap, topic, [DAY_2024 + index], partition=index, value_bytes=3 * PARTITION_BYTES
        )
    wanted = {TopicPartition(topic, index): 0 for index in range(3)}
    found = RecordTimes().look_up(cluster, wanted)
    assert found == {at: RecordTime(DAY_2024 + at.partition) for at in wanted}


def test_a_transaction_marker_is_passed_over_and_said(
    cluster: CountingCluster, bootstrap: str, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    at = TopicPartition(topic, 0)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": uuid.uuid4().hex})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, b"in a transaction", partition=0, timestamp=DAY_2024)
    producer.commit_transaction(60)
    # The answer to a commit comes before its markers are written.
    eventually(lambda: list_offsets(cluster, {at: LATEST}) == {at: 2}, "the marker is written")
    times = RecordTimes()
    assert times.look_up(cluster, {at: 1}) == {at: RecordTime(None, Gap.ONLY_MARKERS)}
    produce(bootstrap, topic, [DAY_2024 + 5])
    assert times.look_up(cluster, {at: 1}) == {at: RecordTime(DAY_2024 + 5, Gap.MARKER)}


def test_a_deleted_record_has_no_time(
    cluster: CountingCluster, bootstrap: str, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    produce(bootstrap, topic, [DAY_2024] * 4)
    delete_before(bootstrap, topic, 2)
    at = TopicPartition(topic, 0)
    assert RecordTimes().look_up(cluster, {at: 0}) == {at: RecordTime(None, Gap.DELETED)}


def test_the_time_that_the_broker_gave_counts_where_the_topic_says_so(
    cluster: CountingCluster, bootstrap: str, make_topic: MakeTopic
) -> None:
    topic = make_topic(message_timestamp_type="LogAppendTime")
    produce(bootstrap, topic, [DAY_2024])
    at = TopicPartition(topic, 0)
    found = RecordTimes().look_up(cluster, {at: 0})[at]
    assert found.timestamp_ms is not None
    assert found.timestamp_ms > DAY_2024 + 86_400_000


def test_a_partition_that_does_not_exist_is_unavailable(
    cluster: CountingCluster, make_topic: MakeTopic
) -> None:
    at = TopicPartition(make_topic(), 7)
    assert RecordTimes().look_up(cluster, {at: 0}) == {at: RecordTime(None, Gap.UNAVAILABLE)}


def sent(*offsets: int, error: ErrorCode | None = None) -> FirstBatches:
    """An answer with one batch that holds these offsets; the time of a record is its offset."""
    records = [Record(offset, offset, None, b"v") for offset in offsets]
    batch = bytearray()
    if records:
        batch = encode_batch(records, offsets[0], last_offset_delta=offsets[-1] - offsets[0])
    return FirstBatches(bytes(batch), 0, 100, error)


def test_a_compacted_record_gives_way_to_the_next() -> None:
    assert time_at(sent(3, 9), 3) == RecordTime(3)
    assert time_at(sent(3, 9), 5) == RecordTime(9, Gap.COMPACTED)
    assert time_at(sent(7, 9), 5) == RecordTime(7, Gap.COMPACTED)


def test_markers_are_only_markers_if_the_answer_reaches_the_end() -> None:
    marker = bytes(encode_batch([Record(4, 1, None, b"v")], 4, attributes=CONTROL))
    for end, gap in ((5, Gap.ONLY_MARKERS), (6, Gap.MARKER)):
        assert time_at(FirstBatches(marker, 0, end), 4) == RecordTime(None, gap)


def test_what_cannot_be_read_says_why() -> None:
    assert time_at(sent(), 5) == RecordTime(None, Gap.EMPTY)
    beyond = sent(error=ErrorCode.OFFSET_OUT_OF_RANGE)
    assert time_at(beyond, 5) == RecordTime(None, Gap.EMPTY)
    moved = sent(error=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert time_at(moved, 5) == RecordTime(None, Gap.UNAVAILABLE)
    old_format = FirstBatches(b"\0" * 100, 0, 100)
    assert time_at(old_format, 5) == RecordTime(None, Gap.UNREADABLE)


def test_the_cache_is_bounded(
    cluster: CountingCluster, bootstrap: str, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    produce(bootstrap, topic, [DAY_2024] * 3)
    at = TopicPartition(topic, 0)
    times = RecordTimes(capacity=2)
    for offset in (0, 1, 2):
        times.look_up(cluster, {at: offset})
    before = cluster.requests
    times.look_up(cluster, {at: 2})
    assert cluster.requests == before
    times.look_up(cluster, {at: 0})
    assert cluster.requests > before


def test_a_cached_time_is_looked_up_again_after_a_while(
    cluster: CountingCluster, bootstrap: str, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    produce(bootstrap, topic, [DAY_2024] * 4)
    at, now_s = TopicPartition(topic, 0), [0.0]
    times = RecordTimes(clock_s=lambda: now_s[0])
    assert times.look_up(cluster, {at: 1}) == {at: RecordTime(DAY_2024)}
    delete_before(bootstrap, topic, 2)
    assert times.look_up(cluster, {at: 1}) == {at: RecordTime(DAY_2024)}
    now_s[0] = CACHED_S + 1
    assert times.look_up(cluster, {at: 1}) == {at: RecordTime(None, Gap.DELETED)}
