"""What the cluster does not tell is shown as unknown, with the reason, and never as zero."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from playwright.sync_api import Browser, expect

from headrace.admin.topic_view import PartitionView
from headrace.console.topics_api import TopicGroups, topic_numbers
from headrace.errors import ErrorCode
from headrace.testing.running import RunningBroker
from tests.console.looking import Looking
from tests.console.test_groups import commit_offset
from tests.console.test_records_api import create
from tests.support.cluster import RunningCluster
from tests.support.headrace_console import HeadraceConsole

FOREVER = 10_000
TOPIC = "orders"
GROUP = "billing"
RECORDS = 3


def test_numbers_of_a_topic_say_which_partitions_are_missing() -> None:
    led = PartitionView(0, 1, [1], [1], 2, 10, 500)
    lost = PartitionView(1, None, [2], [2], None, None, None)
    assert topic_numbers([led]) == {
        "records": "8", "records_gap": "", "bytes": "500", "bytes_gap": "",
    }  # fmt: skip
    found = topic_numbers([led, lost])
    assert (found["records"], found["records_gap"]) == ("8", "1 of 2 partitions have no leader")
    assert (found["bytes"], found["bytes_gap"] != "") == ("500", True)
    found = topic_numbers([lost])
    assert (found["records"], found["bytes"]) == (None, None)


def test_groups_of_a_topic_are_unknown_before_they_are_observed() -> None:
    assert TopicGroups([], "not yet").of("t") == {
        "groups": None, "groups_gap": "not yet", "lag": None, "lag_gap": "not yet",
    }  # fmt: skip
    assert TopicGroups([], "").of("t") == {"groups": 0, "groups_gap": "", "lag": "0", "lag_gap": ""}


def test_groups_and_sizes_that_the_cluster_refuses_are_unknown(
    chromium: Browser, tmp_path: Path
) -> None:
    with closing(RunningBroker()) as broker:
        broker.fail("ListGroups", ErrorCode.CLUSTER_AUTHORIZATION_FAILED, FOREVER)
        broker.fail("DescribeLogDirs", ErrorCode.CLUSTER_AUTHORIZATION_FAILED, FOREVER)
        with HeadraceConsole(broker.bootstrap_servers, tmp_path) as console:
            create(console, TOPIC)
            with Looking(chromium, console.url, tmp_path) as looking:
                page = looking.page
                page.goto("/topics")
                cells = page.get_by_role("table", name="Topics").locator("tbody td")
                expect(cells.nth(3)).to_have_text("0")
                expect(cells.nth(4)).to_contain_text("unknown: 1 of 1 partitions")
                for number in (5, 6):
                    expect(cells.nth(number)).to_contain_text("unknown: ")
                    expect(cells.nth(number)).to_contain_text("CLUSTER_AUTHORIZATION_FAILED")
                looking.check_appearance("unknown-numbers")


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[HeadraceConsole, int]]:
    """A cluster of two brokers of which one is lost, and the partition that it led."""
    folder = tmp_path_factory.mktemp("broken")
    settings = {"offsets.topic.replication.factor": "2"}
    with RunningCluster(folder / "cluster", 2, settings) as cluster:
        cluster.create(TOPIC, 2, 1)
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
        for partition in range(2):
            for number in range(RECORDS):
                producer.produce(TOPIC, str(number), partition=partition)
        assert producer.flush(60) == 0
        lost = cluster.leader(TOPIC, 1)
        with HeadraceConsole(cluster.brokers[3 - lost].bootstrap_servers, folder) as console:
            commit_offset(console, GROUP, TOPIC, 1)
            commit(console, 1)
            cluster.brokers[lost].kill()
            cluster.wait_for(TOPIC, lambda topic: topic.partitions[1].leader < 0)
            yield console, 1


def commit(console: HeadraceConsole, partition: int) -> None:
    consumer = Consumer({"bootstrap.servers": console.bootstrap, "group.id": GROUP})
    consumer.commit(offsets=[TopicPartition(TOPIC, partition, 1)], asynchronous=False)
    consumer.close()


def test_a_lost_partition_makes_sums_incomplete(
    chromium: Browser, broken: tuple[HeadraceConsole, int], tmp_path: Path
) -> None:
    console, lost = broken
    with Looking(chromium, console.url, tmp_path) as looking:
        page = looking.page
        page.goto("/topics")
        row = page.get_by_role("table", name="Topics").get_by_role("row").filter(has_text=TOPIC)
        expect(row).to_contain_text("at least 3: 1 of 2 partitions have no leader")
        page.goto(f"/groups/{GROUP}")
        lag = page.locator(".card").filter(has_text="records not read")
        expect(lag).to_contain_text("at least 2: no end offset of 1 of 2 partitions")
        partitions = page.get_by_role("table", name="Partitions").locator("tbody tr")
        expect(partitions.nth(lost).locator("td").nth(6)).to_have_text("unknown")
        expect(partitions.nth(1 - lost).locator("td").nth(6)).to_have_text("ok so far")
        looking.check_appearance("unknown-lag")
        page.goto(f"/topics/{TOPIC}/partitions")
        rows = page.get_by_role("table", name="Partitions").locator("tbody tr")
        expect(rows.nth(lost)).to_contain_text("unknown: no leader")
        page.goto(f"/topics/{TOPIC}/groups")
        expect(page.get_by_role("table", name="Groups")).to_contain_text("at least 2")
        page.goto("/retention")
        unknown = "Unknown for 1 partitions, because no broker answers for them"
        expect(page.get_by_text(f"{unknown}: {TOPIC}-{lost}")).to_be_visible()
        page.goto(f"/topics/{TOPIC}?mode=search&q=1")
        expect(page.get_by_text("Partitions without a leader are not searched: 1")).to_be_visible()
