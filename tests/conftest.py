"""For all tests: what belongs to the usual suite, one Apache Kafka to compare with, a Spark that
starts quickly, temporary files in memory, and programs that can be interrupted."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

from tests.support import fast, java, scratch, workers
from tests.support.apache_kafka import ApacheKafka

# A shell starts background jobs with SIGINT ignored, and children inherit that. A handler of our
# own is not inherited: programs begin with the default again, and Ctrl-C reaches them.
signal.signal(signal.SIGINT, signal.default_int_handler)

scratch.use_memory(os.environ)

# How long an example takes says more about the machine than about the code.
hypothesis.settings.register_profile("any machine", deadline=None)
hypothesis.settings.load_profile("any machine")
hypothesis.settings.register_profile("fast", deadline=None, max_examples=25)

os.environ.setdefault("SPARK_LAUNCHER_OPTS", " ".join(java.QUICK_SPARK))
os.environ.setdefault("SPARK_DAEMON_JAVA_OPTS", java.spark_options())
os.environ.setdefault("SPARK_SUBMIT_OPTS", " ".join((java.spark_options(), *java.SPARK_DEFAULTS)))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--endurance", action="store_true", help="run the tests marked so, and only them"
    )
    parser.addoption(
        "--fast", action="store_true", help="run only tests that start no process and are not slow"
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--fast"):
        hypothesis.settings.load_profile("fast")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    if not config.getoption("--fast") or collection_path.suffix != ".py":
        return None
    return True if not fast.is_fast(collection_path) else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    wanted = bool(config.getoption("--endurance"))
    left_out = {item for item in items if bool(item.get_closest_marker("endurance")) != wanted}
    if config.getoption("--fast"):
        left_out |= {item for item in items if item.get_closest_marker("slow")}
        fast.forbid_processes()
    if left_out:
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = [item for item in items if item not in left_out]
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: workers.turn(item.nodeid))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> workers.ByWhatIsShared:
    # The order is ours, not that of the number of tests.
    config.option.loadscopereorder = False
    return workers.ByWhatIsShared(config, log)


@pytest.fixture(scope="session")
def apache_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    """For all tests that use only topics and groups of their own; nobody stops or changes it."""
    if reason := java.missing():
        pytest.skip(reason)
    settings = {"log.cleaner.backoff.ms": "200"}
    with ApacheKafka(tmp_path_factory.mktemp("kafka"), settings=settings, quick=True) as running:
        yield running
