"""`headrace log dump` and `verify` on files that a broker wrote, whole and damaged."""

import struct
from pathlib import Path
from uuid import uuid4

import pytest
from crc32c import crc32c

from headrace.clock import ManualClock
from headrace.disk import RealDisk
from headrace.log.directory import LogDirectory
from headrace.settings import LogSettings
from headrace.types import TopicPartition
from headrace.wire.batch import read_header
from headrace.wire.records import Record, encode_batch
from tests.cli.conftest import Run


def _segment(folder: Path, *batches: bytes | bytearray) -> Path:
    file = folder / "00000000000000000000.log"
    file.write_bytes(b"".join(batches))
    return file


def _batch(base: int, *values: bytes, codec: int = 0) -> bytearray:
    records = [Record(base + i, 1_700_000_000_000 + i, b"k", v) for i, v in enumerate(values)]
    return encode_batch(records, base_offset=base, codec=codec)


def test_a_broker_s_log_shows_its_batches_and_records(
    run: Run, topic: str, data_folder: Path
) -> None:
    run("produce", topic, "-p", "0", "-k", ":", "-H", "h=1", stdin=b"a:1\nb:2\n")
    folder = data_folder / f"{topic}-0"
    (file,) = folder.glob("*.log")
    rows = run("log", "dump", str(file), "--records", "--json").rows()
    batches = [row for row in rows if row["kind"] == "batch"]
    records = [row for row in rows if row["kind"] == "record"]
    assert all(batch["crc_ok"] for batch in batches)
    assert [(r["offset"], r["key"], r["value"]) for r in records] == [(0, "a", "1"), (1, "b", "2")]
    assert records[0]["headers"] == [{"key": "h", "value": "1"}]
    names = {path.name for path in folder.iterdir()}
    assert {"partition.metadata", "leader-epoch-checkpoint"} & names
    for name in names & {"partition.metadata", "leader-epoch-checkpoint"}:
        assert run("log", "dump", str(folder / name), "--json").code == 0


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
def test_every_codec_is_read(here: Run, tmp_path: Path, codec: int) -> None:
    file = _segment(tmp_path, _batch(0, b"x" * 100, b"y", codec=codec))
    rows = here("log", "dump", str(file), "--records", "--json").rows()
    assert [row.get("value") for row in rows[1:]] == ["x" * 100, "y"]


def test_people_see_a_line_a_batch(here: Run, tmp_path: Path) -> None:
    shown = here("log", "dump", str(_segment(tmp_path, _batch(0, b"v"), _batch(1, b"w")))).text
    assert "0..0" in shown
    assert "1..1" in shown
    assert "2 batches" in shown


def test_a_flipped_bit_is_found_and_exits_with_1(here: Run, tmp_path: Path) -> None:
    batch = _batch(0, b"value")
    batch[-2] ^= 1
    result = here("log", "dump", str(_segment(tmp_path, batch)), "--json")
    assert result.code == 1
    assert result.rows()[0]["crc_ok"] is False
    assert "CRC" in result.err


def test_a_torn_tail_is_found(here: Run, tmp_path: Path) -> None:
    result = here("log", "dump", str(_segment(tmp_path, _batch(0, b"a"), _batch(1, b"b")[:-3])))
    assert result.code == 1
    assert "not a whole batch" in result.err


def test_offsets_that_go_back_are_found(here: Run, tmp_path: Path) -> None:
    result = here("log", "dump", str(_segment(tmp_path, _batch(5, b"a"), _batch(3, b"b"))))
    assert result.code == 1
    assert "offset 3 after 5" in result.err


def test_an_index_is_checked_against_its_log(here: Run, tmp_path: Path) -> None:
    first = _batch(0, b"a")
    _segment(tmp_path, first, _batch(1, b"b"))
    index = tmp_path / "00000000000000000000.index"
    good = (1).to_bytes(4, "big") + len(first).to_bytes(4, "big")
    index.write_bytes(good + bytes(64))
    rows = here("log", "dump", str(index), "--json")
    assert (rows.code, len(rows.rows())) == (0, 1)
    index.write_bytes((1).to_bytes(4, "big") + (len(first) + 1).to_bytes(4, "big"))
    assert here("log", "dump", str(index)).code == 1


def test_a_time_index_shows_offsets_of_its_segment(here: Run, tmp_path: Path) -> None:
    file = tmp_path / "00000000000000000100.timeindex"
    file.write_bytes((1_700_000_000_000).to_bytes(8, "big") + (7).to_bytes(4, "big"))
    assert here("log", "dump", str(file), "--json").rows()[0]["offset"] == 107
    assert "2023-11-14" in here("log", "dump", str(file)).text


