"""UpdateFeatures (57), versions 0-2.

Changes the finalized levels of the cluster's features, all of a request or none. The levels are
stored with the metadata and take effect on every broker without a restart; clients read them when
they connect.

v1 validation only, and types of downgrade; v2 has no result for each feature.
"""

from functools import partial

from kio.schema.update_features.v1.request import UpdateFeaturesRequest
from kio.schema.update_features.v1.response import UpdatableFeatureResult, UpdateFeaturesResponse

from headrace.apis.context import RequestContext, Services
from headrace.cluster.features import FeatureUpdate
from headrace.errors import KafkaError
from headrace.wire.primitives import NO_ERROR, error, respond


def update_features(
    services: Services, request: UpdateFeaturesRequest, _context: RequestContext
) -> UpdateFeaturesResponse:
    """Change or validate the levels; the response carries the first refusal."""
    updates = [
        FeatureUpdate(one.feature, int(one.max_version_level), int(one.upgrade_type))
        for one in request.feature_updates
    ]
    try:
        services.metadata.update_features(updates, validate_only=request.validate_only)
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
