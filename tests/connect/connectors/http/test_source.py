"""What the HTTP source requests and reads, against a real server."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from starlette.responses import JSONResponse, Response

from headrace.connect import OptionError, PermanentError
from headrace.connect.connectors.http.source import HttpSource
from headrace.connect.plugin import SourceOffset
from tests.support.http_server import HttpServerUnderTest, SeenRequest

PARTITION = {"entityName": ""}


def make(server: HttpServerUnderTest, path: str = "/items", **options: str) -> HttpSource:
    """A source that polls as often as it is asked. Names of options have `__` for a dot."""
    given = {name.replace("__", "."): value for name, value in options.items()}
    return HttpSource(
        {
            "url": server.url + path,
            "topic.name.pattern": "t",
            "request.interval.ms": "0",
            "http.offset.mode": "NONE",
            **given,
        }
    )


def polled(
    source: HttpSource, start: SourceOffset | None = None, partition: Mapping[str, str] = PARTITION
) -> tuple[list[Any], SourceOffset | None]:
    """The rows of the next range, read twice, and its end."""
    end = source.latest(partition, start, 1000)
    if end is None or end == start:
        return [], start
    first, second = ([*_rows(source, partition, start, end)] for _ in range(2))
    assert first == second
    source.commit(partition, end)
    return first, end


def _rows(
    source: HttpSource,
    partition: Mapping[str, str],
    start: SourceOffset | None,
    end: SourceOffset,
) -> list[Any]:
    found: list[Any] = []
    for batch in source.read(partition, start, end):
        assert isinstance(batch, pa.RecordBatch)
        rows = batch.to_pylist()
        found += rows if source.schema else [json.loads(row["value"]) for row in rows]
    return found


def drained(source: HttpSource) -> list[Any]:
    """The rows of all ranges until nothing is new."""
    rows: list[Any] = []
    start = None
    while True:
        some, end = polled(source, start)
        if end == start:
            return rows
        rows, start = rows + some, end


def items(rows: Sequence[Any]) -> Callable[[SeenRequest], Response]:
    return lambda request: JSONResponse(rows)


@pytest.mark.parametrize(
    ("body", "options", "rows"),
    [
        ('[{"id": 1}, {"id": 2}]', {}, [{"id": 1}, {"id": 2}]),
        ('{"id": 1}', {}, [{"id": 1}]),
        ('{"data": {"items": [1, "é"]}}', {"pointer": "/data/items"}, [1, "é"]),
        ('{"data": null}', {"pointer": "/data"}, []),
        ("{}", {"pointer": "/data"}, []),
        ("", {}, []),
        ('{"id": 1}\n\n{"id": 2}\n', {"format": "jsonl"}, [{"id": 1}, {"id": 2}]),
    ],
)
def test_rows_are_an_array_an_object_or_lines(
    server: HttpServerUnderTest, body: str, options: dict[str, str], rows: list[Any]
) -> None:
    server.answer = lambda request: Response(body)
    source = make(
        server,
        http__response__data__json__pointer=options.get("pointer", ""),
        http__response__format=options.get("format", "json"),
    )
    assert polled(source)[0] == rows


def test_a_schema_makes_typed_columns_and_a_key(server: HttpServerUnderTest) -> None:
    server.answer = items([{"id": 1, "at": "2026-01-02T03:04:05Z", "more": 1}, {"id": 2}])
    source = make(server, schema="id bigint, at timestamp", key="id")
    source.check()
    (stream,) = source.streams()
    assert (stream.key, stream.value) == (["id"], "")
    rows, _ = polled(source)
    assert [row["id"] for row in rows] == [1, 2]
    assert rows[0]["at"].year == 2026
    assert set(rows[1]) == {"id", "at"}
    server.answer = items([{"id": "x"}])
    with pytest.raises(PermanentError, match="columns of the option schema"):
        polled(source)


def test_without_an_offset_a_response_is_read_again_only_if_it_has_changed(
    server: HttpServerUnderTest,
) -> None:
    def answer(request: SeenRequest) -> Response:
        if request.headers.get("if-none-match") == version:
            return Response(status_code=304)
        return JSONResponse([version], headers={"etag": version})

    server.answer = answer
    source = make(server)
    version = '"1"'
    rows, start = polled(source)
    assert rows == ['"1"']
    assert polled(source, start) == ([], start)
    version = '"2"'
    rows, start = polled(source, start)
    assert rows == ['"2"']
    server.answer = lambda request: JSONResponse(
        [request.headers.get("if-modified-since")],
        headers={"last-modified": "Mon, 02 Nov 2026 00:00:00 GMT"},
    )
    rows, start = polled(source, start)
    assert polled(source, start)[0] == ["Mon, 02 Nov 2026 00:00:00 GMT"]


def test_a_response_without_a_version_is_read_at_every_poll(server: HttpServerUnderTest) -> None:
    server.answer = items([1])
    source = make(server)
    rows, start = polled(source)
    again, later = polled(source, start)
    assert rows == again == [1]
    assert later != start


def test_the_number_of_rows_is_the_offset_of_the_next_request(server: HttpServerUnderTest) -> None:
    rows = list(range(25))
    server.answer = lambda request: JSONResponse(
        rows[int(request.query["skip"]) : int(request.query["skip"]) + 10]
    )
    source = make(
        server,
        http__offset__mode="SIMPLE_INCREMENTING",
        http__request__parameters="skip=${offset}&limit=10",
        http__initial__offset="3",
    )
    assert drained(source) == rows[3:]
    assert [each.query["skip"] for each in server.requests] == ["3", "13", "23", "25"]


def test_the_offset_of_the_last_row_is_chained_into_the_next_request(
    server: HttpServerUnderTest,
) -> None:
    pages = {"": ["a", "b"], "b": ["c d"], "c d": ["c d"]}
    server.answer = lambda request: JSONResponse(
        {"hits": [{"sort": [name]} for name in pages[request.query.get("after", "")]]}
    )
    source = make(
        server,
        http__offset__mode="chaining",
        http__response__data__json__pointer="/hits",
        http__offset__json__pointer="/sort/0",
        http__request__parameters="after=${offset}",
    )
    assert [row["sort"][0] for row in drained(source)] == ["a", "b", "c d"]


def test_a_page_token_is_followed_and_the_last_page_is_read_as_it_grows(
    server: HttpServerUnderTest,
) -> None:
    pages: dict[str, Any] = {"": {"items": [1, 2], "next": "p2"}, "p2": {"items": [3]}}
    server.answer = lambda request: JSONResponse(pages[request.query.get("page", "")])
    source = make(
        server,
        http__offset__mode="CURSOR_PAGINATION",
        http__response__data__json__pointer="/items",
        http__next__page__json__pointer="/next",
        http__request__parameters="page=${offset}",
    )
    first, start = polled(source)
    second, start = polled(source, start)
    assert (first, second) == ([1, 2], [3])
    assert polled(source, start) == ([], start)
    pages["p2"]["items"].append(4)
    grown, start = polled(source, start)
    pages["p2"] = {"items": [3, 4, 5], "next": "p3"}
    pages["p3"] = {"items": [6]}
    rest, start = polled(source, start)
    last, start = polled(source, start)
    assert (grown, rest, last) == ([4], [5], [6])


@pytest.mark.parametrize("in_body", [False, True])
def test_a_link_to_the_next_page_is_followed_on_the_same_server_only(
    server: HttpServerUnderTest, other_server: HttpServerUnderTest, in_body: bool
) -> None:
    def answer(request: SeenRequest) -> Response:
        page = int(request.query.get("page", "1"))
        link = f"/items?page={page + 1}" if page < 3 else None
        link = f"{other_server.url}/items" if page == 3 and leaves else link
        if in_body:
            return JSONResponse({"rows": [page], "links": {"next": link}})
        header = f'<{server.url}/first>; rel="first", <{link}>; rel="next last"'
        return JSONResponse({"rows": [page]}, headers={"link": header} if link else {})

    leaves = False
    server.answer = answer
    options = {
        "http__offset__mode": "CURSOR_PAGINATION",
        "http__response__data__json__pointer": "/rows",
        **({"http__next__page__json__pointer": "/links/next"} if in_body else {}),
    }
    assert drained(make(server, **options)) == [1, 2, 3]
    leaves = True
    with pytest.raises(PermanentError, match="is on http"):
        drained(make(server, **options))
    assert other_server.requests == []


def test_an_incrementing_field_finds_new_rows_in_any_order(server: HttpServerUnderTest) -> None:
    source = make(
        server,
        http__offset__mode="INCREMENTING",
        http__offset__json__pointer="/id",
        http__request__parameters="since=${offset}",
    )
    server.answer = items([{"id": 3}, {"id": 1}, {"id": 2}])
    rows, start = polled(source)
    assert len(rows) == 3
    assert start is not None
    assert start["offset"] == 3
    assert polled(source, start) == ([], start)
    server.answer = items([{"id": 5}, {"id": 4}, {"id": 3}])
    rows, start = polled(source, start)
    assert rows == [{"id": 5}, {"id": 4}]
    assert server.requests[-1].query == {"since": "3"}


def test_a_timestamp_field_misses_and_repeats_no_row_of_the_same_time(
    server: HttpServerUnderTest,
) -> None:
    source = make(
        server,
        http__offset__mode="TIMESTAMP",
        http__offset__json__pointer="/at",
        http__request__parameters="since=${offset}",
    )
    one, two = {"at": "2026-01-02T00:00:00Z", "n": 1}, {"at": "2026-01-02T01:00:00+01:00", "n": 2}
    three = {"at": "2026-01-02T00:00:00.5Z", "n": 3}
    server.answer = items([one])
    rows, start = polled(source)
    assert rows == [one]
    server.answer = items([one, two])
    rows, start = polled(source, start)
    assert rows == [two]
    assert polled(source, start) == ([], start)
    server.answer = items([two, three, one])
    rows, start = polled(source, start)
    assert rows == [three]
    assert start is not None
    assert start["offset"] == three["at"]


def test_the_offset_is_in_the_body_of_a_post_and_each_entity_has_its_own(
    server: HttpServerUnderTest,
) -> None:
    server.answer = lambda request: JSONResponse([{"after": json.loads(request.body)["after"]}])
    source = make(
        server,
        "/${entityName}/search",
        topic__name__pattern="all-${entityName}",
        entity__names="users, orders/b",
        http__request__method="post",
        http__request__body='{"after": "${offset}"}',
        http__initial__offset='a "quoted" one',
        http__offset__mode="CHAINING",
        http__offset__json__pointer="/after",
    )
    streams = source.streams()
    assert [stream.topic for stream in streams] == ["all-users", "all-orders/b"]
    partition = dict(streams[1].partitions[0])
    rows, _ = polled(source, None, {name: str(value) for name, value in partition.items()})
    assert rows == [{"after": 'a "quoted" one'}]
    assert server.requests[0].path == "/orders/b/search"
    assert server.requests[0].headers["content-type"] == "application/json"


def test_a_response_that_was_stored_is_not_requested_again_after_a_restart(
    server: HttpServerUnderTest, tmp_path: Path
) -> None:
    """As an API whose messages are gone when they have been read."""
    server.answer = lambda request: JSONResponse([len(server.requests)])

    def started() -> HttpSource:
        source = make(server)
        source.folder = str(tmp_path)
        return source

    end = started().latest(PARTITION, None, 1000)
    # The checkpoint did not get it: the range is found again.
    assert started().latest(PARTITION, None, 1000) == end
    assert end is not None
    assert _rows(started(), PARTITION, None, end) == [1]
    assert len(server.requests) == 1
    restarted = started()
    restarted.commit(PARTITION, end)
    assert list(tmp_path.iterdir()) == []
    rows, _ = polled(restarted, end)
    assert rows == [2]


def test_the_server_is_polled_once_in_each_interval(server: HttpServerUnderTest) -> None:
    server.answer = items([1])
    source = make(server, request__interval__ms="3600000")
    start = source.latest(PARTITION, None, 1000)
    for _ in range(3):
        assert source.latest(PARTITION, start, 1000) == start
    assert len(server.requests) == 1


@pytest.mark.parametrize("status", [400, 401, 404, 422])
def test_a_client_error_is_permanent_with_the_words_of_the_server(
    server: HttpServerUnderTest, status: int
) -> None:
    server.answer = lambda request: Response("no such\nlist", status)
    with pytest.raises(PermanentError, match=f"status {status}: no such list"):
        polled(make(server))


@pytest.mark.parametrize("status", [408, 429, 500, 503])
def test_other_errors_pass(server: HttpServerUnderTest, status: int) -> None:
    server.answer = lambda request: Response(status_code=status)
    with pytest.raises(ConnectionError, match=f"status {status}"):
        polled(make(server))


def test_a_server_that_asks_for_a_pause_gets_it(server: HttpServerUnderTest) -> None:
    server.answer = lambda request: Response(status_code=429, headers={"retry-after": "3600"})
    source = make(server)
    for _ in range(3):
        assert polled(source) == ([], None)
    assert len(server.requests) == 1


def test_a_server_that_cannot_be_reached_may_come_back() -> None:
    with pytest.raises(ConnectionError, match="cannot be reached"):
        polled(make(HttpServerUnderTest("http://127.0.0.1:1")))


def test_text_instead_of_json_is_permanent(server: HttpServerUnderTest) -> None:
    server.answer = lambda request: Response("<html>")
    with pytest.raises(PermanentError, match="is not JSON"):
        polled(make(server))


@pytest.mark.parametrize(
    ("options", "option"),
    [
        ({"url": "ftp://example.com"}, "url"),
        ({"url": "http://example.com/${entityname}"}, "url"),
        ({"url": "http://example.com/${entityName}"}, "entity.names"),
        ({"http__offset__mode": "SNAPSHOT_PAGINATION"}, "http.offset.mode"),
        ({"http__offset__mode": "CHAINING"}, "http.offset.json.pointer"),
        ({"http__response__data__json__pointer": "items"}, "http.response.data.json.pointer"),
        ({"http__request__method": "DELETE"}, "http.request.method"),
        ({"http__request__body": "{}"}, "http.request.body"),
        ({"auth__type": "DIGEST"}, "auth.type"),
        ({"auth__type": "BASIC"}, "connection.user"),
        ({"http__request__headers": "no colon"}, "http.request.headers"),
        ({"http__proxy__host": "proxy"}, "http.proxy.port"),
        ({"https__ssl__truststore__location": "/nowhere"}, "https.ssl.truststore.location"),
        ({"key": "id"}, "key"),
        ({"value.converter": "org.apache.kafka.connect.json.JsonConverter"}, "schema"),
    ],
)
def test_an_option_that_cannot_work_is_named(options: dict[str, str], option: str) -> None:
    with pytest.raises(OptionError) as caught:
        make(HttpServerUnderTest("http://127.0.0.1:1"), **options)
    assert caught.value.option == option


def test_the_check_tries_the_request(server: HttpServerUnderTest) -> None:
    make(server).check()
    server.answer = lambda request: Response(status_code=404)
    with pytest.raises(OptionError, match="status 404"):
        make(server).check()
    # A request that may change something is not tried.
    make(server, http__request__method="POST").check()
