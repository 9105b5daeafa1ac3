"""Cluster features: what this broker supports and at which level each one is finalised.

Clients read them in ApiVersions: a feature that is not finalised is one they will not use.
"""

from typing import NamedTuple


class Feature(NamedTuple):
    """A named capability with its range of levels here, and the level that the cluster uses."""

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
