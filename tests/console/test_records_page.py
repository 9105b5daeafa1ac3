"""Records in a browser: starts, the open record, the live tail, search and the produce form."""

import json
import re
import time
from pathlib import Path

from playwright.sync_api import Browser, Page, expect

from tests.console.looking import Looking
from tests.console.test_masks import stored
from tests.console.test_records_api import FIRST_MS, create, page, produce
from tests.support.headrace_console import HeadraceConsole

OFFSET = 1


def column(tab: Page, number: int) -> list[str]:
    """The texts of a column of the list of records."""
    rows = tab.get_by_role("table", name="Records", exact=True).locator("tbody tr")
    return [row.locator("td").nth(number).inner_text() for row in rows.all()]


def fill(console: HeadraceConsole, topic: str, count: int = 10) -> None:
    create(console, topic)
    records = [
        {
            "key": f"key-{n}",
            "value": json.dumps({"n": n, "id": 2**63 - 1}),
            "headers": {"source": "web"},
            "timestamp": FIRST_MS + n * 60_000,
        }
        for n in range(count)
    ]
    produce(console, topic, records)


def test_the_list_begins_at_the_offset_the_time_or_the_oldest_record(
    page: Page, any_console: HeadraceConsole, topic: str
) -> None:
    fill(any_console, topic)
    page.goto(f"/topics/{topic}")
    rows = page.get_by_role("table", name="Records", exact=True).locator("tbody tr")
    expect(rows).to_have_count(10)
    assert column(page, OFFSET) == [str(n) for n in reversed(range(10))]
    start = page.get_by_role("combobox", name="Start", exact=True)
    show = page.get_by_role("button", name="Show", exact=True)
    start.select_option("oldest")
    show.click()
    expect(rows.first).to_contain_text("key-0")
    start.select_option("offset")
    page.get_by_role("textbox", name="Offset").fill("7")
    show.click()
    expect(rows).to_have_count(3)
    start.select_option("time")
    moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(FIRST_MS / 1000 + 4.5 * 60))
    page.get_by_role("textbox", name="Time (UTC, or with an offset)").fill(moment)
    show.click()
    expect(rows).to_have_count(5)
    assert column(page, OFFSET) == ["5", "6", "7", "8", "9"]
    page.go_back()
    expect(rows).to_have_count(3)
    page.reload()
    expect(rows).to_have_count(3)


