"""Metrics under the names of kafka_exporter: collected from real clusters, rendered from values."""

import re
import uuid

import pytest
from confluent_kafka import Consumer

from headrace.admin.exporter import ExporterSnapshot, collect, render
from headrace.admin.group_view import (
    UNKNOWN_COORDINATOR,
    DescribedGroup,
    GroupView,
    PartitionLag,
)
from headrace.admin.record_times import RecordTimes
from headrace.client.brokers import LiveBroker
from headrace.client.layout import Held
from headrace.client.topics import TopicDescription
from headrace.types import TopicPartition
from tests.admin.conftest import CountingCluster, MakeTopic, commit, produce
from tests.support.dashboard_metrics import dashboards, required_metrics

T = 1_704_067_200_000
DOCUMENTED = {
    "kafka_brokers",
    "kafka_topic_partition_leader",
    "kafka_consumergroup_current_offset_sum",
    "kafka_consumergroup_lag_sum",
    "kafka_consumergroup_members",
}
"""Metrics of kafka_exporter's README that no dashboard asks for."""
FROM_PROMETHEUS = {"instance", "job", "namespace", "strimzi_io_cluster"}
"""Labels that Prometheus adds when it scrapes, by its configuration."""
DASHBOARDS = DOCUMENTED.union(*dashboards().values())
SAMPLE = re.compile(r'([a-z_]+)(?:\{((?:[a-z_]+="(?:[^"\\\n]|\\.)*",?)*)\})? ([0-9.e+-]+)')


def samples(text: str) -> dict[str, dict[str, float]]:
    """Values by name and by labels; every line is well-formed."""
    found: dict[str, dict[str, float]] = {}
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        parts = SAMPLE.fullmatch(line)
        assert parts is not None, line
        rows = found.setdefault(parts[1], {})
        assert (parts[2] or "") not in rows, f"twice: {line}"
        rows[parts[2] or ""] = float(parts[3])
    return found


def test_a_real_cluster_has_every_metric_that_the_dashboards_ask_for(
    cluster: CountingCluster, bootstrap: str, make_topic: MakeTopic
) -> None:
    topic, group = make_topic(2), f"g-{uuid.uuid4().hex[:8]}"
    produce(bootstrap, topic, [T, T, T], partition=0)
    commit(bootstrap, group, {(topic, 0): 1, (topic, 1): 0})
    text = render(collect(cluster, RecordTimes()))
    found = samples(text)
    assert found.keys() >= DASHBOARDS
    for metrics in dashboards().values():
        for name, wanted in metrics.items():
            (labels, *_) = found[name]
            assert set(re.findall(r'([a-z_]+)="', labels)) >= set(wanted) - FROM_PROMETHEUS, name
    at = f'topic="{topic}",partition="0"'
    assert found["kafka_brokers"] == {"": 1}
    assert found["kafka_topic_partitions"][f'topic="{topic}"'] == 2
    assert found["kafka_topic_partition_current_offset"][at] == 3
    assert found["kafka_topic_partition_oldest_offset"][at] == 0
    assert found["kafka_topic_partition_leader_is_preferred"][at] == 1
    assert found["kafka_topic_partition_replicas"][at] == 1
    assert found["kafka_topic_partition_in_sync_replica"][at] == 1
    assert found["kafka_topic_partition_under_replicated_partition"][at] == 0
    assert found["kafka_cluster_partition_atminisr"][at] == 1
    assert found["kafka_cluster_partition_underminisr"][at] == 0
    assert found["kafka_consumergroup_current_offset"][f'consumergroup="{group}",{at}'] == 1
    assert found["kafka_consumergroup_lag"][f'consumergroup="{group}",{at}'] == 2
    assert found["kafka_consumergroup_lag_sum"][f'consumergroup="{group}",topic="{topic}"'] == 2
    assert found["kafka_consumergroup_members"][f'consumergroup="{group}"'] == 0
    seconds = found["kafka_consumergroup_group_lag_seconds"]
    (delay,) = (value for labels, value in seconds.items() if f'group="{group}",{at}' in labels)
    assert delay > 86_400


def test_queries_of_panels_and_of_variables_are_found() -> None:
    board = {
        "panels": [{"targets": [{"expr": 'sum(kafka_a{x="1", y=~"$y"}) by (z) / kafka_b'}]}],
        "templating": {"list": [{"query": "label_values(kafka_c, w)"}, {"query": {"text": ""}}]},
    }
    assert required_metrics(board) == {
        "kafka_a": ["x", "y", "z"],
        "kafka_b": ["z"],
        "kafka_c": ["w"],
    }


