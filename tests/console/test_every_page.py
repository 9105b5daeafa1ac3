"""Every page and every tab of the console: light, dark and narrow."""

import re
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import httpx
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from playwright.sync_api import Browser, Page, expect

from headrace.testing.running import RunningBroker
from tests.console.looking import ROOT, Looking
from tests.console.spark_reports import batch, now_ms, publish, started
from tests.support.headrace_console import HeadraceConsole
from tests.support.headrace_registry import HeadraceRegistry

SOURCES = ROOT / "web" / "src"
TOPIC = "shop.orders"
GROUP = "billing"
DEAD_LETTERS = "shop.orders.dead-letters"
LONG_NAME = "a-topic-with-a-name-that-is-longer-than-the-window-of-a-telephone.created.v1"
SCHEMA = '{"type":"record","name":"Order","fields":[{"name":"id","type":"long"}]}'

PAGES = {
    "": ["/"],
    "topics": [
        "/topics",
        "/topics?view=tree",
        f"/topics/{TOPIC}",
        f"/topics/{TOPIC}?open=0:0",
        f"/topics/{TOPIC}?mode=live",
        f"/topics/{TOPIC}?mode=search",
        f"/topics/{TOPIC}/partitions",
        f"/topics/{TOPIC}/groups",
        f"/topics/{TOPIC}/settings",
        f"/topics/{TOPIC}/0/0",
        f"/topics/{LONG_NAME}",
        "/topics/no-such-topic",
    ],
    "groups": ["/groups", f"/groups/{GROUP}", "/groups/no-such-group"],
    "dead-letters": ["/dead-letters", f"/dead-letters/{DEAD_LETTERS}"],
    "lineage": ["/lineage"],
    "connectors": ["/connectors"],
    "queries": ["/queries", "/queries/orders"],
    "retention": ["/retention"],
    "sql": ["/sql"],
    "schemas": ["/schemas", f"/schemas/{TOPIC}-value"],
    "access": ["/access/users", "/access/acls", "/access/quotas"],
    "brokers": ["/brokers", "/brokers/folders", "/brokers/reassignments", "/brokers/1"],
    "client-metrics": ["/client-metrics"],
    "transactions": ["/transactions"],
}
"""Addresses by the first part of their path. Each page and each of its tabs has one."""


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory, chromium: Browser) -> Iterator[HeadraceConsole]:
    """A console of a cluster with something to show on every page."""
    with ExitStack() as stack:
        broker = stack.enter_context(closing(RunningBroker({"num.partitions": "2"})))
        folder = tmp_path_factory.mktemp("shop")
        registry = stack.enter_context(HeadraceRegistry(broker.bootstrap_servers, folder))
        console = stack.enter_context(
            HeadraceConsole(broker.bootstrap_servers, folder, "--registry", registry.url)
        )
        subject = f"{registry.url}/subjects/{TOPIC}-value/versions"
        assert httpx.post(subject, json={"schema": SCHEMA}, timeout=60).status_code == 200
        for name in (TOPIC, LONG_NAME, "shop.orders.paid", DEAD_LETTERS):
            answer = console.http.post("/topics", json={"name": name, "partitions": 2})
            assert answer.status_code == 200, answer.text
        _fill(broker.bootstrap_servers)
        publish(console, batch(started("orders"), 1, now_ms(), {TOPIC: 20}))
        # Held so that it stays open while the pages are looked at.
        open_transaction = Producer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "transactional.id": "checkout",
                "transaction.timeout.ms": 600_000,
            }
        )
        open_transaction.init_transactions(60)
        open_transaction.begin_transaction()
        open_transaction.produce(LONG_NAME, value="not committed", partition=0)
        open_transaction.flush(60)
        yield console
        open_transaction.abort_transaction(60)


def _fill(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(40):
        producer.produce(
            TOPIC,
            key=f"order-{number}",
            value=f'{{"order": {number}, "customer": "{"a very long name " * 20}"}}',
            partition=number % 2,
            headers={"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
        )
    assert producer.flush(60) == 0
    producer.produce(
        DEAD_LETTERS,
        value="{",
        headers={"__connect.errors.topic": TOPIC, "__connect.errors.exception.message": "not JSON"},
    )
    assert producer.flush(60) == 0
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP})
    consumer.commit(offsets=[TopicPartition(TOPIC, 0, 5)], asynchronous=False)
    consumer.close()


