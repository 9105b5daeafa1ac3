"""A retention pass over all partitions: warnings, metrics, and errors of single logs."""

import asyncio
import json
import logging
from collections.abc import Collection
from pathlib import Path

import pytest

from headrace.broker.metrics.values import Metrics
from headrace.broker.retention import CommittedOffsets, Retention
from headrace.clock import ManualClock
from headrace.cluster.controller import Alteration, ConfigChange, Operation
from headrace.errors import ErrorCode, KafkaError
from headrace.log.indexes import TIME_ENTRY
from headrace.log.log import Log
from headrace.log.segment_files import TIME_INDEX
from headrace.log.segment_indexes import NO_TIMESTAMP
from headrace.logs import JsonLines
from headrace.wire.steps import finish
from tests.apis.one_broker import NOW, OneBroker

HOUR_MS = 3_600_000
SMALL = {"internal.segment.bytes": "200", "retention.ms": str(HOUR_MS)}


class Kept:
    """A broker with retention, whose groups' offsets a test says."""

    def __init__(self, folder: Path) -> None:
        self.broker = OneBroker(folder)
        clock = self.broker.services.clock
        assert isinstance(clock, ManualClock)
        self.clock = clock
        self.metrics = Metrics()
        self.committed: dict[str, dict[str, dict[int, int]]] = {}
        self.known = True
        self.retention = Retention(self.broker.replicas, clock, self.find, self.metrics)

    async def find(self, topics: Collection[str]) -> CommittedOffsets:
        if not self.known:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return {topic: groups for topic, groups in self.committed.items() if topic in topics}

    def topic(self, name: str, **configs: str) -> None:
        """A topic with ten records, each a segment, the last of them active."""
        self.broker.create(name, 1, **{**SMALL, **configs})
        for _ in range(10):
            self.broker.append(name, [NOW])
            self.log(name).roll(NOW)
        self.broker.append(name, [NOW])

    def log(self, name: str) -> Log:
        return self.broker.replicas.partition(name, 0).replica.log

    def start(self, name: str) -> int:
        return self.log(name).start_offset

    def look(self, wait_ms: int = 0) -> None:
        self.clock.advance(wait_ms)
        asyncio.run(self.retention.look())

    def shown(self, name: str) -> list[str]:
        return [
            line
            for line in b"".join(finish(self.metrics.render_steps())).decode().splitlines()
            if line.startswith(name)
        ]


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return Kept(tmp_path)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]


