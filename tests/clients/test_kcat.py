"""kcat, which has the oldest request versions of all clients here."""

import json
import shutil
import signal
import subprocess
import time
import uuid
from pathlib import Path

import pytest

from tests.clients.conftest import MakeTopic

pytestmark = pytest.mark.skipif(
    shutil.which("kcat") is None, reason="kcat is missing: install the Debian package kcat"
)


def kcat(bootstrap: str, *arguments: str, stdin: str = "") -> str:
    done = subprocess.run(
        ["kcat", "-b", bootstrap, *arguments],
        input=stdin.encode(),
        capture_output=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def read_all(bootstrap: str, topic: str, *arguments: str) -> str:
    return kcat(bootstrap, "-C", "-t", topic, "-p", "0", "-e", "-q", *arguments)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_lines_go_in_and_come_out_with_every_codec(bootstrap: str, topic: str, codec: str) -> None:
    lines = "".join(f"line {n} {'x' * 50}\n" for n in range(300))
    kcat(bootstrap, "-P", "-t", topic, "-p", "0", "-z", codec, stdin=lines)
    assert read_all(bootstrap, topic, "-o", "beginning") == lines


def test_a_range_of_offsets_is_read(bootstrap: str, topic: str) -> None:
    kcat(bootstrap, "-P", "-t", topic, "-p", "0", stdin="".join(f"{n}\n" for n in range(20)))
    assert read_all(bootstrap, topic, "-o", "17") == "17\n18\n19\n"
    assert read_all(bootstrap, topic, "-o", "-2") == "18\n19\n"
    assert read_all(bootstrap, topic, "-o", "beginning", "-c", "2") == "0\n1\n"


def test_keys_headers_and_nulls_are_shown(bootstrap: str, topic: str) -> None:
    produce = ("-P", "-t", topic, "-p", "0", "-K", ":", "-Z", "-H", "origin=spring")
    kcat(bootstrap, *produce, stdin="a:1\nb:\n")
    shown = read_all(bootstrap, topic, "-o", "beginning", "-f", "%o %k %S %h\n")
    assert shown == "0 a 1 origin=spring\n1 b -1 origin=spring\n"


def test_a_whole_file_is_one_record(bootstrap: str, topic: str, tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("mill " * 100_000)
    kcat(bootstrap, "-P", "-t", topic, "-p", "0", str(text))
    assert read_all(bootstrap, topic, "-o", "beginning", "-f", "%S") == str(text.stat().st_size)


def test_offsets_are_asked_by_time(bootstrap: str, topic: str) -> None:
    kcat(bootstrap, "-P", "-t", topic, "-p", "0", stdin="a\nb\n")
    assert f"{topic} [0] offset 0" in kcat(bootstrap, "-Q", "-t", f"{topic}:0:-2")
    assert f"{topic} [0] offset 2" in kcat(bootstrap, "-Q", "-t", f"{topic}:0:-1")
    assert f"{topic} [0] offset 0" in kcat(bootstrap, "-Q", "-t", f"{topic}:0:1000")


def test_the_cluster_is_listed_as_json(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic(3)
    listed = json.loads(kcat(bootstrap, "-L", "-J", "-t", topic))
    assert [b["name"] for b in listed["brokers"]] == [bootstrap]
    (described,) = listed["topics"]
    assert described["topic"] == topic
    assert sorted(p["partition"] for p in described["partitions"]) == [0, 1, 2]


def in_transaction() -> tuple[str, str]:
    return "-X", f"transactional.id=x-{uuid.uuid4().hex[:12]}"


COMMITTED = ("-o", "beginning", "-X", "isolation.level=read_committed")
EVERYTHING = ("-o", "beginning", "-X", "isolation.level=read_uncommitted")


def test_a_session_in_a_transaction_is_committed_at_its_end(
    bootstrap: str, make_topic: MakeTopic
) -> None:
    topic = make_topic(2)
    for index in (0, 1):
        lines = "".join(f"{index}-{n}\n" for n in range(200))
        kcat(bootstrap, "-P", "-t", topic, "-p", str(index), *in_transaction(), stdin=lines)
        shown = kcat(bootstrap, "-C", "-t", topic, "-p", str(index), "-e", "-q", *COMMITTED)
        assert shown == lines


def test_an_interrupted_session_in_a_transaction_is_aborted(bootstrap: str, topic: str) -> None:
    kcat(bootstrap, "-P", "-t", topic, "-p", "0", stdin="before\n")
    # kcat reads in whole blocks: of fewer bytes, or of one more, it would keep some to itself.
    lost = "lost 01\n" * 8192
    running = subprocess.Popen(
        ["kcat", "-b", bootstrap, "-P", "-t", topic, "-p", "0", *in_transaction()],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert running.stdin is not None
    running.stdin.write(lost.encode())
    running.stdin.flush()
    deadline = time.monotonic() + 60
    while read_all(bootstrap, topic, *EVERYTHING) != "before\n" + lost:
        assert time.monotonic() < deadline, "kcat did not send everything"
    # What is open is not shown, nor what follows it.
    kcat(bootstrap, "-P", "-t", topic, "-p", "0", stdin="after\n")
    assert read_all(bootstrap, topic, *COMMITTED) == "before\n"
    running.send_signal(signal.SIGINT)
    _, said = running.communicate(timeout=60)
    assert b"Aborting transaction" in said, said
    assert running.returncode == 0
    assert read_all(bootstrap, topic, *COMMITTED) == "before\nafter\n"
    assert read_all(bootstrap, topic, *EVERYTHING) == "before\n" + lost + "after\n"
