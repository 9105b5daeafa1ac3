"""Topics of tables with records, and the views over them."""

import asyncio
import contextlib
import sqlite3
import uuid
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path

from confluent_kafka import Producer

from headrace.client.config import client_config
from headrace.schemas.client import SchemaClient
from headrace.sql.cluster_access import ClusterAccess
from headrace.sql.sources import SqlSource
from headrace.sql.views.store import ViewStore, ViewStores
from tests.sql.records.rows import source
from tests.support.topics import create_topic

TIMEOUT_S = 60
Pairs = Iterable[tuple[bytes | None, bytes | None]]


def table(bootstrap: str, columns: str, partitions: int = 1, **more: object) -> SqlSource:
    """A table over a new topic; the name of both begins with `name`."""
    name = f"{more.pop('name', 't')}_{uuid.uuid4().hex[:8]}"
    create_topic(bootstrap, name, partitions)
    return source(columns, **{"name": name, "topic": name, **more})  # type: ignore[arg-type]


def produce(
    bootstrap: str, topic: str, pairs: Pairs, partition: int = 0, timestamp: int = 0
) -> None:
    """Write records and wait until they are stored."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    failed: list[object] = []
    for key, value in pairs:
        producer.produce(
            *(topic, value, key, partition),
            timestamp=timestamp or 1000,
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
    assert producer.flush(TIMEOUT_S) == 0
    assert failed == []


def transactional(bootstrap: str) -> Producer:
    settings = {"bootstrap.servers": bootstrap, "transactional.id": uuid.uuid4().hex}
    producer = Producer(settings)
    producer.init_transactions(TIMEOUT_S)
    return producer


@contextlib.asynccontextmanager
async def opened(
    bootstrap: str, folder: Path, registry: SchemaClient | None = None
) -> AsyncIterator[ViewStores]:
    access = ClusterAccess(client_config({"bootstrap.servers": bootstrap}))
    stores = ViewStores(access, folder, registry)
    try:
        yield stores
    finally:
        await stores.close()
        access.close()


def rows(store: ViewStore, columns: str = "*") -> list[tuple[object, ...]]:
    """What the file has, read by another connection."""
    with contextlib.closing(sqlite3.connect(store.path)) as connection:
        return connection.execute(f"SELECT {columns} FROM rows ORDER BY 1, 2").fetchall()


async def reached(stores: ViewStores, of: SqlSource) -> ViewStore:
    """The view of a table once it has everything that is in its topic now."""
    store = await stores.ready(of, TIMEOUT_S)
    await stores.catch_up(store, TIMEOUT_S)
    return store


async def until(condition: Callable[[], bool]) -> None:
    """Returns when something is so that no event tells of."""
    async with asyncio.timeout(TIMEOUT_S):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.02)
