"""The broker and the server that tests of SQL share. Each test uses names of its own."""

from collections.abc import Iterator

import pytest

from tests.connect.broker import connect_broker
from tests.sql.running import RunningSql, running_sql


@pytest.fixture(scope="session")
def sql_bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with connect_broker(tmp_path_factory.mktemp("sql")) as broker:
        yield broker.bootstrap


@pytest.fixture(scope="module")
def running(sql_bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningSql]:
    """A server with a host that runs nothing."""
    with running_sql(sql_bootstrap, tmp_path_factory.mktemp("server")) as server:
        yield server
