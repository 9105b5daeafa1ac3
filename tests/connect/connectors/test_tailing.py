import os
from pathlib import Path

import pytest

from headrace.connect.connectors import tailing
from headrace.connect.connectors.tailing import FilePosition, TailedFile, lines

MANY = 10**6


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "app.log"


def text(file: TailedFile, start: FilePosition | None, end: FilePosition | None) -> str:
    assert end is not None
    return b"".join(file.blocks(start, end)).decode()


def test_a_half_line_is_left_for_the_next_range(path: Path) -> None:
    file = TailedFile(path)
    assert file.next_end(None, MANY) is None
    path.write_text("one\ntwo\nthr")
    first = file.next_end(None, MANY)
    assert text(file, None, first) == "one\ntwo\n"
    assert file.next_end(first, MANY) == first
    with path.open("a") as more:
        more.write("ee\n")
    second = file.next_end(first, MANY)
    assert text(file, first, second) == "three\n"
    assert text(file, None, first) == "one\ntwo\n", "a range can be read again"


def test_a_range_has_at_most_the_wished_lines(path: Path) -> None:
    path.write_text("".join(f"{number}\n" for number in range(10)))
    file = TailedFile(path)
    first = file.next_end(None, 3)
    assert text(file, None, first) == "0\n1\n2\n"
    assert text(file, first, file.next_end(first, 3)) == "3\n4\n5\n"


def test_blocks_end_with_whole_lines(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tailing, "BLOCK_BYTES", 10)
    written = "".join(f"{'x' * (number % 25)}\n" for number in range(100))
    path.write_text(written)
    file = TailedFile(path)
    end = file.next_end(None, MANY)
    assert end is not None
    blocks = list(file.blocks(None, end))
    assert b"".join(blocks).decode() == written
    assert all(block.endswith(b"\n") for block in blocks)


def test_a_rotated_file_is_read_to_its_end_and_then_the_new_one(path: Path) -> None:
    file = TailedFile(path)
    path.write_text("one\n")
    first = file.next_end(None, MANY)
    with path.open("a") as more:
        more.write("two\n")
    path.rename(path.with_name("app.log.1"))
    path.write_text("three\nfour\n")
    second = file.next_end(first, MANY)
    assert text(file, first, second) == "two\n"
    third = file.next_end(second, MANY)
    assert text(file, second, third) == "three\nfour\n"
    assert text(file, first, second) == "two\n", "a range of the old file can be read again"
    assert file.next_end(third, MANY) == third


@pytest.mark.parametrize("again", ["a\n", "a longer line than before\n"])
def test_a_truncated_file_is_read_from_its_beginning(path: Path, again: str) -> None:
    file = TailedFile(path)
    path.write_text("one\ntwo\n")
    first = file.next_end(None, MANY)
    with path.open("r+") as truncated:
        truncated.truncate()
        assert file.next_end(first, MANY) == first
        truncated.write(again)
    second = file.next_end(first, MANY)
    assert text(file, first, second) == again
    assert file.next_end(second, MANY) == second


def test_bytes_that_are_gone_are_left_out_with_a_warning(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = TailedFile(path)
    path.write_text("one\ntwo\n")
    end = file.next_end(None, MANY)
    path.write_text("a line that is longer\n")
    assert text(file, None, end) == ""
    assert "bytes 0 to 8" in caplog.text


def test_an_offset_of_kafka_connect_is_continued(path: Path) -> None:
    file = TailedFile(path)
    path.write_text("one\ntwo\n")
    start = FilePosition.of({"position": 4})
    assert text(file, start, file.next_end(start, MANY)) == "two\n"


def test_a_complete_file_ends_without_a_line_end(path: Path) -> None:
    file = TailedFile(path, is_whole=True)
    path.write_text("one\ntwo")
    first = file.next_end(None, 1)
    second = file.next_end(first, MANY)
    assert text(file, first, second) == "two"
    assert file.next_end(second, MANY) == second
    assert first is not None
    assert second is not None
    assert (file.is_done(first), file.is_done(second)) == (False, True)


def test_another_complete_file_with_the_same_name_is_another_file(path: Path) -> None:
    file = TailedFile(path, is_whole=True)
    path.write_text("one\ntwo\n")
    end = file.next_end(None, MANY)
    status = path.stat()
    path.write_text("new\nold\n")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    assert text(file, end, file.next_end(end, MANY)) == "new\nold\n"


def test_a_line_end_between_quotes_ends_no_line(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tailing, "BLOCK_BYTES", 5)
    path.write_text('1,"a\n""b""\nc"\n2,d\n3,"e\n')
    file = TailedFile(path, quotes=True)
    first = file.next_end(None, 1)
    assert text(file, None, first) == '1,"a\n""b""\nc"\n'
    second = file.next_end(first, MANY)
    assert text(file, first, second) == "2,d\n"


def test_lines_lose_their_ends_and_nothing_else() -> None:
    assert lines(b"a\n\n b \r\nc\rd\n").to_pylist() == ["a", "", " b ", "c\rd"]
    assert lines(b"\n").to_pylist() == [""]
    assert lines("é\n".encode() + b"\xff\n").to_pylist() == ["é", "\ufffd"]
