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
