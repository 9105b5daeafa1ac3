"""Many tabs at once: a browser has six connections per server, and a stream takes one."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from playwright.sync_api import Browser, Page, expect

from headrace.testing.running import RunningBroker
from tests.console.looking import Looking
from tests.support.headrace_console import HeadraceConsole

TABS = 8
SET_HIDDEN = """hidden => {
    Object.defineProperty(document, "hidden", { configurable: true, get: () => hidden });
    Object.defineProperty(document, "visibilityState", {
        configurable: true, get: () => (hidden ? "hidden" : "visible"),
    });
    document.dispatchEvent(new Event("visibilitychange"));
}"""
"""A headless Chromium says that all of its tabs are visible."""


@pytest.fixture
def tabs(chromium: Browser, console: HeadraceConsole, tmp_path: Path) -> Iterator[Looking]:
    with Looking(chromium, console.url, tmp_path) as looking:
        yield looking


def create(console: HeadraceConsole, topic: str) -> None:
    answer = console.http.post("/topics", json={"name": topic, "partitions": 2})
    assert answer.status_code == 200, answer.text


def produce(console: HeadraceConsole, topic: str, values: range) -> None:
    producer = Producer({"bootstrap.servers": console.bootstrap})
    for number in values:
        producer.produce(topic, value=f"value-{number}", partition=number % 2)
    assert producer.flush(60) == 0


def hide(page: Page) -> None:
    page.evaluate(SET_HIDDEN, True)


def show(page: Page) -> None:
    page.bring_to_front()
    page.evaluate(SET_HIDDEN, False)


def listed(page: Page) -> list[int]:
    """Numbers of the records in the list, sorted; a record that is there twice counts twice."""
    cells = page.get_by_role("table", name="Records").locator("tbody tr:not(.space)")
    return sorted(
        int(n) for row in cells.all_inner_texts() for n in re.findall(r"value-(\d+)", row)
    )


def test_eight_tabs_that_follow_a_topic_all_answer(
    tabs: Looking, console: HeadraceConsole, topic: str
) -> None:
    create(console, topic)
    pages = [tabs.page, *(tabs.new_tab() for _ in range(TABS - 1))]
    for page in pages:
        page.goto(f"/topics/{topic}?mode=live")
        expect(page.get_by_text("live", exact=True)).to_be_visible()
        hide(page)
    show(pages[-1])
    for page in pages:
        answer = page.evaluate("fetch('/api/topics').then(answer => answer.status)")
        assert answer == 200
    produce(console, topic, range(3))
    for page in reversed(pages):
        show(page)
        expect(page.get_by_role("table", name="Records").locator("tbody tr")).to_have_count(3)
        hide(page)


def test_a_hidden_tab_continues_without_losing_or_doubling_records(
    tabs: Looking, console: HeadraceConsole, topic: str
) -> None:
    create(console, topic)
    page = tabs.page
    page.goto(f"/topics/{topic}?mode=live")
    expect(page.get_by_text("live", exact=True)).to_be_visible()
    rows = page.get_by_role("table", name="Records").locator("tbody tr")
    for turn in range(3):
        produce(console, topic, range(turn * 20, turn * 20 + 10))
        expect(rows).to_have_count(turn * 20 + 10)
        hide(page)
        produce(console, topic, range(turn * 20 + 10, turn * 20 + 20))
        expect(rows).to_have_count(turn * 20 + 10)
        show(page)
        expect(rows).to_have_count(turn * 20 + 20)
    assert listed(page) == list(range(60))
    expect(page.get_by_role("status").first).to_contain_text("60 records")
    assert tabs.visible_rows("Records") > 3


def test_a_console_with_open_streams_stops_and_its_tabs_say_so(
    headrace: RunningBroker, chromium: Browser, tmp_path: Path, topic: str
) -> None:
    with HeadraceConsole(headrace.bootstrap_servers, tmp_path) as console:
        create(console, topic)
        with Looking(chromium, console.url, tmp_path) as looking:
            pages = [looking.page, looking.new_tab(), looking.new_tab()]
            for page in pages:
                page.goto(f"/topics/{topic}?mode=live")
                expect(page.get_by_text("live", exact=True)).to_be_visible()
            assert console.stop() == 0, console.log()
            for page in pages:
                expect(page.get_by_text("connecting…")).to_be_visible()
        assert "Traceback" not in console.log()
