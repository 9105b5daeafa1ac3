"""Our API versions and features beside those of a running Apache Kafka of the version in the pom.

docs/protocol.md has a table of the differences with a reason for each; the tests read it.
"""

import re
from typing import NamedTuple

import pytest
from kio.schema.api_versions.v4.request import ApiVersionsRequest
from kio.schema.api_versions.v4.response import ApiVersionsResponse
from kio.schema.index import api_key_map
from kio.schema.update_features.v2.request import FeatureUpdateKey, UpdateFeaturesRequest
from kio.schema.update_features.v2.response import UpdateFeaturesResponse

from headrace.client.cluster import Cluster
from headrace.testing.running import RunningBroker
from headrace.wire.primitives import i8, i16
from tests.client.conftest import Connect
from tests.support.apache_kafka import ApacheKafka
from tests.support.java import ROOT, kafka_version

PAGE = ROOT / "docs" / "protocol.md"
ABSENT = "-"
UP, SAFE, UNSAFE = 1, 2, 3


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
