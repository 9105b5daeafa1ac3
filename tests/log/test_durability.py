"""Many sealed segments are synced side by side, with the promises of one after the other."""

import errno

import pytest

from headrace.cli.broker.verification import Verification
from headrace.disk.memory import MemoryDisk
from headrace.errors import ErrorCode, KafkaError
from headrace.log.log import Log
from tests.log.samples import (
    NOW,
    ORDERS,
    ORDERS_ID,
    ROOT,
    SMALL,
    append,
    batch,
    contents,
    open_directory,
    reopened,
)

MANY = 100


def rolled(disk: MemoryDisk) -> Log:
    log = open_directory(disk).create(ORDERS, ORDERS_ID, SMALL)
    for n in range(MANY):
        append(log, batch(timestamp=NOW + n))
        log.roll(NOW)
    return log


def test_a_power_cut_after_a_flush_of_many_segments_takes_nothing() -> None:
    disk = MemoryDisk()
    log = rolled(disk)
    expected = contents(log)
    assert log.flush() == MANY
    disk.crash()
    verification = Verification(disk)
    verification.folder(ROOT)
    assert verification.findings == [], "their indexes and snapshots too"
    assert contents(reopened(disk)) == expected


def test_one_sync_of_many_that_fails_takes_the_log_offline() -> None:
    disk = MemoryDisk()
    log = rolled(disk)
    disk.fail_next("fdatasync", errno.EIO)
    with pytest.raises(KafkaError) as caught:
        log.flush()
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert log.durability.recovery_point == 0
    assert log.durability.safe_point == 0
    assert log.availability.offline is not None
