"""A broker without sockets: real metadata, real logs, handlers called as dispatch calls them."""

import asyncio
import io
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from inspect import iscoroutine, isgenerator
from pathlib import Path
from typing import TypeVar, cast

from kio.serial import entity_reader, entity_writer

from headrace.apis.context import Caller, RequestContext, Services
from headrace.broker.build import (
    Surroundings,
    build,
    make_groups,
    make_shares,
    make_transactions,
)
from headrace.broker.metadata_stores import Opened
from headrace.clock import ManualClock
from headrace.cluster.controller import Defaults, NewTopic
from headrace.cluster.image import Broker, Topic
from headrace.cluster.sqlite_store import SqliteStore
from headrace.disk import Disk, RealDisk
from headrace.errors import KafkaError
from headrace.log.directories import LogDirectories
from headrace.settings import Settings
from headrace.wire import codec
from headrace.wire.records import Record, encode_batch
from headrace.wire.refusal import refusal
from headrace.wire.steps import Steps, finish

NODE = 1
NOW = 1_700_000_000_000
NEWEST = 99
CALLER = Caller("127.0.0.1:1")

_Request = TypeVar("_Request")
_Response = TypeVar("_Response")


class OneBroker:
    """The services of broker 1, and shortcuts to use them."""

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, str] | None = None,
        folders: int = 1,
        disk: Disk | None = None,
    ) -> None:
        clock = ManualClock(NOW)
        parsed = Settings.parse(settings or {})
        paths = (str(folder), *(f"{folder}-{number}" for number in range(1, folders)))
        self.directories = LogDirectories(paths, disk or RealDisk(), clock)
        self.directories.open()
        self.executor = ThreadPoolExecutor(1)
        opened = Opened(SqliteStore(str(folder)), shared=False)
        surroundings = Surroundings(clock, self.executor, opened, lambda _what, call: call())
        this = Broker(NODE, "localhost", 9092, "rack-a")
        parts = build(parsed, self.directories, this, surroundings)
        self.metadata, self.replicas = parts.metadata, parts.replicas
        self.services = services = parts.services
        # Handlers are called without an event loop, so the coordinators are not started.
        self.groups, self.transactions = make_groups(services), make_transactions(services)
        services.make_groups = lambda: self.groups
        services.make_transactions = lambda: self.transactions
        self.shares = make_shares(services)
        services.make_shares = lambda: self.shares

    def close(self) -> None:
        self.executor.shutdown()
        self.directories.close()

    def create(self, name: str, partitions: int = 1, **configs: str) -> Topic:
        given = tuple((key.replace("_", "."), value) for key, value in configs.items())
        new = NewTopic(name, partitions, configs=given)
        return self.metadata.create_topic(new, Defaults(1, 1))

    def append(
        self,
        topic: str,
        timestamps: list[int],
        index: int = 0,
        producer_id: int = -1,
        sequence: int = -1,
    ) -> None:
        """One batch with a record for each timestamp."""
        records = [Record(n, time, b"key", b"value") for n, time in enumerate(timestamps)]
        data = encode_batch(
            records,
            0,
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=sequence,
        )
        partition = self.replicas.partition(topic, index)
        partition.append(data, memoryview(data), 0, len(data), 1, NOW)

    def ask(
        self,
        handler: Callable[[Services, _Request, RequestContext], _Response],
        request: _Request,
        version: int = NEWEST,
    ) -> _Response:
        """Call a handler with a request in the newest shape."""
        return handler(self.services, request, context(version))

    def ask_in_steps(
        self,
        handler: Callable[[Services, _Request, RequestContext], Steps[_Response]],
        request: _Request,
        version: int = NEWEST,
    ) -> _Response:
        """As `ask`, of a handler that works in steps."""
        return finish(self.ask(handler, request, version))


def context(version: int) -> RequestContext:
    """What a handler knows of a request of this version."""
    return RequestContext(version, "test", CALLER)


def kio_bytes(message: object) -> bytes:
    """A message as kio writes it."""
    out = io.BytesIO()
    entity_writer(type(message))(out, message)  # type: ignore[type-var]
    return out.getvalue()


def over_the_wire(
    broker: OneBroker,
    handler: Callable[..., object],
    key: int,
    version: int,
    request: object,
) -> object:
    """Send a request of a version as a client would, and read the answer as it would."""
    decoded = codec.decode(key, version, kio_bytes(request))
    try:
        answer = handler(broker.services, decoded, context(version))
        if iscoroutine(answer):
            answer = asyncio.run(answer)
        if isgenerator(answer):
            answer = finish(cast("Steps[object]", answer))
    except KafkaError as error:
        answer = refusal(key, decoded, error)
    body = codec.encode(key, version, answer)
    response: object
    response, size = entity_reader(codec.response_class(key, version))(body, 0)
    assert size == len(body)
    return response
