"""The spool of a push source: order, kills, torn tails, the bound, and what is cut."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.connect.plugin import PermanentError
from headrace.connect.push import spool as spool_module
from headrace.connect.push.spool import Spool, SpoolClosed, SpoolInUse, read_range

SCHEMA = pa.schema([("n", pa.int64()), ("text", pa.string())])


def row(number: int, size: int = 0) -> dict[str, Any]:
    return {"n": number, "text": "x" * size}


def fill(spool: Spool, *numbers: int, size: int = 0) -> None:
    for number in numbers:
        spool.append(row(number, size))


def numbers(folder: Path, start: int | None, end: int) -> list[int]:
    return [
        value
        for batch in read_range(folder, SCHEMA, start, end)
        for value in batch.column("n").to_pylist()
    ]


def last_segment(folder: Path) -> Path:
    return max(folder.glob("*.rows"))


def test_a_range_has_the_rows_with_these_numbers(tmp_path: Path) -> None:
    with Spool(tmp_path, SCHEMA) as spool:
        fill(spool, *range(5))
        assert spool.sync() == 5
        fill(spool, *range(5, 12))
        assert spool.sync() == 12
        assert numbers(tmp_path, 3, 8) == [3, 4, 5, 6, 7]
        assert numbers(tmp_path, None, 12) == list(range(12))
        assert numbers(tmp_path, 12, 12) == []


def test_rows_count_when_they_are_synced(tmp_path: Path) -> None:
    with Spool(tmp_path, SCHEMA) as spool:
        fill(spool, 0, 1)
        spool.sync()
        assert spool.append(row(2)) == 2
        with pytest.raises(PermanentError, match="has no rows 2 to 2"):
            numbers(tmp_path, 0, 3)


def test_rows_of_several_segments_are_read_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool_module, "SEGMENT_BYTES", 2000)
    with Spool(tmp_path, SCHEMA) as spool:
        for number in range(60):
            fill(spool, number, size=100)
            spool.sync()
    assert len(list(tmp_path.glob("*.rows"))) > 3
    for start in range(0, 60, 7):
        assert numbers(tmp_path, start, 60) == list(range(start, 60))
    with Spool(tmp_path, SCHEMA) as spool:
        assert spool.append(row(60)) == 60


def test_a_torn_tail_is_cut_at_the_last_whole_frame(tmp_path: Path) -> None:
    with Spool(tmp_path, SCHEMA) as spool:
        fill(spool, 0, 1)
        spool.sync()
        whole = last_segment(tmp_path).stat().st_size
        fill(spool, 2, 3, 4)
        spool.sync()
    data = last_segment(tmp_path).read_bytes()
    for size in range(whole, len(data)):
        last_segment(tmp_path).write_bytes(data[:size])
        with Spool(tmp_path, SCHEMA, position=0) as spool:
            assert spool.sync() == 2
            fill(spool, 7)
            assert spool.sync() == 3
        assert numbers(tmp_path, 0, 3) == [0, 1, 7]


def test_a_damaged_last_frame_is_cut(tmp_path: Path) -> None:
    with Spool(tmp_path, SCHEMA) as spool:
        fill(spool, 0)
        spool.sync()
        whole = last_segment(tmp_path).stat().st_size
        fill(spool, 1)
        spool.sync()
    data = last_segment(tmp_path).read_bytes()
    for at in range(whole, len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 0x40
        last_segment(tmp_path).write_bytes(damaged)
        with Spool(tmp_path, SCHEMA) as spool:
            assert spool.sync() == 1


@pytest.mark.parametrize("size", [0, 3, 15])
def test_a_segment_that_was_being_created_leaves_those_before_it(
    tmp_path: Path, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool_module, "SEGMENT_BYTES", 1)
    with Spool(tmp_path, SCHEMA) as spool:
        for number in range(3):
            fill(spool, number)
            spool.sync()
    os.truncate(last_segment(tmp_path), size)
    if size == 15:
        last_segment(tmp_path).write_bytes(bytes(size))
    with Spool(tmp_path, SCHEMA, position=0) as spool:
        assert spool.sync() == 2
    assert numbers(tmp_path, 0, 2) == [0, 1]


APPENDS = """
import sys
from pathlib import Path
from headrace.connect.push import spool as spool_module
from tests.connect.push.test_spool import SCHEMA, row

spool_module.SEGMENT_BYTES = 20_000
spool = spool_module.Spool(Path(sys.argv[1]), SCHEMA, int(sys.argv[2]))
for number in range(int(sys.argv[2]), 10**9):
    assert spool.append(row(number, number % 50)) == number
    if number % 7 == 0:
        print(spool.sync(), flush=True)
