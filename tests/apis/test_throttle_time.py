"""The throttle time is filled in at one place: every response has the one of the Caller."""

import asyncio
from collections.abc import Coroutine
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

from kio.serial import entity_reader

from headrace.apis.context import Caller
from headrace.apis.hot import Answer, LongProduce
from headrace.apis.records.waiting_fetches import WaitingFetch
from headrace.apis.routes import API_VERSIONS, FETCH, METADATA, PRODUCE, ROUTES, Route
from headrace.broker.connection import ClientConnection
from headrace.broker.dispatch import Dispatch
from headrace.wire import codec, codec_fields
from headrace.wire.fast import MANY_FETCHED, MANY_PRODUCED, PRODUCE_FIRST_READ
from headrace.wire.records import Record, encode_batch
from tests.apis.one_broker import NOW, OneBroker, kio_bytes
from tests.support.messages import about_orders, filled
from tests.support.raw import frame

THROTTLE_MS = 4_321
BATCH = encode_batch([Record(0, NOW, None, b"x")])
PLAIN_HEADER, FLEXIBLE_HEADER = 4 + 4, 4 + 4 + 1


class Client:
    """A connection that is throttled, and the dispatch that it sends requests to."""

    def __init__(self, broker: OneBroker) -> None:
        self.caller = Caller("127.0.0.1:1", throttle_ms=THROTTLE_MS)
        self._dispatch = Dispatch(broker.services)

    def hold(self) -> None: ...

    def ask(self, route: Route, version: int, request: object) -> Any:
        """The response to a request, read as a client would."""
        return asyncio.run(self._ask(route, version, request))

    async def _ask(self, route: Route, version: int, request: object) -> Any:
        tags = b"\0" if version >= route.flexible_from else b""
        data = bytearray(frame(route.key, version, tags + kio_bytes(request)))
        connection = cast("ClientConnection", self)
        answer = self._dispatch.handle(connection, data, memoryview(data), 4, len(data))
        if isinstance(answer, Coroutine | LongProduce | WaitingFetch):
            answer = await answer
        body = bytes_of(answer)
        flexible = version >= route.flexible_from and route is not API_VERSIONS
        start = FLEXIBLE_HEADER if flexible else PLAIN_HEADER
        response: Any
        response, size = entity_reader(codec.response_class(route.key, version))(body, start)
        assert start + size == len(body)
        return response


def bytes_of(answer: Answer) -> bytes:
    assert answer is not None
    if isinstance(answer, bytes):
        return answer
    return b"".join(bytes(part) if isinstance(part, bytes | bytearray) else part.read()
                    for part in answer)  # fmt: skip


def has_throttle_time(route: Route, version: int) -> bool:
    shape = codec.response_class(route.key, version)
    return any(field.name == "throttle_time" for field in codec_fields.fields(shape))


def throttle_ms(response: Any) -> int:
    told: timedelta = response.throttle_time
    return told // timedelta(milliseconds=1)


def test_a_throttle_time_is_in_every_response_that_has_the_field(broker: OneBroker) -> None:
    broker.create("orders", 2)
    client = Client(broker)
    told: dict[tuple[str, int], int] = {}
    for route in ROUTES.values():
        first = PRODUCE_FIRST_READ if route is PRODUCE else route.min_version
        for version in range(first, route.max_version + 1):
            request = about_orders(codec.request_class(route.key, version))
            response = client.ask(route, version, request)
            if has_throttle_time(route, version):
                told[route.name, version] = throttle_ms(response)
    assert {row: ms for row, ms in told.items() if ms != THROTTLE_MS} == {}
    assert len(told) > 150
    silent = {route.name for route in ROUTES.values()} - {name for name, _ in told}
    between_brokers = {
        f"{verb}ShareGroupState{rest}"
        for verb, rest in (
            ("Initialize", ""), ("Read", ""), ("Write", ""), ("Delete", ""), ("Read", "Summary"),
        )
    }  # fmt: skip
    assert silent == {
        "DescribeQuorum", "SaslAuthenticate", "SaslHandshake", "WriteTxnMarkers", *between_brokers,
    }  # fmt: skip


