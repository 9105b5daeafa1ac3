"""Client metrics in a browser: subscriptions, and what real clients have pushed."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from confluent_kafka import Producer
from playwright.sync_api import Browser, Page, expect

from headrace.testing.running import RunningBroker
from tests.console.looking import Looking
from tests.support.client_metrics import wait_for_series
from tests.support.headrace_console import HeadraceConsole
from tests.support.ports import free_port

CLIENT = "order-service"


def test_a_subscription_is_created_changed_and_deleted(
    page: Page, any_console: HeadraceConsole, topic: str
) -> None:
    page.goto("/client-metrics")
    dialog = page.get_by_role("dialog")
    page.get_by_role("button", name="Create subscription").click()
    dialog.get_by_label("Name", exact=True).fill(topic)
    dialog.get_by_label("Metrics").fill("org.apache.kafka.producer.\norg.apache.kafka.consumer.")
    dialog.get_by_label("Interval in milliseconds").fill("1")
    dialog.get_by_role("button", name="Create", exact=True).click()
    expect(dialog.get_by_role("alert")).to_contain_text("interval")
    dialog.get_by_label("Interval in milliseconds").fill("60000")
    dialog.get_by_label("Clients").fill("client_id=order-.*")
    expect(dialog.locator(".cli")).to_contain_text(
        f"--alter --name {topic} --metrics "
        "org.apache.kafka.producer.,org.apache.kafka.consumer. --interval 60000"
    )
    dialog.get_by_role("button", name="Create", exact=True).click()
    rows = page.get_by_role("table", name="Subscriptions").get_by_role("row")
    row = rows.filter(has_text=topic)
    expect(row).to_contain_text("1 min")
    expect(row).to_contain_text("client_id=order-.*")
    row.get_by_role("button", name=f"Change {topic}").click()
    dialog.get_by_label("Clients").fill("")
    dialog.get_by_role("button", name="Change", exact=True).click()
    expect(row.get_by_role("cell").nth(3)).to_have_text("all")
    (found,) = [
        each
        for each in any_console.http.get("/client-metrics").json()["subscriptions"]
        if each["name"] == topic
    ]
    assert found["metrics"] == ["org.apache.kafka.producer.", "org.apache.kafka.consumer."]
    row.get_by_role("button", name=f"Delete {topic}").click()
    dialog.get_by_role("button", name="Delete", exact=True).click()
    expect(row).to_have_count(0)


def test_without_the_pages_of_brokers_the_reason_is_shown(page: Page) -> None:
    page.goto("/client-metrics")
    reason = "Not available: the console was started without --metrics-url"
    expect(page.get_by_text(reason)).to_be_visible()


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[HeadraceConsole, int]]:
    """A console that knows the page of its broker, and one that nobody serves."""
    port, silent = free_port(), free_port()
    folder = tmp_path_factory.mktemp("measured")
    urls = f"http://127.0.0.1:{port}/metrics,http://user:secret@127.0.0.1:{silent}/metrics"
    settings = {"headrace.metrics.address": f"127.0.0.1:{port}"}
    with (
        closing(RunningBroker(settings)) as broker,
        HeadraceConsole(broker.bootstrap_servers, folder, "--metrics-url", urls) as console,
    ):
        yield console, port


def test_values_that_a_client_pushed_are_shown(
    chromium: Browser, measured: tuple[HeadraceConsole, int], tmp_path: Path
) -> None:
    console, port = measured
    body = {"metrics": ["*"], "interval_ms": 200}
    assert console.http.put("/client-metrics/all", json=body).status_code == 200
    producer = Producer({"bootstrap.servers": console.bootstrap, "client.id": CLIENT})
    producer.produce("orders", b"x")
    assert producer.flush(60) == 0
    wait_for_series(port, lambda each: each[1]["client_id"] == CLIENT, lambda: producer.poll(0.1))
    with Looking(chromium, console.url, tmp_path) as looking:
        page = looking.page
        page.goto("/client-metrics")
        expect(page.get_by_text("Clients may be missing")).to_contain_text("does not answer")
        expect(page.locator("body")).not_to_contain_text("secret")
        looking.check_appearance("client-metrics")
        page.get_by_role("table", name="Clients").get_by_role("link", name=CLIENT).first.click()
        values = page.get_by_role("table", name="Values")
        expect(values).to_contain_text("org_apache_kafka_producer")
        page.get_by_label("Filter by name or label").fill("connection_creation_total")
        expect(values.locator("tbody tr").first).to_contain_text("connection_creation_total")
        looking.check_appearance("client-metrics-of-a-client")


def test_an_address_that_is_none_is_refused_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"console\.metrics\.urls"):
        HeadraceConsole("127.0.0.1:1", tmp_path, "--metrics-url", "broker:9180").__enter__()


def test_an_unknown_client_is_not_found(measured: tuple[HeadraceConsole, int]) -> None:
    console, _ = measured
    answer = httpx.get(f"{console.url}/api/metrics-clients/nobody", timeout=60)
    # One of the two pages does not answer, so that nobody can say that there is no such client.
    assert answer.json() == {"metrics": [], "problems": answer.json()["problems"], "left_out": 0}
    assert len(answer.json()["problems"]) == 1
