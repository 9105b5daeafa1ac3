"""Topics in a browser: list, create, settings, delete."""

from playwright.sync_api import Page, expect

from tests.console.looking import Looking
from tests.support.headrace_console import HeadraceConsole


def create(console: HeadraceConsole, name: str, partitions: int = 2) -> None:
    answer = console.http.post("/topics", json={"name": name, "partitions": partitions})
    assert answer.status_code == 200, answer.text


def test_a_topic_is_created_in_the_list_changed_and_deleted(
    page: Page, any_console: HeadraceConsole, topic: str
) -> None:
    page.goto("/topics")
    page.get_by_role("button", name="Create topic").click()
    page.get_by_label("Name", exact=True).fill(topic)
    page.get_by_label("Partitions", exact=True).fill("3")
    expect(page.locator(".cli")).to_contain_text(f"headrace topics create {topic} --partitions 3")
    page.get_by_role("button", name="Create", exact=True).click()
    expect(page.get_by_role("heading", name=topic)).to_be_visible()
    page.get_by_role("link", name="Partitions").click()
    expect(page.get_by_role("table", name="Partitions").locator("tbody tr")).to_have_count(3)

    page.get_by_role("link", name="Settings").click()
    page.get_by_role("button", name="Change retention.ms", exact=True).click()
    page.get_by_role("textbox", name="Value").fill("60000")
    page.get_by_role("button", name="Change", exact=True).click()
    row = page.get_by_role("row").filter(has_text="retention.ms").filter(has_text="this topic")
    expect(row).to_contain_text("60000")

    page.get_by_role("button", name="Delete topic").click()
    delete = page.get_by_role("button", name="Delete", exact=True)
    expect(delete).to_be_disabled()
    page.get_by_label("Enter the name of the topic").fill(topic)
    delete.click()
    expect(page.get_by_role("heading", name="Topics")).to_be_visible()
    assert any_console.http.get(f"/topics/{topic}").status_code == 404


def test_an_error_of_the_cluster_is_shown_in_the_form(page: Page) -> None:
    page.goto("/topics")
    page.get_by_role("button", name="Create topic").click()
    page.get_by_label("Name", exact=True).fill("not a name!")
    page.get_by_role("button", name="Create", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("not a name!")
    expect(page.get_by_label("Name", exact=True)).to_have_value("not a name!")


def test_filter_and_order_of_the_list_are_in_the_address(
    looking: Looking, any_console: HeadraceConsole, topic: str
) -> None:
    for suffix, partitions in (("a", 1), ("b", 3), ("c", 2)):
        create(any_console, f"{topic}-{suffix}", partitions)
    page = looking.page
    page.goto("/topics")
    page.get_by_label("Filter by name").fill(topic)
    page.get_by_role("button", name="Partitions").click()
    rows = page.get_by_role("table", name="Topics").locator("tbody tr")
    expect(rows).to_have_count(3)
    expect(rows.first).to_contain_text(f"{topic}-a")
    again = looking.new_tab()
    again.goto(page.url.replace("sort=partitions", "sort=-partitions"))
    expect(again.get_by_role("table", name="Topics").locator("tbody tr").first).to_contain_text(
        f"{topic}-b"
    )
    assert looking.visible_rows("Topics") == 3
