"""Open, ended and aborted transactions of a log, in memory and in its files."""

import struct

import pytest

from headrace.disk import read_file, write_file
from headrace.disk.failpoints import ANY, Fault, Killed
from headrace.disk.memory import MemoryDisk
from headrace.log.log import Log
from headrace.log.producer_state import EndedTransaction
from headrace.log.segment_files import TRANSACTION_INDEX
from headrace.log.transactions import CorruptIndex, EndedTransactions
from headrace.wire.batch import TRANSACTIONAL
from headrace.wire.markers import encode_marker
from tests.log.samples import (
    NOW,
    ORDERS,
    ORDERS_ID,
    SMALL,
    append,
    batch,
    new_log,
    open_directory,
    remove_dropped,
    reopened,
)

ENTRY = struct.Struct(">hqqqq")


def write(log: Log, producer: int, sequence: int, count: int = 1) -> int:
    """A batch of the producer's transaction; its base offset."""
    data = batch(count, producer_id=producer, epoch=0, sequence=sequence, attributes=TRANSACTIONAL)
    return append(log, data)


def end(log: Log, producer: int, *, commit: bool = False) -> int:
    return append(log, encode_marker(producer, 0, commit, 0, NOW))


def stable(log: Log) -> int:
    return log.last_stable_offset(log.end_offset)


def aborted(*numbers: tuple[int, int, int, int]) -> EndedTransactions:
    transactions = EndedTransactions()
    for one in numbers:
        transactions.add(EndedTransaction(*one, aborted=True))
    return transactions


def index_files(log: Log) -> dict[str, list[tuple[int, ...]]]:
    return {
        name: list(ENTRY.iter_unpack(read_file(log.disk, f"{log.folder}/{name}")))
        for name in sorted(log.disk.list_folder(log.folder))
        if name.endswith(TRANSACTION_INDEX)
    }


def test_the_oldest_open_transaction_holds_the_last_stable_offset() -> None:
    log = new_log()
    append(log, batch(2))
    assert stable(log) == 2
    write(log, 7, 0, count=3)
    write(log, 8, 0)
    write(log, 7, 3)
    assert stable(log) == 2
    end(log, 7, commit=True)
    assert stable(log) == 5
    end(log, 8)
    assert stable(log) == log.end_offset == 9


def test_a_marker_that_is_not_committed_yet_holds_the_last_stable_offset() -> None:
    log = new_log()
    append(log, batch(2))
    write(log, 7, 0)
    write(log, 8, 0)
    end(log, 8, commit=True)
    marker = end(log, 7, commit=True)
    assert log.last_stable_offset(4) == 2
    assert log.last_stable_offset(marker) == 2
    assert log.last_stable_offset(marker + 1) == marker + 1


def test_the_last_stable_offset_is_never_before_the_start() -> None:
    log = new_log()
    write(log, 7, 0, count=4)
    append(log, batch(2))
    log.delete_records_before(5)
    assert stable(log) == 5


def test_a_marker_without_a_transaction_changes_nothing_but_the_end() -> None:
    log = new_log()
    append(log, batch())
    end(log, 7)
    assert stable(log) == log.end_offset == 2
    assert log.transactions.between(0, 2) == []


def test_readers_skip_what_overlaps_their_range() -> None:
    transactions = aborted((1, 0, 4, 2), (2, 2, 6, 7), (1, 8, 9, 10), (3, 12, 13, 14))
    assert transactions.between(0, 14) == [(1, 0), (2, 2), (1, 8), (3, 12)]
    assert transactions.between(0, 2) == [(1, 0)]
    assert transactions.between(5, 8) == [(2, 2)]
    assert transactions.between(7, 9) == [(1, 8)]
    assert transactions.between(10, 12) == []
    assert transactions.between(14, 20) == []


def test_an_index_file_has_kafkas_bytes() -> None:
    disk = MemoryDisk()
    log = new_log(disk)
    append(log, batch())
    write(log, 7, 0, count=2)
    write(log, 8, 0)
    end(log, 7)
    end(log, 8)
    log.roll()
    (data,) = (
        read_file(disk, f"{log.folder}/{name}")
        for name in disk.list_folder(log.folder)
        if name.endswith(TRANSACTION_INDEX)
    )
    assert data.hex() == (
        "0000"  # version
        "0000000000000007"  # producer id
        "0000000000000001"  # first offset
        "0000000000000004"  # last offset: the marker
        "0000000000000003"  # last stable offset: where producer 8 began
        "0000"
        "0000000000000008"
        "0000000000000003"
        "0000000000000005"
        "0000000000000006"
    )


def test_a_segment_without_aborts_has_no_index_file() -> None:
    log = new_log()
    write(log, 7, 0)
    end(log, 7, commit=True)
    log.roll()
    log.close()
    assert index_files(log) == {}


@pytest.mark.parametrize("clean", [True, False])
def test_a_transaction_across_segments_and_a_restart_is_aborted_where_it_began(
    clean: bool,
) -> None:
    disk = MemoryDisk()
    directory = open_directory(disk)
    log = directory.create(ORDERS, ORDERS_ID, SMALL)
    first = write(log, 7, 0)
    log.roll()
    write(log, 7, 1)
    log.flush()
    if clean:
        directory.close()
    else:
        disk.kill()
    log = reopened(disk)
    assert stable(log) == first
    write(log, 7, 2)
    marker = end(log, 7)
    assert stable(log) == marker + 1
    assert log.transactions.between(0, marker) == [(7, first)]
    log.close()
    assert list(index_files(log).values()) == [[(0, 7, first, marker, marker + 1)]]


