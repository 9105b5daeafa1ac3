"""The short path of Fetch gives the same result as the general one, or does not apply."""

import datetime
from typing import Any

import pytest
from kio.index import load_request_schema

from headrace.wire.fast import fetch_response, parse_fetch
from headrace.wire.results import Aborted, FetchResult
from headrace.wire.usual_fetch import USUAL_FROM, parse_usual_fetch, usual_fetch_response
from tests.wire.test_fast import TOPIC_ID, InMemory, encode, fill, joined, nested

VERSIONS = range(USUAL_FROM, 19)
BEFORE = b"\x7f" * 3
"""What stands in the buffer before the request."""


def key_of(version: int, name: str) -> bytes:
    return TOPIC_ID.bytes if version >= 13 else name.encode()


def body(version: int, name: str = "orders", partitions: int = 1, **other: object) -> bytearray:
    """A request of the usual shape, but for what `other` says."""
    request: Any = load_request_schema(1, version)
    topic = nested(request, "topics")
    partition = nested(topic, "partitions")
    wanted = tuple(
        fill(partition, partition=5 + number, current_leader_epoch=2, fetch_offset=2**40 + 7,
             last_fetched_epoch=-1, log_start_offset=-1, partition_max_bytes=4096)
        for number in range(partitions)
    )  # fmt: skip
    if other.pop("forgets", False):
        forgotten = nested(request, "forgotten_topics_data")
        other["forgotten_topics_data"] = (
            fill(forgotten, topic=name, topic_id=TOPIC_ID, partitions=(8,)),
        )
    values: dict[str, object] = {
        "replica_id": -1,
        "max_wait": datetime.timedelta(milliseconds=500),
        "min_bytes": 3,
        "max_bytes": 5000,
        "isolation_level": 1,
        "session_id": 0,
        "session_epoch": -1,
        "rack_id": "",
        "topics": (fill(topic, topic=name, topic_id=TOPIC_ID, partitions=wanted),),
        "forgotten_topics_data": (),
        **other,
    }
    return encode(fill(request, **values))


def parsed(raw: bytearray, version: int) -> object:
    buf = bytearray(BEFORE) + raw + bytearray(200)
    return parse_usual_fetch(buf, len(BEFORE), len(BEFORE) + len(raw), version)


@pytest.mark.parametrize("name", ["o", "orders", "n" * 126])
@pytest.mark.parametrize("version", VERSIONS)
def test_a_usual_request_has_the_same_result_on_both_paths(version: int, name: str) -> None:
    raw = body(version, name)
    whole = parse_fetch(raw, memoryview(raw), 0, len(raw), version)
    [(key, [(index, epoch, offset, _, _, most)])] = whole.topics
    assert parsed(raw, version) == (
        whole.min_bytes, whole.max_bytes, whole.isolation, key, index, epoch, offset, most,
    )  # fmt: skip
    assert (key, index, offset) == (key_of(version, name), 5, 2**40 + 7)


UNUSUAL: tuple[dict[str, Any], ...] = (
    {"session_id": 9},
    {"session_epoch": 0},
    {"replica_id": 2},
    {"rack_id": "here"},
    {"forgets": True},
    {"partitions": 2},
    {"partitions": 0},
    {"topics": ()},
    {"name": "n" * 127},
    {"name": "n" * 249},
    {"cluster_id": "another"},
)
CAN_BE_SAID = [
    (version, other)
    for version in VERSIONS
    for other in UNUSUAL
    if body(version, **other) != body(version)
]


@pytest.mark.parametrize(("version", "other"), CAN_BE_SAID, ids=str)
def test_what_is_not_usual_is_left_to_the_long_way(version: int, other: dict[str, Any]) -> None:
    assert parsed(body(version, **other), version) is None


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_that_is_cut_or_too_long_is_left_to_the_long_way(version: int) -> None:
    raw = body(version)
    for length in range(len(raw)):
        cut = raw[:length]
        found = parse_usual_fetch(cut + bytearray(200), 0, length, version)
        assert found is None, length
    assert parsed(raw + b"\0", version) is None


@pytest.mark.parametrize("committed", [False, True])
@pytest.mark.parametrize("size", [100, 20_000, 3_000_000])
@pytest.mark.parametrize("version", VERSIONS)
def test_an_answer_has_the_same_bytes_both_ways(version: int, size: int, committed: bool) -> None:
    for name in ("o", "n" * 126):
        key = key_of(version, name)
        records = InMemory(b"x" * size)
        aborted: Aborted | None = [] if committed else None
        result = FetchResult(5, 0, 2**40, 2**40 - 1, 17, records, aborted)
        long = fetch_response(version, 12, 321, 0, 0, [(key, [result])])
        short = usual_fetch_response(
            version, 12, 321, key, 5, 2**40, 2**40 - 1, 17, committed, records
        )  # fmt: skip
        assert joined(short) == joined(long)
        assert len(short) == len(long)  # what is small is read, what is large is not
