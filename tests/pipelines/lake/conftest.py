from pathlib import Path

import pytest

from tests.pipelines.lake.lakes import Lake


@pytest.fixture(params=["delta", "iceberg"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    """An empty place for a table, of each kind."""
    return Lake(request.param, tmp_path)
