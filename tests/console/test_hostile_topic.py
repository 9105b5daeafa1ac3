"""Topics that try to break the console: markup, exact numbers, large or broken values, and many."""

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from playwright.sync_api import Browser, Request, expect

from headrace.testing.plugin import BrokerFactory
from headrace.testing.running import RunningBroker
from tests.console.looking import Looking
from tests.support.headrace_console import HeadraceConsole
from tests.support.headrace_registry import HeadraceRegistry

MARKUP = '<img src=x onerror="document.title=1"><script>document.title=1</script><b>bold</b>'
LONGEST = 2**63 - 1
DECIMAL = "0.1234567890123456789012345678901234567890"
LARGE_BYTES = 5_000_000
MANY = 10_000


@pytest.fixture
def tab(chromium: Browser, console: HeadraceConsole, tmp_path: Path) -> Iterator[Looking]:
    with Looking(chromium, console.url, tmp_path) as looking:
        yield looking


def produce(bootstrap: str, topic: str, *values: str | bytes, **more: object) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "message.max.bytes": 8_000_000})
    for value in values:
        producer.produce(topic, value=value, partition=0, **more)
    assert producer.flush(60) == 0


def test_markup_in_records_and_addresses_stays_text(
    tab: Looking, console: HeadraceConsole, topic: str
) -> None:
    headers = {MARKUP: MARKUP}
    produce(console.bootstrap, topic, MARKUP, key=MARKUP, headers=headers)
    produce(console.bootstrap, topic, json.dumps({MARKUP: MARKUP}))
    page = tab.page
    page.goto(f"/topics/{topic}?from=oldest&open=0:0")
    panel = page.get_by_label("Open record")
    expect(panel.get_by_text(MARKUP, exact=True)).to_have_count(4)
    expect(page.get_by_role("table", name="Records").get_by_text(MARKUP)).to_have_count(2)
    page.goto(f"/topics/{topic}/0/1")
    expect(page.locator(".shown-text").last).to_contain_text("onerror")
    page.goto(f"/topics/{topic}?mode=search&q=%3Cb%3E")
    page.goto("/topics/%3Cb%3Ebold%3C%2Fb%3E")
    expect(page.get_by_role("heading", level=1)).to_have_text("<b>bold</b>")
    expect(page.get_by_role("alert").first).to_be_visible()
    page.goto("/groups/%3Cb%3Ebold%3C%2Fb%3E")
    expect(page.get_by_role("heading", level=1)).to_have_text("<b>bold</b>")
    for address in (f"/topics/{topic}?from=oldest&open=0:0", f"/topics/{topic}/0/1"):
        page.goto(address)
        expect(page.get_by_text("onerror").first).to_be_visible()
        assert page.locator("main b, main script, main img").count() == 0
        assert page.title().endswith("Headrace")


def test_numbers_are_exact_on_the_screen(
    tab: Looking, console: HeadraceConsole, topic: str
) -> None:
    value = f'{{"id": {LONGEST}, "low": {-(2**63)}, "share": {DECIMAL}, "big": 1e400}}'
    produce(console.bootstrap, topic, value, key=str(LONGEST))
    page = tab.page
    page.goto(f"/topics/{topic}?open=0:0")
    table = page.get_by_role("table", name="Records")
    expect(table.get_by_text(str(LONGEST), exact=True)).to_be_visible()
    panel = page.get_by_label("Open record")
    for text in (str(LONGEST), str(-(2**63)), DECIMAL, "1e400"):
        expect(panel.get_by_text(text, exact=True).last).to_be_visible()


