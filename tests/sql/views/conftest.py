"""Spark in this process, for comparisons."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.support import spark as support


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    if reason := support.missing():
        pytest.skip(reason)
    session = support.local_spark(tmp_path_factory.mktemp("spark"))
    yield session
    session.stop()
