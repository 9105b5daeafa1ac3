"""Consumer groups in a browser: list, lag, reset of offsets with its preview, deletion."""

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from playwright.sync_api import Page, expect

from tests.console.test_records_api import FIRST_MS, create, produce
from tests.support.headrace_console import HeadraceConsole

RECORDS = 10
COMMITTED = 4


def properties(console: HeadraceConsole, group: str) -> dict[str, str]:
    return {
        "bootstrap.servers": console.bootstrap,
        "group.id": group,
        "enable.auto.commit": "false",
        "auto.offset.reset": "earliest",
    }


def committed(console: HeadraceConsole, topic: str) -> int:
    """The offset that the group of the topic has committed."""
    consumer = Consumer(properties(console, f"{topic}-g"))
    found = consumer.committed([TopicPartition(topic, 0)], timeout=60)[0].offset
    consumer.close()
    return int(found)


@pytest.fixture
def group(any_console: HeadraceConsole, topic: str) -> str:
    """A group without members that has read 4 of 10 records, which are a minute apart."""
    create(any_console, topic)
    produce(
        any_console,
        topic,
        [{"value": str(n), "timestamp": FIRST_MS + n * 60_000} for n in range(RECORDS)],
    )
    name = f"{topic}-g"
    commit_offset(any_console, name, topic, COMMITTED)
    return name


def commit_offset(console: HeadraceConsole, group: str, topic: str, offset: int) -> None:
    """Commits for partition 0, also while the cluster still creates the topic of offsets."""
    consumer = Consumer(properties(console, group))
    deadline = time.monotonic() + 60
    while True:
        try:
            consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
        except KafkaException:
            if time.monotonic() > deadline:
                raise
        else:
            break
    consumer.close()


@contextmanager
def member(console: HeadraceConsole, group: str, topic: str) -> Iterator[None]:
    """An active member of the group."""
    consumer = Consumer(properties(console, group))
    consumer.subscribe([topic])
    deadline = time.monotonic() + 60
    while not consumer.assignment():
        assert time.monotonic() < deadline, "the member got no partitions"
        consumer.poll(0.1)
    try:
        yield
    finally:
        consumer.close()


def test_the_lag_of_a_group_is_shown_in_records_and_time_and_over_time(
    page: Page, group: str, topic: str
) -> None:
    page.goto(f"/groups?q={group}")
    rows = page.get_by_role("table", name="Consumer groups").locator("tbody tr")
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text(str(RECORDS - COMMITTED))
    expect(rows).to_contain_text(re.compile(r"\d+ (min|h)"))
    page.get_by_role("link", name=group).click()
    expect(page.get_by_role("heading", name=group)).to_be_visible()
    lag = page.locator(".card").filter(has_text="records not read")
    expect(lag.locator(".figure")).to_have_text(str(RECORDS - COMMITTED))
    age = page.locator(".card").filter(has_text="age of the oldest of them")
    expect(age.locator(".figure")).to_have_text(re.compile(r"\d+ (min|h)"))
    row = page.get_by_role("table", name="Partitions").locator("tbody tr")
    expect(row).to_contain_text(topic)
    expect(page.get_by_text("The group has no active members.")).to_be_visible()
    expect(page.get_by_label("Lag over time").locator("canvas")).to_be_visible()


TARGETS = {
    "the beginning": (None, 0, "read 4 records again"),
    "the end": (None, 10, "skip 6 records"),
    "an offset": ("7", 7, "skip 3 records"),
    "a time": ("TIME", 2, "read 2 records again"),
    "a shift by records": ("-3", 1, "read 3 records again"),
}
FIELDS = {
    "an offset": "Offset",
    "a time": "Time (UTC, or with an offset)",
    "a shift by records": "Records; a negative number moves back",
}


def test_the_time_of_a_reset_is_read_in_the_zone_that_is_shown(
    page: Page, any_console: HeadraceConsole, group: str, topic: str
) -> None:
    page.goto(f"/groups/{group}?tz=Asia/Tokyo")
    page.get_by_role("button", name="Reset offsets").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("combobox", name="To", exact=True).select_option("a time")
    seconds = FIRST_MS / 1000 + 61
    tokyo = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(seconds + 9 * 3600))
    dialog.get_by_role("textbox", name="Time (Asia/Tokyo, or with an offset)").fill(tokyo)
    # The command line would read a time without an offset in another zone.
    utc = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(seconds))
    expect(dialog.locator(".cli")).to_contain_text(f"--to-time {utc}")
    dialog.get_by_role("button", name="Show what changes").click()
    expect(dialog.get_by_role("status")).to_contain_text("read 2 records again")


def test_each_target_of_a_reset_is_previewed_before_one_is_written(
    page: Page, any_console: HeadraceConsole, group: str, topic: str
) -> None:
    page.goto(f"/groups/{group}")
    page.get_by_role("button", name="Reset offsets").click()
    dialog = page.get_by_role("dialog")
    moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(FIRST_MS / 1000 + 61))
    for target, (value, offset, effect) in TARGETS.items():
        dialog.get_by_role("combobox", name="To", exact=True).select_option(target)
        if value is not None:
            dialog.get_by_role("textbox", name=FIELDS[target]).fill(
                moment if value == "TIME" else value
            )
        dialog.get_by_role("button", name="Show what changes").click()
        expect(dialog.get_by_role("status")).to_contain_text(effect)
        cells = dialog.get_by_role("table", name="Changes").locator("tbody td")
        expect(cells).to_have_text(
            [f"{topic}-0", str(COMMITTED), str(offset), re.compile(str(abs(offset - COMMITTED)))]
        )
    assert committed(any_console, topic) == COMMITTED
    dialog.get_by_role("button", name="Reset 1 partition").click()
    expect(dialog).to_be_hidden()
    assert committed(any_console, topic) == 1
    lag = page.locator(".card").filter(has_text="records not read")
    expect(lag.locator(".figure")).to_have_text("9")


def test_a_reset_and_a_deletion_are_refused_while_members_are_active(
    page: Page, any_console: HeadraceConsole, group: str, topic: str
) -> None:
    with member(any_console, group, topic):
        page.goto(f"/groups/{group}")
        expect(page.get_by_role("table", name="Members").locator("tbody tr")).to_have_count(1)
        page.get_by_role("button", name="Reset offsets").click()
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text("The group has active members. Stop its consumers first.")
        dialog.get_by_role("button", name="Show what changes").click()
        expect(dialog.get_by_role("alert")).to_contain_text(group)
        dialog.get_by_role("button", name="Cancel").click()
        change = {"topic": topic, "partition": 0, "to": "0"}
        answer = any_console.http.post(f"/groups/{group}/reset", json={"changes": [change]})
        assert answer.status_code >= 400
        page.get_by_role("button", name="Delete group").click()
        dialog.get_by_role("button", name="Delete", exact=True).click()
        expect(dialog.get_by_role("alert")).to_contain_text(group)
    assert committed(any_console, topic) == COMMITTED
    dialog.get_by_role("button", name="Delete", exact=True).click()
    expect(page.get_by_role("heading", name="Consumer groups")).to_be_visible()
    assert any_console.http.get(f"/groups/{group}").status_code == 404
