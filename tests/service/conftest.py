"""The tiny service, shared by tests that do not stop it."""

from collections.abc import Iterator

import httpx
import pytest

from tests.service.running import running


@pytest.fixture(scope="session")
def http() -> Iterator[httpx.Client]:
    """A client of a service without authentication."""
    with running() as service:
        yield service.http


@pytest.fixture(scope="session")
def guarded() -> Iterator[httpx.Client]:
    """A client of a service with authentication."""
    with running(authenticated=True) as service:
        yield service.http
