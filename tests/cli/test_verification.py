"""The offline check of a data folder: it finds damage, and nothing in intact files."""

import pytest

from headrace.cli.broker.verification import Finding, Verification, log_bytes
from headrace.disk.memory import MemoryDisk
from headrace.wire.batch import OVERHEAD, TRANSACTIONAL, read_header
from headrace.wire.markers import encode_marker
from tests.log.samples import NOW, ORDERS, ORDERS_ID, ROOT, SMALL, append, batch, open_directory

FOLDER = f"{ROOT}/orders-0"


@pytest.fixture
def disk() -> MemoryDisk:
    """A folder that was closed cleanly, with an aborted transaction in a sealed segment."""
    disk = MemoryDisk()
    directory = open_directory(disk)
    directory.folder.write_meta({"version": "1"})
    log = directory.create(ORDERS, ORDERS_ID, SMALL)
    append(log, batch(2, producer_id=7, epoch=0, sequence=0, attributes=TRANSACTIONAL))
    append(log, encode_marker(7, 0, False, 0, NOW))
    for n in range(20):
        append(log, batch(2, timestamp=NOW + n * 10, value=b"%03d" % n))
    directory.close()
    return disk


def verify(disk: MemoryDisk, path: str = ROOT) -> list[Finding]:
    verification = Verification(disk)
    verification.folder(path)
    return verification.findings


def file(disk: MemoryDisk, suffix: str, nth: int = 0) -> str:
    return f"{FOLDER}/{sorted(n for n in disk.list_folder(FOLDER) if n.endswith(suffix))[nth]}"


def flip(disk: MemoryDisk, path: str, position: int) -> None:
    content = bytearray(disk.content(path))
    content[position] ^= 4
    disk.corrupt(path, bytes(content))


def test_a_healthy_folder_has_no_findings_and_is_read_as_a_whole(disk: MemoryDisk) -> None:
    seen: list[int] = []
    verification = Verification(disk, seen.append)
    verification.folder(ROOT)
    assert verification.findings == []
    assert verification.counts.batches == 22
    assert verification.counts.segments > 3
    assert sum(seen) == verification.counts.bytes == log_bytes(disk, ROOT) > 0
    assert verify(disk, FOLDER) == []


def test_a_log_that_was_not_closed_is_no_damaged_one(disk: MemoryDisk) -> None:
    log = open_directory(disk).get(ORDERS, SMALL)
    for n in range(10):
        append(log, batch(3, timestamp=NOW + 1000 + n))
    assert verify(disk) == []


def test_every_flipped_byte_of_a_batch_is_found_at_its_position(disk: MemoryDisk) -> None:
    path = file(disk, ".log", 1)
    content = disk.content(path)
    first = read_header(content, 0)[1] + OVERHEAD
    size = read_header(content, first)[1] + OVERHEAD
    for at in range(size):
        flip(disk, path, first + at)
        findings = [finding for finding in verify(disk) if finding.file == path]
        if 12 <= at < 16:
            assert findings == [], "the leader epoch is under no checksum"
        else:
            # Two batches that overlap: the second of them is named.
            assert findings[0].position in ((first, first + size) if at < 8 else (first,))
        disk.corrupt(path, content)


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".snapshot"])
def test_every_flipped_byte_of_a_side_file_is_found(disk: MemoryDisk, suffix: str) -> None:
    path = file(disk, suffix, 1)
    content = disk.content(path)
    assert content
    for position in range(len(content)):
        flip(disk, path, position)
        assert {finding.file for finding in verify(disk)} == {path}, position
        disk.corrupt(path, content)


def test_a_torn_end_is_found_where_it_begins(disk: MemoryDisk) -> None:
    path = file(disk, ".log", -1)
    content = disk.content(path)
    disk.corrupt(path, content + b"\0" * 20)
    (finding,) = verify(disk)
    assert (finding.file, finding.position) == (path, len(content))
    assert "20 bytes" in finding.problem


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".txnindex"])
def test_a_missing_index_of_a_sealed_segment_is_found(disk: MemoryDisk, suffix: str) -> None:
    path = file(disk, suffix)
    disk.remove(path)
    assert [finding.file for finding in verify(disk)] == [path]


def test_damaged_and_stray_side_files_are_found(disk: MemoryDisk) -> None:
    spoilt = {
        f"{FOLDER}/leader-epoch-checkpoint": b"0\n5\n1 1\n",
        f"{FOLDER}/partition.metadata": b"nothing",
        f"{FOLDER}/{99:020d}.index": b"",
        f"{ROOT}/recovery-point-offset-checkpoint": b"0\n1\norders 0 x\n",
        file(disk, ".txnindex"): disk.content(file(disk, ".txnindex"))[:-1],
    }
    for path, content in spoilt.items():
        disk.close(disk.open(path, 0o102))
        disk.corrupt(path, content)
    assert {finding.file for finding in verify(disk)} == set(spoilt)


def test_segments_that_overlap_are_found(disk: MemoryDisk) -> None:
    last = file(disk, ".log", -1)
    for suffix in (".log", ".index", ".timeindex"):
        source = last.removesuffix(".log") + suffix
        disk.rename(source, f"{FOLDER}/{3:020d}{suffix}")
    assert any("before" in finding.problem for finding in verify(disk))


def test_batches_behind_damage_are_checked_too(disk: MemoryDisk) -> None:
    path = file(disk, ".log", 1)
    content = bytearray(disk.content(path))
    second = read_header(content, 0)[1] + OVERHEAD
    third = second + read_header(content, second)[1] + OVERHEAD
    content[second + 16] = 9  # the second batch's magic
    content[-1] ^= 1  # in the last batch
    disk.corrupt(path, bytes(content))
    problems = [finding.problem for finding in verify(disk) if finding.file == path]
    assert f"the next batch is at {third}" in problems[0]
    assert "checksum" in problems[-1]
