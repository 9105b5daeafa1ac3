"""Brokers, a worker and databases that tests share.

Each test uses connectors of its own, and has an empty database.
"""

import itertools
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from headrace.connect.connectors.jdbc.dialects import Dialect, dialect_of
from tests.connect.broker import connect_broker
from tests.connect.running import RunningConnect, running_connect
from tests.support.databases import (
    DatabaseServer,
    MariadbServer,
    PostgresqlServer,
    mariadb_program,
    postgresql_programs,
)
from tests.support.message_brokers import (
    MosquittoServer,
    RabbitMqServer,
    mosquitto_program,
    rabbitmq_program,
)

_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class EmptyDatabase:
    """A database without tables."""

    kind: str
    url: str
    user: str
    server: DatabaseServer | None = None

    @property
    def config(self) -> dict[str, str]:
        return {"connection.url": self.url, "connection.user": self.user}

    @property
    def dialect(self) -> Dialect:
        return dialect_of(self.url, self.user, "")

    def run(self, *statements: str) -> Sequence[Sequence[Any]]:
        """The rows of the last statement, if it has any."""
        connection = self.dialect.connect()
        try:
            cursor = connection.cursor()
            for statement in statements:
                cursor.execute(statement)
            rows = list(cursor.fetchall()) if cursor.description else []
            connection.commit()
            return rows
        finally:
            connection.close()


@pytest.fixture(scope="session")
def connect_bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with connect_broker(tmp_path_factory.mktemp("connect")) as broker:
        yield broker.bootstrap


@pytest.fixture(scope="session")
def worker(connect_bootstrap: str) -> Iterator[RunningConnect]:
    with running_connect(connect_bootstrap) as running:
        yield running


@pytest.fixture
def name() -> str:
    return f"c-{uuid.uuid4().hex[:8]}"


@pytest.fixture(scope="module")
def quiet_worker(connect_bootstrap: str) -> Iterator[RunningConnect]:
    """A worker without connectors of other tests, with the converters of Kafka's example."""
    json = "org.apache.kafka.connect.json.JsonConverter"
    with running_connect(connect_bootstrap, settings={"key.converter": json}) as running:
        yield running


@pytest.fixture(scope="session")
def mosquitto_server() -> Iterator[MosquittoServer]:
    if mosquitto_program() is None:
        pytest.skip("needs Mosquitto")
    with MosquittoServer() as running:
        yield running


@pytest.fixture(scope="session")
def rabbitmq_server() -> Iterator[RabbitMqServer]:
    if rabbitmq_program() is None:
        pytest.skip("needs RabbitMQ's server")
    with RabbitMqServer() as running:
        yield running


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[PostgresqlServer]:
    if postgresql_programs() is None:
        pytest.skip("needs PostgreSQL's server")
    with PostgresqlServer() as server:
        yield server


@pytest.fixture(scope="session")
def mariadb_server() -> Iterator[MariadbServer]:
    if mariadb_program() is None:
        pytest.skip("needs MariaDB's server")
    with MariadbServer() as server:
        yield server


@pytest.fixture
def postgresql(postgresql_server: PostgresqlServer) -> EmptyDatabase:
    import psycopg

    name = f"test_{next(_numbers)}"
    url = f"//127.0.0.1:{postgresql_server.port}"
    with psycopg.connect(f"postgresql:{url}/postgres", user="postgres", autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name}")
    return EmptyDatabase(
        "postgresql", f"jdbc:postgresql:{url}/{name}", "postgres", postgresql_server
    )


@pytest.fixture
def mariadb(mariadb_server: MariadbServer) -> EmptyDatabase:
    import pymysql

    name = f"test_{next(_numbers)}"
    admin = pymysql.connect(host="127.0.0.1", port=mariadb_server.port, user="root")
    with admin, admin.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {name}")
    url = f"jdbc:mariadb://127.0.0.1:{mariadb_server.port}/{name}"
    return EmptyDatabase("mariadb", url, "root", mariadb_server)


@pytest.fixture
def sqlite(tmp_path: Path) -> EmptyDatabase:
    return EmptyDatabase("sqlite", f"jdbc:sqlite:{tmp_path / 'test.db'}", "")


@pytest.fixture(params=["postgresql", "mariadb", "sqlite"])
def empty(request: pytest.FixtureRequest) -> EmptyDatabase:
    """Each database in turn."""
    found = request.getfixturevalue(request.param)
    assert isinstance(found, EmptyDatabase)
    return found
