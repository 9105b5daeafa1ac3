"""Share groups with a stock client: librdkafka's share consumer."""

import time
import uuid
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import (
    AcknowledgeType,
    Consumer,
    KafkaException,
    Message,
    Producer,
    ShareConsumer,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
)

from tests.support.headrace_broker import HeadraceBroker

SETTINGS = {
    "group.share.heartbeat.interval.ms": "300",
    "group.share.min.heartbeat.interval.ms": "100",
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.delivery.count.limit": "3",
    "offsets.topic.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "2",
    "share.coordinator.snapshot.update.records.per.snapshot": "5",
}
WAIT_S = 60
LONG_LOCK_MS = 60_000


@pytest.fixture(scope="module")
def share_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HeadraceBroker]:
    """A broker whose members hurry."""
    with HeadraceBroker(tmp_path_factory.mktemp("shares"), settings=SETTINGS) as running:
        yield running


class Queue:
    """A topic and a share group of their own, which begins with the first record."""

    def __init__(self, broker: HeadraceBroker, partitions: int = 1, **configs: str) -> None:
        self.broker = broker
        self.topic = f"q-{uuid.uuid4().hex[:12]}"
        self.group = f"s-{uuid.uuid4().hex[:12]}"
        self.admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        self.admin.create_topics([NewTopic(self.topic, partitions, 1)])[self.topic].result(WAIT_S)
        self.configure(**{"share_auto_offset_reset": "earliest", **configs})
        self.open: list[ShareConsumer] = []

    def configure(self, **configs: str) -> None:
        entries = [
            ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
            for name, value in configs.items()
        ]
        resource = ConfigResource(
            ConfigResource.Type.GROUP, self.group, incremental_configs=entries
        )
        for future in self.admin.incremental_alter_configs([resource]).values():
            future.result(WAIT_S)

    def produce(self, *values: str, **config: object) -> None:
        producer = Producer({"bootstrap.servers": self.broker.bootstrap, **config})
        for value in values:
            producer.produce(self.topic, value)
        assert producer.flush(WAIT_S) == 0

    def consumer(self, **config: object) -> ShareConsumer:
        consumer = ShareConsumer(
            {
                "bootstrap.servers": self.broker.bootstrap,
                "group.id": self.group,
                "share.acknowledgement.mode": "explicit",
                **config,
            }
        )
        consumer.subscribe([self.topic])
        self.open.append(consumer)
        return consumer

    def close(self) -> None:
        for consumer in self.open:
            consumer.close()


@pytest.fixture
def make_queue(share_broker: HeadraceBroker) -> Iterator[Callable[..., Queue]]:
    made: list[Queue] = []

    def make(**options: object) -> Queue:
        made.append(Queue(share_broker, **options))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for queue in made:
        queue.close()


def take(
    consumer: ShareConsumer, count: int, kind: AcknowledgeType = AcknowledgeType.ACCEPT
) -> list[Message]:
    """Poll until there are so many records, and acknowledge all of them."""
    found: list[Message] = []
    until = time.monotonic() + WAIT_S
    while len(found) < count:
        assert time.monotonic() < until, f"only {values(found)} of {count} came"
        for message in consumer.poll(1.0):
            assert message.error() is None, message.error()
            consumer.acknowledge(message, kind)
            found.append(message)
    for error in consumer.commit_sync(WAIT_S).values():
        assert error is None, error
    return found


def values(messages: list[Message]) -> list[str]:
    return [message.value().decode() for message in messages]


def test_an_accepted_record_is_not_delivered_again_after_a_kill(
    tmp_path: "pytest.TempPathFactory",
) -> None:
    with HeadraceBroker(tmp_path, settings=SETTINGS) as broker:  # type: ignore[arg-type]
        queue = Queue(broker, share_record_lock_duration_ms=str(LONG_LOCK_MS))
        queue.produce("a", "b", "c", "d")
        consumer = queue.consumer()
        taken = take(consumer, 4)
        assert values(taken) == ["a", "b", "c", "d"]
        queue.produce("e", "f")
        got = take(consumer, 2, AcknowledgeType.RELEASE)
        assert values(got) == ["e", "f"]
        broker.kill()
        broker.start()
        queue.produce("g")
        again = queue.consumer()
        assert sorted(values(take(again, 3))) == ["e", "f", "g"]
        queue.close()


def test_released_records_come_again_and_rejected_ones_do_not(
    make_queue: Callable[..., Queue],
) -> None:
    queue = make_queue()
    queue.produce("first")
    consumer = queue.consumer()
    (rejected,) = take(consumer, 1, AcknowledgeType.REJECT)
    queue.produce("second")
    (released,) = take(consumer, 1, AcknowledgeType.RELEASE)
    (again,) = take(consumer, 1)
    assert values([rejected, released, again]) == ["first", "second", "second"]
    assert (released.delivery_count(), again.delivery_count()) == (1, 2)


def test_a_record_is_delivered_no_more_often_than_the_limit(
    make_queue: Callable[..., Queue],
) -> None:
    queue = make_queue()
    queue.produce("poison")
    consumer = queue.consumer()
    counts = [
        message.delivery_count()
        for _ in range(3)
        for message in take(consumer, 1, AcknowledgeType.RELEASE)
    ]
    assert counts == [1, 2, 3]
    queue.produce("next")
    assert values(take(consumer, 1)) == ["next"]


