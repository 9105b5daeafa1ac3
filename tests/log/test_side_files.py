"""Side files may be lost or damaged while the broker is down: no response changes."""

import re
from collections.abc import Callable, Iterator

import pytest

from headrace.disk import write_file
from headrace.disk.memory import MemoryDisk
from headrace.log.directory import LogDirectory
from headrace.log.log import Log
from headrace.settings import LogSettings
from headrace.types import TopicPartition
from headrace.wire.batch import TRANSACTIONAL
from headrace.wire.markers import encode_marker
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
    remove_dropped,
)

IDEMPOTENT, COMMITTER, ABORTER = 9, 3, 4
IN_LOG = (".index", ".timeindex", ".txnindex", ".snapshot", "leader-epoch-checkpoint",
          "transaction-index-checkpoint")  # fmt: skip
IN_ROOT = ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint",
           "replication-offset-checkpoint", "cleaner-offset-checkpoint")  # fmt: skip
CHECKSUMS = f"{ROOT}/{ORDERS}/transaction-index-checkpoint"


def history() -> tuple[MemoryDisk, LogDirectory, Log]:
    """A log of several segments with all that side files tell of."""
    disk = MemoryDisk()
    directory = open_directory(disk)
    log = directory.create(ORDERS, ORDERS_ID, SMALL)
    for n in range(24):
        # One time in the past among the others, and one that stays the largest for long.
        time = NOW + (n * 10 if n % 5 else -1000) + (400 if n == 11 else 0)
        append(
            log,
            batch(1 + n % 2, timestamp=time, producer_id=IDEMPOTENT, epoch=0,
                  sequence=n + n // 2),
            epoch=n // 6,
        )  # fmt: skip
        if n % 3 == 0:
            producer = ABORTER if n % 2 else COMMITTER
            values = batch(
                timestamp=time, producer_id=producer, epoch=0, sequence=n // 6,
                attributes=TRANSACTIONAL,
            )  # fmt: skip
            append(log, values, epoch=n // 6)
            append(log, encode_marker(producer, 0, producer == COMMITTER, 1, time), epoch=n // 6)
    log.delete_records_before(4)
    remove_dropped(log)
    directory.checkpoints.write_high_watermarks({ORDERS: log.end_offset})
    return disk, directory, log


def answers(log: Log) -> object:
    """What clients can ask of a log."""
    producers = {
        producer_id: (producer.epoch, producer.expected, producer.batches[-1:])
        for producer_id, producer in log.producers.producers.items()
    }
    duplicate = batch(2, producer_id=IDEMPOTENT, epoch=0, sequence=34)
    return (
        contents(log),
        (log.start_offset, log.end_offset, log.last_stable_offset(log.end_offset)),
        producers,
        append(log, duplicate),
        log.epochs.entries,
        [log.find_timestamp(NOW + ms) for ms in range(-1010, 700, 7)],
        log.max_timestamp(),
        [log.transactions.between(start, log.end_offset) for start in range(log.end_offset)],
    )


def asked(disk: MemoryDisk) -> object:
    """The answers of the next broker; it dies without a word."""
    log = open_directory(disk).get(ORDERS, SMALL)
    found = answers(log)
    disk.kill()
    return found


def stopped() -> tuple[MemoryDisk, object]:
    disk, directory, log = history()
    expected = answers(log)
    assert len(log.segments) > 3
    assert log.start_offset == 4
    assert len(log.transactions) > 2
    directory.close()
    return disk, expected


def flip_all(disk: MemoryDisk, path: str) -> None:
    disk.corrupt(path, bytes(byte ^ 0x55 for byte in disk.content(path)))


def empty(disk: MemoryDisk, path: str) -> None:
    disk.corrupt(path, b"")


def cut_in_half(disk: MemoryDisk, path: str) -> None:
    content = disk.content(path)
    disk.corrupt(path, content[: len(content) // 2])


def side_files(disk: MemoryDisk, *names: str) -> Iterator[str]:
    for folder in (ROOT, f"{ROOT}/{ORDERS}"):
        for name in sorted(disk.list_folder(folder)):
            if name.endswith(names) and not disk.is_folder(f"{folder}/{name}"):
                yield f"{folder}/{name}"


@pytest.mark.parametrize("damage", [MemoryDisk.remove, flip_all, empty, cut_in_half])
@pytest.mark.parametrize("name", [*IN_LOG, *IN_ROOT])
def test_a_lost_or_rotten_side_file_changes_no_answer_after_a_clean_stop(
    name: str, damage: Callable[[MemoryDisk, str], None]
) -> None:
    disk, expected = stopped()
    paths = [*side_files(disk, name)]
    assert paths or name.startswith("cleaner"), name
    for path in paths:
        damage(disk, path)
    assert asked(disk) == expected
    assert asked(disk) == expected, "and after the crash of the broker that mended it"


@pytest.mark.slow
@pytest.mark.parametrize("name", [".index", ".timeindex", ".txnindex", ".snapshot"])
def test_no_flipped_bit_and_no_cut_of_an_index_changes_an_answer(name: str) -> None:
    disk, expected = stopped()
    names = (*IN_LOG, *IN_ROOT, ".kafka_cleanshutdown")
    whole = {path: disk.content(path) for path in side_files(disk, *names)}
    paths = [path for path in whole if path.endswith(name)]
    for path in (paths[0], paths[-1]):
        content = whole[path]
        damages = [content[:length] for length in range(len(content))]
        for at in range(len(content)):
            flipped = bytearray(content)
            flipped[at] ^= 1 << at % 8
            damages.append(bytes(flipped))
        for damaged in damages:
            for other, kept in whole.items():
                write_file(disk, other, damaged if other == path else kept, sync=True)
            assert asked(disk) == expected, (path, damaged.hex(" "))


def test_a_lost_transaction_index_is_on_the_disk_again_after_the_log_was_opened() -> None:
    disk, _ = stopped()
    paths = [*side_files(disk, ".txnindex")]
    before = {path: disk.content(path) for path in paths}
    for path in paths:
        disk.remove(path)
    asked(disk)
    assert {path: disk.content(path) for path in side_files(disk, ".txnindex")} == before


def test_only_logs_with_aborted_transactions_name_their_index_files() -> None:
    disk = MemoryDisk()
    directory = open_directory(disk)
    log = directory.create(ORDERS, ORDERS_ID, SMALL)
    for n in range(20):
        append(log, batch(producer_id=COMMITTER, epoch=0, sequence=n, attributes=TRANSACTIONAL))
        append(log, encode_marker(COMMITTER, 0, True, 1, NOW))
    directory.close()
    assert not [*side_files(disk, ".txnindex", "transaction-index-checkpoint")]


def test_a_folder_without_checksums_is_accepted() -> None:
    disk, expected = stopped()
    disk.remove(CHECKSUMS)
    assert asked(disk) == expected
    paths = [*side_files(disk, ".txnindex")]
    disk, _ = stopped()
    disk.remove(CHECKSUMS)
    disk.remove(paths[0])
    assert asked(disk) != expected, "nothing says that there was one"


def test_checksums_follow_retention_and_a_new_log() -> None:
    disk, directory, log = history()
    log.delete_records_before(log.segments[2].base_offset)
    remove_dropped(log)
    directory.close()
    directory = open_directory(disk)
    log = directory.get(ORDERS, SMALL)
    append(log, batch(producer_id=ABORTER, epoch=1, sequence=0, attributes=TRANSACTIONAL))
    append(log, encode_marker(ABORTER, 1, False, 1, NOW))
    directory.close()
    noted = {int(base) for base in re.findall(rb"^(\d+) \d+$", disk.content(CHECKSUMS), re.M)}
    there = {int(path.rpartition("/")[2].split(".")[0]) for path in side_files(disk, ".txnindex")}
    assert noted == there
    directory = open_directory(disk)
    log = directory.get(ORDERS, SMALL)
    log.restart_at(1000)
    append(log, batch())
    directory.close()
    log = open_directory(disk).get(ORDERS, SMALL)
    assert (log.start_offset, log.end_offset, len(log.transactions)) == (1000, 1001, 0)


def test_a_kill_behind_a_roll_does_not_trust_old_checksums() -> None:
    disk, directory, log = history()
    log.flush()
    directory.checkpoint()
    append(log, batch(producer_id=ABORTER, epoch=1, sequence=0, attributes=TRANSACTIONAL))
    append(log, encode_marker(ABORTER, 1, False, 1, NOW))
    log.roll(NOW)
    expected = answers(log)
    disk.kill()
    assert asked(disk) == expected


def test_a_lost_start_offset_is_not_made_up_for_a_log_that_begins_at_its_first_record() -> None:
    disk = MemoryDisk()
    directory = open_directory(disk)
    other = TopicPartition("other", 0)
    log = directory.create(other, ORDERS_ID, LogSettings())
    for n in range(5):
        append(log, batch(), epoch=n)
    directory.close()
    disk.remove(f"{ROOT}/log-start-offset-checkpoint")
    assert open_directory(disk).get(other, LogSettings()).start_offset == 0


def test_a_time_index_that_names_a_later_batch_of_the_same_time_changes_no_answer() -> None:
    disk = MemoryDisk()
    directory = open_directory(disk)
    log = directory.create(ORDERS, ORDERS_ID, LogSettings(index_interval_bytes=1))
    for _ in range(3):
        append(log, batch(timestamp=NOW))
    append(log, batch(timestamp=NOW + 1))
    log.roll(NOW)
    directory.close()
    disk.kill()
    path = f"{ROOT}/{ORDERS}/{0:020}.timeindex"
    content = bytearray(disk.content(path))
    assert content[8:12] == bytes(4), "the first entry is not that of offset 0"
    content[11] = 1
    disk.corrupt(path, bytes(content))
    found = open_directory(disk).get(ORDERS, LogSettings()).find_timestamp(NOW)
    assert found is not None
    assert found.offset == 0
