"""`headrace_factory(secure=True)`: a broker with TLS, logins and ACLs for tests."""

import asyncio
import ssl
from collections.abc import Iterator

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import KafkaException, Producer
from kafka import KafkaProducer

from headrace.testing.running import RunningBroker
from tests.cli.conftest import execute


@pytest.fixture(scope="module")
def secured() -> Iterator[RunningBroker]:
    broker = RunningBroker(secure=True)
    yield broker
    broker.close()


def test_confluent_kafka_logs_in_with_the_properties_of_the_fixture(secured: RunningBroker) -> None:
    producer = Producer(secured.security.login().librdkafka())
    failures: list[object] = []
    producer.produce("confluent", b"x", callback=lambda error, _: failures.append(error))
    assert producer.flush(60) == 0
    assert failures == [None]


def test_kafka_python_logs_in_with_the_properties_of_the_fixture(secured: RunningBroker) -> None:
    producer = KafkaProducer(**secured.security.login().kafka_python())
    assert producer.send("python", b"x").get(60).offset == 0
    producer.close()


def test_aiokafka_logs_in_with_the_properties_of_the_fixture(secured: RunningBroker) -> None:
    async def produce() -> int:
        login = secured.security.login()
        context = ssl.create_default_context(cafile=login.ca_file)
        producer = AIOKafkaProducer(**login.aiokafka(), ssl_context=context)
        await producer.start()
        try:
            sent = await producer.send_and_wait("aio", b"x")
        finally:
            await producer.stop()
        return int(sent.offset)

    assert asyncio.run(produce()) == 0


def test_the_command_line_logs_in_and_makes_users_for_the_test(secured: RunningBroker) -> None:
    admin = ("--client-config", str(secured.security.client_config))
    assert execute("users", "add", "alice", *admin, stdin=b"s3cret").code == 0
    words = ("--allow-principal", "alice", "--producer", "--topic", "orders")
    assert execute("acls", "add", *words, *admin).code == 0
    alice = secured.security.login("alice", "s3cret")
    producer = Producer(alice.librdkafka())
    failures: dict[str, str] = {}
    for topic in ("orders", "others"):
        producer.produce(
            topic, b"x", callback=lambda error, m: failures.update({m.topic(): str(error)})
        )
    assert producer.flush(60) == 0
    assert failures["orders"] == "None"
    assert "Topic authorization failed" in failures["others"]


def test_the_admin_survives_a_restart(headrace_factory: type[RunningBroker]) -> None:
    broker = headrace_factory(secure=True)
    broker.restart()
    Producer(broker.security.login().librdkafka()).list_topics(timeout=60)
    with pytest.raises(KafkaException):
        Producer(broker.security.login("admin", "wrong").librdkafka()).list_topics(timeout=3)


def test_a_broker_that_is_not_secured_has_no_login(headrace: RunningBroker) -> None:
    with pytest.raises(AssertionError, match="secure=True"):
        _ = headrace.security
