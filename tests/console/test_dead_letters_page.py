"""Dead letters in a browser: list, causes, dry run, sending, editing one letter."""

from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.console.looking import PATIENCE_MS, Looking
from tests.console.test_dead_letters import connect_letter, create, read, write
from tests.support.headrace_console import HeadraceConsole


def test_letters_are_looked_at_edited_and_sent_back(
    looking: Looking, any_console: HeadraceConsole, topic: str
) -> None:
    console, dead = any_console, f"{topic}-dlq"
    create(console, topic)
    create(console, dead)
    write(console, dead, *(connect_letter(topic, n) for n in range(3)), {"value": "<b>what</b>"})
    page = looking.page
    page.goto("/dead-letters")
    page.get_by_role("link", name=dead, exact=True).click()
    rows = page.get_by_role("table", name="Causes", exact=True).locator("tbody tr")
    expect(rows).to_have_count(2, timeout=PATIENCE_MS)
    assert looking.visible_rows("Causes") == 2
    expect(rows.first).to_contain_text("org.apache.DataException")
    rows.first.get_by_role("button", name="Show letters").click()
    letters = page.get_by_role("table", name="Letters", exact=True).locator("tbody tr")
    expect(letters).to_have_count(3)
    assert looking.visible_rows("Letters") == 3
    looking.screenshot("dead-letters")

    letters.first.get_by_role("button", name="Edit and send").click()
    value = page.get_by_label("Value")
    expect(value).to_have_value("v2")
    value.fill("mended")
    page.get_by_role("button", name="Send", exact=True).click()
    expect(rows.first.locator("td").first).to_have_text("2", timeout=PATIENCE_MS)

    page.get_by_role("button", name="Send back", exact=True).click()
    page.get_by_role("button", name="Show what would be sent").click()
    status = page.get_by_role("dialog").get_by_role("status")
    expect(status).to_contain_text(f"2 letters would be sent back: 2 to {topic}")
    expect(page.get_by_role("dialog")).to_contain_text("1 not sent: its headers do not name")
    looking.screenshot("dead-letters-plan")
    page.get_by_role("dialog").get_by_role("button", name="Send back").click()
    card = page.get_by_role("region", name="Sending back")
    expect(card).to_contain_text("finished 2 sent", timeout=PATIENCE_MS)
    page.get_by_role("button", name="Read again").click()
    page.get_by_label("Also letters that were sent").check()
    rows.filter(has_text="headers do not say").get_by_role("button", name="Show letters").click()
    page.get_by_role("button", name="Edit and send").click()
    expect(page.get_by_role("dialog")).to_contain_text("It cannot be sent back")
    page.get_by_label("To topic").fill(topic)
    page.get_by_label("To topic").press("Tab")
    expect(page.get_by_label("Value")).to_have_value("<b>what</b>")
    page.get_by_role("button", name="Send", exact=True).click()
    page.get_by_label("Also letters that were sent").uncheck()
    expect(page.get_by_text("No letters are left.")).to_be_visible()
    assert [each.value() for each in read(console, topic, 4)] == [
        b"mended",
        b"v0",
        b"v1",
        b"<b>what</b>",
    ]


def test_a_slow_run_shows_its_progress_and_can_be_stopped(
    looking: Looking, any_console: HeadraceConsole, topic: str
) -> None:
    dead = f"{topic}-dlq"
    create(any_console, topic)
    create(any_console, dead)
    write(any_console, dead, *(connect_letter(topic, n) for n in range(500)))
    page = looking.page
    page.goto(f"/dead-letters/{dead}")
    page.get_by_role("button", name="Send back", exact=True).click()
    page.get_by_label("Letters a second at most").fill("2")
    page.get_by_role("button", name="Show what would be sent").click()
    page.get_by_role("dialog").get_by_role("button", name="Send back").click()
    card = page.get_by_role("region", name="Sending back")
    expect(card).to_contain_text("running", timeout=PATIENCE_MS)
    card.get_by_role("button", name="Stop").click()
    expect(card).to_contain_text("stopped", timeout=PATIENCE_MS)
    assert any_console.http.get(f"/dead-letters/{dead}/job").json()["job"]["state"] == "stopped"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_pages_are_accessible_and_fit_a_phone(
    chromium: Browser, console: HeadraceConsole, tmp_path: Path, topic: str, scheme: str
) -> None:
    dead = f"{topic}-dlq"
    create(console, topic)
    create(console, dead)
    write(console, dead, connect_letter(topic, 1), {"value": b"\xff\xfe"})
    with Looking(chromium, console.url, tmp_path, scheme=scheme, width=360) as looking:
        page = looking.page
        for address in ("/dead-letters", f"/dead-letters/{dead}"):
            page.goto(address)
            expect(page.get_by_role("table").locator("tbody tr").first).to_be_visible(
                timeout=PATIENCE_MS
            )
            assert looking.violations() == []
            assert not looking.overflows()
        page.get_by_role("button", name="Show letters").first.click()
        page.get_by_role("button", name="Edit and send").first.click()
        expect(page.get_by_role("dialog")).to_be_visible()
        assert looking.violations() == []
        looking.screenshot(f"dead-letters-edit-{scheme}")
