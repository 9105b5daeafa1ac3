"""Times are shown and read in one zone, which a switch selects and every address has."""

import time
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.console.looking import Looking
from tests.console.test_records_api import FIRST_MS
from tests.console.test_records_page import OFFSET, column, fill
from tests.support.headrace_console import HeadraceConsole

KOLKATA_S = 5.5 * 3600
BERLIN = [
    # Summer time begins on 2026-03-29 at 01:00 UTC and ends on 2026-10-25 at 01:00 UTC.
    ("2026-01-15 12:00", "2026-01-15T11:00:00.000Z"),
    ("2026-07-15T12:00:00.5", "2026-07-15T10:00:00.500Z"),
    ("2026-03-29 01:59:59", "2026-03-29T00:59:59.000Z"),
    ("2026-03-29 02:30", "2026-03-29T01:30:00.000Z"),
    ("2026-03-29 03:00", "2026-03-29T01:00:00.000Z"),
    ("2026-10-25 02:30", "2026-10-25T00:30:00.000Z"),
    ("2026-10-25 03:00", "2026-10-25T02:00:00.000Z"),
    ("2026-10-25", "2026-10-24T22:00:00.000Z"),
    ("2026-07-15 12:00:00 UTC", "2026-07-15T12:00:00.000Z"),
    ("2026-07-15 12:00:00.000 UTC+2", "2026-07-15T10:00:00.000Z"),
    ("2026-07-15T12:00:00-0330", "2026-07-15T15:30:00.000Z"),
]
"""A text in Berlin, and its moment."""


def clock(ms: float, shift_s: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(ms / 1000 + shift_s))


def test_the_switch_changes_all_times_and_is_part_of_every_address(
    chromium: Browser, console: HeadraceConsole, topic: str, tmp_path: Path
) -> None:
    fill(console, topic)
    with Looking(chromium, console.url, tmp_path) as looking:
        page = looking.page
        page.goto(f"/topics/{topic}?from=oldest")
        rows = page.get_by_role("table", name="Records", exact=True).locator("tbody tr")
        expect(rows.first).to_contain_text(clock(FIRST_MS, 0))
        page.on("dialog", lambda dialog: dialog.accept("Asia/Kolkata"))
        page.get_by_role("combobox", name="Times").select_option("other…")
        expect(rows.first).to_contain_text(clock(FIRST_MS, KOLKATA_S))
        expect(page.get_by_role("columnheader", name="Time (Asia/Kolkata)")).to_be_visible()
        rows.first.get_by_role("button").click()
        panel = page.get_by_role("complementary", name="Open record")
        expect(panel).to_contain_text(f"{clock(FIRST_MS, KOLKATA_S)}.000 UTC+5:30")
        assert "tz=Asia%2FKolkata" in page.url
        panel.get_by_role("link").first.click()
        expect(page.get_by_role("heading", level=1)).to_contain_text("/ 0 / 0")
        assert "tz=Asia%2FKolkata" in page.url
        expect(page.get_by_text(clock(FIRST_MS, KOLKATA_S))).to_be_visible()
        # The choice is remembered for addresses without a zone.
        page.goto(f"/topics/{topic}/0/0")
        expect(page.get_by_text(clock(FIRST_MS, KOLKATA_S))).to_be_visible()


def test_the_start_of_the_list_is_read_in_the_zone_that_is_shown(
    chromium: Browser, console: HeadraceConsole, topic: str, tmp_path: Path
) -> None:
    fill(console, topic)
    with Looking(chromium, console.url, tmp_path) as looking:
        page = looking.page
        page.goto(f"/topics/{topic}?tz=Asia/Kolkata")
        page.get_by_role("combobox", name="Start", exact=True).select_option("time")
        field = page.get_by_role("textbox", name="Time (Asia/Kolkata, or with an offset)")
        field.fill(clock(FIRST_MS + 4.5 * 60_000, KOLKATA_S))
        page.get_by_role("button", name="Show", exact=True).click()
        rows = page.get_by_role("table", name="Records", exact=True).locator("tbody tr")
        expect(rows).to_have_count(5)
        assert column(page, OFFSET) == ["5", "6", "7", "8", "9"]
        page.get_by_role("combobox", name="Times").select_option("UTC")
        utc = page.get_by_role("textbox", name="Time (UTC, or with an offset)")
        expect(utc).to_have_value(f"{clock(FIRST_MS + 4.5 * 60_000, 0)}.000")
        expect(rows).to_have_count(5)


@pytest.mark.parametrize("wrong", ["2026-02-30", "2026-11-16 24:00", "14:03", "2026-13-01", "now"])
def test_what_is_no_time_is_refused(
    chromium: Browser, console: HeadraceConsole, wrong: str, topic: str, tmp_path: Path
) -> None:
    fill(console, topic, 1)
    with Looking(chromium, console.url, tmp_path) as looking:
        page = looking.page
        page.goto(f"/topics/{topic}?from=time:0")
        page.get_by_role("textbox", name="Time (UTC, or with an offset)").fill(wrong)
        page.get_by_role("button", name="Show", exact=True).click()
        expect(page.get_by_role("alert")).to_contain_text(f"{wrong} is not a time")


def test_summer_time_repeated_and_missing_hours_and_offsets(
    chromium: Browser, console: HeadraceConsole, topic: str, tmp_path: Path
) -> None:
    fill(console, topic, 1)
    with Looking(chromium, console.url, tmp_path) as looking:
        page = looking.page
        page.goto(f"/topics/{topic}?tz=Europe/Berlin&from=time:0")
        field = page.get_by_role("textbox", name="Time (Europe/Berlin, or with an offset)")
        for text, moment in BERLIN:
            field.fill(text)
            page.get_by_role("button", name="Show", exact=True).click()
            expected = page.evaluate("text => `from=time%3A${Date.parse(text)}`", moment)
            page.wait_for_url(f"**{expected}*")
