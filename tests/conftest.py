"""For all tests: what belongs to the usual suite, and programs that can be interrupted."""

import signal

import pytest

# A shell starts background jobs with SIGINT ignored, and children inherit that. A handler of our
# own is not inherited: programs begin with the default again, and Ctrl-C reaches them.
signal.signal(signal.SIGINT, signal.default_int_handler)


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
