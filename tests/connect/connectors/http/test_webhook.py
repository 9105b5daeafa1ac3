"""The webhook source with its spool, and real requests."""

import hashlib
import hmac
import ssl
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from headrace.connect import OptionError
from headrace.connect.connectors.http.webhook import WebhookSource
from headrace.connect.push.spooled_source import SpooledSource
from tests.security.authority import Authority
from tests.support.ports import free_port

WITHIN_S = 60.0
Posting = Future[httpx.Response]


class RunningWebhook:
    """The connector's reader, in place of Spark's, which writes nothing until it is told to."""

    def __init__(self, folder: Path, verify: Any = False, **options: str) -> None:
        given = {name.replace("__", "."): value for name, value in options.items()}
        self.port = free_port()
        scheme = "https" if "https.ssl.keystore.location" in given else "http"
        self.url = f"{scheme}://127.0.0.1:{self.port}"
        self.webhook = WebhookSource({"port": str(self.port), "topic": "t", **given})
        self.source = SpooledSource(self.webhook, folder)
        ((self.partition,),) = [stream.partitions for stream in self.source.streams()]
        self.reached: Any = None
        self.http = httpx.Client(verify=verify, timeout=WITHIN_S)
        self.pool = ThreadPoolExecutor(8)
        self.is_open = True
        self.wait(self._responds)

    def _responds(self) -> bool:
        self.source.latest(self.partition, self.reached, 1000)
        try:
            return self.http.get(f"{self.url}/").status_code in (404, 405)
        except httpx.TransportError:
            return False

    def post(self, body: bytes | str = b"body", path: str = "/", **headers: str) -> Posting:
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.pool.submit(self.http.post, self.url + path, content=body, headers=names)

    def status(self, *words: Any, **headers: str) -> int:
        """Of a request that is refused at once."""
        return self.post(*words, **headers).result(WITHIN_S).status_code

    def rows(self, count: int) -> list[dict[str, Any]]:
        """The next rows, when there are as many; they are not in the topic yet."""
        found: list[dict[str, Any]] = []

        def more() -> bool:
            end = self.source.latest(self.partition, self.reached, 1000)
            if end is not None and end != self.reached:
                for batch in self.source.read(self.partition, self.reached, end):
                    found.extend(batch.to_pylist())
                self.reached = end
            return len(found) >= count

        self.wait(more)
        return found

    def commit(self) -> None:
        self.source.commit(self.partition, self.reached)

    def wait(self, is_enough: Callable[[], bool]) -> None:
        end = time.monotonic() + WITHIN_S
        while not is_enough():
            assert time.monotonic() < end
            time.sleep(0.01)

    def close(self) -> None:
        if self.is_open:
            self.source.close()
            self.is_open = False
        self.pool.shutdown()
        self.http.close()


@pytest.fixture
def webhook(tmp_path: Path) -> Iterator[Callable[..., RunningWebhook]]:
    """Starts webhooks with options."""
    started: list[RunningWebhook] = []

    def start(**options: Any) -> RunningWebhook:
        started.append(RunningWebhook(tmp_path, **options))
        return started[-1]

    yield start
    for each in started:
        each.close()


def test_a_request_is_answered_when_its_record_is_in_the_topic(
    webhook: Callable[..., RunningWebhook],
) -> None:
    running = webhook(path="/hooks/a", record__headers="Content-Type,X-Event", key__header="X-Id")
    posting = running.post("é", "/hooks/a?n=1", content_type="text/x", x_event="push", x_id="7")
    (row,) = running.rows(1)
    assert row["value"] == "é".encode()
    assert row["key"] == "7"
    assert {each["key"]: each["value"] for each in row["headers"]} == {
        "Content-Type": b"text/x",
        "X-Event": b"push",
        "http.path": b"/hooks/a",
        "http.query": b"n=1",
    }
    # It is in the spool, and not in the topic.
    assert not posting.done()
    running.commit()
    assert posting.result(WITHIN_S).status_code == 200
    assert running.status(b"", "/other") == 404
    assert running.http.get(f"{running.url}/hooks/a").status_code == 405


def test_a_request_is_not_answered_with_the_one_before_it(
    webhook: Callable[..., RunningWebhook],
) -> None:
    running = webhook()
    first = running.post()
    running.rows(1)
    reached = running.reached
    second = running.post()
    running.rows(1)
    running.source.commit(running.partition, reached)
    assert first.result(WITHIN_S).status_code == 200
    assert not second.done()
    running.commit()
    assert second.result(WITHIN_S).status_code == 200


def test_requests_that_come_together_are_all_answered(
    webhook: Callable[..., RunningWebhook],
) -> None:
    running = webhook(format="string")
    postings = [running.post(str(n)) for n in range(100)]
    found: list[str] = []
    while len(found) < 100:
        found += [row["value"] for row in running.rows(1)]
        running.commit()
    assert sorted(map(int, found)) == list(range(100))
    assert {each.result(WITHIN_S).status_code for each in postings} == {200}


def test_json_becomes_columns_and_what_does_not_fit_is_refused(
    webhook: Callable[..., RunningWebhook],
) -> None:
    running = webhook(format="json", schema="id bigint, tags array<string>")
    posting = running.post('[{"id": 1, "tags": ["a"]}, {"id": 2, "more": 1}]')
    values = [row["value"] for row in running.rows(2)]
    assert values == [{"id": 1, "tags": ["a"]}, {"id": 2, "tags": None}]
    running.commit()
    assert posting.result(WITHIN_S).text == "2 records\n"
    for body in ("{", '{"id": "x"}', "[1]", b"\xff"):
        assert running.status(body) == 400
    assert running.status("[]") == 200


