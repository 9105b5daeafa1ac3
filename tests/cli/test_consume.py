"""`headrace consume`: where it starts, where it stops, what it prints."""

import signal
import subprocess

import pytest

from tests.cli.conftest import Run, command


@pytest.fixture
def filled(run: Run, topic: str) -> str:
    """Ten records in partition 0, two in partition 1, with times a second apart."""
    lines = "".join(
        f'{{"value": "v{n}", "partition": 0, "timestamp": {1_700_000_000_000 + n * 1000}}}\n'
        for n in range(10)
    )
    lines += '{"value": "w0", "partition": 1}\n{"value": "w1", "partition": 1}\n'
    assert run("produce", topic, "--format", "json", stdin=lines.encode()).code == 0
    return topic


def _values(run: Run, *words: str) -> list[str]:
    result = run("consume", *words)
    assert result.code == 0, result.err
    return result.text.split()


def test_everything_is_read_once_and_it_stops_at_the_end(run: Run, filled: str) -> None:
    values = _values(run, filled)
    assert sorted(values) == sorted([f"v{n}" for n in range(10)] + ["w0", "w1"])
    assert [v for v in values if v[0] == "v"] == [f"v{n}" for n in range(10)]


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ("beginning", "v0"),
        ("7", "v7"),
        ("-3", "v7"),
        ("-99", "v0"),
        ("1700000004000", "v4"),
        ("@1700000003001", "v4"),
        ("2023-11-14T22:13:28Z", "v8"),
    ],
)
def test_from_names_an_offset_or_a_time(run: Run, filled: str, start: str, expected: str) -> None:
    assert _values(run, filled, "--partition", "0", "--from", start)[0] == expected


def test_a_position_past_the_end_reads_nothing(run: Run, filled: str) -> None:
    assert _values(run, filled, "-p", "0", "--from", "500") == []
    assert _values(run, filled, "-p", "0", "--from", "2040-01-01") == []


def test_count_stops_early(run: Run, filled: str) -> None:
    assert _values(run, filled, "-p", "0", "-n", "2") == ["v0", "v1"]


def test_an_empty_topic_ends_at_once(run: Run, topic: str) -> None:
    assert _values(run, topic) == []


def test_json_has_all_fields_of_a_record(run: Run, filled: str) -> None:
    row = run("consume", filled, "-p", "0", "--from", "3", "-n", "1", "--json").rows()[0]
    assert row == {
        "topic": filled,
        "partition": 0,
        "offset": 3,
        "timestamp": 1_700_000_003_000,
        "timestamp_type": "CreateTime",
        "key": None,
        "value": "v3",
        "headers": [],
    }


def test_raw_prints_values_and_nothing_else(run: Run, filled: str) -> None:
    assert run("consume", filled, "-p", "1", "--format", "raw").out == b"w0w1"


def test_the_table_has_a_heading_and_makes_bytes_visible(run: Run, topic: str) -> None:
    run("produce", topic, "-k", ":", "-H", "h=1", stdin=b"k\xff:a\x1b[31mb\n")
    lines = run("consume", topic, "--format", "table", "--show-headers").text.splitlines()
    assert lines[0].split() == ["PART", "OFFSET", "TIME", "(UTC)", "KEY", "HEADERS", "VALUE"]
    assert "k\\xff" in lines[1]
    assert "h=1" in lines[1]
    assert "a\\x1b[31mb" in lines[1]


def test_what_makes_no_sense_is_bad_usage(run: Run, filled: str) -> None:
    assert run("consume", filled, "--from", "end").code == 2
    assert run("consume", filled, "--from", "yesterday-ish").code == 2
    assert run("consume", filled, "--partition", "7").code == 4
    assert run("consume", filled + "-nope").code == 4


def test_follow_prints_what_arrives_and_ctrl_c_is_clean(
    run: Run, filled: str, bootstrap: str
) -> None:
    words = command("consume", filled, "--from", "-1", "-p", "0", "--follow", "-b", bootstrap)
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"v9\n"
        run("produce", filled, "-p", "0", stdin=b"fresh\n")
        assert process.stdout.readline() == b"fresh\n"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert (process.returncode, err) == (0, b"")


def test_a_reader_that_has_seen_enough_ends_it_silently(
    run: Run, topic: str, bootstrap: str
) -> None:
    run("produce", topic, stdin=b"".join(b"%d\n" % n for n in range(50_000)))
    process = subprocess.Popen(
        command("consume", topic, "-b", bootstrap), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(60) == 0
    assert process.stderr.read() == b""
    process.stderr.close()


def test_aborted_records_are_shown_only_on_request(run: Run, topic: str, bootstrap: str) -> None:
    from confluent_kafka import KafkaException, Producer

    producer = Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": f"{topic}-tx", "log_level": 0}
    )
    try:
        producer.init_transactions(60)
    except KafkaException:
        pytest.skip("this cluster has no transactions")
    for value, finish in (("kept", True), ("dropped", False)):
        producer.begin_transaction()
        producer.produce(topic, value, partition=0)
        producer.flush(60)
        producer.commit_transaction() if finish else producer.abort_transaction()
    assert _values(run, topic) == ["kept"]
    assert _values(run, topic, "--isolation", "uncommitted") == ["kept", "dropped"]
