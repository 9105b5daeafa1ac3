"""Cluster features: the supported levels of this broker and the finalised level of each one.

Clients read them in ApiVersions and do not use a feature that is not finalised.
"""

from typing import NamedTuple


class Feature(NamedTuple):
    """A feature with the levels that this broker supports, and the level that the cluster uses."""

    name: str
    min_level: int
    max_level: int
    finalized: int


FEATURES = (
    Feature("group.version", 0, 1, 1),
    Feature("metadata.version", 7, 27, 27),
    Feature("transaction.version", 0, 2, 2),
)
FINALIZED_EPOCH = 1
