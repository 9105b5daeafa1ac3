"""Connectors with a Spark driver of their own: those that ask for it, and those that end it."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.connect.hosting import RunState
from tests.connect.broker import connect_broker
from tests.connect.host.conftest import HostUnderTest
from tests.connect.host.fire import driver_pids
from tests.connect.host.test_spark_host import folder_of, in_topic, numbers, numbers_into

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture
def host(
    tmp_path_factory: pytest.TempPathFactory, installed_plugins: None
) -> Iterator[HostUnderTest]:
    """One that no other test uses: its drivers end."""
    with connect_broker(tmp_path_factory.mktemp("broker")) as broker:
        running = HostUnderTest(broker, tmp_path_factory.mktemp("host"))
        yield running
        running.close()


def test_a_connector_with_its_own_driver_neither_ends_others_nor_with_them(
    host: HostUnderTest, topic: str, tmp_path: Path
) -> None:
    of_other_tests = set(driver_pids())

    def drivers() -> set[int]:
        return set(driver_pids()) - of_other_tests

    host.start("shared", numbers_into(topic, upto="10"))
    host.wait_for("shared", RunState.RUNNING)
    (shared,) = drivers()
    other = f"{topic}-own"
    host.create(other)
    host.start("own", numbers_into(other, upto="10", headrace_driver="own"))
    host.wait_for("own", RunState.RUNNING)
    (own,) = drivers() - {shared}
    os.kill(own, signal.SIGKILL)
    host.wait_for("own", RunState.RESTARTING)
    assert host.status("shared").state is RunState.RUNNING
    host.wait_for("own", RunState.RUNNING)
    host.wait(lambda: in_topic(host, other), lambda found: found == numbers(1, 10))
    assert shared in drivers()
    assert host.status("shared").progress.restarts == 0
    host.stop("own")
    assert drivers() == {shared}

    # A connector that ends the driver when it starts: twice it is a bystander's driver, too.
    cause = tmp_path / "cause"
    cause.write_text("")
    host.start("crashing", folder_of(topic, tmp_path, ends_driver_while=str(cause)))
    found = host.wait(
        lambda: host.status("crashing"), lambda found: "a driver of its own" in (found.trace or "")
    )
    assert found.state is RunState.RESTARTING
    host.wait_for("shared", RunState.RUNNING)
    restarts = host.status("shared").progress.restarts
    assert restarts == 2
    cause.unlink()
    host.wait_for("crashing", RunState.RUNNING)
    assert len(drivers()) == 2
    assert host.status("shared").progress.restarts == restarts
    host.stop("crashing")
    host.wait(drivers, lambda pids: len(pids) == 1)
