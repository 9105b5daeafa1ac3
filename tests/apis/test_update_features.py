"""UpdateFeatures changes the finalized levels of features, which ApiVersions shows at once."""

import struct
from pathlib import Path
from typing import Any

import pytest
from kio.schema.api_versions.v4.response import ApiVersionsResponse
from kio.schema.consumer_group_describe.v1.request import ConsumerGroupDescribeRequest
from kio.schema.types import GroupId
from kio.schema.update_features.v1.request import FeatureUpdateKey, UpdateFeaturesRequest
from kio.schema.update_features.v1.response import UpdateFeaturesResponse
from kio.serial import entity_reader

from headrace.apis.api_versions import ApiVersions
from headrace.apis.cluster.update_features import update_features
from headrace.apis.routes import ROUTES
from headrace.cluster.features import (
    FEATURES,
    GROUP_VERSION,
    METADATA_VERSION,
    SHARE_VERSION,
    STREAMS_VERSION,
    FinalizedFeatures,
)
from headrace.errors import ErrorCode
from headrace.wire import codec
from headrace.wire.primitives import i8, i16
from tests.apis.one_broker import CALLER, OneBroker, over_the_wire
from tests.support.messages import about_orders

NONE = ErrorCode.NONE
NEWEST = FEATURES[METADATA_VERSION].max_level
UP, SAFE, UNSAFE = 1, 2, 3
SOFTWARE = b"\x05test\x02\x31\0"


def update(
    broker: OneBroker, *updates: tuple[str, int, int], validate_only: bool = False
) -> UpdateFeaturesResponse:
    rows = tuple(
        FeatureUpdateKey(feature=name, max_version_level=i16(level), upgrade_type=i8(kind))
        for name, level, kind in updates
    )
    request = UpdateFeaturesRequest(feature_updates=rows, validate_only=validate_only)
    return broker.ask(update_features, request)


def advertised(broker: OneBroker, version: int = 4) -> ApiVersionsResponse:
    buffer = bytearray(SOFTWARE)
    handler = ApiVersions(broker.services)
    answer = handler(CALLER, buffer, memoryview(buffer), 0, len(buffer), version, 1)
    return entity_reader(ApiVersionsResponse)(bytes(answer[8:]), 0)[0]


def finalized(broker: OneBroker) -> dict[str, int]:
    rows = advertised(broker).finalized_features
    assert all(row.min_version_level == row.max_version_level for row in rows)
    return {row.name: int(row.max_version_level) for row in rows}


@pytest.mark.parametrize(
    ("feature", "level", "kind", "granted"),
    [
        (METADATA_VERSION, NEWEST, UP, True),
        (METADATA_VERSION, NEWEST, SAFE, True),
        (METADATA_VERSION, NEWEST + 1, UP, False),
        (METADATA_VERSION, NEWEST - 1, UP, False),
        (METADATA_VERSION, NEWEST - 1, SAFE, False),
        (METADATA_VERSION, NEWEST - 1, UNSAFE, False),
        (METADATA_VERSION, 0, UNSAFE, False),
        (METADATA_VERSION, -1, UP, False),
        (METADATA_VERSION, NEWEST, 9, False),
        (METADATA_VERSION, NEWEST, 0, False),
        ("no.such.feature", 1, UP, False),
        ("no.such.feature", 0, SAFE, False),
        ("group.version", 0, UP, False),
        ("group.version", 0, SAFE, True),
        ("group.version", 0, UNSAFE, True),
        ("group.version", 1, SAFE, True),
        ("group.version", 2, UP, False),
        ("transaction.version", 1, SAFE, True),
        ("transaction.version", 3, UP, False),
        ("share.version", 0, SAFE, True),
        ("streams.version", 0, SAFE, True),
    ],
)
def test_the_rules_are_those_of_kafka(
    broker: OneBroker, feature: str, level: int, kind: int, granted: bool
) -> None:
    """Apache Kafka 4.3.1 grants and refuses the same."""
    answer = update(broker, (feature, level, kind), validate_only=True)
    code = NONE if granted else ErrorCode.INVALID_UPDATE_VERSION
    assert ErrorCode(answer.error_code) == code
    assert [one.feature for one in answer.results] == ([feature] if granted else [])
    assert granted or (answer.error_message and feature in answer.error_message)
    assert broker.metadata.image.features == FinalizedFeatures(), "only validated"


