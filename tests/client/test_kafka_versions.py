"""Our API versions and features beside those of a running Apache Kafka of the version in the pom.

docs/protocol.md has a table of the differences with a reason for each; the tests read it.
"""

import re
import uuid
from typing import NamedTuple

import pytest
from kio.schema.api_versions.v4.request import ApiVersionsRequest
from kio.schema.api_versions.v4.response import ApiVersionsResponse
from kio.schema.index import api_key_map
from kio.schema.list_offsets.v11.request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from kio.schema.list_offsets.v11.response import ListOffsetsResponse
from kio.schema.offset_commit.v10.request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kio.schema.offset_commit.v10.response import OffsetCommitResponse
from kio.schema.offset_fetch.v10.request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from kio.schema.offset_fetch.v10.response import OffsetFetchResponse
from kio.schema.types import GroupId
from kio.schema.update_features.v2.request import FeatureUpdateKey, UpdateFeaturesRequest
from kio.schema.update_features.v2.response import UpdateFeaturesResponse

from headrace.client.cluster import GROUP, Cluster
from headrace.client.errors import check
from headrace.errors import ErrorCode
from headrace.testing.running import RunningBroker
from headrace.wire.primitives import BrokerId, TopicName, i8, i16, i32, i64, milliseconds
from tests.client.conftest import Connect
from tests.support.apache_kafka import ApacheKafka
from tests.support.java import ROOT, kafka_version

