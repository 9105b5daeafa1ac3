"""The calls of Spark to a stream, without Spark: offsets, limits, and logs that change."""

import json
import logging
import uuid
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as RdPartition
from confluent_kafka.admin import AdminClient, NewPartitions
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from headrace.client import fetching
from headrace.client.errors import ClientError
from headrace.errors import ErrorCode
from headrace.pipelines.source import readers as source
from headrace.pipelines.source.options import parse_options
from headrace.pipelines.source.ranges import Stored
from headrace.pipelines.source.readers import StreamReader
from headrace.testing.plugin import BrokerFactory
from headrace.testing.running import RunningBroker
from tests.support import groups
from tests.support.apache_kafka import ApacheKafka
from tests.support.topics import create_topic, recreate_topic

MakeReader = Callable[..., StreamReader]
EVERYTHING = ReadAllAvailable()


@pytest.fixture
def topic(headrace: RunningBroker) -> str:
    return create_topic(headrace.bootstrap_servers, f"r-{uuid.uuid4().hex[:12]}", 2)


@pytest.fixture
def make_reader() -> Iterator[MakeReader]:
    made: list[StreamReader] = []

    def make(bootstrap: str, topic: str | None = None, **options: str) -> StreamReader:
        given = {"kafka.bootstrap.servers": bootstrap}
        given |= {} if topic is None else {"subscribe": topic}
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
    assert producer.flush(60) == 0


def offsets(stored: Stored) -> dict[str, dict[str, int]]:
    """Without topic ids and initial offsets."""
    return {
        topic: {name: value for name, value in found.items() if name.isdecimal()}
        for topic, found in stored.items()
    }


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
        future.result(60)


def test_an_epoch_holds_what_came_since_the_last(
    headrace: RunningBroker, topic: str, make_reader: MakeReader
) -> None:
    where = headrace.bootstrap_servers
    produce(where, topic, 10)
    reader = make_reader(where, topic, startingOffsets="earliest")
    start = reader.initialOffset()
    assert offsets(start) == {topic: {"0": 0, "1": 0}}
    end = reader.latestOffset(start, EVERYTHING)
    assert values(reader, start, end) == list(range(10))
    assert reader.latestOffset(end, EVERYTHING) == end
    produce(where, topic, 5, partition=1, first=10)
    after = reader.latestOffset(end, EVERYTHING)
    assert reader.reportLatestOffset() == {topic: {"0": 10, "1": 5}}
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
    assert offsets(start) == {topic: {"0": 60, "1": 30}}


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
    assert offsets(hasty.latestOffset(start, limit)) == {topic: {"0": 9, "1": 0}}
    produce(where, topic, 1)
    assert offsets(patient.latestOffset(start, limit)) == {topic: {"0": 10, "1": 0}}


def test_a_new_partition_is_read_from_its_beginning(
    headrace: RunningBroker, topic: str, make_reader: MakeReader
) -> None:
    where = headrace.bootstrap_servers
    produce(where, topic, 3)
    reader = make_reader(where, topic, startingOffsets="latest", maxOffsetsPerTrigger="100")
    start = reader.initialOffset()
    admin = AdminClient({"bootstrap.servers": where})
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result(60)
    produce(where, topic, 4, partition=2)
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    assert offsets(end) == {topic: {"0": 3, "1": 0, "2": 4}}
    assert values(reader, start, end) == [0, 1, 2, 3]
    assert values(make_reader(where, topic), start, end) == [0, 1, 2, 3]


def test_a_first_epoch_is_replayed_from_where_it_began(
    headrace: RunningBroker, topic: str, make_reader: MakeReader
) -> None:
    """Spark keeps the end of the epoch; it asks for the initial offsets again."""
    where = headrace.bootstrap_servers
    produce(where, topic, 10)
    reader = make_reader(where, topic, startingOffsets="latest")
    start = reader.initialOffset()
    produce(where, topic, 5, first=10)
    end = reader.latestOffset(start, EVERYTHING)
    assert values(reader, start, end) == list(range(10, 15))
    produce(where, topic, 3, first=15)
    restarted = make_reader(where, topic, startingOffsets="latest")
    assert values(restarted, restarted.initialOffset(), end) == list(range(10, 15))
    after = restarted.latestOffset(end, EVERYTHING)
    assert values(restarted, end, after) == list(range(15, 18))
    assert restarted.latestOffset(after, EVERYTHING) == after