def test_all_updates_of_a_request_happen_or_none(broker: OneBroker) -> None:
    refused = update(broker, ("group.version", 0, SAFE), ("no.such.feature", 1, UP))
    assert ErrorCode(refused.error_code) is ErrorCode.INVALID_UPDATE_VERSION
    assert finalized(broker)["group.version"] == 1
    assert update(broker, ("group.version", 0, SAFE), ("transaction.version", 1, SAFE)).results
    assert finalized(broker)["transaction.version"] == 1
    assert "group.version" not in finalized(broker), "a feature at level 0 is not finalized"


def test_every_change_has_a_higher_epoch(broker: OneBroker) -> None:
    first = advertised(broker).finalized_features_epoch
    update(broker, ("transaction.version", 2, UP))
    assert advertised(broker).finalized_features_epoch == first, "nothing has changed"
    update(broker, ("transaction.version", 1, SAFE))
    assert advertised(broker).finalized_features_epoch == first + 1
    update(broker, ("transaction.version", 2, UP))
    assert advertised(broker).finalized_features_epoch == first + 2


def test_a_connection_that_is_open_already_sees_the_new_levels(broker: OneBroker) -> None:
    handler = ApiVersions(broker.services)
    buffer = bytearray(SOFTWARE)
    ask = (CALLER, buffer, memoryview(buffer), 0, len(buffer), 4, 1)
    before = handler(*ask)
    update(broker, ("share.version", 0, SAFE))
    after = handler(*ask)
    assert struct.pack(">q", 2) in after
    assert after != before


def test_version_3_hides_features_whose_lowest_level_is_0(broker: OneBroker) -> None:
    assert {row.name for row in advertised(broker, 4).supported_features} == set(FEATURES)
    older = {row.name for row in advertised(broker, 3).supported_features}
    assert older == {name for name, feature in FEATURES.items() if feature.min_level > 0}


def test_levels_survive_a_restart(tmp_path: Path) -> None:
    broker = OneBroker(tmp_path)
    update(broker, ("streams.version", 0, SAFE))
    kept = broker.metadata.image.features
    broker.close()
    again = OneBroker(tmp_path)
    assert again.metadata.image.features == kept
    assert not again.metadata.image.features.is_enabled("streams.version")
    again.close()


@pytest.mark.parametrize(
    ("feature", "api_key"),
    [(route.feature, route.key) for route in ROUTES.values() if route.feature],
)
def test_the_apis_of_a_feature_at_level_0_are_refused(
    broker: OneBroker, feature: str, api_key: int
) -> None:
    route = ROUTES[api_key]
    handler = route.load()
    update(broker, (feature, 0, SAFE))
    for version in range(route.min_version, route.max_version + 1):
        request = about_orders(codec.request_class(api_key, version))
        answer: Any = over_the_wire(broker, handler, api_key, version, request)
        errors = answer.groups if hasattr(answer, "groups") else (answer,)
        codes = [int(one.error_code) for one in errors]
        assert set(codes) <= {int(ErrorCode.UNSUPPORTED_VERSION)}, route.name


def test_every_group_of_a_describe_is_refused(broker: OneBroker) -> None:
    update(broker, ("group.version", 0, SAFE))
    request = ConsumerGroupDescribeRequest(
        group_ids=(GroupId("a"), GroupId("b")), include_authorized_operations=False
    )
    answer: Any = over_the_wire(broker, ROUTES[69].load(), 69, 1, request)
    assert [(group.group_id, int(group.error_code)) for group in answer.groups] == [
        ("a", int(ErrorCode.UNSUPPORTED_VERSION)),
        ("b", int(ErrorCode.UNSUPPORTED_VERSION)),
    ]


def test_the_features_of_groups_have_apis() -> None:
    assert {route.feature for route in ROUTES.values() if route.feature} == {
        GROUP_VERSION,
        SHARE_VERSION,
        STREAMS_VERSION,
    }
