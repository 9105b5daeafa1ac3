"""A cluster of three brokers in a browser: reassignments, their cancellation, and elections."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from playwright.sync_api import Browser, Page, expect

from tests.console.looking import Looking
from tests.support.cluster import RunningCluster
from tests.support.headrace_console import HeadraceConsole

TOPIC = "orders"
SLOW_BYTES = 20_000
"""A second: a reassignment of ten megabytes takes minutes."""


class Three:
    """The cluster and its console."""

    def __init__(self, cluster: RunningCluster, console: HeadraceConsole) -> None:
        self.cluster = cluster
        self.console = console

    def replicas(self) -> tuple[int, ...]:
        return self.cluster.topic(TOPIC).partitions[0].replicas

    def other(self) -> int:
        """A broker without a replica."""
        (found,) = set(self.cluster.brokers) - set(self.replicas())
        return found

    def limit(self, rate: int) -> None:
        """Limits what leaders send to replicas that are not in sync."""
        admin = self.cluster.admin()
        for number in self.cluster.brokers:
            _set(admin, ResourceType.BROKER, str(number), "leader.replication.throttled.rate", rate)


def _set(admin: AdminClient, kind: ResourceType, name: str, key: str, value: object) -> None:
    change = ConfigEntry(key, str(value), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(kind, name, incremental_configs=[change])
    for done in admin.incremental_alter_configs([resource]).values():
        done.result(60)


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Three]:
    folder = tmp_path_factory.mktemp("three")
    with RunningCluster(folder / "cluster", 3) as cluster:
        cluster.create(TOPIC, 1, 2)
        key = "leader.replication.throttled.replicas"
        _set(cluster.admin(), ResourceType.TOPIC, TOPIC, key, "*")
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
        # More than one fetch of a replica has: the first one is never delayed.
        for _ in range(200):
            producer.produce(TOPIC, b"x" * 50_000)
        assert producer.flush(60) == 0
        with HeadraceConsole(cluster.bootstrap_servers, folder) as console:
            yield Three(cluster, console)


@pytest.fixture
def looking(chromium: Browser, three: Three, tmp_path: Path) -> Iterator[Looking]:
    with Looking(chromium, three.console.url, tmp_path) as tab:
        yield tab


def move(page: Page, brokers: str) -> None:
    page.goto(f"/topics/{TOPIC}/partitions")
    page.get_by_role("button", name="Move the replicas of partition 0").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Brokers, the preferred leader first").fill(brokers)
    expect(dialog.locator(".cli")).to_contain_text("kafka-reassign-partitions.sh")
    dialog.get_by_role("button", name="Move", exact=True).click()


def test_a_running_reassignment_is_shown_and_cancelled(
    looking: Looking, page: Page, three: Three
) -> None:
    before, other = three.replicas(), three.other()
    three.limit(SLOW_BYTES)
    move(page, f"{other}, {before[0]}")
    expect(page.get_by_role("dialog")).to_be_hidden()
    page.goto("/brokers/reassignments")
    row = page.get_by_role("table", name="Reassignments").locator("tbody tr")
    expect(row).to_have_count(1)
    cells = row.locator("td")
    expect(cells.nth(0)).to_have_text(f"{TOPIC}-0")
    expect(cells.nth(2)).to_have_text(str(other))
    expect(cells.nth(3)).to_have_text(str(before[1]))
    row.get_by_role("button", name=f"Cancel the reassignment of {TOPIC}-0").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.locator(".cli")).to_contain_text("--cancel")
    looking.check_dialog("reassignment-cancel")
    dialog.get_by_role("button", name="Cancel the reassignment").click()
    expect(page.get_by_text("No partition is being moved.")).to_be_visible()
    assert three.replicas() == before


def test_replicas_move_and_their_preferred_leader_is_elected(
    looking: Looking, page: Page, three: Three
) -> None:
    first, second = three.replicas()
    other = three.other()
    three.limit(100_000_000)
    # The former leader stays one of the replicas, so that it goes on to lead.
    leader = three.cluster.leader(TOPIC)
    move(page, f"{other}, {leader}")
    expect(page.get_by_role("dialog")).to_be_hidden()
    cells = page.get_by_role("table", name="Partitions").locator("tbody td")
    expect(cells.nth(2)).to_have_text(f"{other}, {leader}")
    three.cluster.wait_for(TOPIC, lambda topic: set(topic.partitions[0].isrs) == {other, leader})
    assert {first, second} != {other, leader}
    page.goto("/brokers")
    page.get_by_role("button", name="Elect preferred leaders").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.locator(".cli")).to_contain_text("kafka-leader-election.sh --bootstrap-server")
    looking.check_dialog("leader-election")
    dialog.get_by_role("button", name="Elect", exact=True).click()
    expect(dialog).to_be_hidden()
    three.cluster.wait_for(TOPIC, lambda topic: topic.partitions[0].leader == other)


def test_brokers_that_do_not_exist_are_refused_in_the_form(page: Page) -> None:
    move(page, "77")
    expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("77")
