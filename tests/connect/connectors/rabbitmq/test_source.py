"""The RabbitMQ source against a RabbitMQ server."""

from pathlib import Path
from typing import Any

import pytest

from headrace.connect.plugin import OptionError, PermanentError
from tests.connect.connectors.rabbitmq.queues import Queue
from tests.support.databases import killed

pytestmark = pytest.mark.slow


def bodies(rows: list[dict[str, Any]]) -> list[str]:
    return [row["body"].decode() for row in rows]


def test_a_message_has_its_properties_as_headers(queue: Queue, tmp_path: Path) -> None:
    queue.send(
        "five",
        message_id="order-5",
        content_type="text/plain",
        timestamp=1_700_000_000,
        headers={"tenant": "t7", "attempt": 3, "nested": {"a": [1]}},
    )
    with queue.reading(tmp_path) as reader:
        (row,) = reader.rows(1)
        (stream,) = reader.source.streams()
    assert (stream.topic, stream.key, stream.value) == ("orders", ("id",), "body")
    assert (row["id"], row["body"]) == ("order-5", b"five")
    assert {each["key"]: each["value"] for each in row["headers"]} == {
        "rabbitmq.exchange": b"",
        "rabbitmq.routing.key": queue.name.encode(),
        "rabbitmq.content.type": b"text/plain",
        "rabbitmq.delivery.mode": b"2",
        "rabbitmq.message.id": b"order-5",
        "rabbitmq.timestamp": b"1700000000",
        "tenant": b"t7",
        "attempt": b"3",
        "nested": b'{"a": [1]}',
    }


def test_messages_are_acknowledged_when_they_are_in_the_topic(queue: Queue, tmp_path: Path) -> None:
    queue.send(*(str(n) for n in range(10)))
    with queue.reading(tmp_path) as reader:
        assert bodies(reader.rows(10)) == [str(n) for n in range(10)]
    assert queue.count() == 10
    with queue.reading(tmp_path / "other") as reader:
        reader.rows(10)
        reader.commit()
        queue.send("after")
        assert bodies(reader.rows(1)) == ["after"]
    assert queue.count() == 1


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_messages_that_come_again_are_not_stored_twice(
    queue: Queue, tmp_path: Path, kind: str
) -> None:
    name = f"{queue.name}-{kind}"
    queue.declare(name, **{"x-queue-type": kind})
    wanted = [str(n % 10) for n in range(50)]
    queue.send(*wanted, queue=name)
    with queue.reading(tmp_path, rabbitmq_queue=name) as reader:
        reader.rows(50)
    with queue.reading(tmp_path, rabbitmq_queue=name) as reader:
        queue.send("last", queue=name)
        found: list[str] = []
        while "last" not in found:
            found += bodies(reader.rows(1))
        assert found == [*wanted, "last"]
        reader.commit()
        queue.send("new", queue=name)
        assert bodies(reader.rows(1)) == ["new"]


def test_more_messages_than_the_server_delivers_at_once_are_received(
    queue: Queue, tmp_path: Path
) -> None:
    queue.send(*(str(n) for n in range(100)))
    with queue.reading(tmp_path, rabbitmq_prefetch_count="10") as reader:
        found: list[str] = []
        while len(found) < 100:
            rows = bodies(reader.rows(1))
            assert len(rows) <= 10
            found += rows
            reader.commit()
    assert found == [str(n) for n in range(100)]


def test_several_queues_are_received_into_one_topic(queue: Queue, tmp_path: Path) -> None:
    other = f"{queue.name}-other"
    queue.declare(other)
    queue.send("a")
    queue.send("b", queue=other)
    with queue.reading(tmp_path, rabbitmq_queue=f"{queue.name}, {other}") as reader:
        assert sorted(bodies(reader.rows(2))) == ["a", "b"]


def test_a_killed_server_is_an_error_that_passes(queue: Queue, tmp_path: Path) -> None:
    queue.send("before")
    with queue.reading(tmp_path) as reader:
        reader.rows(1)
        with killed(queue.server), pytest.raises(ConnectionError, match="cannot be reached"):
            reader.wait_for(lambda: False)
    queue.send("after")
    with queue.reading(tmp_path) as reader:
        found: list[str] = []
        while "after" not in found:
            found += bodies(reader.rows(1))
    assert found == ["before", "after"]


def test_a_deleted_queue_ends_the_connection(queue: Queue, tmp_path: Path) -> None:
    queue.send("one")
    with queue.reading(tmp_path) as reader:
        reader.rows(1)
        with queue.channel() as channel:
            channel.queue_delete(queue.name)
        with pytest.raises(ConnectionError, match="a queue was deleted"):
            reader.wait_for(lambda: False)
    with (
        queue.reading(tmp_path / "again") as reader,
        pytest.raises(PermanentError, match=f"no queue '{queue.name}'"),
    ):
        reader.wait_for(lambda: False)


@pytest.mark.parametrize(
    ("options", "option", "text"),
    [
        ({"rabbitmq_queue": "missing"}, "rabbitmq.queue", "no queue 'missing'"),
        ({"rabbitmq_password": "wrong"}, "rabbitmq.host", "refuses the user guest"),
        ({"rabbitmq_virtual_host": "none"}, "rabbitmq.host", "has no virtual host none"),
        ({"rabbitmq_port": "1"}, "rabbitmq.host", "cannot be reached"),
        (
            {
                "rabbitmq_security_protocol": "SSL",
                "rabbitmq_https_ssl_truststore_location": "/nowhere",
            },
            "rabbitmq.https.ssl.truststore.location",
            "/nowhere is not a file",
        ),
    ],
)
def test_a_check_names_the_option_that_cannot_work(
    queue: Queue, options: dict[str, str], option: str, text: str
) -> None:
    queue.source().check()
    with pytest.raises(OptionError, match=text) as error:
        queue.source(**options).check()
    assert error.value.option == option


def test_servers_with_tls_are_verified_and_may_ask_for_a_certificate(queue: Queue) -> None:
    server = queue.server
    own = {"rabbitmq_https_ssl_keystore_location": str(server.folder / "client.pem")}
    tls = {"rabbitmq_security_protocol": "SSL", "rabbitmq_port": str(server.tls_port)}
    trusted = str(server.folder / "authority.pem")
    queue.source(**tls, **own, rabbitmq_https_ssl_truststore_location=trusted).check()
    with pytest.raises(OptionError, match="cannot be reached"):
        queue.source(**tls, rabbitmq_https_ssl_truststore_location=trusted).check()
    with pytest.raises(OptionError, match="certificate verify failed"):
        queue.source(**tls, **own).check()
