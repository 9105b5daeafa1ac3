"""Both ways to read and write the schemas topic keep the same promises, on each cluster."""

import time
import uuid
from collections.abc import Callable

import pytest
from confluent_kafka import KafkaException, Producer

from headrace.client.committed_records import TopicRecord
from headrace.errors import KafkaError
from headrace.registry.schemas_topic import TopicLocation, make_topic
from headrace.registry.topic_records import (
    BATCH_BYTES,
    ClientSource,
    ClientWriter,
    LibrarySource,
    LibraryWriter,
    RecordSource,
    RecordWriter,
    open_source,
)

Open = Callable[[TopicLocation], RecordSource]
Begin = Callable[[TopicLocation, float], RecordWriter]


@pytest.fixture
def location(bootstrap: str) -> TopicLocation:
    made = TopicLocation(bootstrap, f"_schemas-{uuid.uuid4().hex[:8]}")
    make_topic(made, 60)
    return made


def read_until(source: RecordSource, reached: int) -> list[TopicRecord]:
    """The records up to the end of the topic, which is at an offset or after it."""
    found: list[TopicRecord] = []
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        polled = source.poll()
        if polled is not None:
            found += polled.records
            if polled.at_end and polled.reached >= reached:
                return found
    raise AssertionError(f"the end was not reached; there are {len(found)} records")


def write(writer: RecordWriter, *records: tuple[bytes, bytes | None]) -> int:
    writer.begin()
    for key, value in records:
        writer.send(key, value)
    return writer.commit()


@pytest.mark.parametrize("begin", [LibraryWriter, ClientWriter])
@pytest.mark.parametrize("opened", [LibrarySource, ClientSource])
def test_committed_records_are_read_in_order_and_aborted_ones_are_not(
    location: TopicLocation, opened: Open, begin: Begin
) -> None:
    writer = begin(location, 60)
    assert write(writer, (b"a", b"1"), (b"b", None)) == 1
    aborting = Producer(
        {"bootstrap.servers": location.bootstrap, "transactional.id": location.topic}
    )
    aborting.init_transactions(60)
    aborting.begin_transaction()
    for number in range(3):
        aborting.produce(location.topic, key=b"lost", value=b"%d" % number, partition=0)
    aborting.flush(60)
    aborting.abort_transaction(60)
    aborting.begin_transaction()
    aborting.produce(location.topic, key=b"found", value=b"x", partition=0)
    aborting.commit_transaction(60)
    last = write(writer, (b"c", b"2"))
    source = opened(location)
    records = read_until(source, last + 1)
    assert [(one.key, one.value) for one in records] == [
        (b"a", b"1"), (b"b", None), (b"found", b"x"), (b"c", b"2")
    ]  # fmt: skip
    assert [one.offset for one in records] == sorted(one.offset for one in records)
    assert records[-1].offset == last
    following = write(writer, (b"d", b"3"))
    assert read_until(source, following + 1) == [TopicRecord(following, b"d", b"3")]
    source.close()


@pytest.mark.parametrize("begin", [LibraryWriter, ClientWriter])
@pytest.mark.parametrize("opened", [LibrarySource, ClientSource])
def test_a_transaction_may_be_larger_than_a_batch(
    location: TopicLocation, opened: Open, begin: Begin
) -> None:
    large = b"x" * (BATCH_BYTES - 1000)
    records = [(b"small", b"1"), (b"large", large), (b"larger", large), (b"last", None)]
    last = write(begin(location, 60), *records)
    source = opened(location)
    assert [(one.key, one.value) for one in read_until(source, last + 1)] == records
    source.close()


@pytest.mark.parametrize("earlier", [LibraryWriter, ClientWriter])
@pytest.mark.parametrize("later", [LibraryWriter, ClientWriter])
def test_a_later_writer_fences_an_earlier_one(
    location: TopicLocation, earlier: Begin, later: Begin
) -> None:
    fenced = earlier(location, 60)
    write(fenced, (b"a", b"1"))
    last = write(later(location, 60), (b"a", b"2"))
    with pytest.raises((KafkaError, KafkaException)):
        write(fenced, (b"a", b"3"))
    source = ClientSource(location)
    assert [one.value for one in read_until(source, last + 1)] == [b"1", b"2"]
    source.close()


@pytest.mark.parametrize(
    ("properties", "kind"),
    [
        ({}, LibrarySource),
        ({"sasl.mechanisms": "GSSAPI"}, ClientSource),
        (
            {"sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "a", "sasl.password": "b"},
            LibrarySource,
        ),
        (
            {"sasl.mechanism": "SCRAM-SHA-512",
             "sasl.jaas.config": 'x required username="a" password="b" tokenauth="true";'},
            ClientSource,
        ),
        (
            {"sasl.mechanism": "OAUTHBEARER",
             "sasl.oauthbearer.token.endpoint.url": "file:///nowhere"},
            ClientSource,
        ),
    ],
)  # fmt: skip
def test_only_logins_that_librdkafka_does_not_have_need_our_own_client(
    bootstrap: str, properties: dict[str, str], kind: type
) -> None:
    protocol = {"security.protocol": "SASL_PLAINTEXT"} if properties else {}
    source = open_source(TopicLocation(bootstrap, properties={**protocol, **properties}))
    assert isinstance(source, kind)
    source.close()
