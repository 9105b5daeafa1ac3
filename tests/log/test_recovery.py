import errno
import logging
from collections.abc import Callable
from dataclasses import replace

import pytest

from headrace.clock import ManualClock
from headrace.disk import read_file, write_file
from headrace.disk.memory import MemoryDisk
from headrace.errors import ErrorCode, KafkaError
from headrace.log.directory import LogDirectory
from headrace.log.log import Log
from headrace.settings import LogSettings
from headrace.wire.batch import OVERHEAD, TRANSACTIONAL, read_header
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
    reopened,
)

ONE_SEGMENT = LogSettings(index_interval_bytes=200)


def log_path(base: int = 0, suffix: str = ".log") -> str:
    return f"{ROOT}/{ORDERS}/{base:020d}{suffix}"


def written(count: int = 30, settings: LogSettings = SMALL) -> tuple[MemoryDisk, LogDirectory, Log]:
    disk = MemoryDisk()
    directory = open_directory(disk)
    log = directory.create(ORDERS, ORDERS_ID, settings)
    for n in range(count):
        append(
            log,
            batch(1 + n % 2, timestamp=NOW + n, producer_id=9, epoch=0, sequence=n + n // 2),
            epoch=n // 10,
        )
    return disk, directory, log


def killed(disk: MemoryDisk) -> MemoryDisk:
    """The process dies; what it wrote is in the page cache."""
    disk.kill()
    return disk


def picture(log: Log) -> object:
    producers = {
        pid: (p.epoch, p.expected, p.batches[-1:]) for pid, p in log.producers.producers.items()
    }
    times = [log.find_timestamp(NOW + t) for t in range(0, 35, 5)]
    return (contents(log), log.start_offset, log.end_offset, producers, log.epochs.entries, times)


def test_a_clean_stop_is_opened_without_a_scan() -> None:
    disk, directory, log = written()
    expected = picture(log)
    directory.close()
    directory = open_directory(disk)
    assert directory.folder.stopped_cleanly
    disk.calls.clear()
    log = directory.get(ORDERS, SMALL)
    assert disk.calls["pread"] <= 4, "the end of the active segment, and small files"
    assert picture(log) == expected
    assert append(log, batch()) == 45


def test_a_kill_loses_nothing() -> None:
    disk, _, log = written()
    expected = picture(log)
    assert picture(reopened(killed(disk))) == expected


@pytest.mark.parametrize("cleanly", [True, False])
def test_what_was_appended_after_a_restart_survives_the_next(cleanly: bool) -> None:
    disk, directory, log = written()
    for _ in range(3):
        if cleanly:
            directory.close()
        killed(disk)
        directory = open_directory(disk)
        log = directory.get(ORDERS, SMALL)
        append(log, batch(2, timestamp=NOW + 40))
    expected = picture(log)
    assert picture(reopened(killed(disk))) == expected


def test_every_cut_of_the_last_batch_is_recovered_to_the_last_whole_batch() -> None:
    disk, _, log = written(6, ONE_SEGMENT)
    whole = disk.content(log_path())
    expected = contents(log)
    start = len(whole) - len(expected[-1][1]) - 16
    for length in range(start, len(whole)):
        disk.corrupt(log_path(), whole[:length])
        after = reopened(killed(disk), ONE_SEGMENT)
        assert contents(after) == expected[:-1]
        assert after.end_offset == 7
        assert disk.file_size(log_path()) == start


def test_every_flipped_byte_of_the_last_batch_is_recovered_to_the_last_whole_batch() -> None:
    disk, _, log = written(6, ONE_SEGMENT)
    whole = disk.content(log_path())
    expected = contents(log)
    start = len(whole) - len(expected[-1][1]) - 16
    for at in range(start, len(whole)):
        # The leader epoch, bytes 12 to 15, is outside of the checksum: nobody can tell.
        if 12 <= at - start < 16:
            continue
        damaged = bytearray(whole)
        damaged[at] ^= 0xFF
        disk.corrupt(log_path(), bytes(damaged))
        after = reopened(killed(disk), ONE_SEGMENT)
        assert contents(after) == expected[:-1], at - start
        assert disk.file_size(log_path()) == start


def test_a_truncation_logs_the_number_of_bytes(caplog: pytest.LogCaptureFixture) -> None:
    disk, _, _ = written(6, ONE_SEGMENT)
    whole = disk.content(log_path())
    disk.corrupt(log_path(), whole + b"\0" * 17)
    with caplog.at_level(logging.WARNING, "headrace.log"):
        assert reopened(killed(disk), ONE_SEGMENT).end_offset == 9
    assert "orders-0: truncated 17 bytes" in caplog.text


def test_segments_after_a_cut_are_dropped_where_other_replicas_have_them() -> None:
    disk, _, log = written()
    bases = [segment.base_offset for segment in log.segments]
    assert len(bases) > 3
    whole = disk.content(log_path(bases[1]))
    disk.corrupt(log_path(bases[1]), whole[:-1])
    after = reopened(killed(disk), replicated=True)
    assert [segment.base_offset for segment in after.segments] == bases[:2]
    assert bases[1] < after.end_offset < bases[2]
    assert not [
        name for name in disk.list_folder(log.folder) if name.startswith(f"{bases[2]:020d}")
    ]


def test_a_hole_between_unsynced_segments_ends_a_log_that_has_other_replicas() -> None:
    disk, _, log = written()
    bases = [segment.base_offset for segment in log.segments]
    disk.remove(log_path(bases[1]))
    after = reopened(killed(disk), replicated=True)
    assert after.end_offset == bases[1]


def readable(log: Log) -> dict[int, bytes]:
    """What a consumer gets that goes on behind every offset which is refused."""
    found = {}
    offset = log.start_offset
    while offset < log.end_offset:
        try:
            piece = log.read(offset, 1 << 20, log.end_offset, True)
        except KafkaError as error:
            if error.code != ErrorCode.CORRUPT_MESSAGE:
                raise
            offset += 1
            continue
        assert piece is not None
        data, at = piece.read(), 0
        while at < len(data):
            header = read_header(data, at)
            assert header.last_offset >= offset, "what was read is read again"
            found[header.base_offset] = data[at + 16 : at + header.size_bytes]
            offset = header.next_offset
            at += header.size_bytes
    return found


def flip(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


def cut_in_a_batch(content: bytes) -> bytes:
    return content[: len(content) // 2 + 7]


def cut_between_batches(content: bytes) -> bytes:
    return content[: read_header(content, 0)[1] + OVERHEAD]


def without_a_batch(content: bytes) -> bytes:
    size = read_header(content, 0)[1] + OVERHEAD
    return content[:size] + content[size + read_header(content, size)[1] + OVERHEAD :]


def zeroed(content: bytes) -> bytes:
    return bytes(len(content))


@pytest.mark.parametrize("flushed", [True, False])
@pytest.mark.parametrize(
    "damage", [flip, cut_in_a_batch, cut_between_batches, without_a_batch, zeroed]
)
def test_damage_in_an_old_segment_takes_nothing_else_with_it(
    damage: Callable[[bytes], bytes], flushed: bool
) -> None:
    disk, directory, log = written()
    if flushed:
        log.flush()
        directory.checkpoint()
        append(log, batch(2))
    expected = dict(contents(log))
    end, producers = log.end_offset, log.producers.encode()
    bases = [segment.base_offset for segment in log.segments]
    whole = disk.content(log_path(bases[1]))
    disk.corrupt(log_path(bases[1]), damage(whole))
    for start in range(3):
        killed(disk)
        directory = open_directory(disk)
        after = directory.get(ORDERS, SMALL)
        found = readable(after)
        assert found.items() <= expected.items()
        lost = {*expected} - {*found}
        assert lost
        assert all(bases[1] <= offset < bases[2] for offset in lost)
        if not (flushed and damage is without_a_batch):  # whole batches are gone without a trace
            assert all(
                any(first <= offset < behind for first, behind in after.holes) for offset in lost
            )
        assert after.end_offset == end, "no offset is given out again"
        assert after.producers.encode() == producers
        if start == 1:
            directory.close()


def test_a_consumer_gets_an_error_for_a_hole_from_any_position() -> None:
    disk, _, log = written()
    bases = [segment.base_offset for segment in log.segments]
    whole = disk.content(log_path(bases[1]))
    disk.corrupt(log_path(bases[1]), without_a_batch(whole))
    after = reopened(killed(disk))
    ((first, following),) = after.holes
    read = after.read(bases[1], 1 << 20, after.end_offset, True)
    assert read is not None
    assert after.segments.offset_after(bases[1], read, after.end_offset) == following
    assert read_header(read.read(), 0)[6] + bases[1] + 1 == first, "it ends before the hole"
    with pytest.raises(KafkaError, match=f"continue at {following}") as caught:
        after.read(first, 1 << 20, after.end_offset, True)
    assert caught.value.code == ErrorCode.CORRUPT_MESSAGE
    assert after.read(following, 1 << 20, after.end_offset, True) is not None
    behind = after.read(bases[2], 1 << 20, after.end_offset, True)
    assert behind is not None
    assert read_header(behind.read(), 0)[0] == bases[2]
    again = after.read(bases[1], 1 << 20, after.end_offset, True)
    assert again is not None
    assert again.length == read.length, "a second read ends there, too"


def test_bytes_behind_the_last_batch_of_a_segment_take_nothing_with_them() -> None:
    disk, _, log = written()
    expected = contents(log)
    path = log.segments[1].files.path(".log")
    disk.corrupt(path, disk.content(path) + b"\2" * 100)
    after = reopened(killed(disk))
    assert contents(after) == expected
    assert after.holes == []


def test_an_emptied_segment_does_not_bring_synced_offsets_back() -> None:
    disk, directory, log = written()
    log.flush()
    directory.checkpoint()
    active = log.segments[-1]
    disk.corrupt(active.files.path(".log"), b"")
    after = reopened(killed(disk))
    assert (after.end_offset, after.holes) == (45, [(active.base_offset, 45)])
    assert append(after, batch()) == 45


def test_what_follows_dropped_segments_is_not_mistaken_for_damage() -> None:
    disk, _, log = written()
    bases = [segment.base_offset for segment in log.segments]
    whole = disk.content(log_path(bases[1]))
    disk.corrupt(log_path(bases[1]), whole[:-1])
    after = reopened(killed(disk), LogSettings(index_interval_bytes=200), replicated=True)
    for n in range(10):
        append(after, batch(2, timestamp=NOW + n))
    after.segments[-1].examine()
    assert after.holes == []
    assert after.end_offset == [*readable(after)][-1] + 2


def test_a_log_never_ends_before_its_recovery_point() -> None:
    disk, directory, log = written(6, ONE_SEGMENT)
    log.flush()
    directory.checkpoint()
    whole = disk.content(log_path())
    disk.corrupt(log_path(), whole[:-3])
    after = reopened(killed(disk), ONE_SEGMENT)
    assert (after.end_offset, after.holes) == (9, [(7, 9)])
    assert append(after, batch(2)) == 9
    assert [*readable(after)] == [0, 1, 3, 4, 6, 9]
    assert reopened(killed(disk), ONE_SEGMENT).holes == [(7, 9)]


def test_what_a_replica_cuts_and_fetches_again_is_whole() -> None:
    disk, directory, log = written()
    log.flush()
    directory.checkpoint()
    bases = [segment.base_offset for segment in log.segments]
    fetched = disk.content(log_path(bases[-1]))
    disk.corrupt(log_path(bases[-1]), flip(fetched))
    after = reopened(killed(disk), replicated=True)
    assert after.end_offset == 45
    assert after.holes
    after.truncate_to(bases[-1])
    assert after.holes == []
    after.append_replica(memoryview(fetched), 0, len(fetched), NOW)
    assert dict(contents(after)) == dict(contents(reopened(killed(disk))))
    assert reopened(killed(disk)).holes == []


def test_a_hole_that_compaction_left_is_none() -> None:
    settings = LogSettings(
        segment_bytes=1024, index_interval_bytes=200, cleanup_policy=frozenset({"compact"})
    )
    disk, _, log = written(settings=settings)
    bases = [segment.base_offset for segment in log.segments]
    disk.remove(log_path(bases[1]))
    after = reopened(killed(disk), settings)
    assert after.end_offset == 45
    assert contents(after)[-1][0] == 44 - 1


def test_segments_below_the_recovery_point_are_not_scanned() -> None:
    disk, directory, log = written()
    log.flush()
    directory.checkpoint()
    append(log, batch())
    first = disk.content(log_path())
    # A flipped byte there shows that nobody looks; checksums of synced data are for the reader.
    disk.corrupt(log_path(), first[:-1] + bytes([first[-1] ^ 1]))
    assert reopened(killed(disk)).end_offset == 46


def damage_index(disk: MemoryDisk, path: str) -> None:
    content = disk.content(path)
    disk.corrupt(path, bytes(byte ^ 0x55 for byte in content))


def cut_in_half(disk: MemoryDisk, path: str) -> None:
    content = disk.content(path)
    disk.corrupt(path, content[: len(content) // 2 - 1])


@pytest.mark.parametrize("cleanly", [True, False])
@pytest.mark.parametrize("damage", [MemoryDisk.remove, damage_index, cut_in_half])
@pytest.mark.parametrize(
    "name",
    [".index", ".timeindex", ".snapshot", "leader-epoch-checkpoint",
     "../recovery-point-offset-checkpoint", "../log-start-offset-checkpoint"],
)  # fmt: skip
def test_damaged_side_files_change_no_answer(
    name: str, damage: Callable[[MemoryDisk, str], None], cleanly: bool
) -> None:
    disk, directory, log = written()
    expected = picture(log)
    if cleanly:
        directory.close()
    else:
        log.flush()
        directory.checkpoint()
    killed(disk)
    folder = ROOT if name.startswith("../") else f"{ROOT}/{ORDERS}"
    for file in disk.list_folder(folder):
        if file.endswith(name.removeprefix("../")):
            damage(disk, f"{folder}/{file}")
    assert picture(reopened(disk)) == expected


def test_a_folder_without_a_checkpoint_is_scanned_even_after_a_clean_stop() -> None:
    disk, directory, _ = written(6, ONE_SEGMENT)
    directory.close()
    write_file(disk, f"{ROOT}/recovery-point-offset-checkpoint", b"0\n0\n", sync=True)
    whole = disk.content(log_path())
    disk.corrupt(log_path(), whole[:-3] + b"xyz")
    assert reopened(disk, ONE_SEGMENT).end_offset == 7


def test_a_clean_marker_that_lies_about_the_end_leads_to_a_scan() -> None:
    disk, directory, _ = written(6, ONE_SEGMENT)
    directory.close()
    whole = disk.content(log_path())
    disk.corrupt(log_path(), whole[:-3])
    after = reopened(disk, ONE_SEGMENT)
    assert (after.end_offset, after.holes) == (9, [(7, 9)])


@pytest.mark.parametrize("policy", ["delete", "compact"])
@pytest.mark.parametrize("more", [1, 2, 30])
def test_a_log_that_grew_after_a_clean_stop_is_kept_as_a_whole(more: int, policy: str) -> None:
    """Another broker may have written to the folder; what it wrote follows the recovery point."""
    settings = replace(ONE_SEGMENT, cleanup_policy=frozenset({policy}))
    disk, directory, log = written(10, settings)
    stopped_at = log.end_offset
    directory.close()
    kept = {
        path: read_file(disk, path)
        for path in (
            f"{ROOT}/recovery-point-offset-checkpoint",
            log_path(stopped_at, ".snapshot"),
        )
    }
    directory = open_directory(disk)
    log = directory.get(ORDERS, settings)
    for n in range(more):
        append(log, batch(1, timestamp=NOW + 100 + n))
    expected = contents(log)
    directory.close()
    for path, content in kept.items():
        write_file(disk, path, content, sync=True)
    log = open_directory(disk).get(ORDERS, settings)
    assert contents(log) == expected
    assert log.end_offset == stopped_at + more


def test_a_start_offset_past_the_end_begins_a_new_log_there() -> None:
    disk, directory, log = written(6, ONE_SEGMENT)
    log.delete_records_before(9)
    directory.checkpoint()
    whole = disk.content(log_path())
    disk.corrupt(log_path(), whole[:-3])
    after = reopened(killed(disk), ONE_SEGMENT)
    assert (after.start_offset, after.end_offset) == (9, 9)
    assert append(after, batch()) == 9


def test_the_start_offset_survives_a_kill() -> None:
    disk, directory, log = written()
    log.delete_records_before(5)
    directory.checkpoint()
    assert reopened(killed(disk)).start_offset == 5


def test_leftovers_of_an_interrupted_run_are_removed() -> None:
    disk, _, log = written()
    for name in ("x.log.deleted", "a.cleaned", "b.swap", "c.tmp", f"{777:020d}.index"):
        write_file(disk, f"{log.folder}/{name}", b"?", sync=True)
    expected = picture(log)
    after = reopened(killed(disk))
    assert picture(after) == expected
    names = disk.list_folder(log.folder)
    assert not {"x.log.deleted", "a.cleaned", "b.swap", "c.tmp", f"{777:020d}.index"} & set(names)


def test_an_empty_folder_becomes_an_empty_log() -> None:
    disk = MemoryDisk()
    disk.make_folders(f"{ROOT}/{ORDERS}")
    log = reopened(disk)
    assert (log.start_offset, log.end_offset) == (0, 0)
    assert append(log, batch()) == 0


def test_transaction_markers_are_replayed() -> None:
    disk, _, log = written(2)
    append(log, batch(producer_id=3, epoch=1, sequence=0, attributes=TRANSACTIONAL))
    append(log, batch(producer_id=4, epoch=1, sequence=0, attributes=TRANSACTIONAL))
    append(log, encode_marker(3, 1, False, 8, NOW))
    after = reopened(killed(disk))
    assert after.producers.producers[3].transaction_start == -1
    assert after.producers.producers[3].coordinator_epoch == 8
    assert after.producers.producers[4].transaction_start == 4
    assert after.producers.first_open_transaction() == 4
    assert after.last_stable_offset(after.end_offset) == 4
    assert after.transactions.between(0, 4) == [(3, 3)]


def test_after_a_kill_the_last_five_batches_are_still_known() -> None:
    disk, _, log = written(6, ONE_SEGMENT)
    after = reopened(killed(disk), ONE_SEGMENT)
    offsets = [
        append(after, batch(1 + n % 2, producer_id=9, epoch=0, sequence=n + n // 2))
        for n in range(1, 6)
    ]
    assert offsets == [1, 3, 4, 6, 7]
    assert after.end_offset == log.end_offset


def test_producers_that_expired_while_the_broker_was_down_are_forgotten() -> None:
    disk, directory, _ = written()
    directory.close()
    clock = ManualClock(NOW)
    clock.advance(SMALL.producer_id_expiration_ms + 1000)
    log = open_directory(disk, clock).get(ORDERS, SMALL)
    assert log.producers.producers == {}


def test_after_a_kill_segments_roll_by_the_time_of_their_first_batch() -> None:
    settings = LogSettings(segment_ms=1000)
    disk, _, _ = written(3, settings)
    log = reopened(killed(disk), settings)
    append(log, batch(timestamp=NOW + 1000))
    assert len(log.segments) == 1
    append(log, batch(timestamp=NOW + 1001))
    assert len(log.segments) == 2


def test_an_unreadable_folder_is_a_storage_error() -> None:
    disk, _, _ = written()
    killed(disk)
    directory = open_directory(disk)
    disk.fail_next("open", errno.EACCES)
    with pytest.raises(KafkaError) as caught:
        directory.get(ORDERS, SMALL)
    assert caught.value.code == 56
    assert directory.get(ORDERS, SMALL).end_offset == 45


@pytest.mark.parametrize("seed", range(20))
def test_after_a_power_cut_the_only_replica_keeps_all_that_reached_the_disk(seed: int) -> None:
    disk = MemoryDisk(seed)
    directory = open_directory(disk)
    log = directory.create(ORDERS, ORDERS_ID, SMALL)
    for n in range(10):
        append(log, batch(2, timestamp=NOW + n))
    log.flush()
    directory.checkpoint()
    synced = dict(contents(log))
    for n in range(20):
        append(log, batch(2, timestamp=NOW + 10 + n))
    expected = dict(contents(log))
    disk.crash()
    after = reopened(disk)
    found = readable(after)
    assert synced.items() <= found.items() <= expected.items()
    lost = {offset for offset in expected if offset < after.end_offset} - {*found}
    assert all(any(first <= at < behind for first, behind in after.holes) for at in lost)
    end = after.end_offset
    assert append(after, batch()) == end
