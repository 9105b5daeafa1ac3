"""Push and pull queries, PRINT and inserts over REST: the bodies of ksqlDB's clients."""

import asyncio
import json
import threading
import time
import uuid
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from headrace.sql.hosting import QueryRefused
from tests.sql.running import WAIT_S, RunningSql
from tests.sql.stand_in import StandInPush
from tests.support.committed import committed_values

DELIMITED = "application/vnd.ksqlapi.delimited.v1"
KSQL_JSON = "application/vnd.ksql.v1+json"
SUMS = "SELECT customer, SUM(total) AS total FROM {} GROUP BY customer EMIT CHANGES"
"""A push query for Spark."""


@pytest.fixture
def orders(running: RunningSql) -> str:
    name = f"orders_{uuid.uuid4().hex[:8]}"
    running.sql(
        f"CREATE STREAM {name} (id INT KEY, customer VARCHAR, total DECIMAL(20,2)) WITH "
        f"(kafka_topic='{name}', value_format='json', partitions=1);"
    )
    return name


def _started(running: RunningSql, before: int) -> StandInPush:
    deadline = time.monotonic() + WAIT_S
    while len(running.host.pushes) == before:
        assert time.monotonic() < deadline, "no push query was started"
        time.sleep(0.01)
    return running.host.pushes[-1]


def _until(condition: object) -> None:
    assert callable(condition)
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _send(running: RunningSql, push: StandInPush, *batches: object) -> None:
    loop = next(iter(_loops(running)))
    for batch in batches:
        loop.call_soon_threadsafe(push.queue.put_nowait, batch)  # type: ignore[arg-type]


def _loops(running: RunningSql) -> Iterator[asyncio.AbstractEventLoop]:
    follower = running.engine.server.commands._follower
    assert follower is not None
    yield follower._loop


def _lines(response: httpx.Response) -> Iterator[Any]:
    for line in response.iter_lines():
        yield json.loads(line)


def test_a_push_query_streams_lines_and_ends_with_its_client(
    running: RunningSql, orders: str
) -> None:
    before = len(running.host.pushes)
    properties = {"auto.offset.reset": "earliest"}
    body = {"sql": f"{SUMS.format(orders)};", "properties": properties}
    with running.http.stream("POST", "/query-stream", json=body) as response:
        assert response.headers["content-type"] == DELIMITED
        push = _started(running, before)
        assert running.host.push_properties[-1] == {"start": "earliest"}
        lines = response.iter_lines()
        head = json.loads(next(lines))
        assert head["columnNames"] == ["customer", "total"]
        assert head["columnTypes"] == ["STRING", "DECIMAL(20, 2)"]
        _send(running, push, [["ann", "12345678901234567.89"], ["bob", None]])
        assert next(lines) == '["ann",12345678901234567.89]', "all digits"
        running_now = running.http.get("/metrics").text
        assert "headrace_sql_push_queries 1" in running_now
        assert not push.is_closed
    _until(lambda: push.is_closed)
    assert running.engine.queries.running == {}


def test_a_push_query_is_closed_by_its_id(running: RunningSql, orders: str) -> None:
    before = len(running.host.pushes)
    body = {"sql": f"{SUMS.format(orders)};"}
    with running.http.stream("POST", "/query-stream", json=body) as response:
        push = _started(running, before)
        lines = _lines(response)
        query = next(lines)["queryId"]
        with httpx.Client(base_url=running.http.base_url) as other:
            assert other.post("/close-query", json={"queryId": query}).status_code == 200
        assert list(lines) == []
    _until(lambda: push.is_closed)
    unknown = running.http.post("/close-query", json={"queryId": "none"})
    assert unknown.status_code == 400
    assert unknown.json()["message"] == "No query with id none"


def test_the_older_endpoint_has_headers_rows_and_a_final_message(
    running: RunningSql, orders: str
) -> None:
    """As `ksql` of PyPI, Kafka UI and ksqlDB's own command line read it."""
    before = len(running.host.pushes)
    body = {"ksql": f"{SUMS.format(orders)} LIMIT 3;", "streamsProperties": {}}
    found: list[Any] = []

    def ask() -> None:
        headers = {"content-type": f"{KSQL_JSON}; charset=utf-8", "accept": KSQL_JSON}
        response = httpx.post(
            f"{running.http.base_url}/query", content=json.dumps(body), headers=headers,
            timeout=WAIT_S,
        )  # fmt: skip
        found.append(response)

    client = threading.Thread(target=ask)
    client.start()
    push = _started(running, before)
    _send(running, push, [["ann", "1.50"]], [["bob", "2"], ["eve", "3"], ["late", "4"]])
    client.join(WAIT_S)
    (response,) = found
    assert response.headers["content-type"] == KSQL_JSON
    rows = response.json()
    assert rows[0]["header"]["schema"] == "`customer` STRING KEY, `total` DECIMAL(20, 2)"
    found_rows = [each["row"]["columns"] for each in rows[1:4]]
    assert found_rows == [["ann", 1.5], ["bob", 2], ["eve", 3]]
    assert rows[4:] == [{"finalMessage": "Limit Reached"}]
    # Clients that read lines cut the commas off.
    assert all(line.endswith((",", "]")) for line in response.text.splitlines())


