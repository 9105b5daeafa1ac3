"""The broker as a process: start, stop, output, and the folders on its disk."""

import base64
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.log.checkpoints import PARTITION_METADATA
from headrace.testing.running import BrokerDied, RunningBroker
from tests.support.raw import (
    RawClient,
    batch_of,
    create,
    end_offset,
    frame,
    produce,
    produce_error,
)


def serve(*words: str) -> list[str]:
    """The command that starts a broker."""
    return [sys.executable, "-m", "headrace.cli", "serve", *words]


Factory = Callable[..., RunningBroker]


def send(broker: RunningBroker, topic: str, *values: bytes, acks: int = 1) -> int:
    """Produce one batch; its base offset."""
    with RawClient(broker.bootstrap_servers) as raw:
        create(raw, topic)
        code, base = produce_error(raw.ask(produce(topic, batch_of(*values), acks=acks)), topic)
    assert code == 0, code
    return base


def end_of(broker: RunningBroker, topic: str) -> int:
    with RawClient(broker.bootstrap_servers) as raw:
        return end_offset(raw, topic)


def test_it_prints_the_ready_line_and_stops_cleanly_on_sigterm(tmp_path: Path) -> None:
    process = subprocess.Popen(
        serve("--data-dir", str(tmp_path / "data"), "--listen", "127.0.0.1:0"),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line.startswith("Headrace is ready on 127.0.0.1:")
    assert line.rstrip().endswith(f"data in {tmp_path / 'data'}")
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0
    assert process.stdout.read() == ""
    process.stdout.close()
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()


def test_an_unreachable_advertised_address_is_logged_with_the_fix(
    tmp_path: Path,
) -> None:
    process = subprocess.Popen(
        serve("--data-dir", str(tmp_path), "--listen", "127.0.0.1:0", "--advertise", "127.0.0.1:1"),
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    assert process.stderr is not None
    line = process.stderr.readline()
    assert "127.0.0.1:1 cannot be reached" in line
    assert "--advertise HOST:PORT" in line
    process.terminate()
    process.wait(60)
    process.stderr.close()


def test_settings_without_effect_are_listed_once_at_the_start(tmp_path: Path) -> None:
    given = ("background.threads=4", "log.segment.bytes=1048576", "num.network.threads=3")
    process = subprocess.Popen(
        serve(
            *("--data-dir", str(tmp_path), "--listen", "127.0.0.1:0"),
            *(word for setting in given for word in ("--set", setting)),
        ),
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert "ready" in process.stdout.readline()
    process.terminate()
    _, errors = process.communicate(timeout=60)
    lines = [line for line in errors.splitlines() if "no effect" in line]
    assert len(lines) == 1, errors
    assert "background.threads, num.network.threads" in lines[0]
    assert "log.segment.bytes" not in errors


def test_two_brokers_cannot_share_a_folder(headrace_factory: Factory) -> None:
    first = headrace_factory()
    done = subprocess.run(
        serve("--data-dir", str(first.data_dir), "--listen", "127.0.0.1:0"),
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 1
    assert "in use by another broker" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_address_that_is_taken_is_named(headrace_factory: Factory, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = subprocess.run(
            serve("--data-dir", str(tmp_path), "--listen", address),
            capture_output=True,
            text=True,
            timeout=110,
            check=False,
        )
    assert done.returncode == 1
    assert address in done.stderr
    assert "--listen" in done.stderr


def test_another_node_id_than_the_folder_has_is_refused(headrace_factory: Factory) -> None:
    broker = headrace_factory(node_id=3)
    broker.stop()
    broker._node_id = 4
    with pytest.raises(BrokerDied, match="belongs to node 3"):
        broker.start()


def test_data_of_one_cluster_are_not_used_in_another(headrace_factory: Factory) -> None:
    """The other cluster knows none of its topics, and has others of the same names."""
    broker, other = headrace_factory(), headrace_factory()
    send(broker, "orders", b"kept")
    broker.stop()
    settings = broker._settings
    broker._settings = {**settings, "headrace.metadata": f"sqlite:{other.data_dir}"}
    with pytest.raises(BrokerDied, match=r"belong to cluster .*--metadata"):
        broker.start()
    broker._settings = settings
    broker.start()
    assert end_of(broker, "orders") == 1


def test_a_torn_tail_is_cut_and_the_rest_is_kept_after_kill_9(headrace_factory: Factory) -> None:
    broker = headrace_factory()
    for value in (b"a", b"b", b"c"):
        send(broker, "torn", value)
    broker.kill()
    log = broker.data_dir / "torn-0" / f"{0:020d}.log"
    with log.open("r+b") as file:
        file.truncate(log.stat().st_size - 5)
    broker.start()
    assert end_of(broker, "torn") == 2
    assert send(broker, "torn", b"d") == 2


def test_with_flush_messages_1_an_acknowledged_record_is_on_the_disk(
    headrace_factory: Factory,
) -> None:
    broker = headrace_factory({"log.flush.interval.messages": "1"})
    for number in range(5):
        assert send(broker, "synced", b"v", acks=-1) == number
    broker.kill()
    broker.start()
    assert end_of(broker, "synced") == 5


def test_pipelined_produces_that_wait_for_the_disk_are_answered_in_order(
    headrace_factory: Factory,
) -> None:
    broker = headrace_factory({"log.flush.interval.messages": "1"})
    with RawClient(broker.bootstrap_servers) as raw:
        create(raw, "lined")
        raw.send(b"".join(produce("lined", batch_of(b"v")) for _ in range(200)))
        bases = [produce_error(raw.answer(), "lined") for _ in range(200)]
    assert bases == [(0, base) for base in range(200)]


def test_a_deleted_topic_stays_deleted_when_its_folder_comes_back(
    headrace_factory: Factory, tmp_path: Path
) -> None:
    broker = headrace_factory()
    send(broker, "gone", b"v")
    broker.restart()
    shutil.copytree(broker.data_dir / "gone-0", tmp_path / "saved")
    name = b"gone"
    with RawClient(broker.bootstrap_servers) as raw:
        body = (1).to_bytes(4, "big") + b"\0\x04" + name + (5000).to_bytes(4, "big")
        assert raw.ask(frame(20, 1, body))[-2:] == b"\0\0"
    broker.kill()
    shutil.copytree(tmp_path / "saved", broker.data_dir / "gone-0", dirs_exist_ok=True)
    broker.start()
    assert not (broker.data_dir / "gone-0").exists()
    assert send(broker, "gone", b"new") == 0


def test_a_copied_folder_becomes_a_topic(
    headrace_factory: Factory,
) -> None:
    broker = headrace_factory()
    for _ in range(3):
        send(broker, "source", b"v")
    broker.stop()
    copy = broker.data_dir / "copied-0"
    shutil.copytree(broker.data_dir / "source-0", copy)
    other = uuid.UUID(int=0x0123456789ABCDEF0123456789ABCDEF)
    text = (copy / PARTITION_METADATA).read_text()
    encoded = base64.urlsafe_b64encode(other.bytes).decode().rstrip("=")
    (copy / PARTITION_METADATA).write_text(text.splitlines()[0] + f"\ntopic_id: {encoded}\n")
    broker.start()
    assert end_of(broker, "copied") == 3
    assert send(broker, "copied", b"more") == 3


def test_a_topic_of_ten_thousand_partitions_is_there_at_once(headrace_factory: Factory) -> None:
    broker = headrace_factory({"num.partitions": "10000"})
    with RawClient(broker.bootstrap_servers) as raw:
        create(raw, "wide")
        code, base = produce_error(raw.ask(produce("wide", batch_of(b"v"), partition=9999)), "wide")
        assert (code, base) == (0, 0)
    broker.restart()
    with RawClient(broker.bootstrap_servers) as raw:
        assert end_offset(raw, "wide", 9999) == 1
        assert end_offset(raw, "wide", 1234) == 0


def test_an_idle_connection_is_closed_and_a_busy_one_is_not(headrace_factory: Factory) -> None:
    broker = headrace_factory({"connections.max.idle.ms": "3000"})
    with RawClient(broker.bootstrap_servers) as busy, RawClient(broker.bootstrap_servers) as idle:
        deadline = time.monotonic() + 60
        while not select.select([idle.socket], [], [], 0.05)[0]:
            assert time.monotonic() < deadline, "it is still open"
            create(busy, "t")
        assert idle.is_closed()
        assert end_offset(busy, "t") == 0
