"""`headrace produce`, seen through `headrace consume`."""

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run


def test_each_line_is_a_record_and_the_report_counts_them(run: Run, topic: str) -> None:
    result = run("produce", topic, "--partition", "2", "--json", stdin=b"one\ntwo\n\nlast")
    report = result.document()
    assert result.code == 0
    assert (report["records"], report["failed"]) == (4, 0)
    assert report["last_offsets"] == {"2": 3}
    read = run("consume", topic)
    assert read.out == b"one\ntwo\n\nlast\n"


def test_a_key_separator_splits_at_its_first_occurrence(run: Run, topic: str) -> None:
    assert run("produce", topic, "--key-separator", "::", stdin=b"k::v::w\n").code == 0
    row = run("consume", topic, "--json").rows()[0]
    assert (row["key"], row["value"]) == ("k", "v::w")


def test_a_line_without_the_separator_is_named(run: Run, topic: str) -> None:
    result = run("produce", topic, "-k", ":", stdin=b"a:1\nb2\nc:3\n")
    assert result.code == 1
    assert "line 2" in result.err
    assert run("consume", topic).out == b"1\n"


def test_null_marker_headers_and_json_fields_arrive(run: Run, topic: str) -> None:
    run("produce", topic, "-k", ":", "--null-marker", "NULL", "-H", "a=b=c", stdin=b"k:NULL\n")
    line = {
        "key": None,
        "value": {"n": 1},
        "headers": {"h": "x", "none": None},
        "partition": 1,
        "timestamp": 1_600_000_000_000,
    }
    sent = run("produce", topic, "--format", "json", stdin=json.dumps(line).encode())
    assert sent.code == 0
    rows = {str(row["key"]): row for row in run("consume", topic, "--json").rows()}
    assert rows["k"]["value"] is None
    assert rows["k"]["headers"] == [{"key": "a", "value": "b=c"}]
    other = rows["None"]
    assert (other["value"], other["partition"], other["timestamp"]) == (
        '{"n":1}',
        1,
        1_600_000_000_000,
    )
    assert other["headers"] == [{"key": "h", "value": "x"}, {"key": "none", "value": None}]


def test_what_consume_prints_as_json_produce_writes_again(run: Run, topic: str) -> None:
    run("produce", topic, "-k", ":", "-p", "0", stdin=b"\xff\x00:\x80bytes\n")
    first = run("consume", topic, "--json")
    assert first.rows()[0]["value_encoding"] == "base64"
    assert run("produce", topic, "--format", "json", stdin=first.out).code == 0
    assert run("consume", topic, "-F", "key-value", "-k", ":").out == b"\xff\x00:\x80bytes\n" * 2


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_files_and_codecs_and_idempotence(run: Run, topic: str, tmp_path: Path, codec: str) -> None:
    file = tmp_path / "lines.txt"
    file.write_bytes(b"".join(b"line %d\n" % n for n in range(2000)))
    result = run(
        "produce", topic, "--file", str(file), "-p", "0", "-z", codec, "--idempotent", "--json"
    )
    assert (result.code, result.document()["last_offsets"]) == (0, {"0": 1999})
    assert run("consume", topic).out == file.read_bytes()


def test_a_record_that_is_refused_is_named_and_exits_with_1(run: Run, topic: str) -> None:
    assert run("topics", "alter", topic, "--set", "max.message.bytes=1000").code == 0
    result = run("produce", topic, "--json", stdin=b"small\n" + b"x" * 5000 + b"\n")
    assert result.code == 1
    assert result.document()["failed"] == 1 or result.document()["failed"] == 2
    assert "was not written" in result.err


def test_a_missing_topic_is_exit_code_4_unless_it_may_be_made(run: Run, topic: str) -> None:
    name = f"{topic}-new"
    assert run("produce", name, stdin=b"x\n").code == 4
    assert run("topics", "describe", name).code == 4
    assert run("produce", name, "--create", stdin=b"x\n").code == 0
    assert run("consume", name).out == b"x\n"
    run("topics", "delete", name, "--yes")


def test_a_partition_that_is_not_there_is_exit_code_4(run: Run, topic: str) -> None:
    assert run("produce", topic, "--partition", "9", stdin=b"x\n").code == 4


def test_contradictions_are_bad_usage(run: Run, topic: str) -> None:
    assert run("produce", topic, "--idempotent", "--acks", "1").code == 2
    assert run("produce", topic, "--file", "/nowhere/at/all").code == 2
    assert run("produce", topic, "--header", "novalue").code == 2


def test_acks_0_reports_without_offsets(run: Run, topic: str) -> None:
    report = run("produce", topic, "--acks", "0", "--json", stdin=b"x\n").document()
    assert (report["records"], report["last_offsets"]) == (1, {})