def test_a_group_is_warned_of_once_with_all_that_one_needs_to_know(
    kept: Kept, caplog: pytest.LogCaptureFixture
) -> None:
    kept.topic("t")
    kept.committed = {"t": {"slow": {0: 4}, "done": {0: 11}}}
    kept.look(HOUR_MS * 8 // 10)
    assert warnings(caplog) == []
    kept.look(HOUR_MS * 15 // 100)
    (message,) = warnings(caplog)
    assert message == (
        "group slow is about to lose unread records of t-0: it reads offset 4 next, which "
        "retention.ms deletes after 3 min 0 s"
    )
    assert kept.shown("headrace_retention_left_seconds{") == [
        'headrace_retention_left_seconds{group="slow",topic="t",partition="0"} 180.0'
    ]
    line = json.loads(JsonLines().format(caplog.records[-1]))
    expected = {
        "event": "unread_records_at_risk",
        "group": "slow",
        "topic": "t",
        "partition": 0,
        "offset": 4,
        "limit": "retention.ms",
        "left": 180_000,
        "unit": "ms",
    }
    assert {name: line[name] for name in expected} == expected
    kept.look(1000)
    assert len(warnings(caplog)) == 1, "not at every pass"


def test_a_group_that_caught_up_is_warned_of_again_when_it_falls_behind(
    kept: Kept, caplog: pytest.LogCaptureFixture
) -> None:
    kept.topic("t")
    for offset in (4, 11, 4):
        kept.committed = {"t": {"slow": {0: offset}}}
        kept.look(HOUR_MS * 95 // 100 if offset == 4 and kept.clock.now_ms() == NOW else 0)
    assert len(warnings(caplog)) == 2
    kept.committed = {}
    kept.look()
    assert kept.shown("headrace_retention_left_seconds{") == []


def test_what_a_group_lost_is_said_and_counted(
    kept: Kept, caplog: pytest.LogCaptureFixture
) -> None:
    kept.topic("t")
    kept.committed = {"t": {"slow": {0: 4}, "done": {0: 11}, "gone": {0: -1}}}
    kept.look(HOUR_MS + 1)
    assert kept.start("t") == 11
    assert warnings(caplog) == [
        "group slow had not read offsets 4 to 10 of t-0, and retention.ms has deleted them"
    ]
    assert kept.shown("headrace_retention_unread_records_total{") == [
        'headrace_retention_unread_records_total{group="slow",topic="t"} 7'
    ]
    assert kept.shown("headrace_retention_deleted_segments_total{") == [
        'headrace_retention_deleted_segments_total{topic="t",reason="retention.ms"} 11'
    ]
    kept.look(HOUR_MS)
    assert len(warnings(caplog)) == 1


def test_a_rotten_time_index_lets_no_record_go_before_its_time(kept: Kept) -> None:
    kept.topic("t")
    for segment in kept.log("t").segments[:-1]:
        segment.release()
        segment.indexes.largest_timestamp = NO_TIMESTAMP  # as after a restart
        Path(segment.files.path(TIME_INDEX)).write_bytes(TIME_ENTRY.pack(NOW - 9 * HOUR_MS, 0))
    kept.look(HOUR_MS // 2)
    assert kept.start("t") == 0
    kept.look(HOUR_MS)
    assert kept.start("t") == 11


def test_groups_hold_what_they_have_not_read_and_it_shows(kept: Kept) -> None:
    kept.topic("t", retention_hold_groups="slow")
    kept.committed = {"t": {"slow": {0: 4}}}
    size = kept.log("t").segments[0].size
    kept.look(HOUR_MS + 1)
    assert kept.start("t") == 4
    assert kept.shown("headrace_retention_held_bytes{") == [
        f'headrace_retention_held_bytes{{topic="t",partition="0"}} {7 * size}'
    ]
    kept.committed = {"t": {"slow": {0: 11}}}
    kept.look()
    assert kept.start("t") == 11
    assert kept.shown("headrace_retention_held_bytes{") == []


def test_while_offsets_are_unknown_no_held_segment_is_deleted(kept: Kept) -> None:
    kept.topic("held", retention_hold_groups="slow")
    kept.topic("queue", cleanup_policy="consumed", retention_ms="-1")
    kept.topic("plain")
    kept.committed = {
        "held": {"slow": {0: 11}},
        "queue": {"g": {0: 11}},
    }
    kept.known = False
    kept.look(HOUR_MS + 1)
    assert [kept.start(name) for name in ("held", "queue", "plain")] == [0, 0, 11]
    kept.known = True
    kept.look()
    assert [kept.start(name) for name in ("held", "queue")] == [11, 11]


def test_a_group_that_has_not_read_this_partition_counts_too(kept: Kept) -> None:
    kept.topic("t", cleanup_policy="consumed", retention_ms="-1")
    kept.committed = {"t": {"here": {0: 11}, "elsewhere": {1: 5}}}
    kept.look()
    assert kept.start("t") == 0


def test_the_brokers_default_counts_where_the_topic_has_none_and_changes_while_it_runs(
    kept: Kept,
) -> None:
    kept.broker.create("t", 1, **{"internal.segment.bytes": "200"})
    kept.broker.create("own", 1, **{"internal.segment.bytes": "200", "retention.ms": "-1"})
    for name in ("t", "own"):
        kept.broker.append(name, [NOW])
    kept.look(HOUR_MS)
    assert kept.start("t") == 0
    change = ConfigChange("log.retention.ms", Operation.SET, str(HOUR_MS - 1))
    altered = kept.broker.metadata.alter_configs([Alteration("broker", "", (change,))])
    assert altered == [None]
    kept.look()
    assert (kept.start("t"), kept.start("own")) == (1, 0)


def test_logs_without_records_are_not_opened(tmp_path: Path) -> None:
    first = Kept(tmp_path)
    first.topic("full")
    first.broker.create("empty", 3)
    first.broker.close()
    kept = Kept(tmp_path)
    kept.look(HOUR_MS + 1)
    opened = [each.name for each in kept.broker.replicas.all_partitions() if each.replica.opened]
    assert [name.topic for name in opened] == ["full"]
    assert kept.start("full") == 11


def test_one_bad_log_does_not_keep_others_from_being_cleaned(
    kept: Kept, caplog: pytest.LogCaptureFixture
) -> None:
    kept.topic("bad")
    kept.topic("good")
    folder = Path(kept.broker.directories.first.path, "bad-0")
    for path in folder.glob("*0.*index"):
        path.unlink()
    (folder / f"{0:020d}.log").unlink()
    kept.log("bad").segments[0].release()
    kept.log("bad").segments[0].indexes.largest_timestamp = -1
    with caplog.at_level(logging.ERROR):
        kept.look(HOUR_MS + 1)
    assert "retention of bad-0 failed" in caplog.text
    assert kept.start("good") == 11


def test_waiting_consumers_are_notified(kept: Kept) -> None:
    kept.topic("t")
    partition = kept.broker.replicas.partition("t", 0)
    told: list[int] = []

    class Watcher:
        def changed(self) -> None:
            told.append(partition.replica.log.start_offset)

    partition.replica.watchers[Watcher()] = None
    kept.look(HOUR_MS + 1)
    kept.broker.services.waiting_fetches.wake()
    assert told == [11]
