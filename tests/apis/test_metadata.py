"""Metadata, written by hand, against kio's classes, in every version."""

import io
import uuid
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

from headrace.apis.context import Caller
from headrace.apis.hot import LongRequest
from headrace.apis.request_errors import RequestErrors
from headrace.apis.slices import Slices
from headrace.apis.topics.metadata import MetadataHandler
from headrace.clock import SystemClock
from headrace.cluster import metadata as cluster
from headrace.cluster.controller import Defaults, NewTopic
from headrace.cluster.image import Broker, Endpoint, PartitionState, Topic
from headrace.cluster.registration import Registration
from headrace.cluster.sqlite_store import SqliteStore
from headrace.settings import Settings
from headrace.wire.framing import response_body_start
from tests.apis.one_broker import CALLER

VERSIONS = range(14)


@pytest.fixture
def services(tmp_path: Path) -> SimpleNamespace:
    store = SqliteStore(str(tmp_path))
    metadata = cluster.Metadata(store, 1, SystemClock())
    metadata.load()
    Registration(metadata).join(Broker(1, "broker.lan", 9092, "rack-a"), "folder")
    metadata.create_topic(NewTopic("orders", 3), Defaults(1, 1))
    return SimpleNamespace(
        settings=Settings.parse({}),
        metadata=metadata,
        replicas=SimpleNamespace(stepped_down=False),
        node_id=1,
        errors=RequestErrors(),
    )


def ask(services: Any, version: int, names: list[str] | None, **flags: object) -> Any:
    """Send a request as a client of that version would, and read the answer likewise."""
    schema: Any = load_request_schema(3, version)
    item = schema.__dataclass_fields__["topics"].type
    item = item.__args__[0] if hasattr(item, "__args__") else item
    topic = item.__args__[0] if hasattr(item, "__args__") else item
    values: dict[str, object] = {"topics": None}
    if names is not None or version == 0:
        fields = {"name", "topic_id"} & topic.__dataclass_fields__.keys()
        values["topics"] = tuple(
            topic(**{field: name if field == "name" else None for field in fields})
            for name in names or []
        )
    for name in ("include_cluster_authorized_operations", "include_topic_authorized_operations"):
        flags.setdefault(name, False)
    flags.setdefault("allow_auto_topic_creation", True)
    values.update({k: v for k, v in flags.items() if k in schema.__dataclass_fields__})
    out = io.BytesIO()
    entity_writer(schema)(out, schema(**values))
    body = bytearray(out.getvalue())
    metadata = MetadataHandler(services)
    answer, _ = ask_handler(metadata, body, version)
    # The second time all parts are kept, so that small requests for known topics are short work.
    again, at_once = ask_handler(metadata, body, version)
    assert again == answer
    if names and names == [name for name in names if name in services.metadata.image.topics]:
        assert at_once
    return read(answer, version)


def ask_handler(
    metadata: MetadataHandler, body: bytearray, version: int, caller: Caller = CALLER
) -> tuple[bytes, bool]:
    """The body of the answer, and whether it was there at once."""
    start = response_body_start(version >= 9)
    try:
        frame = metadata(caller, body, memoryview(body), 0, len(body), version, 7)
        return frame[start:], True
    except LongRequest as long:
        answer = long.work(Slices(lambda: 0.0), caller, bytearray(body), version, 7)
        assert isinstance(answer, bytes)
        return answer[start:], False


def read(answer: bytes, version: int) -> Any:
    schema: Any = load_response_schema(3, version)
    response, used = entity_reader(schema)(answer, 0)
    assert used == len(answer)
    return response


@pytest.mark.parametrize("version", VERSIONS)
def test_all_topics_are_listed_when_none_is_named(services: Any, version: int) -> None:
    response = ask(services, version, None)
    [broker] = response.brokers
    assert (broker.node_id, broker.host, broker.port) == (1, "broker.lan", 9092)
    [topic] = response.topics
    assert topic.name == "orders"
    assert [p.partition_index for p in topic.partitions] == [0, 1, 2]
    assert all(p.leader_id == 1 and p.isr_nodes == (1,) for p in topic.partitions)
    if version >= 1:
        assert (response.controller_id, broker.rack) == (1, "rack-a")
    if version >= 10:
        assert topic.topic_id == services.metadata.image.topics["orders"].id


@pytest.mark.parametrize("version", VERSIONS)
def test_a_missing_topic_is_created_only_where_the_client_allows_it(
    services: Any, version: int
) -> None:
    response = ask(services, version, ["new"], allow_auto_topic_creation=False)
    [topic] = response.topics
    if version < 4:
        assert int(topic.error_code) == 0
        return
    assert int(topic.error_code) == 3
    [topic] = ask(services, version, ["new"], allow_auto_topic_creation=True).topics
    assert (int(topic.error_code), len(topic.partitions)) == (0, 1)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", ["../x", "a\0b", "x" * 250, "", "."])
