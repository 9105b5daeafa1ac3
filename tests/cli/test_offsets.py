"""`headrace offsets`."""

from tests.cli.conftest import Run


def test_begin_end_and_total_of_each_partition(run: Run, topic: str) -> None:
    run("produce", topic, "-p", "1", stdin=b"a\nb\n")
    found = run("offsets", topic, "--json").document()
    assert (found["topic"], found["records"]) == (topic, 2)
    assert found["partitions"] == [
        {"partition": 0, "begin": 0, "end": 0, "records": 0},
        {"partition": 1, "begin": 0, "end": 2, "records": 2},
        {"partition": 2, "begin": 0, "end": 0, "records": 0},
    ]
    assert "total" in run("offsets", topic).text


def test_a_time_finds_the_first_record_that_is_not_older(run: Run, topic: str) -> None:
    lines = b'{"value":"a","partition":0,"timestamp":1000000000000}\n'
    lines += b'{"value":"b","partition":0,"timestamp":1000000005000}\n'
    run("produce", topic, "--format", "json", stdin=lines)
    found = run("offsets", topic, "--at", "1000000001000", "-p", "0", "--json").document()
    assert found["partitions"] == [
        {
            "partition": 0,
            "begin": 0,
            "end": 2,
            "records": 2,
            "at_offset": 1,
            "at_timestamp": 1000000005000,
        }
    ]
    later = run("offsets", topic, "--at", "-1s", "-p", "0", "--json").document()["partitions"]
    assert isinstance(later, list)
    assert later[0]["at_offset"] is None


def test_unknown_topics_and_times_have_their_exit_codes(run: Run, topic: str) -> None:
    assert run("offsets", topic + "-nope").code == 4
    assert run("offsets", topic, "--at", "noon").code == 2
