"""Two servers for all tests of this folder; each test begins with none of their requests."""

from collections.abc import Iterator

import pytest

from tests.support.http_server import HttpServerUnderTest, http_server


@pytest.fixture(scope="package")
def servers() -> Iterator[tuple[HttpServerUnderTest, HttpServerUnderTest]]:
    with http_server() as one, http_server() as other:
        yield one, other


@pytest.fixture
def server(servers: tuple[HttpServerUnderTest, HttpServerUnderTest]) -> HttpServerUnderTest:
    servers[0].reset()
    return servers[0]


@pytest.fixture
def other_server(servers: tuple[HttpServerUnderTest, HttpServerUnderTest]) -> HttpServerUnderTest:
    servers[1].reset()
    return servers[1]
