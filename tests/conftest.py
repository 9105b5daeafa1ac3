"""For all tests: the usual suite, a Spark that starts quickly, programs that can be interrupted."""

import os
import signal

import pytest

# A shell starts background jobs with SIGINT ignored, and children inherit that. A handler of our
# own is not inherited: programs begin with the default again, and Ctrl-C reaches them.
signal.signal(signal.SIGINT, signal.default_int_handler)

# A test is over before Java's optimising compiler has paid for itself.
QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"
for name in ("SPARK_LAUNCHER_OPTS", "SPARK_SUBMIT_OPTS", "SPARK_DAEMON_JAVA_OPTS"):
    os.environ.setdefault(name, QUICK_START)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--endurance", action="store_true", help="run the tests marked so, and only them"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    wanted = bool(config.getoption("--endurance"))
    left_out = [item for item in items if bool(item.get_closest_marker("endurance")) != wanted]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]
