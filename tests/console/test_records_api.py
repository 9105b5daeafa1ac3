"""Records over the console's HTTP API: pages, single records, downloads, the tail and searches."""

import json
import threading
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from headrace.console.records.tail import LINGER_S, RING_RECORDS
from headrace.testing.running import RunningBroker
from tests.support.headrace_console import HeadraceConsole
from tests.support.headrace_registry import HeadraceRegistry

FIRST_MS = int(time.time() - 3600) * 1000
"""Within the retention time."""


def produce(
    console: HeadraceConsole, topic: str, records: list[dict[str, Any]], **more: object
) -> None:
    producer = Producer({"bootstrap.servers": console.bootstrap, **more})
    for each in records:
        producer.produce(topic, **each)
    assert producer.flush(60) == 0


def create(console: HeadraceConsole, topic: str, partitions: int = 1, **configs: str) -> None:
    body = {"name": topic, "partitions": partitions, "configs": configs}
    assert console.http.post("/topics", json=body).status_code == 200


def page(console: HeadraceConsole, topic: str, **query: object) -> dict[str, Any]:
    answer = console.http.get(
        f"/topics/{topic}/records", params={name: str(value) for name, value in query.items()}
    )
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def values(found: dict[str, Any]) -> list[str]:
    return [each["value"]["text"] for each in found["records"]]


def test_pages_of_all_starts_lead_through_the_whole_topic(
    any_console: HeadraceConsole, topic: str
) -> None:
    create(any_console, topic, 2)
    records = [
        {"value": str(n), "partition": n % 2, "timestamp": FIRST_MS + n * 1000} for n in range(20)
    ]
    produce(any_console, topic, records)
    for start, order in (("newest", -1), ("oldest", 1)):
        found = page(any_console, topic, **{"from": start, "limit": 6})
        seen = values(found)
        while len(seen) < 20:
            at = ",".join(f"{p}:{o}" for p, o in found["next"].items())
            found = page(any_console, topic, **{"from": start, "limit": 6, "at": at})
            assert found["records"], "a page in the middle is empty"
            seen += values(found)
        assert seen == [str(n) for n in range(20)][::order]
    by_time = page(any_console, topic, **{"from": f"time:{FIRST_MS + 14_500}"})
    assert values(by_time) == [str(n) for n in range(15, 20)]
    by_offset = page(any_console, topic, **{"from": "offset:8", "partitions": "1"})
    assert values(by_offset) == ["17", "19"]
    assert page(any_console, topic, **{"from": f"time:{FIRST_MS * 2}"})["records"] == []


HOSTILE: list[tuple[bytes | None, dict[str, object] | None]] = [
    (None, None),
    (b"", {"format": "text", "text": ""}),
    (b"<script>x</script>", {"format": "text", "text": "<script>x</script>"}),
    (b'{"n": 9223372036854775807}', {"format": "json", "text": '{"n": 9223372036854775807}'}),
    (b'{"n": NaN}', {"format": "text"}),
    (b"[" * 5000, {"format": "text"}),
    (b"9223372036854775807", {"format": "json", "text": "9223372036854775807"}),
    (b"\xff\xfe", {"format": "hex", "text": "fffe"}),
    (b"a\0b", {"format": "hex"}),
    (b"\0\0\0\0\x01abc", {"format": "hex", "bytes": 8}),
    ("\u202eevil".encode(), {"format": "text", "text": "\u202eevil"}),
    (b"x" * 900_000, {"format": "text", "cut": True, "bytes": 900_000}),
]


def test_every_kind_of_value_is_shown_exactly(any_console: HeadraceConsole, topic: str) -> None:
    create(any_console, topic)
    produce(any_console, topic, [{"value": value} for value, _ in HOSTILE])
    found = page(any_console, topic, **{"from": "oldest"})["records"]
    assert len(found) == len(HOSTILE)
    for row, (value, expected) in zip(found, HOSTILE, strict=True):
        assert (row["value"] is None) == (expected is None)
        if expected is not None:
            assert row["value"].items() >= expected.items()
        if value is not None:
            place = f"/topics/{topic}/records/0/{row['offset']}"
            file = any_console.http.get(f"{place}/value")
            assert file.content == value
            assert file.headers["content-disposition"].startswith("attachment")
            assert file.headers["x-content-type-options"] == "nosniff"
    whole = any_console.http.get(f"/topics/{topic}/records/0/11").json()
    assert whole["value"]["text"] == "x" * 900_000
    assert not whole["value"]["cut"]


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("/topics/{t}/records/0/99", 404, "not written yet"),
        ("/topics/{t}/records/7/0", 404, ""),
        ("/topics/{t}/records/0/x", 400, "whole number"),
        ("/topics/{t}/records/0/-1", 400, "between"),
        ("/topics/{t}/records/0/0/headers", 404, "key and a value"),
        ("/topics/{t}/records?from=yesterday", 400, "newest, oldest"),
        ("/topics/{t}/records?limit=0", 400, "between"),
        ("/topics/{t}/records?limit=100000", 400, "between"),
        ("/topics/{t}/records?partitions=a", 400, "whole number"),
        ("/topics/{t}/records?at=1", 400, "whole number"),
        ("/topics/no-such-topic/records", 404, "no-such-topic"),
        ("/topics/{t}/search?q=&kind=text", 400, "missing"),
        ("/topics/{t}/search?q=x%20%3E&kind=expression", 400, "cannot be understood"),
        ("/topics/{t}/search?q=x&left=1:2", 400, "PARTITION:START:STOP"),
    ],
)
def test_requests_that_cannot_be_answered_are_explained(
    console: HeadraceConsole, topic: str, path: str, status: int, words: str
) -> None:
    create(console, topic)
    produce(console, topic, [{"value": "one"}])
    answer = console.http.get(path.replace("{t}", topic))
    assert (answer.status_code, words in answer.json()["message"]) == (status, True), answer.text


