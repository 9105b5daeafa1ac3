"""Metadata stores: the broker's own folder, a folder of several brokers, or ZooKeeper."""

from collections.abc import Callable
from typing import NamedTuple

from headrace.cluster.sqlite_store import SqliteStore
from headrace.cluster.store import Store
from headrace.errors import SettingError
from headrace.settings import Settings

SQLITE = "sqlite:"
ZOOKEEPER = "zookeeper://"


class Opened(NamedTuple):
    """A store, and whether other brokers use it too."""

    store: Store
    shared: bool


def open_store(
    settings: Settings, own_folder: str, stop_requested: Callable[[], bool] | None = None
) -> Opened:
    """Open the store of the settings; without one, the broker's own folder.

    With `stop_requested` it waits for a ZooKeeper that does not respond, until that returns True.
    """
    address = settings.text("headrace.metadata")
    if not address and settings.value("zookeeper.connect"):
        address = ZOOKEEPER + settings.text("zookeeper.connect")
    tls = None
    if any(name.startswith(("zookeeper.ssl.", "zookeeper.client")) for name in settings.explicit):
        from headrace.cluster.zookeeper_tls import zookeeper_tls

        tls = zookeeper_tls(settings)
    if tls is not None and not address.startswith(ZOOKEEPER):
        raise SettingError(
            "zookeeper.ssl.client.enable=true, and the metadata are not in a ZooKeeper; set "
            "headrace.metadata=zookeeper://HOST:PORT/PATH"
        )
    if not address:
        return Opened(SqliteStore(own_folder), False)
    if address.startswith(SQLITE):
        return Opened(SqliteStore(address.removeprefix(SQLITE)), True)
    if address.startswith(ZOOKEEPER):
        # Imported here, so that brokers without ZooKeeper start faster.
        from headrace.cluster.zookeeper_store import ZookeeperStore

        user, _, password = settings.text("headrace.metadata.login").partition(":")
        store = ZookeeperStore(
            address,
            session_timeout_ms=settings.integer("zookeeper.session.timeout.ms"),
            connect_timeout_ms=settings.integer("zookeeper.connection.timeout.ms"),
            login=(user, password) if user else None,
            tls=None if tls is None else tls.context,
            stop_requested=stop_requested,
        )
        return Opened(store, True)
    raise SettingError(
        f"headrace.metadata={address!r} is not a valid address; expected "
        "zookeeper://HOST:PORT,HOST:PORT/PATH for a cluster, or sqlite:FOLDER for several brokers "
        "of one machine"
    )