def test_a_request_needs_the_token(webhook: Callable[..., RunningWebhook]) -> None:
    running = webhook(token="s3cret")
    assert running.status() == 401
    assert running.status(authorization="Bearer wrong") == 401
    assert running.status(authorization="Basic s3cret") == 401
    posting = running.post(authorization="Bearer s3cret")
    assert len(running.rows(1)) == 1
    running.commit()
    assert posting.result(WITHIN_S).status_code == 200


def test_a_request_needs_the_signature_of_its_body(webhook: Callable[..., RunningWebhook]) -> None:
    running = webhook(signature__secret="s3cret")
    signature = "sha256=" + hmac.new(b"s3cret", b"body", hashlib.sha256).hexdigest()
    assert running.status() == 401
    assert running.status(b"other", x_hub_signature_256=signature) == 401
    posting = running.post(x_hub_signature_256=signature)
    assert [row["value"] for row in running.rows(1)] == [b"body"]
    running.commit()
    assert posting.result(WITHIN_S).status_code == 200


def test_a_long_body_is_refused_with_and_without_its_length(
    webhook: Callable[..., RunningWebhook],
) -> None:
    running = webhook(body__max__bytes="10")
    assert running.status(b"x" * 11) == 413

    def chunks() -> Iterator[bytes]:
        for _ in range(11):
            yield b"x"

    found = running.http.post(f"{running.url}/", content=chunks())
    assert found.status_code == 413


def test_a_full_spool_makes_requests_wait_and_then_refuses_them(
    webhook: Callable[..., RunningWebhook],
) -> None:
    running = webhook(headrace__spool__max__bytes="1", waiting__max__bytes="4000", format="string")
    waiting = [running.post(str(n)) for n in range(8)]
    running.wait(lambda: sum(each.done() for each in waiting) >= 5)
    refused = [each.result() for each in waiting if each.done()]
    assert {each.status_code for each in refused} == {503}
    assert all(int(each.headers["retry-after"]) > 0 for each in refused)
    taken = [each for each in waiting if not each.done()]
    for _ in taken:
        running.rows(1)
        running.commit()
    running.wait(lambda: all(each.done() for each in taken))
    assert {each.result().status_code for each in taken} == {200}


def test_a_request_that_waits_too_long_is_not_taken_later(
    webhook: Callable[..., RunningWebhook],
) -> None:
    running = webhook(headrace__spool__max__bytes="1", response__timeout__ms="500", format="string")
    # The first is in the spool, and the second waits for room in it.
    for text in ("first", "second", "third"):
        assert running.status(text) == 503
    found: list[str] = []
    while len(found) < 2:
        found += [row["value"] for row in running.rows(1)]
        running.commit()
    posting = running.post("fourth")
    found += [row["value"] for row in running.rows(1)]
    running.commit()
    assert found == ["first", "second", "fourth"]
    assert posting.result(WITHIN_S).status_code in (200, 503)


def test_requests_get_another_answer_when_the_connector_ends(
    webhook: Callable[..., RunningWebhook],
) -> None:
    running = webhook()
    posting = running.post()
    running.rows(1)
    running.source.close()
    running.is_open = False
    assert posting.result(WITHIN_S).status_code == 503
    with pytest.raises(httpx.TransportError):
        httpx.post(running.url)


def test_rows_in_the_spool_are_read_after_a_restart(
    webhook: Callable[..., RunningWebhook],
) -> None:
    first = webhook()
    first.post(b"kept")
    first.rows(1)
    first.close()
    again = webhook()
    assert [row["value"] for row in again.rows(1)] == [b"kept"]


def test_a_certificate_makes_it_https(
    webhook: Callable[..., RunningWebhook], tmp_path: Path
) -> None:
    authority = Authority()
    issued = authority.issue("CN=webhook")
    pem = tmp_path / "server.pem"
    pem.write_text(issued.key_pem(password="p") + issued.certificate_pem)
    running = webhook(
        verify=ssl.create_default_context(cadata=authority.pem),
        https__ssl__keystore__location=str(pem),
        https__ssl__key__password="p",
    )
    posting = running.post()
    running.rows(1)
    running.commit()
    assert posting.result(WITHIN_S).status_code == 200


@pytest.mark.parametrize(
    ("options", "option"),
    [
        ({"host": "0.0.0.0"}, "host"),
        ({"port": "70000"}, "port"),
        ({"path": "hooks"}, "path"),
        ({"format": "json"}, "schema"),
        ({"schema": "id bigint"}, "schema"),
        ({"https.ssl.keystore.location": "/nowhere"}, "https.ssl.keystore.location"),
    ],
)
def test_an_option_that_cannot_work_is_named(options: dict[str, str], option: str) -> None:
    with pytest.raises(OptionError) as caught:
        WebhookSource({"port": "8000", "topic": "t", **options})
    assert caught.value.option == option


def test_other_hosts_need_credentials_and_a_taken_port_passes() -> None:
    WebhookSource({"port": "8000", "topic": "t", "host": "0.0.0.0", "token": "t"}).check()
    with pytest.raises(OptionError, match="Cannot listen on"):
        WebhookSource({"port": "8000", "topic": "t", "host": "192.0.2.1", "token": "t"}).check()
