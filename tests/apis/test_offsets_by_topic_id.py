"""OffsetCommit and OffsetFetch 10 name topics by their ids; Apache Kafka 4.3.1 answers the same."""

import typing
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.apis.groups.offset_commit import offset_commit
from headrace.apis.groups.offset_fetch import offset_fetch
from headrace.errors import ErrorCode
from headrace.wire import codec
from tests.apis.one_broker import OneBroker, over_the_wire
from tests.support.messages import filled, item, part

COMMIT, FETCH, VERSION = 8, 9, 10
NONE = int(ErrorCode.NONE)
UNKNOWN_ID = int(ErrorCode.UNKNOWN_TOPIC_ID)
UNKNOWN_PARTITION = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
OTHER = uuid.UUID("00000000-0000-4000-8000-000000000001")

Id = uuid.UUID | None
Answer = typing.Any
"""kio's class of a response, which depends on the version."""


@pytest.fixture
def orders(tmp_path: Path) -> Iterator[tuple[OneBroker, uuid.UUID]]:
    one = OneBroker(tmp_path)
    yield one, one.create("orders", 2).id
    one.close()


def request_of(api: int, **values: object) -> object:
    return filled(codec.request_class(api, VERSION), values)


def commit(
    broker: OneBroker, ids: list[Id], *indexes: int, member: str = ""
) -> list[tuple[Id, list[int]]]:
    topic_class = type(part(COMMIT, VERSION, "topics"))
    topics = tuple(
        part(
            COMMIT, VERSION, "topics", topic_id=one,
            partitions=tuple(
                item(
                    topic_class, "partitions", partition_index=index, committed_offset=5,
                    committed_metadata="",
                )
                for index in indexes
            ),
        )
        for one in ids
    )  # fmt: skip
    request = request_of(
        COMMIT,
        group_id="g",
        member_id=member,
        generation_id_or_member_epoch=3 if member else -1,
        topics=topics,
    )
    answer: Answer = over_the_wire(broker, offset_commit, COMMIT, VERSION, request)
    return [
        (topic.topic_id, [int(one.error_code) for one in topic.partitions])
        for topic in answer.topics
    ]


def fetch(broker: OneBroker, ids: list[Id] | None) -> list[tuple[Id, list[tuple[int, int]]]]:
    """For each topic its id, and the offset and error of partitions 0 and 9."""
    topics = None
    if ids is not None:
        groups_class = type(part(FETCH, VERSION, "groups"))
        topics = tuple(
            item(groups_class, "topics", topic_id=one, partition_indexes=(0, 9)) for one in ids
        )
    group = part(FETCH, VERSION, "groups", group_id="g", topics=topics)
    request = request_of(FETCH, groups=(group,))
    answer: Answer = over_the_wire(broker, offset_fetch, FETCH, VERSION, request)
    (only,) = answer.groups
    assert only.error_code == NONE
    return [
        (topic.topic_id, [(one.committed_offset, int(one.error_code)) for one in topic.partitions])
        for topic in only.topics
    ]


def test_offsets_are_committed_and_fetched(orders: tuple[OneBroker, uuid.UUID]) -> None:
    broker, topic_id = orders
    assert commit(broker, [topic_id], 0) == [(topic_id, [NONE])]
    assert fetch(broker, [topic_id]) == [(topic_id, [(5, NONE), (-1, NONE)])]
    assert fetch(broker, None) == [(topic_id, [(5, NONE)])]


def test_an_unknown_id_is_an_error_of_its_partitions_only(
    orders: tuple[OneBroker, uuid.UUID],
) -> None:
    broker, topic_id = orders
    assert commit(broker, [topic_id, OTHER, None], 0, 9) == [
        (topic_id, [NONE, UNKNOWN_PARTITION]),
        (OTHER, [UNKNOWN_ID, UNKNOWN_ID]),
        (None, [UNKNOWN_ID, UNKNOWN_ID]),
    ]
    nothing = [(-1, UNKNOWN_ID), (-1, UNKNOWN_ID)]
    assert fetch(broker, [OTHER, topic_id, None]) == [
        (OTHER, nothing),
        (topic_id, [(5, NONE), (-1, NONE)]),
        (None, nothing),
    ]


def test_a_topic_that_was_created_again_is_another_one(
    orders: tuple[OneBroker, uuid.UUID],
) -> None:
    broker, old = orders
    broker.metadata.delete_topics(["orders"])
    new = broker.create("orders", 2).id
    assert commit(broker, [old, new], 0) == [(old, [UNKNOWN_ID]), (new, [NONE])]


def test_a_refused_member_is_told_so_for_its_topics(orders: tuple[OneBroker, uuid.UUID]) -> None:
    broker, topic_id = orders
    commit(broker, [topic_id], 0)
    refused = [(topic_id, [int(ErrorCode.UNKNOWN_MEMBER_ID)])]
    assert commit(broker, [topic_id], 0, member="nobody") == refused