"""


def test_a_killed_writer_loses_nothing_that_was_synced(tmp_path: Path) -> None:
    end = 0
    for kill_after in (1, 50, 300):
        process = subprocess.Popen(
            [sys.executable, "-c", APPENDS, str(tmp_path), str(end)],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        told = [process.stdout.readline() for _ in range(kill_after)]
        process.send_signal(signal.SIGKILL)
        told += process.stdout.readlines()
        process.wait()
        synced = int(told[-1])
        with Spool(tmp_path, SCHEMA, position=end) as spool:
            reached = spool.sync()
        assert reached >= synced > end
        assert numbers(tmp_path, 0, reached) == list(range(reached))
        end = reached


def test_a_full_spool_waits_until_rows_are_cut(tmp_path: Path) -> None:
    with Spool(tmp_path, SCHEMA, max_bytes=20_000) as spool:
        rows = [row(number, 1000) for number in range(100)]
        writer = threading.Thread(target=lambda: [spool.append(each) for each in rows])
        writer.start()
        read: list[int] = []
        while len(read) < 100:
            end = spool.sync()
            assert spool.size_bytes < 25_000
            assert end - len(read) <= 25
            read += numbers(tmp_path, len(read), end)
            spool.cut(end)
        writer.join(60)
        assert read == list(range(100))


def test_a_full_spool_does_not_keep_a_connector_from_closing(tmp_path: Path) -> None:
    spool = Spool(tmp_path, SCHEMA, max_bytes=1)
    spool.append(row(0))
    ended: list[bool] = []

    def write() -> None:
        with pytest.raises(SpoolClosed):
            spool.append(row(1))
        ended.append(True)

    writer = threading.Thread(target=write)
    writer.start()
    spool.close()
    writer.join(60)
    assert ended == [True]


def test_cut_rows_leave_the_disk_and_others_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool_module, "SEGMENT_BYTES", 1000)
    monkeypatch.setattr(spool_module, "RECLAIMED_BYTES", 1000)
    with Spool(tmp_path, SCHEMA) as spool:
        for number in range(10):
            fill(spool, number, size=1000)
            spool.sync()
        spool.cut(6)
        assert numbers(tmp_path, 6, 10) == [6, 7, 8, 9]
        assert min(tmp_path.glob("*.rows")).stem.endswith("6")
        spool.cut(10)
        assert list(tmp_path.glob("*.rows")) == []
        assert spool.append(row(10)) == 10
        spool.sync()
    assert numbers(tmp_path, 10, 11) == [10]


def test_numbers_continue_at_the_position_of_the_connector(tmp_path: Path) -> None:
    with Spool(tmp_path / "new", SCHEMA, position=500) as spool:
        assert spool.append(row(1)) == 500
    with Spool(tmp_path / "old", SCHEMA) as spool:
        fill(spool, *range(10))
        spool.sync()
    with Spool(tmp_path / "old", SCHEMA, position=7) as spool:
        assert (spool.start, spool.sync()) == (7, 10)
    with Spool(tmp_path / "old", SCHEMA, position=20) as spool:
        assert (spool.start, spool.sync()) == (20, 20)


def test_rows_of_another_schema_are_not_read(tmp_path: Path) -> None:
    with Spool(tmp_path, SCHEMA) as spool:
        fill(spool, 0, 1)
        spool.sync()
    other = pa.schema([("body", pa.binary())])
    with pytest.raises(PermanentError):
        list(read_range(tmp_path, other, 0, 2))
    with Spool(tmp_path, other) as spool:
        assert spool.append({"body": b"b"}) == 2


def test_a_disk_that_was_full_leaves_no_half_frame(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = spool_module._write

    def full(file: Any, data: bytes) -> None:
        write(file, data[: len(data) // 2])
        raise OSError(28, "No space left on device")

    with Spool(tmp_path, SCHEMA) as spool:
        monkeypatch.setattr(spool_module, "_write", full)
        fill(spool, 0)
        with pytest.raises(OSError, match="No space"):
            spool.sync()
        monkeypatch.setattr(spool_module, "_write", write)
        assert spool.sync() == 1
        monkeypatch.setattr(spool_module, "_write", full)
        fill(spool, 1)
        with pytest.raises(OSError, match="No space"):
            spool.sync()
        monkeypatch.setattr(spool_module, "_write", write)
        assert spool.sync() == 2
    assert numbers(tmp_path, 0, 2) == [0, 1]


def test_only_one_process_appends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool_module, "LOCKED_WITHIN_S", 0.1)
    with Spool(tmp_path, SCHEMA), pytest.raises(SpoolInUse):
        Spool(tmp_path, SCHEMA)
    Spool(tmp_path, SCHEMA).close()


def test_rows_of_a_killed_writer_are_synced_before_they_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Spool(tmp_path, SCHEMA) as spool:
        fill(spool, 0, 1)
        spool.sync()
    synced: list[str] = []
    sync = os.fsync

    def recorded(number: int) -> None:
        synced.append(Path(f"/proc/self/fd/{number}").readlink().name)
        sync(number)

    monkeypatch.setattr(os, "fsync", recorded)
    with Spool(tmp_path, SCHEMA) as spool:
        assert spool.sync() == 2
    assert synced == [last_segment(tmp_path).name]
