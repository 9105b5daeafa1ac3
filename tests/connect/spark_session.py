"""One local Spark for the tests of converters and transforms: fixtures for their conftest files."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.support import spark as support
from tests.support.java import missing
from tests.support.kafka_connect import KafkaConnect


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    if reason := support.missing():
        pytest.skip(reason)
    session = support.local_spark(tmp_path_factory.mktemp("spark"))
    yield session
    session.stop()


@pytest.fixture(scope="session")
def kafka_connect(spark: SparkSession) -> KafkaConnect:
    """Kafka Connect's own classes."""
    return KafkaConnect(spark)


@pytest.fixture(autouse=True)
def needs_java(request: pytest.FixtureRequest) -> None:
    if request.node.get_closest_marker("spark") and (reason := support.missing()):
        pytest.skip(reason)
    if request.node.get_closest_marker("java") and (reason := missing()):
        pytest.skip(reason)