def test_a_name_that_no_topic_can_have_gets_error_17(
    services: Any, version: int, name: str
) -> None:
    [topic] = ask(services, version, [name], allow_auto_topic_creation=True).topics
    assert int(topic.error_code) == 17
    assert list(services.metadata.image.topics) == ["orders"]


@pytest.mark.parametrize("version", range(1, 14))
def test_an_empty_list_requests_no_topic(services: Any, version: int) -> None:
    assert ask(services, version, []).topics == ()


@pytest.mark.parametrize("version", range(8, 14))
def test_authorised_operations_come_only_when_asked_for(services: Any, version: int) -> None:
    [topic] = ask(services, version, ["orders"]).topics
    assert topic.topic_authorized_operations == -(2**31)
    [topic] = ask(services, version, ["orders"], include_topic_authorized_operations=True).topics
    assert topic.topic_authorized_operations == 3576


def test_a_topic_can_be_asked_for_by_id_alone(services: SimpleNamespace) -> None:
    topic_id = services.metadata.image.topics["orders"].id
    by_id = _ask_by_id(services, topic_id)
    assert (by_id.name, by_id.topic_id, int(by_id.error_code)) == ("orders", topic_id, 0)
    unknown = _ask_by_id(services, uuid.UUID(int=7))
    assert (unknown.name, int(unknown.error_code)) == (None, 100)


def _ask_by_id(services: Any, topic_id: uuid.UUID) -> Any:
    body = bytearray(b"\x02" + topic_id.bytes + b"\0\0" + b"\0\0\0")
    answer, _ = ask_handler(MetadataHandler(services), body, 12)
    return read(answer, 12).topics[0]


def ask_on(metadata: MetadataHandler, listener: str, version: int) -> Any:
    """Ask for the topic t on a listener; answers from the cache are the same as the first."""
    name = b"\x02t" if version >= 9 else b"\0\x01t"
    count = b"\x02" if version >= 9 else b"\0\0\0\x01"
    body = bytearray(count + (bytes(16) if version >= 10 else b"") + name)
    body += b"\0" * (1 if version >= 9 else 0) + b"\0\0\0\0"
    caller = Caller("127.0.0.1:1", listener)
    answer, _ = ask_handler(metadata, body, version, caller)
    assert ask_handler(metadata, body, version, caller) == (answer, True)
    all_topics = bytearray(b"\0" if version >= 9 else b"\0\0\0\0" if version == 0 else b"\xff" * 4)
    assert ask_handler(metadata, all_topics + b"\0\0\0\0", version, caller)
    return read(answer, version)


@pytest.mark.parametrize("version", VERSIONS)
def test_addresses_are_those_of_the_listener_that_was_asked(services: Any, version: int) -> None:
    endpoints = (Endpoint("IN", "inside", 1), Endpoint("OUT", "outside", 2))
    Registration(services.metadata).join(Broker(1, "inside", 1, endpoints=endpoints), "folder")
    services.metadata.create_topic(NewTopic("t"), Defaults(1, 1))
    metadata = MetadataHandler(services)
    for listener, *address in (*endpoints, *endpoints):
        [broker] = ask_on(metadata, listener, version).brokers
        assert [broker.host, broker.port] == address


@pytest.mark.parametrize("version", VERSIONS)
def test_a_leader_without_the_listener_is_error_72_or_5(services: Any, version: int) -> None:
    cluster_metadata = services.metadata
    both = (Endpoint("IN", "a", 1), Endpoint("OUT", "a", 2))
    Registration(cluster_metadata).join(Broker(1, "a", 1, endpoints=both), "folder")
    image = cluster_metadata.image.with_broker(Broker(2, "b", 1, endpoints=both[:1]))
    states = tuple(PartitionState(leader, 0, (1, 2), (1, 2)) for leader in (1, 2))
    topic = Topic("t", uuid.uuid4(), states, {})
    cluster_metadata.image = image.with_topics([topic])
    metadata = MetadataHandler(services)
    for _ in range(2):
        inside, outside = (ask_on(metadata, name, version) for name in ("IN", "OUT"))
        assert [broker.node_id for broker in inside.brokers] == [1, 2]
        assert [broker.node_id for broker in outside.brokers] == [1]
        assert leaders(inside) == [(0, 1), (0, 2)]
        assert leaders(outside) == [(0, 1), (72 if version >= 6 else 5, -1)]


def leaders(response: Any) -> list[tuple[int, int]]:
    [topic] = response.topics
    return [(int(one.error_code), one.leader_id) for one in topic.partitions]
