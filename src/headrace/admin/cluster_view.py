"""The cluster as a whole: its brokers, their numbers of leaders, and problems."""

from dataclasses import asdict, dataclass

from headrace.client.brokers import ApiRange, LiveBroker, describe_cluster, describe_support
from headrace.client.cluster import Cluster
from headrace.client.configs import topic_config
from headrace.client.layout import Held, Layout, moves_under_way, read_layout
from headrace.types import TopicPartition


@dataclass(frozen=True, slots=True)
class BrokerView:
    """One broker, with its advertised address."""

    id: int
    host: str
    port: int
    rack: str | None
    controller: bool
    leaders: int
    replicas: int
    leader_skew_percent: int
    """The difference of its leaders from an even share."""


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The cluster; the controller is None if there is none."""

    cluster_id: str
    controller: int | None
    brokers: list[BrokerView]
    absent_brokers: list[int]
    """Brokers that have replicas and are not alive."""
    topics: int
    partitions: int
    under_replicated: list[str]
    under_min_isr: list[str]
    offline: list[str]
    moving: list[str]
    not_led_by_first_replica: int
    features: dict[str, int]
    apis: list[ApiRange]

    def as_json(self) -> dict[str, object]:
        return asdict(self)


def view_cluster(cluster: Cluster) -> ClusterView:
    """The cluster as it is now."""
    found = describe_cluster(cluster)
    layout = cluster.retry("describing partitions", lambda: read_layout(cluster))
    moving = cluster.retry("listing moves", lambda: moves_under_way(cluster))
    support = describe_support(cluster)
    short = {
        partition: row
        for partition, row in layout.partitions.items()
        # Replicas that a reassignment adds do not count as missing.
        if len(row.isr)
        < len(row.replicas) - (len(moving[partition].adding) if partition in moving else 0)
    }
    under_min_isr = _under_min_isr(cluster, short)
    held = layout.partitions
    return ClusterView(
        cluster_id=found.cluster_id,
        controller=found.controller,
        brokers=[_broker(each, found.controller, layout) for each in found.brokers.values()],
        absent_brokers=sorted({one for row in held.values() for one in row.replicas}
                              - layout.racks.keys()),
        topics=len({partition.topic for partition in held}),
        partitions=len(held),
        under_replicated=sorted(map(str, short)),
        under_min_isr=under_min_isr,
        offline=sorted(str(partition) for partition, row in held.items() if row.leader < 0),
        moving=sorted(map(str, moving)),
        not_led_by_first_replica=sum(row.leader != row.replicas[0] for row in held.values()),
        features=dict(support.features),
        apis=list(support.apis),
    )  # fmt: skip


def _broker(broker: LiveBroker, controller: int | None, layout: Layout) -> BrokerView:
    rows = layout.partitions.values()
    leaders = sum(row.leader == broker.id for row in rows)
    share = len(rows) / max(1, len(layout.racks))
    return BrokerView(
        id=broker.id,
        host=broker.host,
        port=broker.port,
        rack=broker.rack,
        controller=broker.id == controller,
        leaders=leaders,
        replicas=sum(broker.id in row.replicas for row in rows),
        leader_skew_percent=round(100 * (leaders / share - 1)) if share else 0,
    )


def _under_min_isr(cluster: Cluster, short: dict[TopicPartition, Held]) -> list[str]:
    """Partitions that refuse acks=all; only topics with replicas out of sync are checked."""
    if not short:
        return []
    topics = sorted({partition.topic for partition in short})
    wanted = topic_config(cluster, topics, "min.insync.replicas")
    return sorted(
        str(partition)
        for partition, row in short.items()
        if len(row.isr) < min(int(wanted.get(partition.topic) or 1), len(row.replicas))
    )
