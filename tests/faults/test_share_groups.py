"""A stock client of a share group gets through errors and cut connections of the share APIs."""

import time
import uuid

import pytest
from confluent_kafka import Message, Producer, ShareConsumer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from headrace.errors import ErrorCode
from headrace.testing.running import RunningBroker

WAIT_S = 60


def begin_with_the_first_record(headrace: RunningBroker, group: str) -> None:
    entry = ConfigEntry(
        "share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET
    )
    resource = ConfigResource(ConfigResource.Type.GROUP, group, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": headrace.bootstrap_servers})
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(WAIT_S)


@pytest.mark.parametrize("fault", ["session", "cut", "heartbeat", "storing"])
def test_records_arrive_in_spite_of_a_fault(headrace: RunningBroker, fault: str) -> None:
    group, topic = f"workers-{uuid.uuid4().hex[:8]}", f"jobs-{uuid.uuid4().hex[:8]}"
    begin_with_the_first_record(headrace, group)
    producer = Producer({"bootstrap.servers": headrace.bootstrap_servers})
    for number in range(10):
        producer.produce(topic, str(number))
    assert producer.flush(WAIT_S) == 0
    match fault:
        case "session":
            headrace.fail("ShareFetch", ErrorCode.SHARE_SESSION_NOT_FOUND)
        case "cut":
            headrace.cut("ShareFetch")
        case "heartbeat":
            headrace.fail("ShareGroupHeartbeat", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        case "storing":
            headrace.cut("ShareAcknowledge")
    consumer = ShareConsumer(
        {
            "bootstrap.servers": headrace.bootstrap_servers,
            "group.id": group,
            "share.acknowledgement.mode": "explicit",
        }
    )
    consumer.subscribe([topic])
    accepted: set[str] = set()
    until = time.monotonic() + WAIT_S
    while len(accepted) < 10:
        assert time.monotonic() < until, f"{accepted} were accepted"
        messages: list[Message] = [one for one in consumer.poll(0.5) if one.error() is None]
        for message in messages:
            consumer.acknowledge(message)
        results = consumer.commit_sync(WAIT_S)
        if results and all(error is None for error in results.values()):
            accepted |= {message.value().decode() for message in messages}
    consumer.close()
    assert headrace.faults_left() == 0
