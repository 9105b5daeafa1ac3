"""`headrace topics sizes`: sizes, and the next deletion."""

import time
import uuid
from pathlib import Path
from typing import Any

import pytest

from headrace.admin.topic_sizes import NextDeletion
from headrace.cli.topics.size_table import SegmentSize, deletion_text, next_of
from headrace.log.retention import LogView
from headrace.settings import LogSettings
from tests.cli.conftest import Run

NOW = 1_700_000_000_000
WEEK = LogSettings()


@pytest.fixture
def filled(run: Run) -> str:
    """A topic of two partitions that keeps a day, with ten records in one of them."""
    name = f"sizes-{uuid.uuid4().hex[:10]}"
    made = run("topics", "create", name, "-p", "2", "--config", "retention.ms=86400000")
    assert made.code == 0
    lines = b"\n".join(b"line %d" % number for number in range(10))
    assert run("produce", name, "--partition", "0", stdin=lines).code == 0
    return name


def sizes(run: Run, *words: str) -> dict[str, Any]:
    result = run("topics", "sizes", *words, "--json")
    assert result.code == 0, result.err
    (found,) = result.rows()
    return found


def test_any_cluster_shows_bytes_records_the_oldest_and_its_deletion(run: Run, filled: str) -> None:
    found = sizes(run, filled)
    assert found["topic"] == filled
    assert found["records"] == 10
    assert found["bytes"] > 100
    assert found["segments"] is None, "no answer of a cluster has them"
    assert abs(found["oldest_ms"] - time.time() * 1000) < 60_000
    day_later = {"limit": "retention.ms", "due_ms": found["oldest_ms"] + 86_400_000}
    assert {name: found["next"][name] for name in day_later} == day_later
    first, second = found["partitions"]
    assert (first["begin"], first["end"], second["begin"], second["end"]) == (0, 10, 0, 0)
    assert second["next"] is None, "nothing is there to be deleted"


def test_a_data_folder_shows_the_segments(run: Run, filled: str, data_folder: Path) -> None:
    found = sizes(run, filled, "--data-dir", str(data_folder))
    assert [part["segments"] for part in found["partitions"]] == [1, 1]
    log = data_folder / f"{filled}-0" / f"{0:020d}.log"
    assert found["partitions"][0]["bytes"] == log.stat().st_size


def test_tables_for_people(run: Run, filled: str) -> None:
    shown = run("topics", "sizes", filled).text
    assert "Partition" in shown
    assert "(retention.ms)" in shown
    overview = run("topics", "sizes").text
    assert filled in overview
    assert "Partition" not in overview


def test_what_is_not_there_is_said_with_its_exit_code(run: Run, tmp_path: Path) -> None:
    assert run("topics", "sizes", "no-such-topic").code == 4
    missing = run("topics", "sizes", "--data-dir", str(tmp_path / "nowhere"))
    assert missing.code == 2
    assert "nowhere" in missing.err


def piece(base: int, size: int, age_ms: int) -> SegmentSize:
    return SegmentSize(base, size, NOW - age_ms)


def test_what_is_due_is_counted_as_the_broker_would() -> None:
    log = LogView((piece(0, 100, WEEK.retention_ms + 1), piece(10, 50, 0)), 0, 20, 20)
    assert next_of(log, WEEK, NOW) == NextDeletion("retention.ms", NOW, 0, 1, 100)


def test_the_oldest_segment_shows_its_deletion() -> None:
    log = LogView((piece(0, 100, 1000), piece(10, 50, 0)), 0, 20, 20)
    assert next_of(log, WEEK, NOW) == NextDeletion("retention.ms", NOW - 1000 + WEEK.retention_ms)
    by_size = LogSettings(retention_ms=-1, retention_bytes=80)
    assert next_of(log, by_size, NOW) == NextDeletion("retention.bytes", None, 30)
    assert next_of(log, by_size, NOW) == NextDeletion("retention.bytes", None, 30)
    assert next_of(log, LogSettings(cleanup_policy=frozenset({"compact"})), NOW) is None
    consumed = LogSettings(cleanup_policy=frozenset({"consumed"}), retention_ms=-1)
    assert next_of(log, consumed, NOW) == NextDeletion("consumed.groups")


@pytest.mark.parametrize(
    ("following", "text"),
    [
        (NextDeletion("retention.bytes", NOW, 0, 3, 2048), "3 segments, 2.0 KiB (retention.bytes)"),
        (NextDeletion("retention.ms", NOW), "2023-11-14 22:13:20 (retention.ms)"),
        (NextDeletion("retention.bytes", None, 1024), "after 1.0 KiB more (retention.bytes)"),
        (NextDeletion("retention.messages", None, 1), "after 1 record more (retention.messages)"),
        (NextDeletion("retention.messages", None, 0), "now (retention.messages)"),
        (NextDeletion("consumed.groups"), "when read (consumed.groups)"),
    ],
)
def test_a_cell_shows_the_next_deletion(following: NextDeletion, text: str) -> None:
    assert deletion_text(following) == text
