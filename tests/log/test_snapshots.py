from headrace.disk.memory import MemoryDisk
from headrace.log.producer_state import ProducerState
from headrace.log.snapshots import (
    list_snapshots,
    load_snapshot,
    rebuild,
    remove_snapshots,
    write_snapshot,
)
from tests.log.samples import append, batch, new_log


def test_snapshots_are_listed_by_their_offsets() -> None:
    names = [f"{20:020d}.snapshot", f"{3:020d}.snapshot", "x.snapshot", f"{5:020d}.log"]
    assert list_snapshots(names) == [3, 20]


def test_the_newest_readable_snapshot_below_the_end_is_loaded() -> None:
    disk = MemoryDisk()
    for offset in (10, 20, 30):
        write_snapshot(disk, "/", offset, ProducerState(), sync=True)
    assert load_snapshot(disk, "/", [10, 20, 30], 0, 29)[0] == 20
    assert load_snapshot(disk, "/", [10, 20, 30], 21, 29)[0] == -1, "older than the first segment"
    disk.corrupt(f"//{20:020d}.snapshot", b"torn")
    assert load_snapshot(disk, "/", [10, 20, 30], 0, 29)[0] == 10
    assert f"{20:020d}.snapshot" not in disk.list_folder("/")
    remove_snapshots(disk, "/", [10, 10, 99])
    assert load_snapshot(disk, "/", [10, 20], 0, 29)[0] == -1


def test_the_log_replayed_on_any_snapshot_gives_the_same_state() -> None:
    disk = MemoryDisk()
    log = new_log(disk)
    for n in range(40):
        append(log, batch(producer_id=n % 3, epoch=0, sequence=n // 3))
    expected = {pid: p.expected for pid, p in log.producers.producers.items()}
    names = disk.list_folder(log.folder)
    offsets = list_snapshots(names)
    assert len(offsets) > 2
    for count in range(len(offsets) + 1):
        kept = [f"{offset:020d}.snapshot" for offset in offsets[:count]]
        state = rebuild(disk, log.folder, kept, log.segments, log.end_offset)
        assert {pid: p.expected for pid, p in state.producers.items()} == expected
