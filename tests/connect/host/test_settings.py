"""The folders of connectors."""

from pathlib import Path

import pytest

from headrace.connect.host.settings import DriverSettings

SETTINGS = DriverSettings("localhost:9092", {}, "connect-offsets", "/data/connect")
NAMES = ("orders", "shop.orders-2", "größe", "a b", "a/b", "a=2f=b", "..", ".", "../x", "/etc")


@pytest.mark.parametrize("name", NAMES)
def test_a_connector_has_a_folder_in_the_folder_of_the_worker(name: str) -> None:
    folder = SETTINGS.connector_folder(name)
    assert folder.parent == Path("/data/connect")
    assert folder.name not in ("", ".", "..")


def test_connectors_with_other_names_have_other_folders() -> None:
    assert len({SETTINGS.connector_folder(name) for name in NAMES}) == len(NAMES)
    assert SETTINGS.connector_folder("shop.orders-2").name == "shop.orders-2"
