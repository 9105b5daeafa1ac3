"""The swap of compacted segments, interrupted at every step, in memory and on real files."""

import errno
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.disk.failpoints import ANY, Fault, Killed
from headrace.disk.memory import MemoryDisk
from headrace.errors import ErrorCode, KafkaError
from headrace.log.compaction.swap import settle
from headrace.log.directory import LogDirectory
from headrace.log.log import Log
from tests.log.compacting import COMPACT, batches, compacted, mark, put, seal, values
from tests.log.samples import ORDERS, ORDERS_ID, open_directory

# A crash before or behind these is one before or behind their neighbours.
READING = ("pread", "map_file", "list_folder")


def fill(log: Log) -> None:
    """Several segments that become fewer, aborted transactions among them."""
    rnd = random.Random(2)
    for n in range(20):
        put(log, (b"k%d" % rnd.randint(0, 9), b"%d" % n))
        if n % 5 == 3:
            put(log, (b"x", b"aborted"), producer=(7, 0, n // 5), transactional=True)
            mark(log, 7, 0, commit=False)
    seal(log)


def prepared(disk: MemoryDisk) -> tuple[LogDirectory, Log]:
    directory = open_directory(disk)
    log = directory.create(ORDERS, ORDERS_ID, COMPACT)
    fill(log)
    directory.checkpoint()
    return directory, log


def last_values(log: Log) -> dict[bytes | None, bytes | None]:
    """What a reader who ignores aborted transactions ends up with."""
    aborted = log.transactions.between(0, log.end_offset)
    return {
        record.key: record.value
        for header, held in batches(log)
        if not header.attributes & 0x20
        for record in held
        if not (header.attributes & 0x10 and any(header.producer_id == pid for pid, _ in aborted))
    }


def steps() -> list[str]:
    """The points that a compaction passes, in order."""
    disk = MemoryDisk()
    _, log = prepared(disk)
    disk.failpoints.trace = []
    compacted(log)
    return disk.failpoints.trace


def test_the_swap_goes_by_cleaned_swap_and_deleted() -> None:
    passed = [name for name in steps() if name.startswith("rename")]
    first = [
        *(f"rename {suffix}.swap" for suffix in (".log", ".index", ".timeindex", ".txnindex")),
        "rename .log.deleted",
    ]
    assert passed[: len(first)] == first
    assert "rename .log" in passed
    assert passed.index("rename .log.deleted") < passed.index("rename .log")


@pytest.mark.parametrize("power", [False, True], ids=["killed", "power cut"])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_crash_at_any_step_loses_nothing_and_compaction_goes_on(power: bool, after: bool) -> None:
    whole = MemoryDisk()
    _, log = prepared(whole)
    expected = last_values(log)
    compacted(log)
    finished = values(log)
    for step, point in enumerate(steps()):
        if point.startswith(READING):
            continue
        disk = MemoryDisk(seed=step)
        _, log = prepared(disk)
        disk.failpoints.arm(ANY, Fault(kill=True, after=after), skip=step)
        try:
            compacted(log)
            assert after, f"step {step}"
            continue  # a file that need not be there was not: nothing lies behind such a call
        except Killed:
            disk.failpoints.clear()
        if power:
            disk.crash()
        else:
            disk.kill()
        log = open_directory(disk).get(ORDERS, COMPACT)
        assert last_values(log) == expected, f"step {step}"
        names = disk.list_folder(log.folder)
        left = [name for name in names if name.endswith((".cleaned", ".swap", ".deleted"))]
        assert left == [], f"step {step}"
        compacted(log)
        assert values(log) == finished, f"step {step}"


@pytest.mark.parametrize("suffix", [".log.swap", ".index.swap", ".log.deleted", ".log"])
def test_a_rename_that_fails_takes_the_log_offline_and_the_next_start_finds_all(
    suffix: str,
) -> None:
    disk = MemoryDisk()
    _, log = prepared(disk)
    expected = last_values(log)
    disk.failpoints.arm(f"rename {suffix}", Fault(errno.EIO))
    with pytest.raises(KafkaError) as caught:
        compacted(log)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.availability.offline is not None
    disk.kill()
    assert last_values(open_directory(disk).get(ORDERS, COMPACT)) == expected


def test_a_full_disk_leaves_the_log_as_it_was() -> None:
    disk = MemoryDisk()
    _, log = prepared(disk)
    before = values(log)
    disk.failpoints.arm("pwrite .log.cleaned", Fault(errno.ENOSPC), skip=1)
    with pytest.raises(AssertionError, match="No space left"):
        compacted(log)
    assert not [name for name in disk.list_folder(log.folder) if name.endswith(".cleaned")]
    assert log.availability.offline is None
    compacted(log)
    assert len(values(log)) < len(before)


def test_who_reads_an_old_segment_gets_its_bytes() -> None:
    directory, log = prepared(MemoryDisk())
    piece = log.read(0, 1 << 20, log.end_offset, True)
    assert piece is not None
    before = piece.read()
    compacted(log)
    directory.removal.finish()
    assert piece.read() == before
    again = log.read(0, 1 << 20, log.end_offset, True)
    assert again is not None
    assert again.read() != before


# -------------------------------------------------------------------- Kafka's rules on leftovers


def folder_with(disk: MemoryDisk, *names: str) -> str:
    folder = "/data/orders-0"
    disk.make_folders(folder)
    for name in names:
        fd = disk.open(f"{folder}/{name}", os.O_CREAT | os.O_RDWR)
        disk.pwrite(fd, name.encode(), 0)
        disk.close(fd)
    return folder


def named(offset: int, suffix: str) -> str:
    return f"{offset:020d}{suffix}"


def test_a_swap_with_a_cleaned_file_left_has_not_happened() -> None:
    disk = MemoryDisk()
    old = [named(0, suffix) for suffix in (".log", ".index", ".timeindex")]
    folder = folder_with(
        disk, *old, named(0, ".log.swap"), named(0, ".index.cleaned"), named(7, ".log.cleaned")
    )
    assert sorted(settle(disk, folder, disk.list_folder(folder))) == sorted(old)
    assert sorted(disk.list_folder(folder)) == sorted(old)


def test_a_later_groups_cleaned_files_do_not_stop_an_earlier_swap() -> None:
    disk = MemoryDisk()
    folder = folder_with(
        disk, named(0, ".index.swap"), named(0, ".log"), named(9, ".log"), named(9, ".log.cleaned")
    )
    left = settle(disk, folder, disk.list_folder(folder))
    assert sorted(left) == [named(0, ".index"), named(0, ".log"), named(9, ".log")]


# ------------------------------------------------------------------------- files and processes

SCRIPT = """
import os, shutil, sys
from headrace.clock import ManualClock
from headrace.disk import RealDisk
from headrace.disk.failpoints import Failpoints, Fault, FaultyDisk
from headrace.log.directory import LogDirectory
from tests.log.compacting import COMPACT, compacted
from tests.log.samples import NOW, ORDERS, ORDERS_ID
from tests.log.test_compaction_swap import fill, last_values

def opened(disk, folder):
    directory = LogDirectory(folder, disk, ManualClock(NOW))
    directory.open()
    return directory

whole, copy = sys.argv[1] + "/whole", sys.argv[1] + "/copy"
directory = opened(RealDisk(), whole)
log = directory.create(ORDERS, ORDERS_ID, COMPACT)
fill(log)
expected = last_values(log)
directory.close()
killed = 0
for step in range(40):
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(whole, copy)
    child = os.fork()
    if child == 0:
        disk = FaultyDisk(RealDisk(), Failpoints())
        log = opened(disk, copy).get(ORDERS, COMPACT)
        fault = Fault(kill=True, after=bool(step % 2))
        disk.failpoints.arm("rename", fault, skip=step // 2)
        compacted(log)
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    directory = opened(RealDisk(), copy)
    assert last_values(directory.get(ORDERS, COMPACT)) == expected, step
    directory.close()
    killed += status == -9
    assert status in (-9, 0), status
print(killed)
"""


def test_a_process_killed_before_or_behind_any_rename_leaves_a_whole_log(tmp_path: Path) -> None:
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path)],
        cwd=root,
        env={**os.environ, "PYTHONPATH": f"{root}/src:{root}"},
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 35, "all but those behind renames of files that are not there"