def test_deleted_records_fail_the_query_or_are_skipped_by_option(
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


def test_a_log_that_ends_before_what_was_read_fails_the_query_or_goes_on_at_its_end(
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
    assert offsets(end) == {topic: {"0": 5, "1": 0}}
    assert careless.partitions(start, end) == []
    gone = {"gone": {"0": 3}, topic: {"0": 5, "1": 0}}
    with pytest.raises(ClientError, match="gone-0 was read up to 3 and does not exist"):
        make_reader(where, topic).latestOffset(gone, EVERYTHING)


@pytest.fixture(params=["headrace", pytest.param("kafka", marks=[pytest.mark.java])])
def anywhere(request: pytest.FixtureRequest) -> str:
    if request.param == "headrace":
        broker: RunningBroker = request.getfixturevalue("headrace")
        return broker.bootstrap_servers
    kafka: ApacheKafka = request.getfixturevalue("apache_kafka")
    return kafka.bootstrap


@pytest.mark.parametrize("how", ["subscribe", "assign"])
def test_a_topic_that_was_created_again_is_data_loss_or_is_read_from_its_beginning(
    anywhere: str,
    make_reader: MakeReader,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    how: str,
) -> None:
    monkeypatch.setattr(source, "SETTLING_S", 0.2)
    topic = create_topic(anywhere, f"r-{uuid.uuid4().hex[:12]}", 1)
    chosen = topic if how == "subscribe" else json.dumps({topic: [0]})
    options = {how: chosen, "startingOffsets": "earliest"}
    produce(anywhere, topic, 100)
    reader = make_reader(anywhere, **options)
    start = reader.latestOffset(reader.initialOffset(), EVERYTHING)
    recreate_topic(anywhere, topic, 1)
    produce(anywhere, topic, 150, first=1000)
    with pytest.raises(ClientError) as caught:
        make_reader(anywhere, **options).latestOffset(start, EVERYTHING)
    new_id = reader.initialOffset()[topic]["id"]
    assert start[topic]["id"] != new_id
    for words in (f"topic {topic} was deleted", start[topic]["id"], new_id, "failOnDataLoss=false"):
        assert words in str(caught.value)
    limit = {"maxOffsetsPerTrigger": "100"}
    careless = make_reader(anywhere, **options, **limit, failOnDataLoss="false")
    with caplog.at_level(logging.WARNING):
        end = careless.latestOffset(start, careless.getDefaultReadLimit())
    assert f"topic {topic} was deleted and created again" in caplog.text
    assert values(careless, start, end) == list(range(1000, 1100))
    after = careless.latestOffset(end, careless.getDefaultReadLimit())
    assert values(careless, end, after) == list(range(1100, 1150))
    # A restart plans the epoch again from its two ends.
    assert values(make_reader(anywhere, **options), start, end) == list(range(1000, 1100))


def test_a_topic_that_is_created_again_after_an_epoch_was_planned_is_not_read_in_its_place(
    anywhere: str,
    make_reader: MakeReader,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(fetching, "NEW_TOPIC_PATIENCE_S", 0.2)
    topic = create_topic(anywhere, f"r-{uuid.uuid4().hex[:12]}", 2)
    produce(anywhere, topic, 20)
    options = {"subscribe": topic, "startingOffsets": "earliest"}
    reader = make_reader(anywhere, **options)
    start = reader.initialOffset()
    end = reader.latestOffset(start, EVERYTHING)
    recreate_topic(anywhere, topic, 2)
    produce(anywhere, topic, 30, first=1000)
    with pytest.raises(
        ClientError, match=rf"{topic} was deleted and created again.*failOnDataLoss"
    ):
        values(reader, start, end)
    careless = make_reader(anywhere, **options, failOnDataLoss="false")
    with caplog.at_level(logging.WARNING):
        assert values(careless, start, end) == []
    assert f"topic {topic} was deleted and created again" in caplog.text


@pytest.mark.parametrize("how", ["subscribe", "assign", "subscribePattern"])
def test_a_deleted_topic_is_data_loss_or_left_out(
    headrace: RunningBroker,
    topic: str,
    make_reader: MakeReader,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    how: str,
) -> None:
    monkeypatch.setattr(source, "SETTLING_S", 0.2)
    where = headrace.bootstrap_servers
    kept = create_topic(where, f"{topic}-kept", 1)
    chosen = {
        "subscribe": f"{topic},{kept}",
        "assign": json.dumps({topic: [0, 1], kept: [0]}),
        "subscribePattern": f"{topic}.*",
    }[how]
    options = {how: chosen, "startingOffsets": "earliest", "kafkaConsumer.pollTimeoutMs": "300"}
    produce(where, topic, 10)
    produce(where, kept, 5)
    reader = make_reader(where, **options)
    start = reader.initialOffset()
    planned = reader.latestOffset(start, EVERYTHING)
    admin = AdminClient({"bootstrap.servers": where})
    admin.delete_topics([topic])[topic].result(60)
    produce(where, kept, 5, first=5)
    with pytest.raises(ClientError, match=f"{topic}-0 was read up to 10 and does not exist"):
        reader.latestOffset(planned, EVERYTHING)
    with pytest.raises(ClientError, match=f"{topic}-0 was deleted: the offsets 0 to 10"):
        values(reader, start, planned)
    careless = make_reader(where, **options, failOnDataLoss="false")
    with caplog.at_level(logging.WARNING):
        assert values(careless, start, planned) == list(range(5))
        end = careless.latestOffset(planned, EVERYTHING)
    assert offsets(end) == {kept: {"0": 10}}
    assert values(careless, planned, end) == list(range(5, 10))
    assert f"{topic}-0 was deleted" in caplog.text


def test_a_topic_that_is_deleted_before_its_first_epoch_was_read_is_data_loss_or_left_out(
    headrace: RunningBroker, topic: str, make_reader: MakeReader
) -> None:
    where = headrace.bootstrap_servers
    produce(where, topic, 5)
    options = {"subscribePattern": f"{topic}.*", "startingOffsets": "earliest"}
    reader = make_reader(where, **options)
    start = reader.initialOffset()
    new = create_topic(where, f"{topic}-new", 1)
    produce(where, new, 3)
    end = reader.latestOffset(start, EVERYTHING)
    admin = AdminClient({"bootstrap.servers": where})
    admin.delete_topics([new])[new].result(60)
    with pytest.raises(ClientError, match=f"{new}-0 was deleted before it was read"):
        make_reader(where, **options).partitions(start, end)
    careless = make_reader(where, **options, failOnDataLoss="false")
    assert values(careless, start, end) == list(range(5))


def test_a_checkpoint_without_topic_ids_goes_on_and_has_them_from_then_on(
    headrace: RunningBroker, topic: str, make_reader: MakeReader
) -> None:
    where = headrace.bootstrap_servers
    produce(where, topic, 10)
    reader = make_reader(where, subscribe=topic)
    old = {topic: {"0": 4, "1": 0}}
    end = reader.latestOffset(old, EVERYTHING)
    assert values(reader, old, end) == list(range(4, 10))
    assert values(reader, old, {topic: {"0": 6, "1": 0}}) == [4, 5]
    assert end[topic]["id"]
    # The id alone is worth an epoch; then nothing changes any more.
    everything = {topic: {"0": 10, "1": 0}}
    assert reader.latestOffset(everything, EVERYTHING) == end
    assert reader.latestOffset(end, EVERYTHING) == end


def test_offsets_of_a_deleted_topic_are_not_committed_to_the_group(
    headrace: RunningBroker, topic: str, make_reader: MakeReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "SETTLING_S", 0.2)
    where, group = headrace.bootstrap_servers, f"g-{topic}"
    produce(where, topic, 100)
    options = {"startingOffsets": "earliest", "group.id": group, "failOnDataLoss": "false"}
    reader = make_reader(where, subscribe=topic, **options)
    start = reader.latestOffset(reader.initialOffset(), EVERYTHING)
    recreate_topic(where, topic, 2)
    produce(where, topic, 150)
    reader.prepareForTriggerAvailableNow()
    end = reader.latestOffset(start, EVERYTHING)
    assert committed(where, group) == {}
    reader.commit(end)
    assert committed(where, group) == {"0": 150, "1": 0}


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
    writer.init_transactions(60)
    writer.begin_transaction()
    writer.produce(topic, b"1", partition=0)
    assert writer.flush(60) == 0
    committed = make_reader(
        where, topic, startingOffsets="earliest", kafka__isolation__level="read_committed"
    )
    start = committed.initialOffset()
    assert committed.latestOffset(start, EVERYTHING) == start
    writer.commit_transaction(60)
    end = committed.latestOffset(start, EVERYTHING)
    assert offsets(end) == {topic: {"0": 2, "1": 0}}
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


def test_a_query_continues_when_its_group_cannot_be_updated(
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