def test_what_a_scan_found_is_known_after_the_next_clean_stop() -> None:
    disk = MemoryDisk()
    directory = open_directory(disk)
    log = directory.create(ORDERS, ORDERS_ID, SMALL)
    write(log, 7, 0)
    end(log, 7)
    directory.close()
    log = reopened(disk)
    write(log, 7, 1)
    end(log, 7)
    disk.kill()
    directory = open_directory(disk)
    assert directory.get(ORDERS, SMALL).transactions.between(0, 4) == [(7, 0), (7, 2)]
    directory.close()
    assert reopened(disk).transactions.between(0, 4) == [(7, 0), (7, 2)]


def test_cutting_a_marker_off_opens_its_transaction_again() -> None:
    log = new_log()
    write(log, 7, 0)
    write(log, 8, 0)
    end(log, 8)
    marker = end(log, 7)
    log.truncate_to(marker)
    assert stable(log) == 0
    assert log.transactions.between(0, marker) == [(8, 1)]
    end(log, 7, commit=True)
    assert log.transactions.between(0, log.end_offset) == [(8, 1)]


def test_markers_of_deleted_segments_are_forgotten() -> None:
    log = new_log()
    write(log, 7, 0)
    end(log, 7)
    log.roll()
    write(log, 7, 1)
    end(log, 7)
    log.delete_records_before(2)
    remove_dropped(log)
    assert len(log.transactions) == 1
    assert log.transactions.between(2, 4) == [(7, 2)]
    log.close()
    assert [name[:20] for name in index_files(log)] == [f"{2:020d}"]


@pytest.mark.parametrize("damage", ["torn", "version", "from another log"])
@pytest.mark.parametrize("clean", [True, False])
def test_a_damaged_index_file_is_rebuilt(damage: str, clean: bool) -> None:
    disk = MemoryDisk()
    directory = open_directory(disk)
    log = directory.create(ORDERS, ORDERS_ID, SMALL)
    write(log, 8, 0)
    log.roll()
    write(log, 7, 0)
    end(log, 7)
    end(log, 8)
    log.roll()
    append(log, batch())
    log.flush()
    directory.checkpoint()
    if clean:
        directory.close()
    else:
        disk.kill()
    (name,) = before = index_files(log)
    path = f"{log.folder}/{name}"
    good = read_file(disk, path)
    bad = {
        "torn": good[:-1],
        "version": b"\0\x01" + good[2:],
        "from another log": ENTRY.pack(0, 7, 100, 200, 201),
    }[damage]
    write_file(disk, path, bad, sync=True)
    after = reopened(disk)
    assert after.transactions.between(0, 4) == [(7, 1), (8, 0)]
    assert index_files(after) == before


@pytest.mark.parametrize(
    "entries",
    [
        [(1, 7, 0, 4, 5)],
        [(0, 7, 4, 4, 5)],
        [(0, 7, 0, 4, 6)],
        [(0, 7, 0, 10, 11)],
        [(0, 7, 0, 4, 5), (0, 8, 0, 4, 5)],
    ],
    ids=["version", "no records", "stable past its end", "past the segment", "order"],
)
def test_an_index_that_cannot_be_its_segments_is_noticed(
    entries: list[tuple[int, int, int, int, int]],
) -> None:
    transactions = EndedTransactions()
    with pytest.raises(CorruptIndex):
        transactions.load(b"".join(ENTRY.pack(*entry) for entry in entries), 0, 10)
    assert len(transactions) == 0


def test_a_power_cut_after_a_roll_does_not_bring_aborted_records_back() -> None:
    for seed in range(40):
        disk = MemoryDisk(seed)
        directory = open_directory(disk)
        log = directory.create(ORDERS, ORDERS_ID, SMALL)
        append(log, batch(1, producer_id=3, epoch=0, sequence=0, attributes=TRANSACTIONAL))
        append(log, encode_marker(3, 0, False, 1, NOW))
        log.flush()
        log.roll()
        directory.checkpoint()
        disk.crash()
        directory = open_directory(disk)
        directory.recover(lambda _: SMALL)
        log = directory.get(ORDERS, SMALL)
        assert log.end_offset == 2
        assert log.transactions.between(0, 2) == [(3, 0)]


def test_a_kill_while_rolling_does_not_bring_records_back_that_were_aborted_before_the_start() -> (
    None
):
    for step in range(40):
        disk = MemoryDisk()
        directory = open_directory(disk)
        log = directory.create(ORDERS, ORDERS_ID, SMALL)
        write(log, 3, 0)
        end(log, 3)
        directory.close()
        log = open_directory(disk).get(ORDERS, SMALL)
        disk.failpoints.arm(ANY, Fault(kill=True), skip=step)
        try:
            log.roll()
        except Killed:
            rolled = False
        else:
            rolled = True
        disk.kill()
        directory = open_directory(disk)
        directory.recover(lambda _: SMALL)
        found = directory.get(ORDERS, SMALL).transactions.between(0, 2)
        assert found == [(3, 0)], f"killed at step {step}"
        if rolled:
            return
    raise AssertionError("rolling has more steps than were tried")
