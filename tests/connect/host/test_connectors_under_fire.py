"""Connectors lose and double nothing while drivers, workers, databases and brokers are killed.

The usual suite kills the driver and the database of each connector of databases once. `make
endurance` has twenty runs of each connector with three kills that a seed draws;
HEADRACE_FIRE_RUNS=100-110 chooses other seeds, and HEADRACE_FIRE_LOG a file that gets a line for
each run.
"""

import os
from pathlib import Path

import pytest

from tests.connect.conftest import EmptyDatabase
from tests.connect.host.conftest import HostUnderTest
from tests.connect.host.fire import (
    FileFlow,
    Flow,
    JdbcSinkFlow,
    JdbcSourceFlow,
    MariadbFlow,
    PostgresqlFlow,
    burn,
)
from tests.pipelines.fire import noted

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

FIRST, _, LAST = os.environ.get("HEADRACE_FIRE_RUNS", "0-20").rpartition("-")
MANY_RUNS = range(int(FIRST or "0"), int(LAST))
KINDS = ("file", "jdbc-source", "postgresql", "mariadb", "jdbc-sink")


def new_flow(kind: str, seed: int, request: pytest.FixtureRequest, folder: Path) -> Flow:
    host: HostUnderTest = request.getfixturevalue("host")
    name = f"{kind}-{seed}"
    if kind == "file":
        return FileFlow(host, name, folder)
    if kind == "mariadb":
        found: EmptyDatabase = request.getfixturevalue("mariadb")
        return MariadbFlow(host, name, found)
    database: EmptyDatabase = request.getfixturevalue("postgresql")
    if kind == "postgresql":
        flow = PostgresqlFlow(host, name, database)
        request.addfinalizer(flow.close)
        return flow
    return (JdbcSourceFlow if kind == "jdbc-source" else JdbcSinkFlow)(host, name, database)


@pytest.mark.parametrize("kind", ["postgresql", "mariadb", "jdbc-sink"])
def test_a_killed_driver_and_a_killed_database_lose_and_double_nothing(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    burn(new_flow(kind, 9000, request, tmp_path), 1, [], ("driver", "database"))


@pytest.mark.endurance
@pytest.mark.parametrize("seed", MANY_RUNS)
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_lost_or_doubled_in_many_runs(
    kind: str, seed: int, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    killed: list[str] = []
    with noted(kind, seed, [kind], lambda: killed):
        burn(new_flow(kind, seed, request, tmp_path), seed, killed)
