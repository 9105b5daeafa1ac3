"""One large request does not keep other clients waiting, whatever it asks for.

A canary sends small requests repeatedly. While a large request is handled it gets responses
many times; a broker without slices would respond to it once or twice. How long each response
takes is measured by `benchmarks/large_requests.py`.
"""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from headrace.testing.running import RunningBroker
from headrace.wire import codec
from headrace.wire.compression import LZ4
from headrace.wire.records import Record, encode_batch
from tests.support.large_requests import (
    CASES,
    bomb,
    create_topics,
    item,
    metadata,
    prepare,
    request,
    send_beside_a_canary,
)
from tests.support.raw import RawClient, batch_of, end_offset, frame, produce, produce_error

ELEMENTS = 20_000
ORDERED = "ordered"
NOW_MS = int(time.time() * 1000)
ANSWERS = 5
QUICK = {
    "ListGroups",
    *(f"Produce of a large {codec} batch" for codec in ("gzip", "snappy", "lz4", "zstd")),
}
"""Other clients have time for two answers at least, where one would mean that they had to wait."""
SHORT = {
    # So little work that there may be no need to let others in between.
    "Metadata of all topics",
    "Metadata of one name repeated",
    "InitProducerId with a long name",
    "ListPartitionReassignments",
    "tagged fields in a header",
    "DescribeConfigs of one topic",
}


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    running = RunningBroker({})
    prepare(running, partitions=200)
    yield running
    running.close()


@pytest.mark.parametrize("case", [name for name in CASES if name not in SHORT])
def test_others_are_answered_while_a_large_request_is_worked_on(
    broker: RunningBroker, case: str
) -> None:
    canary, _ = send_beside_a_canary(broker, CASES[case](ELEMENTS))
    assert len(canary.latencies_s) >= (2 if case in QUICK else ANSWERS)


def answers(body: bytes, api: int, version: int, field: str) -> list[tuple[str, int]]:
    """The names and error codes in a response."""
    response: Any = codec.decode_response(version, codec.response_class(api, version), body, 5)
    return [(one.name, one.error_code) for one in getattr(response, field)]


def test_a_large_request_is_answered_as_many_small_ones_are(broker: RunningBroker) -> None:
    names = [f"many-{n}" for n in range(100)]
    with RawClient(broker.bootstrap_servers) as client:
        body = client.ask(create_topics([*names, "twice", "bad name", "twice", "twice"]))
    found = answers(body, 19, 7, "topics")
    assert sorted(found) == sorted(
        [*((name, 0) for name in names), ("twice", 42), ("bad name", 17)]
    )


def test_requests_behind_a_large_one_are_answered_after_it(broker: RunningBroker) -> None:
    large = metadata([f"unknown-{n}" for n in range(20_000)])
    with RawClient(broker.bootstrap_servers) as client:
        client.send(large + frame(18, 0, b"", correlation_id=7))
        assert client.answer()[:4] == b"\0\0\0\x01"
        assert client.answer()[:4] == b"\0\0\0\x07"


def test_a_large_request_ends_with_its_connection(broker: RunningBroker) -> None:
    names = [f"abandoned-{n}" for n in range(2_000)]
    with RawClient(broker.bootstrap_servers) as other:

        def created() -> int:
            return other.ask(frame(3, 12, b"\0\0\0\0\0")).count(b"abandoned-")

        with RawClient(broker.bootstrap_servers) as client:
            client.send(create_topics(names))
            while created() == 0:
                pass
        other.ask(request(16, 4))
        before = created()
        for _ in range(20):
            other.ask(request(16, 4))
        assert created() == before < len(names)


def test_a_topic_that_is_asked_for_many_times_is_described_once(broker: RunningBroker) -> None:
    with RawClient(broker.bootstrap_servers) as client:
        body = client.ask(metadata(["wide"] * 5_000))
    assert body.count(b"wide") == 1


LISTED = 3_000


def fetch_of(version: int, partitions: int, session_epoch: int) -> bytes:
    """A Fetch of this many partitions of the topic "filled", most of which do not exist."""
    shape = codec.request_class(1, version)
    items = tuple(
        item(shape, "topics.partitions", partition=n, fetch_offset=0, partition_max_bytes=1 << 20)
        for n in range(partitions)
    )
    topic = item(shape, "topics", topic="filled", partitions=items)
    values: dict[str, object] = {"topics": (topic,), "max_bytes": 1 << 20, "replica_id": -1}
    if version >= 7:
        values["session_epoch"] = session_epoch
    return request(1, version, **values)


