"""A broker with several data folders, one of which fails under it."""

import errno
from collections.abc import Callable

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.errors import ErrorCode
from headrace.testing.running import BrokerDied, RunningBroker
from tests.testing.test_running import read_partition, send_to

Factory = Callable[..., RunningBroker]


def create(broker: RunningBroker, topic: str, partitions: int, **configs: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    given = {name.replace("_", "."): value for name, value in configs.items()}
    admin.create_topics([NewTopic(topic, partitions, 1, config=given)])[topic].result(60)


def homes(broker: RunningBroker, topic: str, partitions: int) -> list[int]:
    """Which of the broker's folders each partition lies in."""
    return [
        next(n for n, path in enumerate(broker.data_dirs) if (path / f"{topic}-{index}").exists())
        for index in range(partitions)
    ]


def refusal(broker: RunningBroker, topic: str, index: int) -> int:
    """The error code of a Produce."""
    with pytest.raises(KafkaException) as caught:
        send_to(broker, topic, index, "refused", retries=0)
    return int(caught.value.args[0].code())


@pytest.mark.parametrize("code", [errno.EIO, errno.EROFS])
def test_a_folder_that_breaks_takes_only_its_own_partitions_along(
    headrace_factory: Factory, code: int
) -> None:
    broker = headrace_factory(folders=2)
    create(broker, "orders", 4)
    assert sorted(homes(broker, "orders", 4)) == [0, 0, 1, 1]
    lost = homes(broker, "orders", 4).index(1)
    kept = homes(broker, "orders", 4).index(0)
    for index in (lost, kept):
        send_to(broker, "orders", index, "before")
    broker.spoil_disk("pwrite", code=code, count=-1, under=str(broker.data_dirs[1]))
    assert refusal(broker, "orders", lost) == ErrorCode.KAFKA_STORAGE_ERROR
    broker.clear_faults()
    assert refusal(broker, "orders", lost) == ErrorCode.KAFKA_STORAGE_ERROR, "until a restart"
    send_to(broker, "orders", kept, "after")
    create(broker, "fresh", 2)
    assert homes(broker, "fresh", 2) == [0, 0]
    broker.restart()
    assert read_partition(broker, "orders", lost, 1) == ["before"]
    assert read_partition(broker, "orders", kept, 2) == ["before", "after"]
    send_to(broker, "orders", lost, "again")


def test_an_acknowledgement_never_follows_a_failed_sync(headrace_factory: Factory) -> None:
    broker = headrace_factory(folders=2)
    create(broker, "orders", 2, flush_messages="1")
    lost, kept = homes(broker, "orders", 2).index(1), homes(broker, "orders", 2).index(0)
    send_to(broker, "orders", lost, "synced")
    broker.spoil_disk("fdatasync .log", code=errno.EIO, under=str(broker.data_dirs[1]))
    assert refusal(broker, "orders", lost) == ErrorCode.KAFKA_STORAGE_ERROR
    assert refusal(broker, "orders", lost) == ErrorCode.KAFKA_STORAGE_ERROR, "no second sync"
    send_to(broker, "orders", kept, "fine")


def test_a_folder_that_cannot_be_opened_hides_its_partitions_and_replaces_none(
    headrace_factory: Factory,
) -> None:
    broker = headrace_factory(folders=2)
    create(broker, "orders", 2)
    lost, kept = homes(broker, "orders", 2).index(1), homes(broker, "orders", 2).index(0)
    for index in (lost, kept):
        send_to(broker, "orders", index, "before")
    broker.stop()
    broker.start([{"point": "lock .lock", "code": errno.EIO, "under": str(broker.data_dirs[1])}])
    assert read_partition(broker, "orders", kept, 1) == ["before"]
    assert refusal(broker, "orders", lost) == ErrorCode.KAFKA_STORAGE_ERROR
    broker.restart()
    assert homes(broker, "orders", 2)[lost] == 1
    assert read_partition(broker, "orders", lost, 1) == ["before"]


def test_without_a_folder_left_the_broker_stops_with_the_reason(headrace_factory: Factory) -> None:
    broker = headrace_factory(folders=2)
    create(broker, "orders", 2)
    broker.spoil_disk("pwrite .log", code=errno.EIO, count=-1)
    for index in range(2):
        with pytest.raises(KafkaException):
            send_to(broker, "orders", index, "refused", retries=0, **{"message.timeout.ms": 3000})
    assert broker.wait_until_dead() == 1
    assert "every folder of log.dirs has failed" in broker.log_file.read_text()
    broker.start()


def test_the_first_folder_is_needed_to_start(headrace_factory: Factory) -> None:
    broker = headrace_factory(folders=2)
    broker.stop()
    first = str(broker.data_dirs[0])
    with pytest.raises(BrokerDied, match="the first data folder, also holds the metadata"):
        broker.start([{"point": "lock .lock", "code": errno.EROFS, "under": f"{first}/"}])
