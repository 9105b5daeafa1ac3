"""The HTTP connectors as queries: a polled list to a topic, and the topic to a server."""

import json
import os
import signal
from collections import Counter
from collections.abc import Iterator

import httpx
import pytest
from starlette.responses import JSONResponse, Response

from headrace.connect.hosting import RunState
from tests.connect.host.conftest import HostUnderTest
from tests.connect.host.fire import driver_pid
from tests.support.http_server import HttpServerUnderTest, SeenRequest, http_server
from tests.support.ports import free_port

pytestmark = pytest.mark.spark

JSON = {
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "false",
}


@pytest.fixture
def server() -> Iterator[HttpServerUnderTest]:
    with http_server() as running:
        yield running


@pytest.fixture
def names(host: HostUnderTest) -> Iterator[list[str]]:
    """Names of connectors, which are stopped at the end."""
    found = ["http-in", "http-out", "webhook", "http-killed"]
    yield found
    for name in found:
        host.stop(name)


def test_rows_of_a_polled_list_reach_another_server_through_a_topic(
    host: HostUnderTest, names: list[str], server: HttpServerUnderTest
) -> None:
    def answer(request: SeenRequest) -> Response:
        if request.method == "GET":
            first = int(request.query["skip"])
            return JSONResponse({"rows": [{"n": n} for n in range(first, min(first + 10, upto))]})
        taken = json.loads(request.body)
        if any(each["n"] == 13 for each in taken):
            return Response("unlucky", 422)
        accepted.update(each["n"] for each in taken)
        return Response(status_code=204)

    upto, accepted = 25, Counter[int]()
    server.answer = answer
    host.create("polled", 1)
    source = {
        **JSON,
        "connector.class": "HttpSource",
        "url": f"{server.url}/list",
        "topic.name.pattern": "polled",
        "http.request.parameters": "skip=${offset}",
        "http.response.data.json.pointer": "/rows",
        "http.initial.offset": "0",
        "request.interval.ms": "100",
        "schema": "n bigint",
        "key": "n",
    }
    host.start(names[0], source)
    host.start(
        names[1],
        {
            **JSON,
            "connector.class": "HttpSink",
            "topics": "polled",
            "http.api.url": f"{server.url}/target",
            "request.body.format": "json",
            "batch.max.size": "8",
            "batch.json.as.array": "true",
            "value.schema": "n bigint",
            "errors.tolerance": "all",
            "errors.deadletterqueue.topic.name": "polled-refused",
        },
    )
    host.wait(lambda: len(accepted), lambda found: found == 24)
    host.stop(names[0])
    upto = 40
    host.start(names[0], source)
    host.wait(lambda: len(accepted), lambda found: found == 39)
    assert host.wait_for(names[0], RunState.RUNNING).trace is None
    assert accepted == Counter(n for n in range(40) if n != 13)
    assert [each["n"] for each in host.values("polled")] == list(range(40))
    host.wait(lambda: len(host.records("polled-refused")), lambda found: found == 1)
    assert host.values("polled-refused") == [{"n": 13}]


def test_polled_rows_are_in_the_topic_once_although_the_driver_is_killed(
    host: HostUnderTest, names: list[str], server: HttpServerUnderTest
) -> None:
    def answer(request: SeenRequest) -> Response:
        first = int(request.query["skip"])
        return JSONResponse([{"n": n} for n in range(first, min(first + 10, 300))])

    server.answer = answer
    host.create("polled-once", 1)
    host.start(
        names[3],
        {
            **JSON,
            "connector.class": "HttpSource",
            "url": f"{server.url}/list",
            "topic.name.pattern": "polled-once",
            "http.request.parameters": "skip=${offset}",
            "http.initial.offset": "0",
            "request.interval.ms": "50",
            "schema": "n bigint",
        },
    )
    host.wait(lambda: len(host.values("polled-once")), lambda found: found >= 50)
    os.kill(driver_pid(), signal.SIGKILL)
    host.wait(lambda: len(host.values("polled-once")), lambda found: found >= 300)
    assert [each["n"] for each in host.values("polled-once")] == list(range(300))


def test_a_webhook_answers_when_the_record_can_be_consumed(
    host: HostUnderTest, names: list[str]
) -> None:
    host.create("hooked", 1)
    port = free_port()
    config = {
        **JSON,
        "connector.class": "WebhookSource",
        "port": str(port),
        "topic": "hooked",
        "format": "json",
        "schema": "n bigint",
        "key.header": "X-Key",
    }
    host.start(names[2], config)
    with httpx.Client(timeout=60, headers={"x-key": "k"}) as client:

        def post(n: int) -> bool:
            try:
                found = client.post(f"http://127.0.0.1:{port}/", json={"n": n})
            except httpx.TransportError:
                return False
            return found.status_code == 200

        for n in range(5):
            host.wait(lambda n=n: post(n), bool)  # type: ignore[misc]
            assert host.values("hooked")[-1] == {"n": n}
        assert {key for key, _, _ in host.records("hooked")} == {b"k"}
        host.stop(names[2])
        with pytest.raises(httpx.TransportError):
            client.post(f"http://127.0.0.1:{port}/", json={"n": 5})
