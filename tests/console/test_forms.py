"""Every dialog: accessible in light and dark, usable at 360 pixels; and what some of them do."""

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import httpx
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from playwright.sync_api import Browser, Page, expect

from headrace.testing.running import RunningBroker
from tests.console.looking import ROOT, Looking
from tests.console.test_records_api import FIRST_MS, create, produce
from tests.support.headrace_console import HeadraceConsole
from tests.support.headrace_registry import HeadraceRegistry

TOPIC, GROUP, LETTERS = "orders", "billing", "orders.dead-letters"
SCHEMA = '{"type":"record","name":"Order","fields":[{"name":"id","type":"long"}]}'
FORMS = [
    ("/topics", "Create topic"),
    (f"/topics/{TOPIC}", "Produce"),
    (f"/topics/{TOPIC}", "Add partitions"),
    (f"/topics/{TOPIC}", "Delete topic"),
    (f"/topics/{TOPIC}/0/0", "Produce again"),
    (f"/topics/{TOPIC}/settings?q=retention.ms", "Change retention.ms"),
    (f"/topics/{TOPIC}/partitions", "Move the replicas of partition 0"),
    (f"/groups/{GROUP}", "Reset offsets"),
    (f"/groups/{GROUP}", "Delete group"),
    ("/schemas", "Register schema"),
    (f"/schemas/{TOPIC}-value", "New version"),
    (f"/schemas/{TOPIC}-value", "Compatibility"),
    (f"/schemas/{TOPIC}-value", "Delete version"),
    (f"/dead-letters/{LETTERS}", "Send back"),
    ("/access/users", "Add user"),
    ("/access/quotas", "Set quota"),
    ("/access/quotas", "Change the quotas of user ada"),
    ("/client-metrics", "Create subscription"),
    ("/client-metrics", "Delete all"),
    ("/transactions", "Abort checkout"),
]
"""The address of a page, and the button that opens a dialog."""
ELSEWHERE = {
    "dead_letter_edit.tsx": "test_dead_letters_page.py",
    "brokers.tsx": "test_three_brokers.py",
    "connector.tsx": "test_connectors.py",
    "connector_form.tsx": "test_connectors.py",
    "access_acls.tsx": "test_access_page.py",
    "sql_query_table.tsx": "test_sql_page.py",
}
"""Files with dialogs that need several brokers, ACLs or other services, and their tests."""


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory, chromium: Browser) -> Iterator[HeadraceConsole]:
    with ExitStack() as stack:
        broker = stack.enter_context(closing(RunningBroker()))
        bootstrap = broker.bootstrap_servers
        folder = tmp_path_factory.mktemp("forms")
        registry = stack.enter_context(HeadraceRegistry(bootstrap, folder))
        console = stack.enter_context(
            HeadraceConsole(bootstrap, folder, "--registry", registry.url)
        )
        for name in (TOPIC, LETTERS):
            create(console, name)
        produce(console, TOPIC, [{"value": str(n), "timestamp": FIRST_MS + n} for n in range(3)])
        failed = {"__connect.errors.topic": TOPIC, "__connect.errors.exception.message": "bad"}
        produce(console, LETTERS, [{"value": "{", "headers": failed}])
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP})
        consumer.commit(offsets=[TopicPartition(TOPIC, 0, 1)], asynchronous=False)
        consumer.close()
        http = console.http
        quota = {"entity": {"user": "ada"}, "set": {"producer_byte_rate": "1000"}}
        for answer in (
            http.post(f"/schemas/{TOPIC}-value", json={"schema": SCHEMA}),
            http.patch("/quotas", json=quota),
            http.put("/client-metrics/all", json={"metrics": ["*"], "interval_ms": 600_000}),
        ):
            assert answer.status_code == 200, answer.text
        held = Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": "checkout",
                "transaction.timeout.ms": 600_000,
            }
        )
        held.init_transactions(60)
        held.begin_transaction()
        held.produce("elsewhere", value="not committed")
        held.flush(60)
        yield console
        held.abort_transaction(60)


def test_every_file_with_a_dialog_is_looked_at() -> None:
    files = {
        path.name
        for path in (ROOT / "web" / "src").rglob("*.tsx")
        if re.search(r"<Dialog\b", path.read_text())
    }
    assert files == ELSEWHERE.keys() | {
        "access_quotas.tsx", "access_users.tsx", "client_metrics.tsx",
        "config_table.tsx", "dead_letter_send.tsx", "group.tsx", "group_reset.tsx",
        "produce_dialog.tsx", "schemas.tsx", "topic.tsx", "topic_forms.tsx", "topic_list.tsx",
        "transactions.tsx",
    }  # fmt: skip


@pytest.mark.parametrize(("address", "button"), FORMS)
def test_a_dialog_is_accessible_and_fits_the_window(
    shop: HeadraceConsole, chromium: Browser, tmp_path: Path, address: str, button: str
) -> None:
    with Looking(chromium, shop.url, tmp_path) as looking:
        page = looking.page
        page.goto(address)
        page.get_by_role("button", name=button, exact=True).first.click()
        looking.check_dialog(f"form{re.sub('[^a-z0-9]+', '-', f'{address} {button}'.lower())}")
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog")).to_be_hidden()


