"""What the HTTP sink sends, and what it does with refused records, against a real server."""

import datetime
import json
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from starlette.responses import Response

from headrace.connect import OptionError, PermanentError, RecordError, SinkTask
from headrace.connect.connectors.http.sink import HttpSink
from headrace.connect.host.refusals import Refusals
from headrace.connect.host.sink_task import TaskWriting
from headrace.connect.host.work import ConnectorWork
from tests.support.http_server import HttpServerUnderTest, SeenRequest


def make(server: HttpServerUnderTest, path: str = "/in", **options: str) -> HttpSink:
    """A sink that does not wait before it sends again."""
    given = {name.replace("__", "."): value for name, value in options.items()}
    sink = HttpSink({"http.api.url": server.url + path, "retry.backoff.ms": "0", **given})
    sink.open(SinkTask("c", 0, 0, 0))
    return sink


def batch(values: Iterable[Any], keys: Iterable[Any] | None = None) -> pa.RecordBatch:
    found = list(values)
    return pa.RecordBatch.from_pylist(
        [
            {"topic": "to pic", "partition": 0, "offset": offset, "key": key, "value": value}
            for offset, (value, key) in enumerate(
                zip(found, keys or [None] * len(found), strict=True)
            )
        ],
        schema=pa.schema(
            [
                ("topic", pa.string()),
                ("partition", pa.int32()),
                ("offset", pa.int64()),
                ("key", pa.string()),
                ("value", pa.array(found).type),
            ]
        ),
    )


def refuses(*words: str, status: int = 422) -> Any:
    """A server that refuses requests with one of these words."""

    def answer(request: SeenRequest) -> Response:
        bad = [word for word in words if word in request.body.decode()]
        return Response(f"bad: {bad}", status) if bad else Response(status_code=204)

    return answer


def test_a_record_is_a_request(server: HttpServerUnderTest) -> None:
    sink = make(server, "/${topic}/${key}", request__method="put", headers="X-A: b|X-C: d")
    sink.write(batch(["one", "two"], ["a/b", "c"]))
    sink.close()
    assert server.bodies == ["one", "two"]
    first = server.requests[0]
    assert (first.method, first.path) == ("PUT", "/to pic/a/b")
    assert (first.headers["x-a"], first.headers["x-c"]) == ("b", "d")
    assert first.headers["content-type"] == "text/plain; charset=utf-8"


def test_json_has_texts_for_what_json_does_not_have(server: HttpServerUnderTest) -> None:
    sink = make(server, request__body__format="json")
    moment = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)
    sink.write(batch([{"at": moment, "price": Decimal("1.50"), "raw": b"\xff", "tags": ["é"]}]))
    sink.write(batch(["text"]))
    assert json.loads(server.bodies[0]) == {
        "at": "2026-01-02T03:04:05+00:00",
        "price": "1.50",
        "raw": "/w==",
        "tags": ["é"],
    }
    assert server.bodies[1] == '"text"'
    assert server.requests[0].headers["content-type"] == "application/json"


def test_bytes_are_sent_as_they_are(server: HttpServerUnderTest) -> None:
    make(server).write(batch([b"\xff\x00"]))
    assert server.requests[0].body == b"\xff\x00"


@pytest.mark.parametrize(
    ("options", "bodies"),
    [
        ({}, ["0,1", "2,3", "4"]),
        (
            {"batch__prefix": "<", "batch__suffix": ">", "batch__separator": ""},
            ["<01>", "<23>", "<4>"],
        ),
        (
            {"batch__json__as__array": "true", "request__body__format": "json"},
            ["[0,1]", "[2,3]", "[4]"],
        ),
    ],
)
def test_records_are_sent_in_batches(
    server: HttpServerUnderTest, options: dict[str, str], bodies: list[str]
) -> None:
    make(server, batch__max__size="2", **options).write(batch(range(5)))
    assert server.bodies == bodies


def test_records_with_other_addresses_are_other_requests_in_their_order(
    server: HttpServerUnderTest,
) -> None:
    sink = make(server, "/${key}", batch__max__size="10")
    sink.write(batch(range(4), ["a", "a", "b", "a"]))
    assert [(each.path, each.body) for each in server.requests] == [
        ("/a", b"0,1"), ("/b", b"2"), ("/a", b"3"),
    ]  # fmt: skip


@pytest.mark.parametrize("size", [1, 4, 100])
def test_refused_records_are_found_and_all_others_are_sent_once(
    server: HttpServerUnderTest, size: int
) -> None:
    server.answer = refuses("bad")
    sink = make(server, batch__max__size=str(size), errors__tolerance="all")
    records = batch(["bad" if n in (3, 7) else f"v{n}" for n in range(10)])
    work = ConnectorWork("http", "", {"errors.tolerance": "all"})
    writing = TaskWriting(sink, Refusals(work, 0, {}))
    writing.write(records)
    writing.write(batch(["later"]))
    assert (writing.written, writing.refusals.count) == (9, 2)
    accepted = [word for body in server.bodies if "bad" not in body for word in body.split(",")]
    assert accepted == [f"v{n}" for n in range(10) if n not in (3, 7)] + ["later"]


