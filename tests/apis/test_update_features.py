"""UpdateFeatures leaves features at their levels."""

import pytest
from kio.schema.update_features.v1.request import FeatureUpdateKey, UpdateFeaturesRequest

from headrace.apis.cluster.update_features import update_features
from headrace.cluster.features import FEATURES
from headrace.errors import ErrorCode
from headrace.wire.primitives import i8, i16
from tests.apis.one_broker import OneBroker

NONE = ErrorCode.NONE


METADATA = next(one for one in FEATURES if one.name == "metadata.version")


@pytest.mark.parametrize(
    ("feature", "level", "kind", "granted"),
    [
        ("metadata.version", METADATA.finalized, 1, True),
        ("metadata.version", METADATA.max_level + 1, 1, False),
        ("metadata.version", METADATA.finalized - 1, 1, False),
        ("metadata.version", METADATA.finalized - 1, 2, False),
        ("metadata.version", -1, 1, False),
        ("metadata.version", METADATA.finalized, 9, False),
        ("no.such.feature", 1, 1, False),
    ],
)
def test_a_feature_stays_at_its_level(
    broker: OneBroker, feature: str, level: int, kind: int, granted: bool
) -> None:
    update = FeatureUpdateKey(feature=feature, max_version_level=i16(level), upgrade_type=i8(kind))
    answer = broker.ask(update_features, UpdateFeaturesRequest(feature_updates=(update,)))
    code = NONE if granted else ErrorCode.INVALID_UPDATE_VERSION
    assert ErrorCode(answer.error_code) == code
    assert [one.feature for one in answer.results] == ([feature] if granted else [])
    assert granted or (answer.error_message and feature in answer.error_message)