def test_a_query_that_fails_says_so_at_the_end(running: RunningSql, orders: str) -> None:
    before = len(running.host.pushes)
    body = {"sql": f"{SUMS.format(orders)};"}
    with running.http.stream("POST", "/query-stream", json=body) as response:
        push = _started(running, before)
        _send(running, push, QueryRefused("the topic is gone"))
        head, end = _lines(response)
    assert head["columnNames"] == ["customer", "total"]
    assert end == {
        "@type": "generic_error",
        "error_code": 50000,
        "message": "The query has ended: the topic is gone",
    }


def test_the_server_itself_filters_the_records_of_a_topic(running: RunningSql, orders: str) -> None:
    before = len(running.host.pushes)
    insert = f"INSERT INTO {orders} (id, customer, total) VALUES "
    running.sql(f"{insert} (1, 'ann', 1.50); {insert} (2, 'bob', 2.50);")
    body = {"sql": f"SELECT id, total FROM {orders} WHERE id > 1 EMIT CHANGES LIMIT 2;"}
    early = {"auto.offset.reset": "earliest"}
    with running.http.stream("POST", "/query-stream", json={**body, "properties": early}) as found:
        lines = found.iter_lines()
        assert json.loads(next(lines))["columnNames"] == ["id", "total"]
        assert next(lines) == "[2,2.50]"
        running.sql(f"{insert} (3, 'eve', 3.50);")
        assert list(lines) == ["[3,3.50]"]
    # From now on, unless it is asked otherwise.
    with running.http.stream("POST", "/query-stream", json=body) as found:
        lines = found.iter_lines()
        next(lines)
        running.sql(f"{insert} (4, 'zoe', 4.50);")
        assert next(lines) == "[4,4.50]"
    assert len(running.host.pushes) == before, "without Spark"
    _until(lambda: running.engine.queries.running == {})


def test_what_cannot_be_queried_is_refused_before_the_stream(
    running: RunningSql, orders: str
) -> None:
    for sql, part in (
        ("SELECT nothing FROM " + orders + " EMIT CHANGES;", "nothing"),
        ("SELECT id FROM no_such_stream EMIT CHANGES;", "no_such_stream"),
        ("DROP STREAM " + orders + ";", "/ksql"),
        ("SELECT id FROM", "line 1"),
    ):
        response = running.http.post("/query-stream", json={"sql": sql})
        assert response.status_code == 400, sql
        assert response.json()["@type"] == "statement_error"
        assert part in response.json()["message"]
    assert running.http.post("/query-stream", content="[").status_code == 400
    assert "no field sql" in running.http.post("/query-stream", json={}).json()["message"]


def _table(running: RunningSql) -> str:
    name = f"people_{uuid.uuid4().hex[:8]}"
    running.sql(
        f"CREATE TABLE {name} (id BIGINT PRIMARY KEY, town VARCHAR, total DECIMAL(20,2)) WITH "
        f"(kafka_topic='{name}', value_format='json', partitions=2);"
    )
    return name


def test_a_pull_query_sees_what_was_inserted_before(running: RunningSql) -> None:
    name = _table(running)
    big = 2**62 + 1
    for number in range(20):
        running.sql(f"INSERT INTO {name} VALUES ({big + number}, 'oslo', {number}.25);")
        body = {"sql": f"SELECT * FROM {name} WHERE id = {big + number};"}
        response = running.http.post("/query-stream", json=body)
        head, row = response.text.splitlines()
        assert json.loads(head)["columnNames"] == ["id", "town", "total"]
        assert json.loads(head)["columnTypes"] == ["BIGINT", "STRING", "DECIMAL(20, 2)"]
        assert row == f'[{big + number},"oslo",{number}.25]'
        assert json.loads(response.headers["x-headrace-offsets"])[name]
    body = {"sql": f"SELECT town, COUNT(*) AS n, SUM(total) AS s FROM {name} GROUP BY town;"}
    headers = {"accept": "application/json"}
    rows = running.http.post("/query-stream", json=body, headers=headers).json()
    assert rows[1:] == [["oslo", 20, 195.0]]
    running.sql(f"INSERT INTO {name} VALUES ({big}, NULL, NULL);")
    found = running.http.post("/query", json={"ksql": f"SELECT * FROM {name} WHERE id={big};"})
    header, *rows = found.json()
    assert header["header"]["schema"] == "`id` BIGINT, `town` STRING, `total` DECIMAL(20, 2)"
    assert rows == [], "the row was deleted"
    (explained,) = running.sql(f"EXPLAIN SELECT * FROM {name} WHERE id = 1;")
    assert "look-up by key" in explained["queryDescription"]["topology"]
    (described,) = running.sql(f"DESCRIBE {name};")
    assert described["sourceDescription"]["headrace"]["view"]["lag"] == 0
    running.sql(f"DROP TABLE {name} DELETE TOPIC;")
    assert running.http.post("/query-stream", json=body).status_code == 400


