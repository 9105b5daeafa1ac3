"""Brokers in a browser: list, log folders, reassignments and settings."""

import re

from playwright.sync_api import Page, expect


def test_brokers_have_their_folders_and_settings(page: Page) -> None:
    page.goto("/brokers")
    brokers = page.get_by_role("table", name="Brokers", exact=True).locator("tbody tr")
    expect(brokers).to_have_count(1)
    expect(brokers).to_contain_text("controller")
    page.get_by_role("link", name="Log folders").click()
    folders = page.get_by_role("table", name="Log folders").locator("tbody tr")
    expect(folders).to_have_count(1)
    expect(folders).to_contain_text(re.compile(r"ok.*B of "))
    page.get_by_role("link", name="Reassignments").click()
    expect(page.get_by_text("No partition is being moved.")).to_be_visible()
    page.get_by_role("link", name="Brokers", exact=True).last.click()
    brokers.get_by_role("link").click()
    expect(page.get_by_role("heading", name=re.compile(r"Broker \d+"))).to_be_visible()
    page.get_by_label("Filter settings").fill("log.retention")
    settings = page.get_by_role("table", name="Settings")
    expect(settings).to_contain_text("log.retention.bytes")
    expect(settings).not_to_contain_text("num.network.threads")


def test_a_setting_of_a_broker_is_changed_and_put_back(page: Page) -> None:
    name = "log.cleaner.backoff.ms"
    page.goto("/brokers")
    page.get_by_role("table", name="Brokers", exact=True).locator("tbody").get_by_role(
        "link"
    ).click()
    page.get_by_label("Filter settings").fill(name)
    row = page.get_by_role("table", name="Settings").get_by_role("row").filter(has_text=name)
    before = row.get_by_role("cell").nth(1).inner_text()
    dialog = page.get_by_role("dialog")
    page.get_by_role("button", name=f"Change {name}").click()
    dialog.get_by_label("Value").fill("soon")
    dialog.get_by_role("button", name="Change", exact=True).click()
    expect(dialog.get_by_role("alert")).to_contain_text(name)
    dialog.get_by_label("Value").fill("14000")
    expect(dialog.locator(".cli")).to_contain_text(f"--set {name}=14000")
    dialog.get_by_role("button", name="Change", exact=True).click()
    expect(row).to_contain_text("14000")
    expect(row).to_contain_text("this broker")
    page.get_by_role("button", name=f"Change {name}").click()
    dialog.get_by_label("Back to the default").check()
    dialog.get_by_role("button", name="Change", exact=True).click()
    expect(row.get_by_role("cell").nth(1)).to_have_text(before)
    # A setting that needs a restart has no form.
    page.get_by_label("Filter settings").fill("log.dirs")
    expect(page.get_by_role("table", name="Settings")).to_contain_text("log.dirs")
    expect(page.get_by_role("button", name="Change log.dirs")).to_have_count(0)