def test_members_are_counted(
    cluster: CountingCluster, bootstrap: str, make_topic: MakeTopic
) -> None:
    topic, group = make_topic(), f"g-{uuid.uuid4().hex[:8]}"
    produce(bootstrap, topic, [T])
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    assert consumer.poll(60) is not None
    found = samples(render(collect(cluster)))
    assert found["kafka_consumergroup_members"][f'consumergroup="{group}"'] == 1
    consumer.close()


def test_the_number_of_requests_does_not_grow_with_the_topics(
    cluster: CountingCluster, make_topic: MakeTopic
) -> None:
    collect(cluster)
    before = cluster.requests
    collect(cluster)
    few = cluster.requests - before
    for _ in range(25):
        make_topic()
    before = cluster.requests
    collect(cluster)
    assert cluster.requests - before <= few + 1


def snapshot(*views: GroupView, **changes: object) -> ExporterSnapshot:
    partitions = {0: Held((1, 2, 3), (2, 3), 2), 1: Held((1,), (), -1)}
    topic = TopicDescription("t", None, False, partitions)
    values: dict[str, object] = {
        "cluster_id": "c",
        "brokers": (LiveBroker(1, "h", 9092, None),),
        "topics": {"t": topic},
        "begins": {TopicPartition("t", 0): 5},
        "ends": {TopicPartition("t", 0): 2**62},
        "min_isr": {"t": 2},
        "groups": views,
        **changes,
    }
    return ExporterSnapshot(**values)  # type: ignore[arg-type]


def group(name: str, *rows: PartitionLag) -> GroupView:
    described = DescribedGroup(name, "Stable", "classic", "consumer", "", UNKNOWN_COORDINATOR, ())
    return GroupView(described, rows)


def test_offsets_are_exact_and_unknown_values_are_left_out() -> None:
    text = render(snapshot())
    assert f'kafka_topic_partition_current_offset{{topic="t",partition="0"}} {2**62}\n' in text
    found = samples(text)
    other = 'topic="t",partition="1"'
    assert other not in found["kafka_topic_partition_current_offset"]
    assert other not in found["kafka_topic_partition_leader"]
    assert found["kafka_topic_partition_leader_is_preferred"][other] == 0
    assert "kafka_cluster_partition_atminisr" not in render(snapshot(min_isr={}))


@pytest.mark.parametrize(("min_isr", "at", "under"), [(1, 0, 0), (2, 1, 0), (3, 0, 1), (9, 0, 1)])
def test_in_sync_replicas_are_compared_with_the_minimum(min_isr: int, at: int, under: int) -> None:
    found = samples(render(snapshot(min_isr={"t": min_isr})))
    place = 'topic="t",partition="0"'
    assert found["kafka_cluster_partition_atminisr"][place] == at
    assert found["kafka_cluster_partition_underminisr"][place] == under
    assert found["kafka_topic_partition_under_replicated_partition"][place] == 1


def test_sums_are_of_what_is_known() -> None:
    rows = (
        PartitionLag("t", 0, 10, 30, None, delay_s=4.5),
        PartitionLag("t", 1, 5, None, None),
        PartitionLag("t", 2, None, 7, None),
    )
    found = samples(render(snapshot(group("g", *rows))))
    assert found["kafka_consumergroup_current_offset_sum"] == {'consumergroup="g",topic="t"': 15}
    assert found["kafka_consumergroup_lag_sum"] == {'consumergroup="g",topic="t"': 20}
    assert len(found["kafka_consumergroup_lag"]) == 1
    assert found["kafka_consumergroup_group_max_lag_seconds"] == {'cluster_name="c",group="g"': 4.5}


def test_partitions_can_be_left_out() -> None:
    view = group("g", PartitionLag("t", 0, 10, 30, None))
    text = render(snapshot(view), by_partition=False)
    assert "partition=" not in text
    assert samples(text).keys() >= {"kafka_topic_partitions", "kafka_consumergroup_lag_sum"}


def test_names_of_groups_are_escaped() -> None:
    found = samples(render(snapshot(group('a"b\\c\nd'))))
    assert list(found["kafka_consumergroup_members"]) == ['consumergroup="a\\"b\\\\c\\nd"']


def test_each_metric_has_help_and_type_once_before_its_samples() -> None:
    lines = render(snapshot(group("g", PartitionLag("t", 0, 1, 2, None)))).splitlines()
    helps = [line.split()[2] for line in lines if line.startswith("# HELP")]
    assert len(helps) == len(set(helps))
    current = None
    for line in lines:
        if line.startswith("# TYPE"):
            current = line.split()[2]
        elif not line.startswith("#"):
            assert re.split(r"[{ ]", line)[0] == current
