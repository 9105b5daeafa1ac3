"""UpdateFeatures (57), versions 0-2.

Validates updates of the cluster's features. The version of Headrace determines their levels: an
update to the present level succeeds, any other is refused with a reason.

v1 validation only, and types of downgrade; v2 has no result for each feature. Not done: changing a
level.
"""

from functools import partial

from kio.schema.update_features.v1.request import FeatureUpdateKey, UpdateFeaturesRequest
from kio.schema.update_features.v1.response import UpdatableFeatureResult, UpdateFeaturesResponse

from headrace.apis.context import RequestContext, Services
from headrace.cluster.features import FEATURES
from headrace.errors import ErrorCode, KafkaError
from headrace.wire.primitives import NO_ERROR, error, respond

UPGRADE = 1
UNSAFE_DOWNGRADE = 3


def update_features(
    _services: Services, request: UpdateFeaturesRequest, _context: RequestContext
) -> UpdateFeaturesResponse:
    """Accept updates that change nothing; the response carries the first refusal."""
    try:
        for update in request.feature_updates:
            _check(update)
    except KafkaError as refusal:
        return respond(
            partial(
                UpdateFeaturesResponse,
                error_code=error(refusal.code),
                error_message=refusal.message,
                results=(),
            )
        )
    granted = tuple(
        UpdatableFeatureResult(feature=update.feature, error_code=NO_ERROR, error_message=None)
        for update in request.feature_updates
    )
    return respond(
        partial(UpdateFeaturesResponse, error_code=NO_ERROR, error_message=None, results=granted)
    )


def _check(update: FeatureUpdateKey) -> None:
    level = update.max_version_level
    known = next((one for one in FEATURES if one.name == update.feature), None)
    if not UPGRADE <= update.upgrade_type <= UNSAFE_DOWNGRADE:
        reason = "The controller does not support the given upgrade type."
    elif level < 0:
        reason = "A feature version cannot be less than 0."
    elif known is None:
        reason = "This broker does not support this feature."
    elif level != 0 and not known.min_level <= level <= known.max_level:
        reason = f"This broker only supports versions {known.min_level}-{known.max_level}."
    elif level < known.finalized and update.upgrade_type == UPGRADE:
        reason = "A downgrade needs the upgrade type SAFE_DOWNGRADE or UNSAFE_DOWNGRADE."
    elif level > known.finalized and update.upgrade_type != UPGRADE:
        reason = "Can't downgrade to a newer version."
    elif level != known.finalized:
        reason = (
            f"The level is {known.finalized} in this version of Headrace and cannot be changed."
        )
    else:
        return
    raise KafkaError(
        ErrorCode.INVALID_UPDATE_VERSION,
        f"Invalid update version {level} for feature {update.feature}. {reason}",
    )