def test_records_of_a_silent_member_go_to_another_when_their_locks_expire(
    make_queue: Callable[..., Queue],
) -> None:
    queue = make_queue(share_record_lock_duration_ms="1000")
    queue.produce("slow")
    silent = queue.consumer()
    found: list[Message] = []
    until = time.monotonic() + WAIT_S
    while not found and time.monotonic() < until:
        found += silent.poll(1.0)
    assert values(found) == ["slow"]
    other = queue.consumer()
    (message,) = take(other, 1)
    assert values([message]) == ["slow"]
    assert message.delivery_count() == 2


def test_a_member_that_closes_releases_its_records(make_queue: Callable[..., Queue]) -> None:
    queue = make_queue(share_record_lock_duration_ms=str(LONG_LOCK_MS))
    queue.produce("kept")
    leaving = queue.consumer()
    found: list[Message] = []
    until = time.monotonic() + WAIT_S
    while not found and time.monotonic() < until:
        found += leaving.poll(1.0)
    queue.open.remove(leaving)
    leaving.close()
    assert values(take(queue.consumer(), 1)) == ["kept"]


def test_many_members_divide_the_records_of_one_partition(
    make_queue: Callable[..., Queue],
) -> None:
    queue = make_queue()
    members = [queue.consumer(**{"max.poll.records": 10}) for _ in range(3)]
    sent = [str(number) for number in range(300)]
    for at in range(0, 300, 10):
        queue.produce(*sent[at : at + 10])
    got: list[list[str]] = [[] for _ in members]
    until = time.monotonic() + WAIT_S
    while sum(map(len, got)) < len(sent):
        assert time.monotonic() < until, f"only {sum(map(len, got))} came"
        for mine, member in zip(got, members, strict=True):
            for message in member.poll(0.2):
                member.acknowledge(message)
                mine.append(message.value().decode())
            member.commit_sync(WAIT_S)
    assert sorted(value for mine in got for value in mine) == sorted(sent)
    assert all(got), "every member got records"


def test_records_of_aborted_transactions_are_not_delivered_to_a_group_that_reads_committed(
    make_queue: Callable[..., Queue],
) -> None:
    queue = make_queue(share_isolation_level="read_committed")
    producer = Producer(
        {"bootstrap.servers": queue.broker.bootstrap, "transactional.id": queue.topic}
    )
    producer.init_transactions(WAIT_S)
    for commit in (True, False, True):
        producer.begin_transaction()
        producer.produce(queue.topic, "committed" if commit else "aborted")
        if commit:
            producer.commit_transaction(WAIT_S)
        else:
            producer.abort_transaction(WAIT_S)
    assert values(take(queue.consumer(), 2)) == ["committed", "committed"]


def test_rejected_and_undeliverable_records_go_to_the_dead_letter_topic_of_the_group(
    make_queue: Callable[..., Queue],
) -> None:
    letters = f"dlq.{uuid.uuid4().hex[:12]}"
    queue = make_queue(
        errors_deadletterqueue_topic_name=letters, errors_deadletterqueue_copy_record_enable="true"
    )
    new = NewTopic(letters, 1, 1, config={"errors.deadletterqueue.group.enable": "true"})
    queue.admin.create_topics([new])[letters].result(WAIT_S)
    consumer = queue.consumer()
    queue.produce("rejected")
    take(consumer, 1, AcknowledgeType.REJECT)
    queue.produce("poison")
    for _ in range(3):
        take(consumer, 1, AcknowledgeType.RELEASE)
    queue.produce("accepted")
    take(consumer, 1)
    reader = Consumer(
        {
            "bootstrap.servers": queue.broker.bootstrap,
            "group.id": f"reader-of-{letters}",
            "auto.offset.reset": "earliest",
        }
    )
    reader.subscribe([letters])
    found: list[Message] = []
    until = time.monotonic() + WAIT_S
    while len(found) < 2:
        assert time.monotonic() < until, values(found)
        message = reader.poll(1.0)
        if message is not None and message.error() is None:
            found.append(message)
    reader.close()
    assert values(found) == ["rejected", "poison"]
    first, second = (
        {name.removeprefix("__dlq.errors."): text.decode() for name, text in one.headers()}
        for one in found
    )
    assert first == {
        "topic": queue.topic,
        "partition": "0",
        "offset": "0",
        "group": queue.group,
        "delivery.count": "1",
        "message": "rejected by the consumer",
    }
    assert second["delivery.count"] == "3"
    assert second["message"] == "delivery limit reached"


def test_a_group_may_not_name_any_topic_for_its_dead_letters(
    make_queue: Callable[..., Queue],
) -> None:
    with pytest.raises(KafkaException, match="must begin with"):
        make_queue(errors_deadletterqueue_topic_name="orders")


def test_a_group_begins_at_the_end_unless_it_is_configured(
    make_queue: Callable[..., Queue],
) -> None:
    queue = make_queue(share_auto_offset_reset="latest")
    queue.produce("before")
    consumer = queue.consumer()
    until = time.monotonic() + WAIT_S
    got: list[Message] = []
    while not got:
        assert time.monotonic() < until
        queue.produce("after")
        for message in consumer.poll(1.0):
            consumer.acknowledge(message)
            got.append(message)
    assert set(values(got)) == {"after"}
