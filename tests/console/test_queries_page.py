"""Spark queries in a browser, from records of their topic as the listener writes them."""

from pathlib import Path

import pytest
from confluent_kafka import Producer
from playwright.sync_api import Browser, expect

from headrace.console.flow import query_progress
from headrace.console.flow.query_progress import SeenQuery, trouble
from headrace.pipelines.running import progress
from headrace.pipelines.running.progress_topic import TOPIC
from tests.console.looking import PATIENCE_MS, Looking
from tests.console.spark_reports import batch, now_ms, publish, started
from tests.support.headrace_console import HeadraceConsole


def test_queries_are_listed_with_state_lag_and_the_reason_of_a_failure(
    looking: Looking, any_console: HeadraceConsole, topic: str
) -> None:
    now = now_ms()
    running = batch(started(f"{topic}-runs"), 7, now, {topic: 40})
    failed = progress.ended(started(f"{topic}-broken"), now, "boom <b>bold</b>\nsecond line")
    silent = batch(started(f"{topic}-quiet"), 3, now - 600_000, {topic: 10})
    publish(any_console, running, failed, silent)
    page = looking.page
    page.goto(f"/queries?q={topic}")
    table = page.get_by_role("table", name="Spark queries", exact=True)
    expect(table.locator("tbody tr")).to_have_count(3, timeout=PATIENCE_MS)
    assert looking.visible_rows("Spark queries") == 3
    rows = table.locator("tbody tr")
    expect(rows.nth(0)).to_contain_text("boom <b>bold</b>")
    expect(rows.nth(0)).not_to_contain_text("second line")
    expect(rows.nth(1)).to_contain_text("silent (was running)")
    expect(rows.nth(1)).to_contain_text("No report for")
    expect(rows.nth(2)).to_contain_text("9,007,199,254,740,993")
    expect(rows.nth(2).get_by_role("link", name=topic, exact=True)).to_be_visible()

    publish(any_console, progress.ended(running, now, None))
    expect(rows.filter(has_text=f"{topic}-runs")).to_contain_text("stopped", timeout=PATIENCE_MS)


def test_a_query_shows_phases_topics_watermark_and_history(
    looking: Looking, any_console: HeadraceConsole, topic: str
) -> None:
    name, now = f"{topic}-query", now_ms()
    query = started(name, now - 60_000)
    reports = []
    for number in range(20):
        query = batch(query, number, now - 60_000 + number * 3000, {topic: 100 * number})
        reports.append(query)
    publish(any_console, *reports)
    page = looking.page
    page.goto(f"/queries/{name}")
    expect(page.get_by_role("heading", name=name)).to_be_visible(timeout=PATIENCE_MS)
    topics = page.get_by_role("table", name="Topics", exact=True).locator("tbody tr")
    expect(topics).to_have_count(1)
    expect(topics).to_contain_text("1,900")
    phases = page.get_by_role("table", name="Phases", exact=True).locator("tbody tr")
    expect(phases).to_have_count(3)
    expect(phases.first).to_contain_text("420 ms")
    facts = page.locator(".facts")
    expect(facts).to_contain_text("FileSink[/data/lake/orders]")
    expect(facts).to_contain_text("2,000 since its start")
    expect(facts).to_contain_text("2026-11-16 09:00:00.000 UTC")
    expect(page.get_by_role("img", name="Rows and lag over time").locator("canvas")).to_be_visible()
    page.get_by_role("table", name="Phases", exact=True).scroll_into_view_if_needed()
    assert looking.visible_rows("Phases") == 3
    found = any_console.http.get(f"/queries/{query.id}").json()
    assert len(found["history"]) == 20
    assert found["history"][-1][3] == "3"


def test_a_name_that_two_queries_have_leads_to_each_by_its_id(
    looking: Looking, any_console: HeadraceConsole, topic: str
) -> None:
    one, two = started(f"{topic}-twin"), started(f"{topic}-twin")
    publish(any_console, one, two)
    page = looking.page
    page.goto(f"/queries?q={topic}")
    links = page.get_by_role("link", name=f"{topic}-twin")
    expect(links).to_have_count(2, timeout=PATIENCE_MS)
    assert {links.nth(n).get_attribute("href") for n in range(2)} == {
        f"/queries/{one.id}",
        f"/queries/{two.id}",
    }
    missing = any_console.http.get(f"/queries/{topic}-none")
    assert missing.status_code == 404


def test_records_of_other_programs_in_the_topic_are_passed_over(
    console: HeadraceConsole, topic: str
) -> None:
    publish(console, started(f"{topic}-first"))
    producer = Producer({"bootstrap.servers": console.bootstrap})
    for value in (b"no JSON", b"17", b'{"state":"running"}', b'{"sources":[1]}'):
        producer.produce(TOPIC, key=topic, value=value)
    producer.produce(TOPIC, value=b"no key")
    assert producer.flush(60) == 0
    publish(console, started(f"{topic}-last"))
    names: list[str] = []
    while f"{topic}-last" not in names:
        answer = console.http.get("/queries")
        assert answer.status_code == 200, answer.text
        names = [each["name"] for each in answer.json()["queries"]]
    assert f"{topic}-first" in names


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_pages_are_accessible_and_fit_a_phone(
    chromium: Browser, console: HeadraceConsole, tmp_path: Path, topic: str, scheme: str
) -> None:
    now = now_ms()
    first = batch(started(f"{topic}-query"), 1, now - 5000, {topic: 10})
    failed = progress.ended(started(f"{topic}-broken"), now, "boom " * 40)
    publish(console, first, batch(first, 2, now, {topic: 20}), failed)
    with Looking(chromium, console.url, tmp_path, scheme=scheme, width=360) as looking:
        for address, table in (
            (f"/queries?q={topic}", "Spark queries"),
            (f"/queries/{topic}-query", "Phases"),
        ):
            looking.page.goto(address)
            shown = looking.page.get_by_role("table", name=table, exact=True)
            expect(shown.locator("tbody tr").nth(1)).to_be_visible(timeout=PATIENCE_MS)
            assert looking.violations() == []
            assert not looking.overflows()
            looking.screenshot(f"queries-{table}-{scheme}")


def test_a_query_is_silent_after_a_minute_or_five_of_its_batches() -> None:
    query = batch(started("q"), 1, 1_000_000, {})
    assert trouble(query, 1_050_000) == ""
    assert "No report for 1 min" in trouble(query, 1_061_000)
    assert trouble(progress.ended(query, 1_000_000, None), 9_000_000) == ""
    slow = batch(started("q"), 1, 1_000_000, {}, batchDuration=100_000)
    assert trouble(slow, 1_400_000) == ""


def test_a_full_history_is_thinned_out_and_keeps_both_ends() -> None:
    query = started("q", 0)
    seen = SeenQuery(query)
    for number in range(query_progress.MOST_POINTS * 5):
        seen.add(batch(query, number, number * 1000, {}))
    assert len(seen.points) <= query_progress.MOST_POINTS
    assert seen.points[0].time_ms == 0
    assert seen.points[-1].time_ms == (query_progress.MOST_POINTS * 5 - 1) * 1000
    times = [each.time_ms for each in seen.points]
    assert times == sorted(times)