PAGE = ROOT / "docs" / "protocol.md"
ABSENT = "-"
UP, SAFE, UNSAFE = 1, 2, 3
LOADING = {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
"""Of a coordinator that has just been elected; clients retry."""


class Ranges(NamedTuple):
    """The ranges of a broker as text, by the names that the tables have."""

    apis: dict[str, str]
    features: dict[str, str]


def ranges(cluster: Cluster) -> Ranges:
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    answer = cluster.ask(request, ApiVersionsResponse)
    assert answer.error_code == 0
    return Ranges(
        {
            f"{_name(int(row.api_key))} ({row.api_key})": f"{row.min_version}-{row.max_version}"
            for row in answer.api_keys
        },
        {
            f"`{row.name}`": f"{row.min_version}-{row.max_version}"
            for row in answer.supported_features
        },
    )


def _name(api_key: int) -> str:
    return "".join(word.capitalize() for word in api_key_map[api_key].split("_"))


def differences(theirs: dict[str, str], ours: dict[str, str]) -> dict[str, tuple[str, str]]:
    return {
        name: (theirs.get(name, ABSENT), ours.get(name, ABSENT))
        for name in theirs | ours
        if theirs.get(name) != ours.get(name)
    }


def table(heading: str) -> dict[str, tuple[str, str]]:
    """The rows of the table below a heading; each has a reason."""
    text = PAGE.read_text().split(f"### {heading}\n")[1].split("\n#")[0]
    rows = re.findall(r"^\| (.+?) \| (.+?) \| (.+?) \| (.+?) \|$", text, re.MULTILINE)
    assert rows, f"{PAGE} has no table below {heading}"
    return {name: (theirs, ours) for name, theirs, ours, _reason in rows[1:]}


@pytest.mark.java
def test_the_differences_are_those_of_the_documentation(
    headrace: RunningBroker, apache_kafka: ApacheKafka, connect: Connect
) -> None:
    ours = ranges(connect(headrace.bootstrap_servers))
    theirs = ranges(connect(apache_kafka.bootstrap))
    assert differences(theirs.apis, ours.apis) == table("APIs")
    assert differences(theirs.features, ours.features) == table("Features")
    assert f"Apache Kafka {kafka_version()}" in PAGE.read_text()


@pytest.mark.parametrize(
    ("updates", "code"),
    [
        ((), 0),
        ((("group.version", 0, SAFE),), 0),
        ((("group.version", 0, UNSAFE),), 0),
        ((("group.version", 0, UP),), 95),
        ((("group.version", 1, SAFE),), 0),
        ((("group.version", 2, UP),), 95),
        ((("group.version", -1, SAFE),), 95),
        ((("group.version", 0, 9),), 95),
        ((("group.version", 0, SAFE), ("group.version", 1, UP)), 0),
        ((("group.version", 0, SAFE), ("no.such", 1, UP)), 95),
        ((("no.such", 0, SAFE),), 95),
        ((("transaction.version", 1, SAFE), ("share.version", 0, SAFE)), 0),
        ((("transaction.version", 1, UP),), 95),
        ((("transaction.version", 3, UP),), 95),
        ((("streams.version", 0, SAFE),), 0),
        ((("metadata.version", 30, UP),), 0),
        ((("metadata.version", 29, SAFE),), 95),
        ((("metadata.version", 29, UNSAFE),), 95),
        ((("metadata.version", 31, UP),), 95),
    ],
)
def test_updates_of_features_are_granted_as_by_kafka(
    cluster: Cluster, updates: tuple[tuple[str, int, int], ...], code: int
) -> None:
    request = UpdateFeaturesRequest(
        feature_updates=tuple(
            FeatureUpdateKey(feature=name, max_version_level=i16(level), upgrade_type=i8(kind))
            for name, level, kind in updates
        ),
        validate_only=True,
    )
    answer = cluster.ask_controller(request, UpdateFeaturesResponse)
    assert int(answer.error_code) == code, answer.error_message
    assert (answer.error_message is None) == (code == 0)


def test_offsets_by_topic_id_are_answered_as_by_kafka(cluster: Cluster, topic: str) -> None:
    known, unknown = cluster.topics([topic])[topic].topic_id, uuid.uuid4()
    group = GroupId(f"by-id-{uuid.uuid4().hex[:8]}")

    def commit() -> dict[uuid.UUID | None, set[tuple[int, int]]]:
        request = OffsetCommitRequest(
            group_id=group,
            member_id="",
            topics=tuple(
                OffsetCommitRequestTopic(
                    topic_id=topic_id,
                    partitions=tuple(
                        OffsetCommitRequestPartition(
                            partition_index=i32(index),
                            committed_offset=i64(5),
                            committed_metadata="",
                        )
                        for index in (0, 9)
                    ),
                )
                for topic_id in (known, unknown)
            ),
        )
        answer = cluster.ask(request, OffsetCommitResponse, cluster.coordinator(GROUP, group))
        codes = {int(one.error_code) for each in answer.topics for one in each.partitions}
        for code in codes & LOADING:
            check(code, "committing")
        return {
            each.topic_id: {(int(p.partition_index), int(p.error_code)) for p in each.partitions}
            for each in answer.topics
        }

    assert cluster.retry("committing", commit) == {
        known: {(0, 0), (9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)},
        unknown: {(0, ErrorCode.UNKNOWN_TOPIC_ID), (9, ErrorCode.UNKNOWN_TOPIC_ID)},
    }
    fetched = cluster.ask(
        OffsetFetchRequest(
            groups=(
                OffsetFetchRequestGroup(
                    group_id=group,
                    topics=tuple(
                        OffsetFetchRequestTopics(topic_id=one, partition_indexes=(i32(0),))
                        for one in (known, unknown)
                    ),
                ),
            ),
            require_stable=True,
        ),
        OffsetFetchResponse,
        cluster.coordinator(GROUP, group),
    )
    (only,) = fetched.groups
    found = {each.topic_id: each.partitions[0] for each in only.topics}
    assert (found[known].committed_offset, int(found[known].error_code)) == (5, 0)
    assert int(found[unknown].error_code) == ErrorCode.UNKNOWN_TOPIC_ID
    assert found[unknown].committed_offset == -1


@pytest.mark.parametrize(("timestamp", "code"), [(-6, 0), (-7, 35)])
def test_places_in_a_log_are_known_as_by_kafka(
    cluster: Cluster, topic: str, timestamp: int, code: int
) -> None:
    wanted = ListOffsetsPartition(partition_index=i32(0), timestamp=i64(timestamp))
    request = ListOffsetsRequest(
        replica_id=BrokerId(-1),
        isolation_level=i8(0),
        topics=(ListOffsetsTopic(name=TopicName(topic), partitions=(wanted,)),),
        timeout=milliseconds(5000),
    )
    leader = cluster.topics([topic])[topic].leaders[0]
    answer = cluster.ask(request, ListOffsetsResponse, leader)
    (found,) = answer.topics[0].partitions
    assert (int(found.error_code), found.offset) == (code, -1)
