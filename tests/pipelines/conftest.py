"""One local Spark for all tests here: a session takes as long to start as most of them to run.

Mark a test `spark` if it needs one; without Java it is then skipped. No test stops
the session or changes its settings; streams go into a checkpoint of the test's own.
"""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.support import java
from tests.support import spark as support


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    if reason := support.missing():
        pytest.skip(reason)
    session = support.local_spark(tmp_path_factory.mktemp("spark"))
    yield session
    session.stop()


@pytest.fixture(autouse=True)
def _needs_java(request: pytest.FixtureRequest) -> None:
    if request.node.get_closest_marker("spark") and (reason := support.missing()):
        pytest.skip(reason)
    if request.node.get_closest_marker("java") and (reason := java.missing()):
        pytest.skip(reason)
