"""Joins by the state of a key."""

from collections.abc import Mapping

from pyspark.sql import DataFrame

from headrace.sql.plans import StateJoin


def state_join(join: StateJoin, views: Mapping[str, DataFrame]) -> DataFrame:
    """TODO"""
    raise NotImplementedError
