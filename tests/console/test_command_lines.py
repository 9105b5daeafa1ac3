"""The command lines that dialogs show can be run as they are."""

import shlex
from pathlib import Path

from playwright.sync_api import Browser, Page

from tests.cli.conftest import execute
from tests.console.looking import Looking
from tests.console.test_groups import commit_offset
from tests.console.test_records_api import create
from tests.support.headrace_console import HeadraceConsole

NO_CLUSTER = 3


def check(page: Page, *expected: str) -> None:
    """The line in the dialog has these words, and fails only because there is no cluster."""
    words = shlex.split(page.get_by_role("dialog").locator(".cli code").inner_text())
    assert words[0] == "headrace"
    assert words[1 : len(expected) + 1] == list(expected)
    done = execute(*words[1:], "--bootstrap", "127.0.0.1:1")
    assert done.code == NO_CLUSTER, (words, done.err)


def cancel(page: Page) -> None:
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()


def test_lines_of_topics_and_groups(
    chromium: Browser, console: HeadraceConsole, topic: str, tmp_path: Path
) -> None:
    create(console, topic)
    group = f"{topic} it's a group"
    commit_offset(console, group, topic, 0)
    with Looking(chromium, console.url, tmp_path) as looking:
        page = looking.page
        page.goto("/topics")
        page.get_by_role("button", name="Create topic").click()
        page.get_by_label("Name", exact=True).fill(topic)
        page.get_by_label("Partitions", exact=True).fill("3")
        page.get_by_label("Replication factor", exact=True).fill("1")
        check(page, "topics", "create", topic)
        page.goto(f"/topics/{topic}/settings")
        page.get_by_role("button", name="Change retention.ms", exact=True).click()
        check(page, "configs", "set", "topic", topic)
        cancel(page)
        page.get_by_role("button", name="Delete topic").click()
        check(page, "topics", "delete", topic)
        page.goto(f"/groups/{group}")
        page.get_by_role("button", name="Delete group").click()
        check(page, "groups", "delete", group)
        cancel(page)
        page.get_by_role("button", name="Reset offsets").click()
        target = page.get_by_role("combobox", name="To", exact=True)
        for name, value in (
            ("the beginning", ""),
            ("the end", ""),
            ("a time", "2026-11-16 14:03"),
            ("an offset", "7"),
            ("a shift by records", "-3"),
        ):
            target.select_option(name)
            if value:
                page.get_by_role("dialog").get_by_role("textbox").fill(value)
            check(page, "groups", "reset-offsets", group)