def test_a_large_value_is_previewed_and_downloaded_whole(
    headrace_factory: BrokerFactory, chromium: Browser, topic: str, tmp_path: Path
) -> None:
    broker = headrace_factory({"message.max.bytes": "8000000"})
    text = f'{{"text": "{"x" * LARGE_BYTES}"}}'
    binary = bytes(range(256)) * (LARGE_BYTES // 256)
    produce(broker.bootstrap_servers, topic, text, binary, "small")
    with (
        HeadraceConsole(broker.bootstrap_servers, tmp_path) as console,
        Looking(chromium, console.url, tmp_path) as looking,
    ):
        page = looking.page
        page.goto(f"/topics/{topic}?from=oldest")
        expect(page.get_by_role("table", name="Records").locator("tbody tr")).to_have_count(3)
        assert looking.visible_rows("Records") == 3
        for offset, value in enumerate((text.encode(), binary)):
            page.goto(f"/topics/{topic}/0/{offset}")
            expect(page.get_by_text("Too large to show in full")).to_be_visible()
            assert not looking.overflows()
            with page.expect_download() as download:
                page.get_by_role("link", name="Download").last.click()
            assert download.value.path().read_bytes() == value


def test_a_value_that_its_schema_does_not_describe_is_shown_as_bytes_with_the_reason(
    headrace: RunningBroker, chromium: Browser, topic: str, tmp_path: Path
) -> None:
    with HeadraceRegistry(
        headrace.bootstrap_servers, tmp_path, topic=f"{topic}-schemas"
    ) as registry:
        schema = {"type": "record", "name": "R", "fields": [{"name": "n", "type": "string"}]}
        answer = httpx.post(
            f"{registry.url}/subjects/{topic}-value/versions",
            json={"schema": json.dumps(schema)},
            timeout=60,
        )
        schema_id = int(answer.json()["id"])
        broken = b"\0" + schema_id.to_bytes(4, "big") + b"\x7fx"
        unknown = b"\0" + (987_654).to_bytes(4, "big") + b"\x02x"
        good = b"\0" + schema_id.to_bytes(4, "big") + b"\x04ok"
        produce(headrace.bootstrap_servers, topic, broken, unknown, good)
        options = ("--registry", registry.url)
        with (
            HeadraceConsole(headrace.bootstrap_servers, tmp_path, *options) as console,
            Looking(chromium, console.url, tmp_path) as looking,
        ):
            page = looking.page
            page.goto(f"/topics/{topic}?from=oldest")
            table = page.get_by_role("table", name="Records")
            expect(table.get_by_text("not decoded")).to_have_count(2)
            expect(table.get_by_text("0x" + broken.hex(), exact=True)).to_be_visible()
            expect(table.get_by_text('"ok"')).to_be_visible()
            for offset, number in ((0, schema_id), (1, 987_654)):
                page.goto(f"/topics/{topic}/0/{offset}")
                problem = page.locator("p.error", has_text=f"Not decoded with schema {number}: ")
                expect(problem).to_be_visible()
                assert len(problem.inner_text()) > len(f"Not decoded with schema {number}: ") + 5


def test_right_to_left_text_does_not_change_the_order_of_columns(
    tab: Looking, console: HeadraceConsole, topic: str
) -> None:
    hebrew, override = "\u05e9\u05dc\u05d5\u05dd 123", "\u202eabc\u202e"
    produce(console.bootstrap, topic, hebrew, override, key=f"{override}{hebrew}")
    page = tab.page
    page.goto(f"/topics/{topic}?from=oldest")
    rows = page.get_by_role("table", name="Records").locator("tbody tr")
    expect(rows).to_have_count(2)
    lefts = page.get_by_role("table", name="Records").evaluate(
        """table => [...table.rows].map(
            row => [...row.cells].map(cell => Math.round(cell.getBoundingClientRect().left)))"""
    )
    assert all(row == sorted(row) for row in lefts)
    assert lefts[0] == lefts[1] == lefts[2]
    for cell in rows.locator("td:last-child bdi").all():
        box, inside = cell.locator("xpath=ancestor::td").bounding_box(), cell.bounding_box()
        assert box is not None
        assert inside is not None
        assert inside["x"] < box["x"] + 30, "the value does not begin at the left of its column"
    tab.screenshot("right-to-left")


def test_ten_thousand_topics_are_listed_and_only_visible_rows_ask_for_numbers(
    headrace_factory: BrokerFactory, chromium: Browser, tmp_path: Path
) -> None:
    broker = headrace_factory()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    names = [f"topic-{number:05}" for number in range(MANY)]
    for first in range(0, MANY, 1000):
        wanted = [NewTopic(name, 1, 1) for name in names[first : first + 1000]]
        for future in admin.create_topics(wanted, request_timeout=60).values():
            future.result(120)
    with (
        HeadraceConsole(broker.bootstrap_servers, tmp_path) as console,
        Looking(chromium, console.url, tmp_path) as looking,
    ):
        page = looking.page
        asked: list[str] = []

        def note(request: Request) -> None:
            if request.url.endswith("/topic-numbers"):
                asked.extend(json.loads(request.post_data or "{}")["topics"])

        page.on("request", note)
        page.goto("/topics")
        table = page.get_by_role("table", name="Topics")
        expect(page.get_by_text("10,000 of 10,000")).to_be_visible()
        expect(table.get_by_text(names[0])).to_be_visible()
        assert looking.visible_rows("Topics") > 10
        page.evaluate("window.scrollTo(0, document.body.scrollHeight)")
        expect(table.get_by_text(names[-1])).to_be_in_viewport()
        assert looking.visible_rows("Topics") > 10
        looking.screenshot("ten-thousand-topics")
        assert table.locator("tbody tr").count() < 100
        row = table.get_by_role("row", name=names[-1])
        expect(row.locator("td").nth(3)).to_have_text("0")
        assert {names[0], names[-1]} <= set(asked)
        assert len(set(asked)) < 200
        page.get_by_label("Filter by name").fill("topic-04999")
        expect(table.locator("tbody tr")).to_have_count(1)


def test_an_address_that_cannot_be_decoded_is_a_page(tab: Looking) -> None:
    page = tab.page
    for address in ("/topics/%zz", "/groups/%E0%A4%A", "/%zz"):
        page.goto(address)
        expect(page.get_by_role("heading", level=1)).to_be_visible()
