"""Unread records that retention deletes next, in a browser."""

import re

from playwright.sync_api import Page, expect

from tests.console.test_groups import commit_offset
from tests.console.test_records_api import FIRST_MS, create, produce
from tests.support.headrace_console import HeadraceConsole


def test_unread_records_are_listed_with_the_time_that_is_left(
    page: Page, any_console: HeadraceConsole, topic: str
) -> None:
    create(any_console, topic, 1, **{"retention.ms": "36000000"})
    produce(any_console, topic, [{"value": str(n), "timestamp": FIRST_MS} for n in range(5)])
    commit_offset(any_console, f"{topic}-g", topic, 2)
    # The console observes groups every few seconds, and at once for a group that it does not know.
    assert any_console.http.get(f"/groups/{topic}-g").status_code == 200
    page.goto("/retention")
    row = page.get_by_role("table", name="Unread records").get_by_role("row").filter(has_text=topic)
    expect(row).to_have_count(1)
    expect(row.get_by_role("cell").nth(2)).to_have_text("3")
    expect(row).to_contain_text(re.compile(r"[89] h"))
    expect(row).to_contain_text("retention.ms")