def test_a_checkpoint_whose_count_is_wrong_is_found(here: Run, tmp_path: Path) -> None:
    file = tmp_path / "recovery-point-offset-checkpoint"
    file.write_text("0\n1\nclicks 0 42\n")
    assert here("log", "dump", str(file), "--json").rows()[0]["offset"] == 42
    file.write_text("0\n2\nclicks 0 42\n")
    assert here("log", "dump", str(file)).code == 1


def test_a_snapshot_shows_its_producers_and_its_checksum_is_checked(
    here: Run, tmp_path: Path
) -> None:
    producers = struct.pack(">i", 1) + struct.pack(">qhiqiqiq", 46, 2, 9, 105, 4, 1000, 0, -1)
    whole = struct.pack(">hI", 1, crc32c(producers)) + producers
    file = tmp_path / "00000000000000000106.snapshot"
    file.write_bytes(whole)
    row = here("log", "dump", str(file), "--json").rows()[0]
    assert (row["producer_id"], row["epoch"], row["last_sequence"]) == (46, 2, 9)
    assert (row["last_batch_offset"], row["last_offset"]) == (101, 105)
    assert row["open_transaction_from"] is None
    file.write_bytes(whole[:-1] + b"\x00")
    assert here("log", "dump", str(file)).code == 1


def test_aborted_transactions_are_listed(here: Run, tmp_path: Path) -> None:
    file = tmp_path / "00000000000000000000.txnindex"
    file.write_bytes(struct.pack(">hqqqq", 0, 46, 2, 3, 4))
    row = here("log", "dump", str(file), "--json").rows()[0]
    assert (row["producer_id"], row["first_offset"], row["last_offset"]) == (46, 2, 3)


def test_other_files_are_bad_usage(here: Run, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("x")
    assert here("log", "dump", str(tmp_path / "notes.txt")).code == 2
    assert here("log", "dump", str(tmp_path / "00000000000000000000.log")).code == 2


def _closed_folder(tmp_path: Path) -> Path:
    """A data folder of one partition with a few segments, as a stopped broker leaves it."""
    directory = LogDirectory(str(tmp_path / "data"), RealDisk(), ManualClock(1_700_000_000_000))
    directory.open()
    log = directory.create(TopicPartition("clicks", 0), uuid4(), LogSettings(segment_bytes=400))
    for n in range(20):
        data = _batch(0, b"%d" % n)
        log.append(data, memoryview(data), 0, len(data), read_header(data, 0), 0, 1_700_000_000_000)
    directory.close()
    return tmp_path / "data"


def test_a_healthy_folder_is_verified(here: Run, tmp_path: Path) -> None:
    folder = _closed_folder(tmp_path)
    result = here("log", "verify", str(folder), "--json")
    assert result.code == 0
    (found,) = result.rows()
    assert (found["partitions"], found["batches"], found["findings"]) == (1, 20, [])
    assert b"no findings" in here("log", "verify", str(folder / "clicks-0")).out


def test_a_finding_has_file_and_byte_and_exits_with_1(here: Run, tmp_path: Path) -> None:
    folder = _closed_folder(tmp_path)
    file = min(folder.glob("clicks-0/*.log"))
    data = bytearray(file.read_bytes())
    data[65] ^= 1
    file.write_bytes(data)
    result = here("log", "verify", str(folder), "--json")
    assert result.code == 1
    problem = "the checksum of batch 0 to 0 is wrong"
    assert result.rows()[0]["findings"] == [{"file": str(file), "position": 0, "problem": problem}]
    people = here("log", "verify", str(folder))
    assert people.code == 1
    assert f"{file}:0: {problem}".encode() in people.out


def test_a_folder_in_use_is_refused_with_a_reason(here: Run, tmp_path: Path) -> None:
    folder = _closed_folder(tmp_path)
    directory = LogDirectory(str(folder), RealDisk(), ManualClock(0))
    directory.open()
    for path in (folder, folder / "clicks-0"):
        result = here("log", "verify", str(path))
        assert result.code == 1
        assert "a broker is using" in result.err
    directory.close()
    assert here("log", "verify", str(folder)).code == 0


def test_a_folder_that_is_not_there_is_bad_usage(here: Run, tmp_path: Path) -> None:
    result = here("log", "verify", str(tmp_path / "nowhere"))
    assert result.code == 2
    assert "nowhere" in result.err
