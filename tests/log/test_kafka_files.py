"""Our files read by Apache Kafka's tools, and Apache Kafka's files read by us."""

import os
import re
import signal
from pathlib import Path

import pytest

from headrace.clock import ManualClock
from headrace.disk import RealDisk
from headrace.log.directory import LogDirectory
from headrace.settings import LogSettings
from headrace.types import TopicPartition
from headrace.wire.batch import TRANSACTIONAL
from headrace.wire.markers import encode_marker
from tests.log.samples import NOW, ORDERS, ORDERS_ID, append, batch, contents
from tests.support import java
from tests.support.apache_kafka import ApacheKafka

pytestmark = [
    pytest.mark.java,
    pytest.mark.skipif(java.missing() is not None, reason=java.missing() or ""),
]
SETTINGS = LogSettings(segment_bytes=20_000, index_interval_bytes=1000)


def opened(path: Path) -> LogDirectory:
    directory = LogDirectory(str(path), RealDisk(), ManualClock(NOW))
    directory.open()
    return directory


def test_kafkas_dump_tool_finds_no_fault_in_our_files(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    log = directory.create(ORDERS, ORDERS_ID, SETTINGS)
    for n in range(300):
        data = batch(
            3, timestamp=NOW + n * 5, producer_id=4000, epoch=2, sequence=n * 3, value=b"v" * 60
        )
        append(log, data, epoch=n // 100)
    directory.close()
    folder = tmp_path / str(ORDERS)

    def files(suffix: str) -> str:
        return ",".join(str(path) for path in sorted(folder.glob(f"*{suffix}")))

    logs = java.run_tool("kafka-dump-log", "--deep-iteration", "--files", files(".log"))
    assert logs.stdout.count("isvalid: true") == 300
    assert "isvalid: false" not in logs.text
    assert "offset: 899 " in logs.text
    indexes = f"{files('.index')},{files('.timeindex')}"
    for mode in ("--index-sanity-check", "--verify-index-only"):
        checked = java.run_tool("kafka-dump-log", mode, "--files", indexes)
        for word in ("mismatch", "Mismatches", "Found", "non-consecutive", "Exception", "corrupt"):
            assert word not in checked.text, checked.text
    snapshot = java.run_tool(
        "kafka-dump-log", "--files", str(folder / "00000000000000000900.snapshot")
    )
    for words in ("producerId: 4000", "producerEpoch: 2", "lastSequence: 899", "lastOffset: 899"):
        assert words in snapshot.text, snapshot.text
    sequences = re.findall(r"producerId: 4000 .*lastSequence: (\d+)", snapshot.text)
    assert sequences == ["887", "890", "893", "896", "899"]  # Kafka takes the last


def test_kafkas_dump_tool_reads_our_transactions(tmp_path: Path) -> None:
    directory = opened(tmp_path)
    log = directory.create(ORDERS, ORDERS_ID, SETTINGS)
    for producer in (4000, 4001, 4002):
        data = batch(2, producer_id=producer, epoch=1, sequence=0, attributes=TRANSACTIONAL)
        append(log, data)
    append(log, encode_marker(4001, 2, False, 9, NOW))
    append(log, encode_marker(4000, 1, True, 9, NOW))
    directory.close()
    folder = tmp_path / str(ORDERS)
    names = [f"{0:020d}.log", f"{0:020d}.txnindex", f"{8:020d}.snapshot"]
    files = ",".join(str(folder / name) for name in names)
    dumped = java.run_tool("kafka-dump-log", "--deep-iteration", "--files", files).text
    for words in (
        "endTxnMarker: ABORT coordinatorEpoch: 9",
        "endTxnMarker: COMMIT coordinatorEpoch: 9",
        "version: 0 producerId: 4001 firstOffset: 2 lastOffset: 6 lastStableOffset: 0",
        "currentTxnFirstOffset: OptionalLong[4]",
    ):
        assert words in dumped, dumped
    assert "isvalid: false" not in dumped


@pytest.mark.slow
@pytest.mark.parametrize("cleanly", [True, False])
def test_a_folder_that_apache_kafka_wrote_is_opened(tmp_path: Path, cleanly: bool) -> None:
    kafka = ApacheKafka(
        tmp_path / "kafka",
        settings={"log.segment.bytes": "1048576", "num.partitions": "1"},
        quick=True,
    )
    with kafka:
        lines = "".join(f"line {n} {'x' * 3000}\n" for n in range(1000))
        java.run_tool(
            "kafka-console-producer",
            *("--bootstrap-server", kafka.bootstrap, "--topic", "orders"),
            stdin=lines,
        )
        if not cleanly:
            os.kill(kafka.pid, signal.SIGKILL)
    directory = opened(kafka.data)
    assert directory.folder.stopped_cleanly == cleanly
    assert directory.folder.meta is not None
    assert directory.folder.meta["cluster.id"]
    partition = TopicPartition("orders", 0)
    assert partition in directory.partitions()
    assert directory.folder.topic_id(partition) is not None
    log = directory.get(partition, LogSettings())
    assert (log.start_offset, log.end_offset) == (0, 1000)
    assert len(log.segments) >= 3
    assert sum(len(data) for _, data in contents(log)) > 3_000_000
    assert len(log.producers.producers) == 1, "the console producer is idempotent"
    latest = log.max_timestamp()
    assert latest is not None
    assert log.find_timestamp(latest.timestamp) == latest
    assert log.epochs.entries == ((0, 0),)
    assert append(log, batch()) == 1000
