"""Metrics of any Kafka cluster under the names of kafka_exporter, for dashboards that use them.

`collect` queries the cluster; `render` makes Prometheus text from the result. There are also the
two metrics about min.insync.replicas that Strimzi's dashboard uses, and lag in seconds under the
names of kafka-lag-exporter. Unknown values are omitted, not reported as -1.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from headrace import __version__
from headrace.admin.group_view import GroupView, describe, list_groups, view_groups
from headrace.admin.record_times import RecordTimes
from headrace.client.brokers import LiveBroker, describe_cluster
from headrace.client.cluster import Cluster
from headrace.client.configs import topic_config
from headrace.client.layout import Held
from headrace.client.offsets import EARLIEST, LATEST, available_offsets
from headrace.client.topics import TopicDescription, describe_topics
from headrace.errors import KafkaError
from headrace.types import TopicPartition


@dataclass(frozen=True, slots=True)
class ExporterSnapshot:
    """The values of the metrics at one time."""

    cluster_id: str
    brokers: tuple[LiveBroker, ...]
    topics: Mapping[str, TopicDescription]
    begins: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]
    min_isr: Mapping[str, int]
    """min.insync.replicas by topic; empty if the configs may not be read."""
    groups: tuple[GroupView, ...]
    problem: str = ""
    """Why groups may be missing; empty if all brokers listed theirs."""


@dataclass(frozen=True, slots=True)
class _Metric:
    name: str
    help: str
    labels: tuple[str, ...]


Sample = tuple[_Metric, tuple[object, ...], float]

BUILD_INFO = _Metric(
    "kafka_exporter_build_info", "1, with the version of Headrace as a label.", ("version",)
)
BROKERS = _Metric("kafka_brokers", "Number of brokers in the cluster.", ())
BROKER_INFO = _Metric("kafka_broker_info", "A broker and its address.", ("id", "address"))
PARTITIONS = _Metric("kafka_topic_partitions", "Number of partitions of a topic.", ("topic",))

_AT = ("topic", "partition")
CURRENT_OFFSET = _Metric(
    "kafka_topic_partition_current_offset", "The offset after the last record.", _AT
)
OLDEST_OFFSET = _Metric("kafka_topic_partition_oldest_offset", "The first offset.", _AT)
LEADER = _Metric("kafka_topic_partition_leader", "The id of the leader.", _AT)
REPLICAS = _Metric("kafka_topic_partition_replicas", "Number of replicas.", _AT)
IN_SYNC = _Metric("kafka_topic_partition_in_sync_replica", "Number of replicas in sync.", _AT)
PREFERRED = _Metric(
    "kafka_topic_partition_leader_is_preferred", "1 if the preferred replica leads.", _AT
)
UNDER_REPLICATED = _Metric(
    "kafka_topic_partition_under_replicated_partition", "1 if replicas are not in sync.", _AT
)
AT_MIN_ISR = _Metric(
    "kafka_cluster_partition_atminisr", "1 if as many are in sync as min.insync.replicas.", _AT
)
UNDER_MIN_ISR = _Metric(
    "kafka_cluster_partition_underminisr", "1 if fewer are in sync than min.insync.replicas.", _AT
)

_GROUP_AT = ("consumergroup", "topic", "partition")
GROUP_OFFSET = _Metric(
    "kafka_consumergroup_current_offset", "The committed offset of a group.", _GROUP_AT
)
GROUP_LAG = _Metric("kafka_consumergroup_lag", "Records that a group has not read.", _GROUP_AT)
GROUP_OFFSET_SUM = _Metric(
    "kafka_consumergroup_current_offset_sum",
    "The committed offsets of a group in all partitions of a topic.",
    ("consumergroup", "topic"),
)
GROUP_LAG_SUM = _Metric(
    "kafka_consumergroup_lag_sum",
    "Records that a group has not read in all partitions of a topic.",
    ("consumergroup", "topic"),
)
GROUP_MEMBERS = _Metric(
    "kafka_consumergroup_members", "Number of members of a group.", ("consumergroup",)
)
GROUP_LAG_SECONDS = _Metric(
    "kafka_consumergroup_group_lag_seconds",
    "Age of the first record that a group has not read.",
    ("cluster_name", "group", "topic", "partition"),
)
GROUP_MAX_LAG_SECONDS = _Metric(
    "kafka_consumergroup_group_max_lag_seconds",
    "Age of the oldest record that a group has not read.",
    ("cluster_name", "group"),
)


def collect(cluster: Cluster, times: RecordTimes | None = None) -> ExporterSnapshot:
    """Query the cluster, with one request of each kind to each broker.

    Lag in seconds is included if `times` is given.
    """
    described = describe_cluster(cluster)
    topics = describe_topics(cluster)
    led = [TopicPartition(topic.name, index) for topic in topics.values() for index in topic.led]
    begins = available_offsets(cluster, dict.fromkeys(led, EARLIEST))
    ends = available_offsets(cluster, dict.fromkeys(led, LATEST))
    known, errors = list_groups(cluster)
    groups = [each for each in describe(cluster, known, known).values() if each.exists]
    return ExporterSnapshot(
        described.cluster_id,
        tuple(described.brokers.values()),
        topics,
        {at: found.offset for at, found in begins.items()},
        {at: found.offset for at, found in ends.items()},
        _min_isr(cluster, topics),
        tuple(view_groups(cluster, groups, times)),
        "; ".join(map(str, errors)),
    )


def _min_isr(cluster: Cluster, topics: Iterable[str]) -> dict[str, int]:
    try:
        found = topic_config(cluster, topics, "min.insync.replicas")
    except KafkaError:  # such as TOPIC_AUTHORIZATION_FAILED
        return {}
    return {name: int(value) for name, value in found.items() if value is not None}


def render(snapshot: ExporterSnapshot, *, by_partition: bool = True) -> str:
    """Prometheus text; without `by_partition` only metrics without the label `partition`."""
    samples: dict[_Metric, list[str]] = {}
    for metric, labels, value in _samples(snapshot):
        if by_partition or "partition" not in metric.labels:
            samples.setdefault(metric, []).append(_line(metric, labels, value))
    parts: list[str] = []
    for metric, lines in samples.items():
        parts.append(f"# HELP {metric.name} {metric.help}\n# TYPE {metric.name} gauge\n")
        parts += lines
    return "".join(parts)


def _line(metric: _Metric, labels: Sequence[object], value: float) -> str:
    if not labels:
        return f"{metric.name} {value}\n"
    pairs = zip(metric.labels, labels, strict=True)
    inside = ",".join(f'{name}="{_escaped(str(label))}"' for name, label in pairs)
    return f"{metric.name}{{{inside}}} {value}\n"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _samples(snapshot: ExporterSnapshot) -> Iterator[Sample]:
    # Dashboards find out by it where an exporter runs.
    yield BUILD_INFO, (__version__,), 1
    yield BROKERS, (), len(snapshot.brokers)
    for broker in snapshot.brokers:
        yield BROKER_INFO, (broker.id, f"{broker.host}:{broker.port}"), 1
    for name, topic in sorted(snapshot.topics.items()):
        yield PARTITIONS, (name,), len(topic.partitions)
        for index, held in topic.partitions.items():
            yield from _partition_samples(snapshot, TopicPartition(name, index), held)
    for group in snapshot.groups:
        yield from _group_samples(snapshot.cluster_id, group)


def _partition_samples(
    snapshot: ExporterSnapshot, at: TopicPartition, held: Held
) -> Iterator[Sample]:
    in_sync, replicas = len(held.isr), len(held.replicas)
    if at in snapshot.ends:
        yield CURRENT_OFFSET, at, snapshot.ends[at]
    if at in snapshot.begins:
        yield OLDEST_OFFSET, at, snapshot.begins[at]
    if held.leader >= 0:
        yield LEADER, at, held.leader
    yield REPLICAS, at, replicas
    yield IN_SYNC, at, in_sync
    yield PREFERRED, at, int(held.leader >= 0 and held.leader == held.replicas[0])
    yield UNDER_REPLICATED, at, int(in_sync < replicas)
    if at.topic in snapshot.min_isr:
        # As in brokers: limited to the number of replicas.
        least = min(snapshot.min_isr[at.topic], replicas)
        yield AT_MIN_ISR, at, int(in_sync == least)
        yield UNDER_MIN_ISR, at, int(in_sync < least)


def _group_samples(cluster_id: str, view: GroupView) -> Iterator[Sample]:
    group = view.description.name
    yield GROUP_MEMBERS, (group,), len(view.description.members)
    offsets: dict[str, int] = {}
    lags: dict[str, int] = {}
    for row in view.partitions:
        at = (group, row.topic, row.partition)
        if row.committed is not None:
            yield GROUP_OFFSET, at, row.committed
            offsets[row.topic] = offsets.get(row.topic, 0) + row.committed
        if row.lag is not None:
            yield GROUP_LAG, at, row.lag
            lags[row.topic] = lags.get(row.topic, 0) + row.lag
        if row.delay_s is not None:
            yield GROUP_LAG_SECONDS, (cluster_id, *at), row.delay_s
    for topic, total in offsets.items():
        yield GROUP_OFFSET_SUM, (group, topic), total
    for topic, total in lags.items():
        yield GROUP_LAG_SUM, (group, topic), total
    if view.delay_s is not None:
        yield GROUP_MAX_LAG_SECONDS, (cluster_id, group), view.delay_s
