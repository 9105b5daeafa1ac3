"""Open transactions in a browser, and how one is aborted."""

from confluent_kafka import Producer
from playwright.sync_api import Page, expect

from tests.console.test_records_api import create
from tests.support.headrace_console import HeadraceConsole


def test_an_open_transaction_is_listed_and_aborted(
    page: Page, any_console: HeadraceConsole, topic: str
) -> None:
    create(any_console, topic)
    name = f"{topic}-tx"
    producer = Producer({"bootstrap.servers": any_console.bootstrap, "transactional.id": name})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, "open")
    producer.flush(60)
    page.goto("/transactions")
    opened = page.get_by_role("table", name="Open transactions").get_by_role("row")
    held = page.get_by_role("table", name="Held partitions").get_by_role("row")
    expect(opened.filter(has_text=name)).to_contain_text(f"{topic}-0")
    expect(held.filter(has_text=f"{topic}-0")).to_contain_text(name)
    page.get_by_role("button", name=f"Abort {name}", exact=True).click()
    dialog = page.get_by_role("dialog")
    expect(dialog.locator(".cli")).to_contain_text(f"headrace transactions abort {name} --yes")
    dialog.get_by_role("button", name="Abort", exact=True).click()
    expect(dialog).to_be_hidden()
    expect(opened.filter(has_text=name)).to_have_count(0)
    expect(held.filter(has_text=f"{topic}-0")).to_have_count(0)