@pytest.fixture
def page(shop: HeadraceConsole, chromium: Browser, tmp_path: Path) -> Iterator[Page]:
    with Looking(chromium, shop.url, tmp_path) as looking:
        yield looking.page


def test_a_record_is_written_with_a_schema(page: Page, shop: HeadraceConsole) -> None:
    page.goto(f"/topics/{TOPIC}")
    page.get_by_role("button", name="Produce", exact=True).click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("combobox", name="Format of the value").select_option("schema")
    expect(dialog.get_by_role("textbox", name="Subject")).to_have_value(f"{TOPIC}-value")
    text = dialog.get_by_role("textbox", name="Text of the value")
    text.fill('{"id": "seven"}')
    dialog.get_by_role("button", name="Produce", exact=True).click()
    expect(dialog.get_by_role("alert")).to_contain_text("The value is not valid")
    text.fill('{"id": 9223372036854775807}')
    dialog.get_by_role("button", name="Produce", exact=True).click()
    expect(dialog).to_be_hidden()
    panel = page.get_by_role("complementary", name="Open record")
    expect(panel).to_contain_text("decoded with schema")
    expect(panel).to_contain_text("9223372036854775807")


def test_a_compatibility_level_is_changed(page: Page, shop: HeadraceConsole) -> None:
    page.goto(f"/schemas/{TOPIC}-value")
    page.get_by_role("button", name="Compatibility").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("combobox", name="Level").select_option("FULL_TRANSITIVE")
    expect(dialog.locator(".cli")).to_contain_text(
        f"headrace schemas config {TOPIC}-value --compatibility FULL_TRANSITIVE"
    )
    dialog.get_by_role("button", name="Change", exact=True).click()
    expect(page.get_by_text("compatibility FULL_TRANSITIVE")).to_be_visible()


def test_partitions_are_added_and_not_removed(page: Page, shop: HeadraceConsole) -> None:
    create(shop, "growing")
    page.goto("/topics/growing/partitions")
    dialog = page.get_by_role("dialog")
    page.get_by_role("button", name="Add partitions").click()
    expect(dialog).to_contain_text("The topic has 1 partitions now.")
    dialog.get_by_label("Partitions in total").fill("1")
    dialog.get_by_role("button", name="Add", exact=True).click()
    expect(dialog.get_by_role("alert")).to_contain_text("partition")
    dialog.get_by_label("Partitions in total").fill("3")
    expect(dialog.locator(".cli")).to_contain_text("headrace topics add-partitions growing 3")
    dialog.get_by_role("button", name="Add", exact=True).click()
    rows = page.get_by_role("table", name="Partitions").locator("tbody tr")
    expect(rows).to_have_count(3)


def test_topics_are_sorted_by_the_lag_of_their_groups(page: Page, shop: HeadraceConsole) -> None:
    for name, count in (("lag-a", 2), ("lag-b", 12), ("lag-c", 7)):
        create(shop, name)
        produce(shop, name, [{"value": "x"}] * count)
        consumer = Consumer({"bootstrap.servers": shop.bootstrap, "group.id": f"{name}-g"})
        consumer.commit(offsets=[TopicPartition(name, 0, 0)], asynchronous=False)
        consumer.close()
        assert shop.http.get(f"/groups/{name}-g").status_code == 200
    page.goto("/topics?q=lag-&sort=-lag")
    names = page.get_by_role("table", name="Topics").locator("tbody td:first-child")
    expect(names).to_have_text(["lag-b", "lag-c", "lag-a"])
    page.get_by_role("button", name="Lag").click()
    expect(names).to_have_text(["lag-a", "lag-c", "lag-b"])


def test_a_search_is_bounded_by_time_and_partitions_and_stops(
    page: Page, shop: HeadraceConsole
) -> None:
    create(shop, "searched", 2)
    records = [
        {"value": f"needle {n}", "timestamp": FIRST_MS + n * 60_000, "partition": n % 2}
        for n in range(10)
    ]
    produce(shop, "searched", records)
    page.goto("/topics/searched?mode=search&tz=UTC")
    page.get_by_label("Text in key, value or headers").fill("needle")
    moments = [
        page.evaluate("ms => new Date(ms).toISOString()", FIRST_MS + n * 60_000) for n in (2, 8)
    ]
    page.get_by_role("textbox", name="From (UTC, or with an offset)").fill(moments[0])
    page.get_by_role("textbox", name="Until (UTC, or with an offset)").fill(moments[1])
    page.get_by_role("textbox", name="Partitions").fill("1")
    search = page.locator("form").get_by_role("button", name="Search", exact=True)
    search.click()
    expect(page.locator(".progress")).to_contain_text("3 of 3 records searched, 3 found")
    page.reload()
    expect(page.locator(".progress")).to_contain_text("3 of 3 records searched, 3 found")
    page.get_by_role("textbox", name="From (UTC, or with an offset)").fill("soon")
    search.click()
    expect(page.get_by_role("alert")).to_contain_text("soon is not a time")