def test_a_time_that_is_not_one_is_explained(
    page: Page, any_console: HeadraceConsole, topic: str
) -> None:
    create(any_console, topic)
    page.goto(f"/topics/{topic}")
    page.get_by_role("combobox", name="Start", exact=True).select_option("time")
    page.get_by_role("textbox", name="Time (UTC, or with an offset)").fill("yesterday")
    page.get_by_role("button", name="Show", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("yesterday is not a time")


def test_an_open_record_has_an_address_and_files_and_neighbours(
    looking: Looking, any_console: HeadraceConsole, topic: str
) -> None:
    fill(any_console, topic)
    tab = looking.page
    tab.goto(f"/topics/{topic}")
    tab.get_by_role("button", name="4", exact=True).click()
    panel = tab.get_by_role("complementary", name="Open record")
    expect(panel).to_contain_text("9223372036854775807")
    expect(panel).to_contain_text("source")
    expect(panel).to_be_in_viewport()
    with tab.expect_download() as started:
        panel.get_by_role("link", name="Download").last.click()
    assert json.loads(started.value.path().read_bytes()) == {"n": 4, "id": 2**63 - 1}
    again = looking.new_tab()
    again.goto(tab.url)
    expect(again.get_by_role("complementary", name="Open record")).to_contain_text("key-4")
    panel.get_by_role("link", name=f"{topic}, partition 0, offset 4").click()
    expect(tab).to_have_url(re.compile(f"/topics/{topic}/0/4$"))
    tab.get_by_role("link", name="Next").click()
    expect(tab.get_by_text("key-5")).to_be_visible()
    tab.get_by_role("link", name="Previous").click()
    expect(tab.get_by_text("key-4")).to_be_visible()


def test_new_records_are_visible_in_the_live_list(
    looking: Looking, any_console: HeadraceConsole, topic: str
) -> None:
    fill(any_console, topic, 3)
    tab = looking.page
    tab.goto(f"/topics/{topic}?mode=live&volume=no")
    expect(tab.get_by_text("live", exact=True)).to_be_visible()
    produce(any_console, topic, [{"value": f"new {n}"} for n in range(300)])
    expect(tab.get_by_role("status").first).to_contain_text("300 records")
    rows = tab.get_by_role("table", name="Records", exact=True).locator("tbody tr")
    expect(rows.first).to_contain_text("new 299")
    assert looking.visible_rows("Records") >= 5
    looking.screenshot("records-live")
    tab.get_by_role("button", name="Pause the list").click()
    produce(any_console, topic, [{"value": "while paused"}])
    expect(tab.get_by_role("status").first).to_contain_text("301 records")
    expect(rows.first).to_contain_text("new 299")
    tab.get_by_role("button", name="Continue").click()
    expect(rows.first).to_contain_text("while paused")


def test_a_search_shows_its_progress_and_goes_on(
    page: Page, any_console: HeadraceConsole, topic: str
) -> None:
    create(any_console, topic)
    produce(
        any_console, topic, [{"value": json.dumps({"n": n, "name": "ada"})} for n in range(250)]
    )
    page.goto(f"/topics/{topic}?mode=search")
    page.get_by_label("Text in key, value or headers").fill("ada")
    search = page.locator("form").get_by_role("button", name="Search", exact=True)
    search.click()
    status = page.locator(".progress")
    expect(status).to_contain_text("200 of 250 records searched, 200 found")
    expect(status).to_contain_text("Stopped:")
    page.get_by_role("button", name="Go on").click()
    expect(status).to_contain_text("250 of 250 records searched, 250 found")
    expect(status).to_contain_text("Finished: everything was searched.")
    page.get_by_role("combobox", name="Search for", exact=True).select_option("an expression")
    page.get_by_label("Expression", exact=True).fill("value.n >= 248")
    search.click()
    expect(status).to_contain_text("2 found")
    rows = page.get_by_role("table", name="Records", exact=True).locator("tbody tr")
    expect(rows).to_have_count(2)
    page.reload()
    expect(rows).to_have_count(2)
    page.get_by_label("Expression", exact=True).fill("value.n >=")
    search.click()
    expect(page.get_by_role("alert")).to_contain_text("cannot be understood")


def test_records_are_produced_as_text_json_and_bytes_and_again(
    looking: Looking, any_console: HeadraceConsole, topic: str
) -> None:
    create(any_console, topic)
    tab = looking.page
    tab.goto(f"/topics/{topic}")
    dialog = tab.get_by_role("dialog")
    panel = tab.get_by_role("complementary", name="Open record")
    for offset, (kind, text) in enumerate(
        (("text", "hello"), ("json", '{"n": 9223372036854775807}'), ("hex", "00ff10"))
    ):
        tab.get_by_role("button", name="Produce", exact=True).click()
        dialog.get_by_role("combobox", name="Format of the key").select_option("text")
        dialog.get_by_role("textbox", name="Text of the key").fill(f"key-{offset}")
        dialog.get_by_role("combobox", name="Format of the value").select_option(kind)
        dialog.get_by_role("textbox", name="Text of the value").fill(text)
        dialog.get_by_label("Headers").fill("source: console")
        dialog.get_by_role("button", name="Produce", exact=True).click()
        expect(dialog).to_be_hidden()
        expect(panel).to_contain_text(f"key-{offset}")
    rows = tab.get_by_role("table", name="Records", exact=True).locator("tbody tr")
    expect(rows).to_have_count(3)
    panel.get_by_role("button", name="Produce again").click()
    dialog.get_by_role("button", name="Produce", exact=True).click()
    expect(dialog).to_be_hidden()
    expect(panel).to_contain_text("offset 3")
    found = page(any_console, topic, **{"from": "oldest"})["records"]
    assert [each["value"]["text"] for each in found] == [
        "hello",
        '{"n": 9223372036854775807}',
        "00ff10",
        "00ff10",
    ]
    assert [each["key"]["text"] for each in found] == ["key-0", "key-1", "key-2", "key-2"]
    assert [each["headers"][0]["value"]["text"] for each in found] == ["console"] * 4
    tab.get_by_role("button", name="Produce", exact=True).click()
    dialog.get_by_role("combobox", name="Format of the value").select_option("hex")
    dialog.get_by_role("textbox", name="Text of the value").fill("not hex")
    dialog.get_by_role("button", name="Produce", exact=True).click()
    expect(dialog.get_by_role("alert")).to_contain_text("The value is not hex")


def test_produce_again_keeps_headers_that_are_null_or_bytes(
    looking: Looking, any_console: HeadraceConsole, topic: str
) -> None:
    create(any_console, topic)
    headers = [("none", None), ("bytes", b"\xff\x00"), ("empty", b""), ("lines", b" a: b\nc ")]
    produce(any_console, topic, [{"value": "one", "headers": headers}])
    tab = looking.page
    tab.goto(f"/topics/{topic}/0/0")
    tab.get_by_role("button", name="Produce again").click()
    tab.get_by_role("dialog").get_by_role("button", name="Produce", exact=True).click()
    expect(tab.get_by_role("dialog")).to_be_hidden()
    first, second = page(any_console, topic, **{"from": "oldest"})["records"]
    assert second["headers"] == first["headers"]


def test_produce_again_copies_what_is_too_large_or_too_much_to_show(
    looking: Looking, any_console: HeadraceConsole, topic: str
) -> None:
    create(any_console, topic, 1, **{"max.message.bytes": "4000000"})
    headers = [(f"h{number}", str(number)) for number in range(60)]
    record = {"key": "k", "value": "x" * 1_500_000, "headers": headers}
    produce(any_console, topic, [record], **{"message.max.bytes": 4_000_000})
    tab = looking.page
    tab.goto(f"/topics/{topic}/0/0")
    tab.get_by_role("button", name="Produce again").click()
    dialog = tab.get_by_role("dialog")
    expect(dialog).to_contain_text("The value is too large")
    dialog.get_by_role("combobox", name="Format of the key").select_option("text")
    expect(dialog.get_by_role("textbox", name="Text of the key")).to_have_value("k")
    dialog.get_by_role("combobox", name="Format of the value").select_option("text")
    expect(dialog.get_by_role("textbox", name="Text of the value")).to_have_value("")
    dialog.get_by_role("combobox", name="Format of the value").select_option("same")
    looking.screenshot("produce-again")
    dialog.get_by_role("button", name="Produce", exact=True).click()
    expect(dialog).to_be_hidden()
    first, second = stored(any_console, topic)
    assert second == first
    assert first[2] == [(name, value.encode()) for name, value in headers]


def test_the_volume_over_time_selects_where_the_list_begins(
    page: Page, any_console: HeadraceConsole, topic: str
) -> None:
    fill(any_console, topic)
    page.goto(f"/topics/{topic}?span=6h")
    expect(page.get_by_label("Records over time").locator("canvas")).to_be_visible()
    expect(page.locator("details")).to_contain_text("10 records")
    page.get_by_role("slider").fill(str(FIRST_MS + 5 * 60_000 - 30_000))
    rows = page.get_by_role("table", name="Records", exact=True).locator("tbody tr")
    expect(rows).to_have_count(5)
    expect(page).to_have_url(re.compile("from=time"))


def test_the_slider_asks_for_records_when_it_is_let_go(
    chromium: Browser, console: HeadraceConsole, topic: str, tmp_path: Path
) -> None:
    fill(console, topic)
    with Looking(chromium, console.url, tmp_path) as looking:
        _move_slider(looking.page, topic)


def _move_slider(page: Page, topic: str) -> None:
    page.goto(f"/topics/{topic}?span=6h")
    rows = page.get_by_role("table", name="Records", exact=True).locator("tbody tr")
    expect(rows).to_have_count(10)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    slider = page.get_by_role("slider")
    slider.evaluate(
        """(slider, first) => {
            for (let step = 0; step < 20; step += 1) {
                slider.value = String(first + step * 1000);
                slider.dispatchEvent(new Event("input", { bubbles: true }));
            }
        }""",
        FIRST_MS + 5 * 60_000 - 60_000,
    )
    moment = time.strftime("%H:%M:%S", time.gmtime(FIRST_MS / 1000 + 4 * 60 + 19))
    expect(page.get_by_text("Start the list at").first).to_contain_text(moment)
    assert [each for each in asked if "/records?" in each] == []
    slider.dispatch_event("change")
    expect(rows).to_have_count(5)
    assert len([each for each in asked if "/records?" in each]) == 1
