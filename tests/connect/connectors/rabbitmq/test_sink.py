"""The RabbitMQ sink against a RabbitMQ server."""

import contextlib
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from headrace.connect.connectors.rabbitmq.sink import RabbitMqSink
from headrace.connect.plugin import OptionError, PermanentError, RecordError, SinkTask
from tests.connect.connectors.rabbitmq.queues import Queue
from tests.support.databases import killed

pytestmark = pytest.mark.slow

AT = datetime(2026, 1, 2, tzinfo=UTC)


def batch(*values: Any, key: str | None = None, first: int = 0) -> pa.RecordBatch:
    rows = [
        {
            "topic": "orders", "partition": 1, "offset": first + number, "timestamp": AT,
            "key": key, "value": value, "headers": [{"key": "h", "value": b"v"}],
        }
        for number, value in enumerate(values)
    ]  # fmt: skip
    return pa.RecordBatch.from_pylist(rows)


def sink(queue: Queue, **options: str) -> RabbitMqSink:
    given = {name.replace("_", "."): value for name, value in options.items()}
    config = {**queue.config, "rabbitmq.exchange": "", "rabbitmq.routing.key": queue.name}
    return RabbitMqSink({**config, **given})


@contextlib.contextmanager
def opened(made: RabbitMqSink) -> Iterator[RabbitMqSink]:
    made.open(SinkTask("out", 0, 0, 0))
    try:
        yield made
    finally:
        made.close()


def received(queue: Queue) -> list[tuple[Any, bytes]]:
    found = []
    with queue.channel() as channel:
        while (got := channel.basic_get(queue.name, auto_ack=True))[0] is not None:
            found.append((got[1], got[2]))
    return found


def test_values_are_the_bodies_of_messages(queue: Queue) -> None:
    with opened(sink(queue, rabbitmq_publish_max_batch_size="3")) as made:
        made.write(batch(*(f"text {n}" for n in range(10))))
        made.write(batch(b"\x00\xff", first=10))
        made.write(batch({"id": 5, "name": "five"}, first=11))
    found = received(queue)
    assert [body for _, body in found] == [
        *(f"text {n}".encode() for n in range(10)),
        b"\x00\xff",
        b'{"id":5,"name":"five"}',
    ]
    assert [more.message_id for more, _ in found] == [f"orders-1-{n}" for n in range(12)]
    assert {more.delivery_mode for more, _ in found} == {2}
    assert {more.headers for more, _ in found} == {None}


def test_key_headers_and_metadata_are_forwarded(queue: Queue) -> None:
    names = ("key", "headers", "metadata")
    options = {f"rabbitmq_forward_kafka_{name}": "true" for name in names}
    with opened(sink(queue, **options, rabbitmq_delivery_mode="TRANSIENT")) as made:
        made.write(batch("a", key="k"))
    ((more, _),) = received(queue)
    assert (more.correlation_id, more.delivery_mode) == ("k", 1)
    assert {name: str(value) for name, value in more.headers.items()} == {
        "h": "v",
        "kafka.topic": "orders",
        "kafka.partition": "1",
        "kafka.offset": "0",
        "kafka.timestamp": str(AT),
    }


def test_the_routing_key_may_have_the_key_of_the_record(queue: Queue) -> None:
    with opened(sink(queue, rabbitmq_routing_key="${key}")) as made:
        made.write(batch("a", key=queue.name))
    assert [body for _, body in received(queue)] == [b"a"]


def test_a_message_that_no_queue_gets_is_refused_and_others_are_there_once(queue: Queue) -> None:
    with opened(sink(queue, rabbitmq_routing_key="${key}")) as made:
        rows = batch("a", key=queue.name).to_pylist() + batch("b", key="x", first=1).to_pylist()
        rows += batch("c", key=queue.name, first=2).to_pylist()
        with pytest.raises(RecordError) as error:
            made.write(pa.RecordBatch.from_pylist(rows))
        assert error.value.rows == {1: "the exchange cannot route it: NO_ROUTE"}
        # As the host does it.
        made.write(pa.RecordBatch.from_pylist([rows[0], rows[2]]))
    assert [body for _, body in received(queue)] == [b"a", b"c"]


def test_a_tombstone_is_refused(queue: Queue) -> None:
    with opened(sink(queue)) as made, pytest.raises(RecordError, match="a tombstone"):
        made.write(batch("a", None))
    assert received(queue) == []


def test_a_missing_exchange_is_permanent(queue: Queue) -> None:
    with (
        opened(sink(queue, rabbitmq_exchange="missing")) as made,
        pytest.raises(PermanentError, match="no exchange 'missing'"),
    ):
        made.write(batch("a"))


def test_a_killed_server_is_an_error_that_passes(queue: Queue) -> None:
    made = sink(queue)
    made.open(SinkTask("out", 0, 0, 0))
    with killed(queue.server):
        with pytest.raises(ConnectionError):
            made.write(batch("a"))
        made.abandon()
        with pytest.raises(ConnectionError):
            made.open(SinkTask("out", 0, 0, 0))
    with opened(made):
        made.write(batch("a"))
    assert received(queue)[-1][1] == b"a"


@pytest.mark.parametrize(
    ("options", "option", "text"),
    [
        ({"rabbitmq_exchange": "missing"}, "rabbitmq.exchange", "no exchange 'missing'"),
        ({"rabbitmq_password": "wrong"}, "rabbitmq.host", "refuses the user guest"),
        ({"rabbitmq_routing_key": "${value}"}, "rabbitmq.routing.key", "Unknown variable"),
    ],
)
def test_a_check_names_the_option_that_cannot_work(
    queue: Queue, options: dict[str, str], option: str, text: str
) -> None:
    sink(queue).check()
    with pytest.raises(OptionError, match=text) as error:
        sink(queue, **options).check()
    assert error.value.option == option


def test_a_refused_login_is_permanent(queue: Queue) -> None:
    with pytest.raises(PermanentError, match="refuses the user guest"):
        sink(queue, rabbitmq_password="wrong").open(SinkTask("out", 0, 0, 0))