# ------------------------------------------------------------------------------------- the tail


def events(
    console: HeadraceConsole, path: str, **params: str
) -> Generator[tuple[str, Any, str], None, None]:
    """Name, data and id of each event of a stream."""
    with console.http.stream("GET", path, params=params) as answer:
        assert answer.status_code == 200, answer.read()
        name = last = ""
        for line in answer.iter_lines():
            field, _, text = line.partition(": ")
            if field == "event":
                name = text
            elif field == "id":
                last = text
            elif field == "data":
                yield name, json.loads(text), last


def test_the_tail_has_new_records_and_continues_where_a_viewer_left(
    any_console: HeadraceConsole, topic: str
) -> None:
    create(any_console, topic, 2)
    produce(any_console, topic, [{"value": "old", "partition": 0}])
    stream = events(any_console, f"/topics/{topic}/tail")
    assert next(stream)[0] == "ready"
    produce(any_console, topic, [{"value": "a", "partition": 0}, {"value": "b", "partition": 1}])
    seen: list[str] = []
    last = ""
    while len(seen) < 2:
        _, data, last = next(stream)
        seen += values(data)
    assert sorted(seen) == ["a", "b"]
    assert last == "0:2,1:1"
    keep = events(any_console, f"/topics/{topic}/tail")  # the reader goes on for this viewer
    assert next(keep)[0] == "ready"
    stream.close()
    produce(any_console, topic, [{"value": "c", "partition": 1}])
    while not any(values(data) == ["c"] for _, data, _ in keep):
        pass
    again = events(any_console, f"/topics/{topic}/tail", at=last)
    assert next(again)[0] == "ready"
    assert values(next(again)[1]) == ["c"]
    again.close()
    keep.close()


def test_a_viewer_continues_after_its_reader_has_stopped(
    any_console: HeadraceConsole, topic: str
) -> None:
    create(any_console, topic, 2)
    produce(any_console, topic, [{"value": "old", "partition": 0}])
    stream = events(any_console, f"/topics/{topic}/tail")
    name, _, left = next(stream)
    assert (name, left) == ("ready", "0:1,1:0")
    stream.close()
    time.sleep(LINGER_S + 2)  # the reader of a topic without viewers stops
    produce(any_console, topic, [{"value": "a", "partition": 0}, {"value": "b", "partition": 1}])
    again = events(any_console, f"/topics/{topic}/tail", at=left)
    seen: list[str] = []
    while len(seen) < 2:
        _, data, _ = next(again)
        seen += values(data) if data else []
    again.close()
    assert sorted(seen) == ["a", "b"]


def test_records_that_a_viewer_was_away_for_too_long_to_get_are_counted(
    console: HeadraceConsole, topic: str
) -> None:
    create(console, topic)
    count = RING_RECORDS + 500
    produce(console, topic, [{"value": str(n)} for n in range(count)])
    stream = events(console, f"/topics/{topic}/tail", at="0:0")
    seen = listed = left_out = 0
    while seen < count:
        _, data, _ = next(stream)
        seen += data.get("seen", 0)
        listed += len(data.get("records", []))
        left_out += data.get("left_out", 0)
    stream.close()
    assert (seen, listed + left_out) == (count, count)
    assert left_out >= 500


def test_a_fast_topic_is_counted_whole_and_listed_in_part(
    console: HeadraceConsole, topic: str
) -> None:
    create(console, topic)
    stream = events(console, f"/topics/{topic}/tail")
    assert next(stream)[0] == "ready"
    count = 20_000
    background = threading.Thread(
        target=produce, args=(console, topic, [{"value": str(n)} for n in range(count)])
    )
    background.start()
    seen = listed = left_out = 0
    while seen < count:
        _, data, _ = next(stream)
        seen += data["seen"]
        listed += len(data["records"])
        left_out += data["left_out"]
    background.join()
    stream.close()
    assert (seen, listed + left_out) == (count, count)
    assert left_out > 0


