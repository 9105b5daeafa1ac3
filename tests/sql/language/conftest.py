"""One local Spark for the tests here that need one."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.support import spark as support


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    if reason := support.missing():
        pytest.skip(reason)
    # As the driver has them: expressions that fail are null, and there is a type for times.
    settings = {"spark.sql.ansi.enabled": "false", "spark.sql.timeType.enabled": "true"}
    session = support.local_spark(tmp_path_factory.mktemp("spark"), settings)
    yield session
    session.stop()
