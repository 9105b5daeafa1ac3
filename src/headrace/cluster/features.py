"""Cluster features: the levels that this release supports, and the finalized level of each one.

Clients read them in ApiVersions and do not use what is not finalized; handlers refuse requests of a
feature at level 0. The finalized levels are part of the image; UpdateFeatures changes them. This
module decides and does no I/O.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from headrace.errors import ErrorCode, KafkaError

GROUP_VERSION = "group.version"
"""1: the consumer protocol (KIP-848)."""
SHARE_VERSION = "share.version"
"""1: share groups (KIP-932)."""
STREAMS_VERSION = "streams.version"
"""1: Streams groups (KIP-1071)."""
METADATA_VERSION = "metadata.version"

UPGRADE = 1
UNSAFE_DOWNGRADE = 3


class Feature(NamedTuple):
    """A feature with the levels that this release supports."""

    name: str
    min_level: int
    max_level: int


FEATURES = {
    feature.name: feature
    for feature in (
        # Eligible leader replicas are part of every election (decision 0025), so there is no 0.
        Feature("eligible.leader.replicas.version", 1, 1),
        Feature(GROUP_VERSION, 0, 1),
        # Without effect: `kafka-features upgrade --release-version` names it.
        Feature("kraft.version", 1, 1),
        Feature(METADATA_VERSION, 7, 30),
        Feature(SHARE_VERSION, 0, 1),
        Feature(STREAMS_VERSION, 0, 1),
        # With 2, clients leave it to Produce and TxnOffsetCommit to add partitions (KIP-890).
        Feature("transaction.version", 0, 2),
    )
}


def _newest() -> Mapping[str, int]:
    return {feature.name: feature.max_level for feature in FEATURES.values()}


@dataclass(frozen=True, slots=True)
class FinalizedFeatures:
    """The level of every feature. The epoch grows with each change, so clients know the newest."""

    epoch: int = 1
    levels: Mapping[str, int] = field(default_factory=_newest)

    def is_enabled(self, name: str) -> bool:
        """Whether the cluster uses a feature: its level is not 0."""
        return self.levels[name] > 0


def stored_features(epoch: int, stored: Mapping[str, int]) -> FinalizedFeatures:
    """The features as the store has them, within what this release supports."""
    levels = {
        feature.name: max(
            feature.min_level, min(stored.get(feature.name, feature.max_level), feature.max_level)
        )
        for feature in FEATURES.values()
    }
    return FinalizedFeatures(epoch, levels)


class FeatureUpdate(NamedTuple):
    """The level that a feature shall have; `kind` is UPGRADE or a type of downgrade."""

    name: str
    level: int
    kind: int


def updated(
    features: FinalizedFeatures, updates: Iterable[FeatureUpdate], broker_id: int
) -> FinalizedFeatures:
    """The features after all updates, the same object if nothing changes.

    KafkaError if one update is refused: then none of them happens.
    """
    levels = dict(features.levels)
    for update in updates:
        # Each is judged by the levels before the request, as in Kafka.
        reason = _refusal(update, features.levels.get(update.name, 0), broker_id)
        if reason is not None:
            raise KafkaError(
                ErrorCode.INVALID_UPDATE_VERSION,
                "The update failed for all features since the following feature had an error: "
                f"Invalid update version {update.level} for feature {update.name}. {reason}",
            )
        levels[update.name] = update.level
    if levels == features.levels:
        return features
    return FinalizedFeatures(features.epoch + 1, levels)


def _refusal(update: FeatureUpdate, current: int, broker_id: int) -> str | None:
    """Why an update is refused; None if it is not."""
    known = FEATURES.get(update.name)
    if not UPGRADE <= update.kind <= UNSAFE_DOWNGRADE:
        return "The controller does not support the given upgrade type."
    if update.level < 0:
        return "A feature version cannot be less than 0."
    if known is None:
        return f"Broker {broker_id} does not support this feature."
    if not known.min_level <= update.level <= known.max_level:
        return f"Broker {broker_id} only supports versions {known.min_level}-{known.max_level}."
    if update.level < current and update.kind == UPGRADE:
        return "A downgrade needs the upgrade type SAFE_DOWNGRADE or UNSAFE_DOWNGRADE."
    if update.level > current and update.kind != UPGRADE:
        return "Can't downgrade to a newer version."
    if update.level < current and update.name == METADATA_VERSION:
        return "A lower metadata.version might lose metadata."
    return None