def test_a_topic_that_does_not_exist_cannot_be_followed(console: HeadraceConsole) -> None:
    names = [(name, data) for name, data, _ in events(console, "/topics/no-such-topic/tail")]
    assert [name for name, _ in names] == ["ready", "problem"]
    assert "no-such-topic" in names[-1][1]


# --------------------------------------------------------------------------------------- search


def search(console: HeadraceConsole, topic: str, **query: str) -> tuple[list[str], dict[str, Any]]:
    """The values that were found, in order, and the last progress."""
    found: list[str] = []
    progress: dict[str, Any] = {}
    for name, data, _ in events(console, f"/topics/{topic}/search", **query):
        if name == "record":
            found.append(data["record"]["value"]["text"])
        else:
            progress = data["progress"]
    return found, progress


@pytest.mark.parametrize("codec", ["none", "gzip", "lz4", "zstd", "snappy"])
def test_a_search_finds_all_records_that_match_newest_first(
    any_console: HeadraceConsole, topic: str, codec: str
) -> None:
    create(any_console, topic, 2)
    records = [
        {
            "key": f"key-{n}",
            "value": json.dumps({"n": n, "even": n % 2 == 0, "name": f"name {n}"}),
            "headers": {"source": "web" if n % 3 else "shop"},
            "partition": n % 2,
            "timestamp": FIRST_MS + n,
        }
        for n in range(200)
    ]
    produce(any_console, topic, records, **{"compression.type": codec, "linger.ms": 100})
    found, progress = search(any_console, topic, q="name 17")
    assert sorted(json.loads(each)["n"] for each in found) == [17, *range(170, 180)]
    assert (progress["scanned"], progress["total"], progress["matched"]) == ("200", "200", 11)
    assert progress["done"] == "everything was searched"
    found, _ = search(
        any_console,
        topic,
        kind="expression",
        q='value.n >= 190 and value.even == true and headers.source != "shop"',
    )
    assert [json.loads(each)["n"] for each in found] == [
        n for n in range(199, 189, -1) if n % 2 == 0 and n % 3
    ]
    found, _ = search(any_console, topic, q="NAME 17", ignore_case="true")
    assert len(found) == 11
    found, progress = search(any_console, topic, q="n", **{"from": str(FIRST_MS + 190)})
    assert (len(found), progress["total"]) == (10, "10")


def test_a_search_that_found_enough_tells_so_and_goes_on(
    console: HeadraceConsole, topic: str
) -> None:
    create(console, topic)
    produce(console, topic, [{"value": f"needle {n}"} for n in range(450)])
    seen: list[str] = []
    left = ""
    for expected in (200, 200, 50):
        found, progress = search(console, topic, q="needle", left=left)
        assert len(found) == expected
        seen += found
        left = ",".join(f"{p}:{start}:{stop}" for p, (start, stop) in progress["left"].items())
    assert seen == [f"needle {n}" for n in reversed(range(450))]
    assert (left, progress["done"]) == ("", "everything was searched")


def test_a_text_that_is_escaped_in_json_is_found(console: HeadraceConsole, topic: str) -> None:
    create(console, topic)
    produce(console, topic, [{"value": '{"name": "\\u0041da"}'}])
    found, _ = search(console, topic, kind="expression", q='value.name == "Ada"')
    assert len(found) == 1


def test_a_list_is_found_by_its_text_however_it_is_written(
    console: HeadraceConsole, topic: str
) -> None:
    create(console, topic)
    produce(console, topic, [{"value": '{"a": [1,2]}'}, {"value": '{"a": 1e2}'}])
    found, _ = search(console, topic, kind="expression", q='value.a contains "1, 2"')
    assert found == ['{"a": [1,2]}']
    found, _ = search(console, topic, kind="expression", q='value.a contains "100.0"')
    assert found == ['{"a": 1e2}']


def test_names_that_are_only_in_the_schema_are_found(
    headrace: RunningBroker, topic: str, tmp_path: Path
) -> None:
    states = {"type": "enum", "name": "S", "symbols": ["OPEN", "SHIPPED"]}
    schema = {"type": "record", "name": "R", "fields": [{"name": "state", "type": states}]}
    bootstrap = headrace.bootstrap_servers
    with (
        HeadraceRegistry(bootstrap, tmp_path, topic=f"{topic}-schemas") as registry,
        HeadraceConsole(bootstrap, tmp_path, "--registry", registry.url) as console,
    ):
        answer = console.http.post(f"/schemas/{topic}-value", json={"schema": json.dumps(schema)})
        framed = b"\0" + int(answer.json()["id"]).to_bytes(4, "big")
        create(console, topic)
        records = [{"value": framed + state} for state in (b"\0", b"\2")]
        produce(console, topic, [*records, {"value": "no schema"}])
        found, _ = search(console, topic, q="SHIPPED")
        assert found == ['{"state": "SHIPPED"}']
        found, _ = search(console, topic, kind="expression", q='value.state == "SHIPPED"')
        assert found == ['{"state": "SHIPPED"}']
        assert len(search(console, topic, q="state")[0]) == 2
