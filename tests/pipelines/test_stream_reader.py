"""What Spark asks of a stream, asked without Spark: offsets, limits, and logs that change."""

import logging
import uuid
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as RdPartition
from confluent_kafka.admin import AdminClient, NewPartitions
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from headrace.client.errors import ClientError
from headrace.errors import ErrorCode
from headrace.pipelines import source
from headrace.pipelines.options import parse_options
from headrace.pipelines.ranges import Stored
from headrace.pipelines.source import StreamReader
from headrace.testing.plugin import BrokerFactory
from headrace.testing.running import RunningBroker
from tests.support import groups
from tests.support.topics import create_topic

MakeReader = Callable[..., StreamReader]
EVERYTHING = ReadAllAvailable()


@pytest.fixture
def topic(headrace: RunningBroker) -> str:
    return create_topic(headrace.bootstrap_servers, f"r-{uuid.uuid4().hex[:12]}", 2)


@pytest.fixture
def make_reader() -> Iterator[MakeReader]:
    made: list[StreamReader] = []

    def make(bootstrap: str, topic: str, **options: str) -> StreamReader:
        given = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic}
        given |= {name.replace("__", "."): value for name, value in options.items()}
        made.append(StreamReader(parse_options(given, streaming=True)))
        return made[-1]

    yield make
    for reader in made:
        reader.stop()


def produce(bootstrap: str, topic: str, count: int, partition: int = 0, first: int = 0) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(first, first + count):
        producer.produce(topic, b"%d" % number, partition=partition)
    assert producer.flush(20) == 0


def values(reader: StreamReader, start: Stored, end: Stored) -> list[int]:
    tables = [
        pa.Table.from_batches([batch])
        for task in reader.partitions(start, end)
        for batch in reader.read(task)
    ]
    return [int(value.as_py()) for table in tables for value in table["value"]]


