"""Converters for requests whose older versions hold something that the newest one lacks.

`REQUESTS[api]` is (last version converted, old request -> newest shape). All other differences
between versions are handled by `codec.py` from the classes alone.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import kio.schema.delete_topics.v5.request as delete_topics_v5
    import kio.schema.update_features.v0.request as update_features_v0

Convert = Callable[[object, type], object]

SAFE_DOWNGRADE = 2
UPGRADE = 1


def _name_topics_to_delete(old: object, shape: type) -> object:
    """DeleteTopics 1-5 has a list of names; 6 has a list of names or ids."""
    from kio.schema.delete_topics.v6.request import DeleteTopicState

    request = typing.cast("delete_topics_v5.DeleteTopicsRequest", old)
    topics = tuple(DeleteTopicState(name=name, topic_id=None) for name in request.topic_names)
    return shape(topics=topics, timeout=request.timeout)


def _type_feature_updates(old: object, shape: type) -> object:
    """UpdateFeatures 0 says whether a downgrade is allowed; 1 and later say which kind."""
    from kio.schema.update_features.v1.request import FeatureUpdateKey

    from headrace.wire.primitives import i8

    request = typing.cast("update_features_v0.UpdateFeaturesRequest", old)
    updates = tuple(
        FeatureUpdateKey(
            feature=update.feature,
            max_version_level=update.max_version_level,
            upgrade_type=i8(SAFE_DOWNGRADE if update.allow_downgrade else UPGRADE),
        )
        for update in request.feature_updates
    )
    return shape(timeout=request.timeout, feature_updates=updates, validate_only=False)


REQUESTS: Mapping[int, tuple[int, Convert]] = {
    20: (5, _name_topics_to_delete),
    57: (0, _type_feature_updates),
}