def test_spark_answers_pull_queries_that_views_cannot(running: RunningSql, orders: str) -> None:
    running.host.batches.append([[1, "ann"], [2, "bob"]])
    body = {"sql": f"SELECT id, customer FROM {orders} WHERE total > 1;"}
    rows = running.http.post("/query-stream", json=body).text.splitlines()
    assert rows[1:] == ['[1,"ann"]', '[2,"bob"]']
    (explained,) = running.sql(f"EXPLAIN SELECT id FROM {orders};")
    assert "Answered by Spark" in explained["queryDescription"]["topology"]


def test_topics_are_printed(running: RunningSql, orders: str) -> None:
    running.sql(f"INSERT INTO {orders} (rowtime, id, customer) VALUES (1000, 7, 'ann');")
    running.sql(f"INSERT INTO {orders} (rowtime, id, customer) VALUES (2000, 8, 'bob');")
    body = {"sql": f"PRINT '{orders}' FROM BEGINNING LIMIT 2;"}
    response = running.http.post("/query-stream", json=body)
    first, second = response.text.splitlines()
    assert first == (
        "rowtime: 1970/01/01 00:00:01.000 Z, key: 7, "
        'value: {"customer":"ann","total":null}, partition: 0'
    )
    assert second.startswith("rowtime: 1970/01/01 00:00:02.000 Z, key: 8, ")
    body = {"ksql": "PRINT 'no-such-topic';"}
    assert running.http.post("/query", json=body).status_code == 400


def test_rows_are_inserted_by_lines(running: RunningSql, orders: str, sql_bootstrap: str) -> None:
    """As `ksqldb` of PyPI sends them."""
    rows = [{"id": 1, "customer": "ann", "total": 12345678901234567.25}, {"ID": 2}]
    body = json.dumps({"target": orders}) + "\n" + "".join(f"{json.dumps(each)}\n" for each in rows)
    body += '{"id": 3, "total": 98765432109876543.21}\n'
    headers = {"content-type": KSQL_JSON}
    response = running.http.post("/inserts-stream", content=body, headers=headers)
    assert [json.loads(line) for line in response.text.splitlines()] == [
        {"status": "ok", "seq": number} for number in range(3)
    ]
    values = committed_values(sql_bootstrap, orders)
    assert b"98765432109876543.21" in values[2], "all digits"
    body = f'{{"target":"{orders}"}}\n{{"id": 4}}\n{{"nothing": 1}}\n{{"id": 5}}'
    answers = [
        json.loads(line)
        for line in running.http.post("/inserts-stream", content=body).text.splitlines()
    ]
    assert answers[0] == {"status": "ok", "seq": 0}
    assert (answers[1]["status"], answers[1]["seq"]) == ("error", 1)
    assert "no column nothing" in answers[1]["message"]
    assert len(answers) == 2, "no rows after an error"
    assert len(committed_values(sql_bootstrap, orders)) == 4
    unknown = running.http.post("/inserts-stream", content='{"target":"nowhere"}')
    assert unknown.status_code == 400


def test_the_server_tells_about_itself(running: RunningSql) -> None:
    info = running.http.get("/info").json()["KsqlServerInfo"]
    assert info["ksqlServiceId"] == running.service
    assert info["serverStatus"] == "RUNNING"
    assert info["kafkaClusterId"]
    assert running.http.get("/").headers["location"] == "/info"
    health = running.http.get("/healthcheck").json()
    assert health["isHealthy"] is True
    assert health["details"]["kafka"] == {"isHealthy": True}
    assert running.http.get("/health").json()["status"] == "UP"
    (cluster,) = running.http.get("/clusterStatus").json()["clusterStatus"].values()
    assert cluster["hostAlive"] is True
    assert running.http.get("/status/stream/none/create").status_code == 404
    assert "commandStatuses" in running.http.get("/status").json()
