"""The folders of checkpoints."""

import pytest

from headrace.sql.host.settings import SqlDriverSettings

SETTINGS = SqlDriverSettings("b:1", {"bootstrap.servers": "b:1"}, "/checkpoints", "log")


@pytest.mark.parametrize("query", ["..", ".", "a/b", "../other", "CTAS_totals_3"])
def test_a_query_cannot_reach_the_folder_of_another(query: str) -> None:
    folder = SETTINGS.query_folder(query)
    assert str(folder.parent) == "/checkpoints"
    assert folder.name.strip(".")
    assert folder.resolve() == folder


def test_a_generation_has_a_checkpoint_of_its_own() -> None:
    assert SETTINGS.checkpoint("q", 0) != SETTINGS.checkpoint("q", 1)
