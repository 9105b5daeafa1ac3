"""`headrace lake verify` on tables with injected faults, and a real topic."""

import sys
from pathlib import Path

import pytest
from confluent_kafka import Producer

from headrace.pipelines.sink.epoch import Epoch
from tests.cli.conftest import Run
from tests.pipelines.lake.lakes import Lake, rows


@pytest.fixture
def transactions(bootstrap: str, topic: str) -> list[int]:
    """Three committed records, a marker, two aborted ones, a marker, two committed ones, a marker:
    the offsets that a consumer sees."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic})
    producer.init_transactions(60)
    for count, commit in ((3, True), (2, False), (2, True)):
        producer.begin_transaction()
        for number in range(count):
            producer.produce(topic, b"%d" % number, partition=0)
        producer.flush(60)
        producer.commit_transaction(60) if commit else producer.abort_transaction(60)
    return [0, 1, 2, 7, 8]


def table(kind: str, tmp_path: Path, topic: str, *epochs: list[int]) -> list[str]:
    """A table of these epochs, as the command names it."""
    lake = Lake(kind, tmp_path)
    for number, offsets in enumerate(epochs):
        lake.commit(Epoch("query", number), rows(offsets, 0, topic))
    if kind == "delta":
        return [str(tmp_path / "orders"), "--topic", topic]
    return ["sales.orders", "--warehouse", str(tmp_path), "--topic", topic]


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_table_of_all_committed_records_is_proven(
    run: Run, topic: str, tmp_path: Path, transactions: list[int], kind: str
) -> None:
    words = table(kind, tmp_path, topic, transactions[:2], transactions[2:])
    done = run("lake", "verify", *words, "--complete", "--full", "--json")
    assert (done.code, done.err) == (0, "")
    found = done.document()
    assert (found["proven"], found["rows"], found["behind"]) == (True, 5, 0)
    assert found["format"] == kind
    assert "every record once and in order" in run("lake", "verify", *words).text


@pytest.mark.parametrize(
    ("kind", "epochs", "fault"),
    [
        ("delta", [[0, 1, 2], [8]], ("missing", 7, 7)),
        ("iceberg", [[0, 2], [7, 8]], ("missing", 1, 1)),
        ("delta", [[0, 1, 2], [2, 7, 8]], ("duplicate", 2, 2)),
        ("iceberg", [[0, 1, 2, 2], [7, 8]], ("duplicate", 2, 2)),
        ("delta", [[7, 8], [0, 1, 2]], ("reordered", 0, 2)),
        ("iceberg", [[0, 2, 1], [7, 8]], ("reordered", 1, 1)),
    ],
)
def test_a_gap_a_duplicate_and_a_reordering_are_found(
    run: Run,
    topic: str,
    tmp_path: Path,
    transactions: list[int],
    kind: str,
    epochs: list[list[int]],
    fault: tuple[str, int, int],
) -> None:
    words = table(kind, tmp_path, topic, *epochs)
    done = run("lake", "verify", *words, "--json")
    assert done.code == 1
    partitions = done.document()["partitions"]
    assert isinstance(partitions, list)
    findings = [
        (each["kind"], each["first"], each["last"])
        for partition in partitions
        for each in partition["findings"]
    ]
    assert findings == [fault]
    shown = run("lake", "verify", *words)
    assert shown.code == 1
    assert f"{fault[0]} {topic}-0 {fault[1]}" in shown.text
    assert "NOT verified" in shown.text


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_table_is_proven_before_and_after_its_compaction(
    run: Run, topic: str, tmp_path: Path, transactions: list[int], kind: str
) -> None:
    words = table(kind, tmp_path, topic, transactions[:2], transactions[2:3], transactions[3:])
    named = words[:-2]
    assert run("lake", "verify", *words, "--complete").code == 0
    planned = run("lake", "compact", *named, "--dry-run", "--json").document()
    assert (planned["files_removed"], planned["files_added"], planned["commits"]) == (3, 1, 0)
    done = run("lake", "compact", *named, "--json")
    assert (done.code, done.err) == (0, "")
    found = done.document()
    assert (found["files_before"], found["files_removed"], found["files_added"]) == (3, 3, 1)
    assert (found["rows"], found["commits"], found["dry_run"]) == (5, 1, False)
    assert run("lake", "verify", *words, "--complete", "--full").code == 0
    again = run("lake", "compact", *named)
    assert (again.code, again.text.strip()) == (
        0, f"{named[0]}: 1 file(s), none to compact"
    )  # fmt: skip


def test_a_compaction_reports_its_result_and_its_errors(run: Run, tmp_path: Path) -> None:
    words = table("delta", tmp_path, "orders", [0], [1], [2])
    assert "3 of 3 files" in run("lake", "compact", words[0]).text
    table("iceberg", tmp_path, "orders", [0], [1])
    (folder,) = (path.parent for path in tmp_path.rglob("metadata") if path.is_dir())
    refused = run("lake", "compact", str(folder))
    assert refused.code == 4
    assert "through its catalog only" in refused.err
    assert run("lake", "compact", str(tmp_path / "nothing")).code == 4
    assert run("lake", "compact", "a.b", "--warehouse", str(tmp_path)).code == 4
    assert run("lake", "compact", words[0], "--target-mib", "0").code == 2


def test_an_iceberg_table_is_found_by_its_folder_and_by_its_metadata(
    run: Run, topic: str, tmp_path: Path, transactions: list[int]
) -> None:
    table("iceberg", tmp_path, topic, transactions)
    (folder,) = (path.parent for path in tmp_path.rglob("metadata") if path.is_dir())
    newest = max(folder.glob("metadata/*.metadata.json"), key=lambda path: path.stat().st_mtime_ns)
    for named in (folder, newest):
        found = run("lake", "verify", str(named), "--topic", topic, "--json")
        assert (found.code, found.document()["rows"]) == (0, 5)


def test_what_is_no_table_or_no_topic_ends_with_not_found(
    run: Run, topic: str, tmp_path: Path
) -> None:
    nothing = run("lake", "verify", str(tmp_path), "--topic", topic)
    assert nothing.code == 4
    assert "no table at" in nothing.err
    assert run("lake", "verify", "a.b", "--warehouse", str(tmp_path), "--topic", topic).code == 4
    words = table("delta", tmp_path, topic, [0])
    words[-1] = topic + "-nope"
    assert run("lake", "verify", *words).code == 4


def test_without_the_packages_for_tables_the_command_says_what_to_install(
    run: Run, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith("headrace.pipelines.lake")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    done = run("lake", "verify", "/lake/orders", "--topic", topic)
    assert done.code == 1
    assert "pip install 'headrace[spark]'" in done.err
