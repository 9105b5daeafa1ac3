"""Lineage and the flow picture in a browser, and the graph that they show."""

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from playwright.sync_api import Browser, Locator, expect

from headrace.admin.group_view import (
    UNKNOWN_COORDINATOR,
    DescribedGroup,
    GroupView,
    PartitionLag,
)
from headrace.console.flow.lineage import NodeKind, build_graph
from headrace.pipelines.running import progress
from headrace.pipelines.running.progress import SinkTarget
from tests.console.looking import PATIENCE_MS, Looking
from tests.console.spark_reports import batch, now_ms, publish, started
from tests.support.headrace_console import HeadraceConsole


def create(console: HeadraceConsole, topic: str) -> None:
    answer = console.http.post("/topics", json={"name": topic, "partitions": 2})
    assert answer.status_code == 200, answer.text


def commit(console: HeadraceConsole, group: str, topic: str, records: int) -> None:
    """Produces records and commits having read them."""
    producer = Producer({"bootstrap.servers": console.bootstrap})
    for number in range(records):
        producer.produce(topic, str(number))
    assert producer.flush(60) == 0
    consumer = Consumer(
        {
            "bootstrap.servers": console.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    seen = 0
    while seen < records:
        seen += len(consumer.consume(records, 1))
    consumer.commit(asynchronous=False)
    consumer.close()


class Traffic:
    """Produces to a topic until the block ends."""

    def __init__(self, console: HeadraceConsole, topic: str) -> None:
        self._producer = Producer({"bootstrap.servers": console.bootstrap})
        self._topic = topic
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._end.wait(0.1):
            self._producer.produce(self._topic, b"x")
            self._producer.flush(60)

    def __enter__(self) -> "Traffic":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()


def picture(looking: Looking) -> Locator:
    return looking.page.get_by_role("region", name="Flow picture")


def test_topics_queries_paths_and_groups_are_drawn_and_listed(
    looking: Looking, any_console: HeadraceConsole, topic: str
) -> None:
    create(any_console, topic)
    commit(any_console, f"{topic}-group", topic, 5)
    query = batch(started(f"{topic}-query"), 1, now_ms(), {topic: 2})
    publish(any_console, query)
    page = looking.page
    page.goto(f"/lineage?q={topic}")
    rows = page.get_by_role("table", name="Flows", exact=True).locator("tbody tr")
    expect(rows).to_have_count(3, timeout=PATIENCE_MS)
    expect(rows.filter(has_text=f"{topic}-group")).to_contain_text("committed offsets")
    expect(rows.filter(has_text="/data/lake/orders")).to_contain_text("text of the sink")
    nodes = picture(looking).locator(".flow-node")
    expect(nodes).to_have_count(4)
    boxes = [nodes.nth(n).bounding_box() for n in range(4)]
    places = {(box["x"], box["y"]) for box in boxes if box is not None and box["width"] > 50}
    assert len(places) == 4, "nodes lie on top of each other"
    page.get_by_role("table", name="Flows", exact=True).scroll_into_view_if_needed()
    assert looking.visible_rows("Flows") == 3
    looking.screenshot("lineage")
    with Traffic(any_console, topic):
        expect(picture(looking)).to_contain_text("/s in", timeout=PATIENCE_MS)
        found: Any = None
        while not found:
            answer = any_console.http.get("/lineage", params={"q": topic}).json()
            node = next(each for each in answer["nodes"] if each["id"] == topic)
            found = node["records_per_s"]
    picture(looking).get_by_role("link").filter(has_text=f"{topic}-query").click()
    expect(page.get_by_role("heading", name=f"{topic}-query")).to_be_visible()


def test_the_overview_has_the_picture(looking: Looking, any_console: HeadraceConsole) -> None:
    name = "flow-on-the-overview"
    publish(any_console, batch(started(name), 1, now_ms(), {"some-topic": 2}))
    looking.page.goto("/")
    expect(picture(looking).locator(".flow-node").first).to_be_visible(timeout=PATIENCE_MS)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_is_accessible_fits_a_phone_and_moves_only_if_wanted(
    chromium: Browser, console: HeadraceConsole, tmp_path: Path, topic: str, scheme: str
) -> None:
    query = batch(started(f"{topic}-query"), 1, now_ms(), {topic: 2})
    failed = progress.ended(batch(started(f"{topic}-b"), 1, now_ms(), {topic: 2}), now_ms(), "x")
    publish(console, query, failed)
    with Looking(chromium, console.url, tmp_path, scheme=scheme, width=360) as looking:
        looking.page.goto(f"/lineage?q={topic}")
        expect(picture(looking).locator(".flow-node")).to_have_count(4, timeout=PATIENCE_MS)
        assert looking.violations() == []
        assert not looking.overflows()
        moving = looking.page.locator(".flow-edge.moving path").first
        name = "e => getComputedStyle(e).animationName"
        assert moving.evaluate(name) == "flow-moves"
        looking.page.emulate_media(reduced_motion="reduce")
        assert moving.evaluate(name) == "none"
        looking.page.goto(f"/lineage?q={topic}-nothing-has-this-name")
        expect(looking.page.get_by_text("Nothing with this name")).to_be_visible()
        assert looking.violations() == []


def group(name: str, topic: str, committed: int | None = 5) -> GroupView:
    described = DescribedGroup(name, "Empty", "classic", "consumer", "", UNKNOWN_COORDINATOR, ())
    return GroupView(described, (PartitionLag(topic, 0, committed, 9, None),))


def test_a_graph_is_bounded_and_counts_what_it_leaves_out() -> None:
    groups = [group(f"g{number:03}", f"t{number:03}") for number in range(300)]
    graph = build_graph([], groups, 0, most=200)
    assert len(graph.nodes) == 200
    assert len(graph.edges) == 100
    assert graph.left_out == {NodeKind.TOPIC: 200, NodeKind.GROUP: 200}
    found = build_graph([], groups, 0, text="G299")
    assert [each.key for each in found.nodes] == ["topic:t299", "group:g299"]
    assert build_graph([], [], 0).nodes == ()


def test_queries_that_need_attention_come_first_and_silent_ones_have_no_rate() -> None:
    now = 10_000_000
    fine = batch(started("a", now), 1, now, {"t": 1})
    silent = batch(started("b", now), 1, now - 600_000, {"t": 1})
    graph = build_graph([fine, silent], [], now)
    queries = [each.title for each in graph.nodes if each.kind is NodeKind.QUERY]
    assert queries == ["b", "a"]
    rates = {each.target.title: each.reported_rows_per_s for each in graph.edges[::2]}
    assert rates == {"b": None, "a": 50.0}


@pytest.mark.parametrize(
    ("sink", "title"),
    [
        ("FileSink[/data/lake]", "/data/lake"),
        ("DeltaSink[s3a://lake/t]", "s3a://lake/t"),
        ("org.apache.spark.sql.execution.streaming.ConsoleTable$@1f2e", "ConsoleTable"),
        ("ForeachBatchSink", "ForeachBatchSink"),
    ],
)
def test_sinks_of_old_records_are_named_by_their_text(sink: str, title: str) -> None:
    query = batch(started("q"), 1, 0, {}, sink={"description": sink})
    (edge,) = build_graph([query], [], 0).edges
    assert edge.target.title == title
    assert edge.target.kind is NodeKind.TABLE


@pytest.mark.parametrize(
    ("target", "key"),
    [
        (SinkTarget("headrace", topic="clean"), "topic:clean"),
        (SinkTarget("iceberg", table="lake.orders"), "table:lake.orders"),
        (SinkTarget("delta", path="s3a://lake/t"), "table:s3a://lake/t"),
    ],
)
def test_sinks_that_the_listener_reports_are_topics_tables_or_paths(
    target: SinkTarget, key: str
) -> None:
    query = replace(batch(started("q"), 1, 0, {}), sink_target=target)
    (edge,) = build_graph([query], [], 0).edges
    assert edge.target.key == key
    assert edge.known_from == "sink in the plan of the query"


def test_a_table_that_a_query_writes_and_another_reads_connects_them() -> None:
    place = "file:/warehouse/events"
    source = {"description": f"FileStreamSource[{place}]", "numInputRows": 1}
    writes = batch(started("writes"), 1, 0, {"t": 1}, sink={"description": f"FileSink[{place}]"})
    target = SinkTarget("file", table="shop.events", path=place)
    reads = batch(started("reads"), 1, 0, {}, sources=[source], sink={"description": "MemorySink"})
    for each in (writes, replace(writes, sink_target=target)):
        graph = build_graph([each, reads], [], 0)
        assert {(edge.source.key, edge.target.key) for edge in graph.edges} == {
            ("topic:t", f"query:{writes.id}"),
            (f"query:{writes.id}", f"table:{place}"),
            (f"table:{place}", f"query:{reads.id}"),
            (f"query:{reads.id}", f"table:{reads.id}/sink"),
        }
    assert "shop.events" in {node.title for node in graph.nodes}
