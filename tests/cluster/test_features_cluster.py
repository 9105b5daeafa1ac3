"""Levels of features with several brokers on ZooKeeper: a change on one is effective on all."""

import uuid
from pathlib import Path

import pytest
from kio.schema.api_versions.v4.request import ApiVersionsRequest
from kio.schema.api_versions.v4.response import ApiVersionsResponse
from kio.schema.consumer_group_describe.v1.request import ConsumerGroupDescribeRequest
from kio.schema.consumer_group_describe.v1.response import ConsumerGroupDescribeResponse
from kio.schema.types import GroupId
from kio.schema.update_features.v2.request import FeatureUpdateKey, UpdateFeaturesRequest
from kio.schema.update_features.v2.response import UpdateFeaturesResponse

from headrace.client.connection import Connection
from headrace.errors import ErrorCode
from headrace.wire.primitives import i8, i16
from tests.support.client_metrics import connect
from tests.support.cluster import RunningCluster
from tests.support.stores import eventually
from tests.support.zookeeper import ZooKeeper

pytestmark = pytest.mark.java


def update(connection: Connection, level: int, kind: int) -> None:
    change = FeatureUpdateKey(
        feature="group.version", max_version_level=i16(level), upgrade_type=i8(kind)
    )
    request = UpdateFeaturesRequest(feature_updates=(change,))
    answer = connection.ask(request, UpdateFeaturesResponse)
    assert answer.error_code == 0, answer.error_message


def is_refused(connection: Connection) -> bool:
    request = ConsumerGroupDescribeRequest(
        group_ids=(GroupId("g"),), include_authorized_operations=False
    )
    answer = connection.ask(request, ConsumerGroupDescribeResponse)
    return int(answer.groups[0].error_code) == ErrorCode.UNSUPPORTED_VERSION


def finalized(connection: Connection) -> set[str]:
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    answer = connection.ask(request, ApiVersionsResponse)
    return {row.name for row in answer.finalized_features}


def test_a_change_is_effective_on_all_brokers(zookeeper: ZooKeeper, tmp_path: Path) -> None:
    metadata = zookeeper.address(f"/{uuid.uuid4().hex[:8]}")
    with RunningCluster(tmp_path / "metadata", 2, metadata=metadata) as cluster:
        first, second = (
            connect(cluster.brokers[number].bootstrap_servers, "levels") for number in (1, 2)
        )
        assert not is_refused(second)
        update(first, 0, 2)
        assert is_refused(first)
        eventually(lambda: is_refused(second), "the second broker knows the level")
        assert "group.version" not in finalized(second)
        update(second, 1, 1)
        eventually(lambda: not is_refused(first), "the first broker knows the level")
        assert "group.version" in finalized(first)
        first.close()
        second.close()
