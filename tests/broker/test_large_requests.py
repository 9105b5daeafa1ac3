"""One large request does not keep other clients waiting, whatever it asks for.

A canary asks for something small again and again. While a large request is worked on it is answered
many times; a broker that works on it at once answers the canary once or twice. How long each answer
takes is measured by `benchmarks/large_requests.py`.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from headrace.testing.running import RunningBroker
from headrace.wire import codec
from tests.support.large_requests import (
    CASES,
    create_topics,
    metadata,
    prepare,
    request,
    send_beside_a_canary,
)
from tests.support.raw import RawClient, frame

ELEMENTS = 20_000
ANSWERS = 5
SHORT = {
    # So little work that there may be no need to let others in between.
    "Metadata of all topics",
    "Metadata of one name repeated",
    "InitProducerId with a long name",
    "ListPartitionReassignments",
    "tagged fields in a header",
    "DescribeConfigs of one topic",
}
HOT = {
    "Produce to partitions without a batch",
    "Fetch of partitions",
    "Fetch of partitions in a session",
}


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    running = RunningBroker({})
    prepare(running, partitions=200)
    yield running
    running.close()


@pytest.mark.parametrize("case", [name for name in CASES if name not in SHORT | HOT])
def test_others_are_answered_while_a_large_request_is_worked_on(
    broker: RunningBroker, case: str
) -> None:
    answered, _ = send_beside_a_canary(broker, CASES[case](ELEMENTS))
    assert len(answered) >= ANSWERS


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
