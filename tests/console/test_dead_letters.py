"""Dead letters over the console's HTTP API: causes, dry run, sending back, resuming."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from headrace.admin.dead_letters import RESEND_COUNT, is_dead_letter_name
from headrace.client.groups import Committed
from headrace.console.dead_letters.progress import LetterProgress, parse
from headrace.testing.running import RunningBroker
from tests.support.headrace_console import HeadraceConsole

PATIENCE_S = 60


def create(console: HeadraceConsole, name: str, partitions: int = 1) -> None:
    answer = console.http.post("/topics", json={"name": name, "partitions": partitions})
    assert answer.status_code == 200, answer.text


def connect_letter(origin: str, number: int, error: str = "DataException") -> dict[str, Any]:
    """A letter with the headers of Kafka Connect."""
    return {
        "key": f"k{number}",
        "value": f"v{number}",
        "headers": [
            ("__connect.errors.topic", origin.encode()),
            ("__connect.errors.partition", b"0"),
            ("__connect.errors.offset", str(number).encode()),
            ("__connect.errors.exception.class.name", f"org.apache.{error}".encode()),
            ("__connect.errors.exception.message", f"record {number} is bad".encode()),
            ("trace", b"t-1"),
        ],
    }


def write(console: HeadraceConsole, topic: str, *letters: dict[str, Any], **more: Any) -> None:
    producer = Producer({"bootstrap.servers": console.bootstrap})
    for each in letters:
        producer.produce(topic, **each, **more)
    assert producer.flush(PATIENCE_S) == 0


def read(console: HeadraceConsole, topic: str, number: int) -> list[Any]:
    """The first records of partition 0; fails if there are more."""
    consumer = Consumer({"bootstrap.servers": console.bootstrap, "group.id": "test"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[Any] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(found) < number and time.monotonic() < deadline:
        found += [each for each in consumer.consume(100, 1) if each.error() is None]
    _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=PATIENCE_S)
    consumer.close()
    assert end == number
    return found


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "did not come about in time"
        time.sleep(0.1)


def job(console: HeadraceConsole, topic: str) -> Any:
    return console.http.get(f"/dead-letters/{topic}/job").json()["job"]


def send(console: HeadraceConsole, topic: str, **order: Any) -> Any:
    answer = console.http.post(f"/dead-letters/{topic}/send", json=order)
    assert answer.status_code == 200, answer.text
    until(lambda: job(console, topic)["state"] != "running")
    return job(console, topic)


def causes(console: HeadraceConsole, topic: str) -> Any:
    answer = console.http.get(f"/dead-letters/{topic}")
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_letters_are_grouped_planned_and_sent_back_with_a_counter(
    any_console: HeadraceConsole, topic: str
) -> None:
    console, dead = any_console, f"{topic}-dlq"
    create(console, topic)
    create(console, dead, 2)
    write(console, dead, *(connect_letter(topic, n) for n in range(5)), partition=0)
    write(console, dead, connect_letter(topic, 5, "Timeout"), partition=1)
    write(console, dead, {"value": "who knows"}, partition=1)
    rows = {each["name"]: each for each in console.http.get("/dead-letters").json()["topics"]}
    assert topic not in rows
    assert (rows[dead]["letters"], rows[dead]["left"]) == ("7", "7")
    found = causes(console, dead)
    first = found["causes"][0]
    assert (first["count"], first["error"]) == ("5", "org.apache.DataException")
    assert len(found["causes"]) == 3
    assert found["causes"][0]["message"] == "record # is bad"

    plan = console.http.post(f"/dead-letters/{dead}/plan", json={}).json()
    assert (plan["send"], plan["topics"]) == ("6", [{"topic": topic, "count": "6"}])
    assert [each["count"] for each in plan["refused"]] == ["1"]
    assert causes(console, dead)["scanned"] == "7", "a dry run commits nothing"

    done = send(console, dead, rate=1000)
    assert (done["state"], done["sent"], done["refused"][0]["count"]) == ("finished", "6", "1")
    records = read(console, topic, 6)
    assert sorted(each.value() for each in records) == [b"v%d" % n for n in range(6)]
    headers = dict(records[0].headers())
    assert headers[RESEND_COUNT] == b"1"
    assert headers["trace"] == b"t-1"
    assert not any(name.startswith("__connect") for name in headers)
    assert causes(console, dead)["causes"] == []
    assert send(console, dead)["sent"] == "0", "letters are sent once"
    group = console.http.get(f"/groups/headrace-console-dlq-{dead}")
    assert group.status_code == 200, group.text


def test_a_letter_that_comes_back_again_and_again_is_refused(
    console: HeadraceConsole, topic: str
) -> None:
    dead = f"{topic}.DLT"
    create(console, topic)
    create(console, dead)
    letter = connect_letter(topic, 1)
    letter["headers"] += [(RESEND_COUNT, b"3")]
    write(console, dead, letter)
    done = send(console, dead)
    assert done["sent"] == "0"
    assert "sent back 3 times" in done["refused"][0]["reason"]


def test_one_cause_is_sent_and_the_others_are_passed_over(
    console: HeadraceConsole, topic: str
) -> None:
    dead = f"{topic}-dlq"
    create(console, topic)
    create(console, dead)
    write(console, dead, *(connect_letter(topic, n, f"E{n % 2}") for n in range(6)))
    wanted = next(each for each in causes(console, dead)["causes"] if each["error"].endswith("E1"))
    order = {"cause": wanted["id"]}
    plan = console.http.post(f"/dead-letters/{dead}/plan", json=order).json()
    assert (plan["send"], plan["passed_over"]) == ("3", "3")
    done = send(console, dead, **order)
    assert (done["sent"], done["passed_over"]) == ("3", "3")
    assert [each.value() for each in read(console, topic, 3)] == [b"v1", b"v3", b"v5"]
    again = console.http.get(f"/dead-letters/{dead}", params={"all": "true"}).json()
    assert again["scanned"] == "6"


def test_an_edited_letter_is_sent_once_and_the_rest_follows(
    console: HeadraceConsole, topic: str
) -> None:
    dead = f"{topic}-dlq"
    create(console, topic)
    create(console, dead)
    write(console, dead, *(connect_letter(topic, n) for n in range(4)))
    address = f"/dead-letters/{dead}/0/2"
    letter = console.http.get(address).json()
    assert letter["resend"]["value"] == {"format": "text", "text": "v2", "bytes": 2}
    sent = console.http.post(address, json={"value": {"format": "text", "text": "mended"}})
    assert sent.status_code == 200, sent.text
    assert console.http.get(address).json()["done"] is True
    assert causes(console, dead)["causes"][0]["count"] == "3"
    assert send(console, dead)["sent"] == "3"
    values = [each.value() for each in read(console, topic, 4)]
    assert values == [b"mended", b"v0", b"v1", b"v3"]
    bad = console.http.post(address, json={"value": {"format": "hex", "text": "zz"}})
    assert bad.status_code == 400


def test_a_stopped_run_is_continued_by_the_next_console(
    any_console: HeadraceConsole, topic: str, tmp_path: Path
) -> None:
    dead = f"{topic}-dlq"
    create(any_console, topic)
    create(any_console, dead)
    write(any_console, dead, *(connect_letter(topic, n) for n in range(60)))
    with HeadraceConsole(any_console.bootstrap, tmp_path) as first:
        started = first.http.post(f"/dead-letters/{dead}/send", json={"rate": 4})
        assert started.status_code == 200, started.text
        until(lambda: int(job(first, dead)["sent"]) >= 4)
        twice = first.http.post(f"/dead-letters/{dead}/send", json={})
        assert twice.status_code == 409
        stopped = first.http.post(f"/dead-letters/{dead}/stop").json()["job"]
        assert stopped["state"] == "stopped"
    before = int(stopped["sent"])
    assert 4 <= before < 60
    done = send(any_console, dead, rate=1000)
    assert int(done["sent"]) == 60 - before
    assert [each.value() for each in read(any_console, topic, 60)] == [
        b"v%d" % n for n in range(60)
    ]


def test_letters_larger_than_a_batch_are_sent_in_several(
    console: HeadraceConsole, topic: str
) -> None:
    dead = f"{topic}-dlq"
    create(console, topic)
    create(console, dead)
    letters = [{**connect_letter(topic, n), "value": b"x" * 400_000} for n in range(8)]
    write(console, dead, *letters)
    assert send(console, dead, rate=1000)["sent"] == "8"
    assert len(read(console, topic, 8)) == 8


def test_records_of_aborted_transactions_are_not_sent(console: HeadraceConsole, topic: str) -> None:
    dead = f"{topic}-dlq"
    create(console, topic)
    create(console, dead)
    producer = Producer({"bootstrap.servers": console.bootstrap, "transactional.id": topic})
    producer.init_transactions(PATIENCE_S)
    for number, commits in enumerate((True, False, True)):
        producer.begin_transaction()
        producer.produce(dead, **connect_letter(topic, number))
        # An abort discards records that are not sent yet.
        assert producer.flush(PATIENCE_S) == 0
        if commits:
            producer.commit_transaction(PATIENCE_S)
        else:
            producer.abort_transaction(PATIENCE_S)
    assert send(console, dead)["sent"] == "2"
    assert [each.value() for each in read(console, topic, 2)] == [b"v0", b"v2"]


def test_masked_fields_of_letters_are_not_shown_and_are_sent_unchanged(
    headrace: RunningBroker, topic: str, tmp_path: Path
) -> None:
    dead = f"{topic}-dlq"
    masks = ("--set", f"console.masks={topic}:value.card")
    with HeadraceConsole(headrace.bootstrap_servers, tmp_path, *masks) as console:
        create(console, topic)
        create(console, dead)
        letter = {**connect_letter(topic, 1), "value": '{"card": "4111-1111", "n": 1}'}
        write(console, dead, letter)
        plan = console.http.post(f"/dead-letters/{dead}/plan", json={})
        one = console.http.get(f"/dead-letters/{dead}/0/0")
        for answer in (console.http.get(f"/dead-letters/{dead}"), plan, one):
            assert answer.status_code == 200
            assert "4111" not in answer.text
        assert one.json()["resend"]["value"]["format"] == "masked"
        assert console.http.post(f"/dead-letters/{dead}/0/0", json={}).status_code == 200
        assert read(console, topic, 1)[0].value() == letter["value"].encode()


def test_names_of_dead_letter_topics_are_recognised() -> None:
    for name in ("orders-dlq", "orders.DLT", "OrdersDLQ", "dead-letters", "a.errors", "quarantine"):
        assert is_dead_letter_name(name), name
    for name in ("orders", "terrors", "dlqs", "errorless-topic", "adulterated"):
        assert not is_dead_letter_name(name), name


def test_progress_remembers_letters_that_were_sent_out_of_order() -> None:
    progress = LetterProgress(10).with_sent(12).with_sent(11)
    assert (progress.position, progress.sent) == (10, frozenset({11, 12}))
    assert parse(progress.commit()) == progress
    assert progress.moved_to(11) == LetterProgress(13)
    assert progress.with_sent(10) == LetterProgress(13)
    assert parse(Committed(5, "of another program")) == LetterProgress(5)
    assert parse(Committed(5, "sent:1,x")) == LetterProgress(5)