def test_every_page_of_the_menu_is_looked_at() -> None:
    """A page without a row in PAGES fails here."""
    pages = re.search(r"const PAGES.*?satisfies", (SOURCES / "app.tsx").read_text(), re.DOTALL)
    assert pages is not None
    loaded = set(re.findall(r'^\s+"?([\w-]*)"?: \(\) => import', pages.group(), re.MULTILINE))
    entries = set(re.findall(r'page: "([^"]*)"', (SOURCES / "navigation.ts").read_text()))
    assert loaded >= entries, "an entry of the menu has no page"
    assert loaded == set(PAGES)
    tabs = {
        name: re.findall(r"(\w+): \"", line)
        for name in ("access", "brokers", "topic")
        for line in re.findall(
            r"const PARTS.*?= \{(.*?)\}", (SOURCES / "pages" / f"{name}.tsx").read_text()
        )
    }
    addresses = " ".join(address for row in PAGES.values() for address in row)
    missing = {
        f"{page}/{tab}"
        for page, found in tabs.items()
        for tab in found
        if tab not in ("list", "records") and f"/{tab}" not in addresses
    }
    assert tabs.keys() == {"access", "brokers", "topic"}
    assert missing == set()


@pytest.mark.parametrize("name", PAGES)
def test_pages_are_accessible_and_fit_the_window(
    shop: HeadraceConsole, chromium: Browser, tmp_path: Path, name: str
) -> None:
    """Light, dark and narrow. And no script fails or is blocked by the content policy: `Looking`
    fails then."""
    found: list[str] = []
    with Looking(chromium, shop.url, tmp_path) as looking:
        for address in PAGES[name]:
            page = looking.page
            page.set_viewport_size({"width": 1280, "height": 800})
            page.emulate_media(color_scheme="light")
            page.goto(address)
            _wait_until_loaded(page)
            found += _problems(looking, address, "light-1280")
            page.emulate_media(color_scheme="dark")
            found += _problems(looking, address, "dark-1280", only_colors=True)
            page.emulate_media(color_scheme="light")
            page.set_viewport_size({"width": 360, "height": 800})
            found += _problems(looking, address, "light-360")
            if not page.title().endswith("Headrace") or page.title() == "Headrace":
                found.append(f"{address}: its title is {page.title()!r}")
    assert found == []


def _problems(looking: Looking, address: str, look: str, *, only_colors: bool = False) -> list[str]:
    """What is wrong with a page as it looks now, with a picture of it."""
    looking.screenshot(f"{look}{re.sub('[^a-z0-9.]+', '-', address)}")
    found = looking.violations(only_colors=only_colors)
    if looking.overflows():
        found.append("the page is wider than the window")
    return [f"{address}, {look}: {each}" for each in found]


def test_the_keyboard_reaches_the_page_and_the_menu(
    shop: HeadraceConsole, chromium: Browser, tmp_path: Path
) -> None:
    with Looking(chromium, shop.url, tmp_path, width=360) as looking:
        page = looking.page
        page.goto("/topics")
        _wait_until_loaded(page)
        page.keyboard.press("Tab")
        skip = page.get_by_role("link", name="Skip to the page")
        expect(skip).to_be_focused()
        expect(skip).to_be_in_viewport()
        page.keyboard.press("Enter")
        expect(page.locator("#content")).to_be_focused()
        page.keyboard.press("Tab")
        expect(page.get_by_role("button", name="Create topic")).to_be_focused()

        menu = page.get_by_role("button", name="Menu")
        menu.focus()
        page.keyboard.press("Enter")
        expect(menu).to_have_attribute("aria-expanded", "true")
        page.keyboard.press("Tab")
        page.get_by_role("link", name="Brokers").focus()
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name="Brokers", level=1)).to_be_visible()
        expect(menu).to_have_attribute("aria-expanded", "false")


def _wait_until_loaded(page: Page) -> None:
    expect(page.locator("h1").first).to_be_visible()
    expect(page.locator(".loading")).to_have_count(0)
