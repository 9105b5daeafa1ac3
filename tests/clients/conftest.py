"""One broker for all client tests, and a fresh topic for each.

HEADRACE_TEST_BOOTSTRAP=host:port runs the same tests against another broker, such as a real
Apache Kafka: a test that passes only there shows a bug of ours. HEADRACE_TEST_DATA is then that
broker's data folder; without it the tests that look at files are skipped.
"""

import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support import java
from tests.support.headrace_broker import HeadraceBroker

MakeTopic = Callable[..., str]


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HeadraceBroker | None]:
    if os.environ.get("HEADRACE_TEST_BOOTSTRAP"):
        yield None
        return
    with HeadraceBroker(tmp_path_factory.mktemp("broker")) as running:
        yield running


@pytest.fixture(scope="session")
def bootstrap(broker: HeadraceBroker | None) -> str:
    if broker is None:
        return os.environ["HEADRACE_TEST_BOOTSTRAP"]
    return broker.bootstrap


@pytest.fixture(scope="session")
def data_folder(broker: HeadraceBroker | None) -> Path:
    if broker is not None:
        return broker.data
    if folder := os.environ.get("HEADRACE_TEST_DATA"):
        return Path(folder)
    pytest.skip("HEADRACE_TEST_DATA does not name the foreign broker's data folder")


@pytest.fixture(scope="session")
def admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap})


@pytest.fixture
def make_topic(admin: AdminClient, request: pytest.FixtureRequest) -> MakeTopic:
    """Creates a topic with a name of its own: make_topic(partitions, **{"config.name": value})."""

    def make(partitions: int = 1, **config: str) -> str:
        name = f"t-{uuid.uuid4().hex[:12]}"
        new = NewTopic(name, num_partitions=partitions, replication_factor=1, config=config)
        admin.create_topics([new])[name].result(60)
        return name

    return make


@pytest.fixture
def topic(make_topic: MakeTopic) -> str:
    return make_topic()


@pytest.fixture
def new_name() -> str:
    """A topic name that does not exist yet."""
    return f"n-{uuid.uuid4().hex[:12]}"


@pytest.fixture(autouse=True)
def _needs_java(request: pytest.FixtureRequest) -> None:
    if request.node.get_closest_marker("java") and (reason := java.missing()):
        pytest.skip(reason)
