"""Connectors lose and double nothing while drivers, workers, databases and brokers are killed.

The usual suite kills the driver and the database of each connector of databases once, and the
process of the Connect worker. `make endurance` has thirty runs of each connector with three kills
that a seed draws; HEADRACE_FIRE_RUNS=100-110 chooses other seeds, and HEADRACE_FIRE_LOG a file that
gets a line for each run, with the seconds until the connector was RUNNING again.
"""

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.connect.broker import connect_broker
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
from tests.connect.host.more_flows import FolderFlow, HttpSinkFlow, MqttFlow, RabbitMqFlow
from tests.connect.host.served import ServedHost
from tests.pipelines.fire import noted
from tests.support.http_server import HttpServerUnderTest, http_server

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

FIRST, _, LAST = os.environ.get("HEADRACE_FIRE_RUNS", "0-30").rpartition("-")
MANY_RUNS = range(int(FIRST or "0"), int(LAST))
KINDS = (
    *("file", "jdbc-source", "postgresql", "mariadb", "jdbc-sink"),
    *("mqtt", "rabbitmq", "http-sink", "files-sink", "parquet", "delta"),
)
SERVED = {"served-file": FileFlow, "served-jdbc-sink": JdbcSinkFlow}
"""Connectors of a worker process, which is killed as well."""


def new_flow(kind: str, seed: int, request: pytest.FixtureRequest, folder: Path) -> Flow:
    host: HostUnderTest = request.getfixturevalue("served" if kind in SERVED else "host")
    name = f"{kind}-{seed}"
    if kind in ("file", "served-file"):
        return FileFlow(host, name, folder)
    if kind in ("files-sink", "parquet", "delta"):
        return FolderFlow(host, name, folder, kind)
    if kind == "mqtt":
        return MqttFlow(host, name, request.getfixturevalue("mosquitto_server"))
    if kind == "rabbitmq":
        return RabbitMqFlow(host, name, request.getfixturevalue("rabbitmq_server"))
    if kind == "http-sink":
        return HttpSinkFlow(host, name, request.getfixturevalue("server"))
    if kind == "mariadb":
        found: EmptyDatabase = request.getfixturevalue("mariadb")
        return MariadbFlow(host, name, found)
    database: EmptyDatabase = request.getfixturevalue("postgresql")
    if kind == "postgresql":
        flow = PostgresqlFlow(host, name, database)
        request.addfinalizer(flow.close)
        return flow
    return (JdbcSourceFlow if kind == "jdbc-source" else JdbcSinkFlow)(host, name, database)


@pytest.fixture
def server() -> Iterator[HttpServerUnderTest]:
    with http_server() as running:
        yield running


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedHost]:
    with connect_broker(tmp_path_factory.mktemp("broker")) as broker:
        running = ServedHost(broker, tmp_path_factory.mktemp("served"))
        yield running
        running.close()


def test_a_killed_worker_process_loses_and_doubles_nothing(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    killed: list[str] = []
    burn(new_flow("served-file", 9000, request, tmp_path), 1, killed, ("connect", "driver"))
    assert [each.split()[0] for each in killed] == ["connect", "driver"]


@pytest.mark.parametrize("kind", ["postgresql", "mariadb", "jdbc-sink"])
def test_a_killed_driver_and_a_killed_database_lose_and_double_nothing(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    killed: list[str] = []
    burn(new_flow(kind, 9000, request, tmp_path), 1, killed, ("driver", "database"))
    assert [each.split()[0] for each in killed] == ["driver", "database"]


@pytest.mark.endurance
@pytest.mark.parametrize("seed", MANY_RUNS)
@pytest.mark.parametrize("kind", [*KINDS, *SERVED])
def test_nothing_is_lost_or_doubled_in_many_runs(
    kind: str, seed: int, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    killed: list[str] = []
    victims: tuple[str, ...] = ()
    if kind in SERVED:
        victims = tuple(random.Random(seed).choices(("connect", "driver", "broker"), k=3))
    with noted(kind, seed, [kind], lambda: killed):
        burn(new_flow(kind, seed, request, tmp_path), seed, killed, victims)
    assert len(killed) == 3