def delete_before(bootstrap: str, topic: str, partition: int, offset: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.delete_records([RdPartition(topic, partition, offset)]).values():
        future.result(20)


def test_an_epoch_holds_what_came_since_the_last(
    headrace: RunningBroker, topic: str, make_reader: MakeReader
) -> None:
    where = headrace.bootstrap_servers
    produce(where, topic, 10)
    reader = make_reader(where, topic, startingOffsets="earliest")
    start = reader.initialOffset()
    assert start == {topic: {"0": 0, "1": 0}}
    end = reader.latestOffset(start, EVERYTHING)
    assert values(reader, start, end) == list(range(10))
    assert reader.latestOffset(end, EVERYTHING) == end
    produce(where, topic, 5, partition=1, first=10)
    assert reader.reportLatestOffset() == {topic: {"0": 10, "1": 5}}
    after = reader.latestOffset(end, EVERYTHING)
    assert values(reader, end, after) == list(range(10, 15))
    assert make_reader(where, topic).initialOffset() == after


def test_a_limit_is_shared_and_an_available_now_run_ends(
    headrace: RunningBroker, topic: str, make_reader: MakeReader
) -> None:
    where = headrace.bootstrap_servers
    produce(where, topic, 60)
    produce(where, topic, 30, partition=1)
    reader = make_reader(where, topic, startingOffsets="earliest", maxOffsetsPerTrigger="30")
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(30)
    reader.prepareForTriggerAvailableNow()
    produce(where, topic, 100)  # too late for this run
    start, sizes = reader.initialOffset(), []
    while (end := reader.latestOffset(start, limit)) != start:
        sizes.append(len(values(reader, start, end)))
        start = end
    assert sizes == [30, 30, 30]
    assert start == {topic: {"0": 60, "1": 30}}


def test_an_epoch_waits_for_enough_records_but_not_for_ever(
    headrace: RunningBroker, topic: str, make_reader: MakeReader
) -> None:
    where = headrace.bootstrap_servers
    options = {"startingOffsets": "earliest", "minOffsetsPerTrigger": "10"}
    patient = make_reader(where, topic, **options, maxTriggerDelay="1h")
    start = patient.initialOffset()
    produce(where, topic, 9)
    limit = patient.getDefaultReadLimit()
    assert patient.latestOffset(start, limit) == start
    hasty = make_reader(where, topic, **options, maxTriggerDelay="0ms")
    assert hasty.latestOffset(start, limit) == {topic: {"0": 9, "1": 0}}
    produce(where, topic, 1)
    assert patient.latestOffset(start, limit) == {topic: {"0": 10, "1": 0}}


def test_a_new_partition_is_read_from_its_beginning(
    headrace: RunningBroker, topic: str, make_reader: MakeReader
) -> None:
    where = headrace.bootstrap_servers
    produce(where, topic, 3)
    reader = make_reader(where, topic, startingOffsets="latest", maxOffsetsPerTrigger="100")
    start = reader.initialOffset()
    admin = AdminClient({"bootstrap.servers": where})
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result(20)
    produce(where, topic, 4, partition=2)
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    assert end == {topic: {"0": 3, "1": 0, "2": 4}}
    assert values(reader, start, end) == [0, 1, 2, 3]
    assert values(make_reader(where, topic), start, end) == [0, 1, 2, 3]


def test_deleted_records_fail_the_query_or_are_skipped_as_it_says(
    headrace: RunningBroker,
    topic: str,
    make_reader: MakeReader,
    caplog: pytest.LogCaptureFixture,
) -> None:
    where = headrace.bootstrap_servers
    produce(where, topic, 20)
    delete_before(where, topic, 0, 12)
    start, end = {topic: {"0": 5, "1": 0}}, {topic: {"0": 20, "1": 0}}
    with pytest.raises(ClientError, match=rf"{topic}-0 begins at offset 12.*failOnDataLoss=false"):
        values(make_reader(where, topic), start, end)
    with caplog.at_level(logging.WARNING):
        careless = make_reader(where, topic, failOnDataLoss="false")
        assert values(careless, start, end) == list(range(12, 20))
    assert f"{topic}-0 begins at offset 12" in caplog.text


def test_a_topic_that_was_made_anew_fails_the_query_or_begins_again(
    headrace: RunningBroker,
    topic: str,
    make_reader: MakeReader,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(source, "SETTLING_S", 0.2)
    where = headrace.bootstrap_servers
    produce(where, topic, 5)
    start = {topic: {"0": 50, "1": 0}}
    with pytest.raises(ClientError, match="ends at offset 5, and was read up to 50"):
        make_reader(where, topic).latestOffset(start, EVERYTHING)
    careless = make_reader(where, topic, failOnDataLoss="false")
    end = careless.latestOffset(start, EVERYTHING)
    assert end == {topic: {"0": 5, "1": 0}}
    assert careless.partitions(start, end) == []
    gone = {"gone": {"0": 3}, topic: {"0": 5, "1": 0}}
    with pytest.raises(ClientError, match="gone-0 was read up to 3 and is gone"):
        make_reader(where, topic).latestOffset(gone, EVERYTHING)


def test_a_stream_goes_on_after_the_broker_was_restarted(
    headrace_factory: BrokerFactory, make_reader: MakeReader
) -> None:
    broker = headrace_factory()
    where = broker.bootstrap_servers
    topic = create_topic(where, "t")
    produce(where, topic, 100)
    reader = make_reader(where, topic, startingOffsets="earliest", kafka__fetch__max__bytes="200")
    start = reader.initialOffset()
    broker.kill()
    broker.start()
    broker.fail("Fetch", ErrorCode.NOT_LEADER_OR_FOLLOWER, 2)
    end = reader.latestOffset(start, EVERYTHING)
    assert values(reader, start, end) == list(range(100))


def test_committed_records_only_are_announced_and_read(
    headrace: RunningBroker, topic: str, make_reader: MakeReader
) -> None:
    where = headrace.bootstrap_servers
    writer = Producer({"bootstrap.servers": where, "transactional.id": f"tx-{topic}"})
    writer.init_transactions(20)
    writer.begin_transaction()
    writer.produce(topic, b"1", partition=0)
    assert writer.flush(20) == 0
    committed = make_reader(
        where, topic, startingOffsets="earliest", kafka__isolation__level="read_committed"
    )
    start = committed.initialOffset()
    assert committed.latestOffset(start, EVERYTHING) == start
    writer.commit_transaction(20)
    end = committed.latestOffset(start, EVERYTHING)
    assert end == {topic: {"0": 2, "1": 0}}
    assert values(committed, start, end) == [1]
    assert values(committed, {topic: {"0": 1, "1": 0}}, end) == []


def committed(bootstrap: str, group: str) -> dict[str, int]:
    return {str(part): offset for (_, part), offset in groups.committed(bootstrap, group).items()}


def test_an_epoch_is_committed_when_it_is_finished_and_not_when_it_is_read(
    headrace: RunningBroker, topic: str, make_reader: MakeReader
) -> None:
    where, group = headrace.bootstrap_servers, f"g-{topic}"
    produce(where, topic, 10)
    reader = make_reader(where, topic, startingOffsets="earliest", group__id=group)
    start = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    end = reader.latestOffset(start, EVERYTHING)
    assert values(reader, start, end) == list(range(10))
    assert committed(where, group) == {}
    # Spark asks for more only after the epoch is in its checkpoint.
    assert reader.latestOffset(end, EVERYTHING) == end
    assert committed(where, group) == {"0": 10, "1": 0}


def test_a_query_goes_on_when_its_group_cannot_be_told(
    headrace_factory: BrokerFactory, make_reader: MakeReader, caplog: pytest.LogCaptureFixture
) -> None:
    broker = headrace_factory()
    where = broker.bootstrap_servers
    topic = create_topic(where, "t")
    produce(where, topic, 5)
    reader = make_reader(where, topic, startingOffsets="earliest", group__id="g")
    reader.prepareForTriggerAvailableNow()
    broker.fail("OffsetCommit", ErrorCode.GROUP_AUTHORIZATION_FAILED, 1)
    with caplog.at_level(logging.WARNING):
        reader.latestOffset(reader.initialOffset(), EVERYTHING)
        reader.commit({topic: {"0": 5}})
    assert "group g does not show the last epoch" in caplog.text
    reader.commit({topic: {"0": 4}})
    assert committed(where, "g") == {"0": 4}
