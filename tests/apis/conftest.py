"""A broker for tests of handlers."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.apis.one_broker import OneBroker


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[OneBroker]:
    one = OneBroker(tmp_path)
    yield one
    one.close()