def test_a_search_is_stopped_and_says_so(page: Page, shop: HeadraceConsole) -> None:
    create(shop, "endless")
    produce(shop, "endless", [{"value": "hay"}])
    # A search that never ends by itself: the browser holds the answer.
    page.route(re.compile("/search"), lambda _: None)
    page.goto("/topics/endless?mode=search")
    page.get_by_label("Text in key, value or headers").fill("needle")
    page.locator("form").get_by_role("button", name="Search", exact=True).click()
    page.get_by_role("button", name="Stop", exact=True).click()
    expect(page.get_by_text("Stopped: you stopped it.")).to_be_visible()
    expect(page.get_by_text("No record was found so far.")).to_be_visible()


def test_a_list_of_records_is_downloaded_whole(page: Page, shop: HeadraceConsole) -> None:
    create(shop, "listed")
    long = "x" * 5_000
    records = [{"value": json.dumps({"n": n, "id": 2**63 - 1, "long": long})} for n in range(60)]
    produce(shop, "listed", records)
    page.goto("/topics/listed?from=oldest")
    with page.expect_download() as started:
        page.get_by_role("link", name="Download as JSON lines").click()
    assert started.value.suggested_filename == "listed.jsonl"
    rows = [json.loads(line) for line in started.value.path().read_text().splitlines()]
    assert [row["offset"] for row in rows] == [str(n) for n in range(60)]
    assert json.loads(rows[59]["value"]["text"]) == {"n": 59, "id": 2**63 - 1, "long": long}


def test_the_record_page_has_the_id_of_its_trace(page: Page, shop: HeadraceConsole) -> None:
    create(shop, "traced")
    trace = "0af7651916cd43dd8448eb211c80319c"
    headers = {"traceparent": f"00-{trace}-b7ad6b7169203331-01"}
    produce(shop, "traced", [{"value": "x", "headers": headers}, {"value": "y"}])
    page.goto("/topics/traced/0/0")
    facts = page.locator("dl.facts").first
    expect(facts).to_contain_text(f"Trace id{trace} span b7ad6b7169203331")
    page.goto("/topics/traced/0/1")
    expect(page.locator(".shown-text").last).to_have_text("y")
    expect(page.get_by_text("Trace id")).to_have_count(0)


def test_a_live_list_keeps_a_bounded_number_of_records(page: Page, shop: HeadraceConsole) -> None:
    """The newest come first, and none is lost or doubled where the chunks of the list meet."""
    create(shop, "followed")
    page.goto("/topics/followed?mode=live&volume=no")
    expect(page.get_by_text("live", exact=True)).to_be_visible()
    # Fewer than a tick of the stream has at most, so that none is left out; more than a chunk.
    for start in range(0, 1350, 150):
        produce(shop, "followed", [{"value": str(n)} for n in range(start, start + 150)])
        expect(page.get_by_role("status").first).to_contain_text(f"{start + 150:,} records")
    rows = page.get_by_role("table", name="Records", exact=True).locator("tbody tr:not(.space)")
    for place in ("0", "document.body.scrollHeight / 2", "document.body.scrollHeight"):
        page.evaluate(f"window.scrollTo(0, {place})")
        expect(rows.first).to_be_attached()
        page.wait_for_function(
            """() => {
                const rows = [...document.querySelectorAll("tbody tr:not(.space)")];
                const middle = rows[Math.floor(rows.length / 2)]?.getBoundingClientRect();
                return middle !== undefined && middle.top > -2000 && middle.top < 3000;
            }"""
        )
        offsets = [
            int(text.replace(",", "")) for text in rows.locator("td:nth-child(2)").all_inner_texts()
        ]
        assert offsets == list(range(offsets[0], offsets[0] - len(offsets), -1))
    assert offsets[-1] < 100


def test_lines_of_quotas_schemas_and_letters(page: Page, shop: HeadraceConsole) -> None:
    dialog = page.get_by_role("dialog")
    line = dialog.locator(".cli code")
    page.goto("/access/quotas")
    page.get_by_role("button", name="Change the quotas of user ada").click()
    expect(line).to_have_text("headrace quotas set producer_byte_rate=1000 --user ada")
    dialog.get_by_label("producer byte rate").fill("")
    expect(line).to_have_text("headrace quotas remove producer_byte_rate --user ada")
    page.goto(f"/schemas/{TOPIC}-value")
    page.get_by_role("button", name="Delete version").click()
    expect(line).to_have_text(f"headrace schemas delete {TOPIC}-value --version 1 --yes")
    page.goto(f"/dead-letters/{LETTERS}")
    page.get_by_role("button", name="Send back", exact=True).click()
    expect(line).to_contain_text(f"/api/dead-letters/{LETTERS}/send")
    words = line.inner_text()
    assert words.startswith("curl --json '{")
    address = words.rsplit(" ", 1)[1]
    body = words.removeprefix("curl --json '").rsplit("'", 1)[0]
    # The line does what the form does.
    answer = httpx.post(address, json=json.loads(body), timeout=60)
    assert answer.status_code == 200, answer.text
