"""The options of a version of a program: topics, groups and the start are its own."""

from pathlib import Path

import pytest

from headrace.pipelines.lake.options import check_options
from headrace.pipelines.replay_bounds import REPLAY_VARIABLE, ProgramVersion, present_version
from headrace.pipelines.sink.options import SinkOptionError
from headrace.pipelines.sink.options import parse_options as parse_sink
from headrace.pipelines.source.options import parse_options as parse_source

BROKER = {"kafka.bootstrap.servers": "localhost:9092"}


@pytest.fixture
def version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ProgramVersion:
    found = ProgramVersion("v2", "1700000000000", str(tmp_path))
    monkeypatch.setenv(REPLAY_VARIABLE, found.to_text())
    assert present_version() == found
    return found


def test_a_version_writes_to_topics_of_its_own_and_notes_them(version: ProgramVersion) -> None:
    options = {**BROKER, "topic": "totals", "ledgerTopic": "other", "delivery": "exactly-once"}
    found = parse_sink(options)
    assert (found.topic, found.ledger_topic) == ("totals.v2", "totals.v2")
    assert version.topics() == ["totals"]
    with pytest.raises(SinkOptionError, match="topics of its own"):
        parse_sink(BROKER)


def test_a_version_reads_from_its_start_in_a_group_of_its_own(version: ProgramVersion) -> None:
    given = {**BROKER, "subscribe": "orders", "startingOffsets": "latest", "group.id": "g"}
    found = parse_source(given, streaming=True)
    assert (found.starting.kind, found.starting.time_ms) == ("time", 1_700_000_000_000)
    assert found.time_not_found == "latest"
    assert found.group is not None
    assert (found.group.name, found.group.instance_id) == ("g.v2", "spark-g.v2")
    batch = parse_source({**BROKER, "subscribe": "orders"}, streaming=False)
    assert batch.starting.kind == "earliest"


@pytest.mark.usefixtures("version")
def test_a_version_does_not_write_to_the_tables_of_the_original() -> None:
    with pytest.raises(ValueError, match="replay"):
        check_options("headrace-delta", {"path": "lake/orders"}, ("path",))


def test_a_program_that_is_no_replay_is_not_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(REPLAY_VARIABLE, raising=False)
    assert parse_sink({**BROKER, "topic": "totals"}).topic == "totals"
    check_options("headrace-delta", {"path": "lake/orders"}, ("path",))