def test_the_error_of_a_refused_record_has_the_words_of_the_server(
    server: HttpServerUnderTest,
) -> None:
    server.answer = refuses("bad", status=400)
    with pytest.raises(RecordError) as caught:
        make(server, errors__tolerance="all").write(batch(["a", "bad", "c"]))
    assert list(caught.value.rows) == [1]
    assert "status 400: bad" in caught.value.rows[1]
    assert server.bodies == ["a", "bad", "c"]


def test_without_tolerance_nothing_is_sent_after_a_refused_record(
    server: HttpServerUnderTest,
) -> None:
    server.answer = refuses("bad")
    with pytest.raises(RecordError):
        make(server).write(batch(["a", "bad", "c"]))
    assert server.bodies == ["a", "bad"]


@pytest.mark.parametrize(
    ("path", "status", "error"),
    [
        ("/in", 401, PermanentError),
        ("/in", 403, PermanentError),
        ("/in", 404, PermanentError),
        ("/${key}", 404, RecordError),
        ("/in", 413, RecordError),
        ("/in", 429, ConnectionError),
        ("/in", 500, ConnectionError),
        ("/in", 503, ConnectionError),
    ],
)
def test_an_error_is_of_the_record_of_the_configuration_or_passing(
    server: HttpServerUnderTest, path: str, status: int, error: type[Exception]
) -> None:
    server.answer = lambda request: Response(status_code=status)
    with pytest.raises(error):
        make(server, path, errors__tolerance="all").write(batch(["a"], ["k"]))


def test_a_request_is_sent_again_as_the_server_asks(server: HttpServerUnderTest) -> None:
    server.answer = lambda request: (
        Response(status_code=429, headers={"retry-after": "0"})
        if len(server.requests) < 3
        else Response()
    )
    make(server).write(batch(["a"]))
    assert server.bodies == ["a"] * 3
    server.requests.clear()
    server.answer = lambda request: Response(status_code=429)
    with pytest.raises(ConnectionError):
        make(server, max__retries="1").write(batch(["a"]))
    with pytest.raises(ConnectionError):
        make(server, retry__on__status__codes="500-599").write(batch(["a"]))
    assert len(server.requests) == 3


@pytest.mark.parametrize(
    ("behavior", "methods"),
    [("ignore", ["POST"]), ("log", ["POST"]), ("delete", ["DELETE", "POST"])],
)
def test_a_tombstone_is_left_out_or_deletes(
    server: HttpServerUnderTest, behavior: str, methods: list[str]
) -> None:
    server.answer = lambda request: Response(status_code=404 if request.method == "DELETE" else 200)
    sink = make(server, "/${key}", behavior__on__null__values=behavior, batch__max__size="10")
    sink.write(batch([None, "a"], ["k", "k"]))
    assert [each.method for each in server.requests] == methods


def test_records_that_cannot_be_sent_are_refused(server: HttpServerUnderTest) -> None:
    sink = make(server, "/${key}", behavior__on__null__values="fail", errors__tolerance="all")
    with pytest.raises(RecordError) as caught:
        sink.write(batch([None, "a", "b"], ["k", None, "k"]))
    assert list(caught.value.rows) == [0, 1]
    assert server.bodies == ["b"]
    with pytest.raises(RecordError):
        make(server, "/${key}").write(batch(["a", "c"], [None, "k"]))
    assert server.bodies == ["b"]


@pytest.mark.parametrize(
    ("options", "option"),
    [
        ({"http.api.url": "nowhere"}, "http.api.url"),
        ({"http.api.url": "http://example.com/${value}"}, "http.api.url"),
        ({"request__method": "GET"}, "request.method"),
        ({"batch__max__size": "0"}, "batch.max.size"),
        ({"batch__json__as__array": "true"}, "batch.json.as.array"),
        ({"behavior__on__error": "log"}, "behavior.on.error"),
        ({"retry__on__status__codes": "4xx"}, "retry.on.status.codes"),
    ],
)
def test_an_option_that_cannot_work_is_named(options: dict[str, str], option: str) -> None:
    with pytest.raises(OptionError) as caught:
        make(HttpServerUnderTest("http://127.0.0.1:1"), **options)
    assert caught.value.option == option


def test_the_check_needs_a_server_that_responds(server: HttpServerUnderTest) -> None:
    server.answer = lambda request: Response(status_code=404)
    make(server).check()
    assert server.requests == []
    with pytest.raises(OptionError, match="cannot be reached"):
        make(HttpServerUnderTest("http://127.0.0.1:1")).check()
