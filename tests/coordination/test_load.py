"""Reading a shard from its log, on a disk that fails."""

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.cluster.image import OFFSETS_TOPIC
from headrace.coordination.load import Latest, latest_records
from headrace.disk import RealDisk
from headrace.disk.failpoints import Fault, FaultyDisk
from headrace.errors import ErrorCode, KafkaError
from headrace.wire.records import Record, encode_batch
from tests.apis.one_broker import NOW, OneBroker

MAX_DECOMPRESSED_BYTES = 1 << 20
READ = "pread .log"
RECORD = Record(0, NOW, b"key", b"value")


@pytest.fixture
def disk() -> FaultyDisk:
    return FaultyDisk(RealDisk())


@pytest.fixture
def broker(tmp_path: Path, disk: FaultyDisk) -> Iterator[OneBroker]:
    one = OneBroker(tmp_path, disk=disk)
    one.create(OFFSETS_TOPIC)
    one.replicas.partition(OFFSETS_TOPIC, 0).append_own(encode_batch([RECORD]), NOW)
    yield one
    one.close()


def load(broker: OneBroker) -> dict[bytes, bytes | None]:
    latest = Latest()
    partition = broker.replicas.partition(OFFSETS_TOPIC, 0)
    for _ in latest_records(partition, MAX_DECOMPRESSED_BYTES, latest):
        pass
    return latest.records


def fail_reading_records(broker: OneBroker, disk: FaultyDisk, code: int) -> None:
    """Let the read of the records fail, and not those that find their position."""
    assert load(broker) == {b"key": b"value"}
    disk.failpoints.trace = []
    broker.replicas.partition(OFFSETS_TOPIC, 0).replica.read_to_end(0, 1000, True)
    disk.failpoints.arm(READ, Fault(code), skip=disk.failpoints.trace.count(READ))


def test_a_broken_disk_takes_the_log_offline_so_that_another_broker_can_coordinate(
    broker: OneBroker, disk: FaultyDisk
) -> None:
    fail_reading_records(broker, disk, errno.EIO)
    with pytest.raises(KafkaError) as caught:
        load(broker)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert broker.replicas.partition(OFFSETS_TOPIC, 0).replica.log.availability.offline is not None


def test_an_interrupted_read_leaves_the_log_online_and_is_repeated(
    broker: OneBroker, disk: FaultyDisk
) -> None:
    fail_reading_records(broker, disk, errno.ENOMEM)
    with pytest.raises(KafkaError):
        load(broker)
    assert load(broker) == {b"key": b"value"}