def test_a_throttle_time_is_in_responses_to_usual_produces_and_fetches(broker: OneBroker) -> None:
    topic = broker.create("orders", 1)
    client = Client(broker)
    for version in range(PRODUCE.flexible_from, PRODUCE.max_version + 1):
        response = client.ask(PRODUCE, version, produce(version, topic.id, 1))
        [answered] = response.responses
        assert answered.partition_responses[0].error_code == 0, version
        assert throttle_ms(response) == THROTTLE_MS, version
    for version in range(FETCH.min_version, FETCH.max_version + 1):
        response = client.ask(FETCH, version, fetch(version, topic.id, 1))
        [answered] = response.responses
        assert answered.partitions[0].records, version
        assert throttle_ms(response) == THROTTLE_MS, version
    for version in range(3, METADATA.max_version + 1):  # the second time it takes another way
        request = about_orders(codec.request_class(METADATA.key, version))
        asked = [client.ask(METADATA, version, request) for _ in range(2)]
        assert [throttle_ms(response) for response in asked] == [THROTTLE_MS] * 2, version


def test_a_throttle_time_is_in_responses_to_large_requests(broker: OneBroker) -> None:
    topic = broker.create("orders", 1)
    client = Client(broker)
    for version in (PRODUCE_FIRST_READ, PRODUCE.max_version):
        response = client.ask(PRODUCE, version, produce(version, topic.id, MANY_PRODUCED + 1))
        assert throttle_ms(response) == THROTTLE_MS, version
    for version in (FETCH.min_version, FETCH.max_version):
        response = client.ask(FETCH, version, fetch(version, topic.id, MANY_FETCHED + 1))
        assert throttle_ms(response) == THROTTLE_MS, version


def test_a_throttle_time_is_in_the_response_to_a_fetch_that_waited(broker: OneBroker) -> None:
    topic = broker.create("orders", 1)
    request = fetch(FETCH.max_version, topic.id, 1, max_wait=timedelta(milliseconds=1), min_bytes=1)
    assert throttle_ms(Client(broker).ask(FETCH, FETCH.max_version, request)) == THROTTLE_MS


def produce(version: int, topic_id: object, partitions: int) -> object:
    """A batch for partition 0, and for others that do not exist."""
    of = codec.request_class(PRODUCE.key, version)
    name = {"topic_id": topic_id} if version >= 13 else {"name": "orders"}
    topic = entity(of, "topic_data")
    batches = tuple(
        filled(entity(topic, "partition_data"), {"index": index, "records": bytes(BATCH)})
        for index in range(partitions)
    )
    values = {"acks": 1, "topic_data": (filled(topic, {**name, "partition_data": batches}),)}
    return filled(of, values)


def fetch(version: int, topic_id: object, partitions: int, **values: object) -> object:
    """Partition 0 from its start, and others that do not exist."""
    of = codec.request_class(FETCH.key, version)
    name = {"topic_id": topic_id} if version >= 13 else {"topic": "orders"}
    topic = entity(of, "topics")
    wanted = tuple(
        filled(
            entity(topic, "partitions"),
            {"partition": index, "fetch_offset": 0, "partition_max_bytes": 100_000},
        )
        for index in range(partitions)
    )
    if version < 15:
        values["replica_id"] = -1
    values["max_bytes"] = 1_000_000
    return filled(of, {**values, "topics": (filled(topic, {**name, "partitions": wanted}),)})


def entity(of: type, name: str) -> type:
    found = next(field.entity for field in codec_fields.fields(of) if field.name == name)
    assert found is not None
    return found


def test_no_handler_mentions_the_throttle_time() -> None:
    import headrace.apis

    [folder] = headrace.apis.__path__
    mentions = [
        str(path) for path in Path(folder).rglob("*.py") if "throttle_time" in path.read_text()
    ]
    assert mentions == []