def fetched(client: RawClient, version: int, partitions: int, epoch: int) -> dict[int, Any]:
    body = client.ask(fetch_of(version, partitions, epoch))
    start = 5 if version >= 12 else 4
    shape = codec.response_class(1, version)
    response: Any = codec.decode_response(version, shape, body, start)
    return {one.partition_index: one for topic in response.responses for one in topic.partitions}


@pytest.mark.parametrize(
    ("version", "epoch"), [(4, -1), (7, -1), (7, 0), (11, 0), (12, -1), (12, 0)]
)
def test_a_fetch_of_many_partitions_gives_what_one_of_few_gives(
    broker: RunningBroker, version: int, epoch: int
) -> None:
    with RawClient(broker.bootstrap_servers) as client:
        client.ask(create_topics(["filled"], partitions=3))
        for n in range(3):
            client.ask(produce("filled", batch_of(b"x" * 6_000, b"y"), partition=n))
        few = fetched(client, version, 3, -1)
        many = fetched(client, version, LISTED, epoch)
    assert sorted(many) == list(range(LISTED))
    assert {n: many[n] for n in range(3)} == few
    assert {one.error_code for n, one in many.items() if n >= 3} == {3}


def test_batches_for_many_partitions_are_appended_in_order(broker: RunningBroker) -> None:
    shape = codec.request_class(0, 9)
    with RawClient(broker.bootstrap_servers) as client:
        client.ask(create_topics(["appended"], partitions=2))
        batches = tuple(
            item(shape, "topic_data.partition_data", index=n % 2, records=bytes(batch_of(b"v")))
            for n in range(LISTED)
        )
        topic = item(shape, "topic_data", name="appended", partition_data=batches)
        body = client.ask(request(0, 9, acks=1, topic_data=(topic,)))
        response: Any = codec.decode_response(9, codec.response_class(0, 9), body, 5)
        (answered,) = response.responses
        found = answered.partition_responses
        offsets = [(one.index, one.base_offset, one.error_code) for one in found]
        assert offsets == [(n % 2, n // 2, 0) for n in range(LISTED)]
        assert end_offset(client, "appended", 1) == LISTED // 2


def test_produces_behind_a_long_one_are_appended_and_answered_after_it(
    broker: RunningBroker,
) -> None:
    """Long and short batches of one idempotent producer, all sent at once."""
    counts = [5_000, 1, 1, 3_000, 1]
    sent, sequence = b"", 0
    for count in counts:
        batch = encode_batch(
            [Record(0, NOW_MS, b"k", b"v" * 100)] * count,
            codec=3, producer_id=7_000_000, producer_epoch=0, base_sequence=sequence,
        )  # fmt: skip
        sent += produce(ORDERED, batch)
        sequence += count
    with RawClient(broker.bootstrap_servers) as client:
        client.ask(create_topics([ORDERED], cleanup_policy="compact"))
        client.send(sent)
        answers = [produce_error(client.answer(), ORDERED) for _ in counts]
        assert end_offset(client, ORDERED) == sequence
    assert answers == [(0, sum(counts[:n])) for n in range(len(counts))]


def test_a_long_produce_ends_with_its_connection(broker: RunningBroker) -> None:
    batch = bomb(LZ4, 300_000)
    with RawClient(broker.bootstrap_servers) as other:
        other.ask(create_topics(["left"], cleanup_policy="compact", max_message_bytes="10000000"))
        with RawClient(broker.bootstrap_servers) as client:
            client.send(produce("left", batch))
        # Takes as long, so that the first one would be appended before it.
        assert produce_error(other.ask(produce("left", batch)), "left") == (0, 0)


def test_a_long_batch_that_fails_without_acks_closes_the_connection(broker: RunningBroker) -> None:
    keyless = encode_batch([Record(0, NOW_MS, None, b"v")] * 5_000, codec=4)
    with RawClient(broker.bootstrap_servers) as other:
        other.ask(create_topics(["silent"], cleanup_policy="compact"))
        with RawClient(broker.bootstrap_servers) as client:
            client.send(produce("silent", keyless, acks=0))
            assert client.socket.recv(1) == b""
        assert end_offset(other, "silent") == 0
