"""Reads the config topic of a stopped Kafka Connect cluster, and tells what can run here."""

from typing import NamedTuple

from headrace.client.cluster import Cluster
from headrace.client.groups import describe_groups
from headrace.client.offsets import COMMITTED, EARLIEST, LATEST, list_offsets
from headrace.connect.plugins import Plugins, UnknownPlugin
from headrace.connect.storage.records import MalformedRecord, decode_config
from headrace.connect.storage.state import ConfigState
from headrace.connect.validation import parsed
from headrace.service.internal_topics import fetch
from headrace.types import TopicPartition


class ConnectIsRunning(Exception):
    """The cluster has workers; two clusters must not share topics."""


class NoSuchTopic(Exception):
    """There is no config topic with this name."""


class Adoptable(NamedTuple):
    """A connector of the other cluster."""

    name: str
    connector_class: str
    state: str
    problems: list[str]
    """Why it cannot run here as it is; none if it can."""


def adoptable(cluster: Cluster, topic: str, group: str) -> list[Adoptable]:
    """The connectors in a config topic."""
    if topic not in cluster.topics([topic]):
        raise NoSuchTopic(f"topic {topic} does not exist; name config.storage.topic of the cluster")
    members = describe_groups(cluster, [group]).get(group)
    if members is not None and members.members:
        raise ConnectIsRunning(
            f"group {group} has {len(members.members)} workers; stop them first, because two "
            "clusters must not share topics"
        )
    state, plugins = _read(cluster, topic), Plugins()
    found = []
    for name, connector in sorted(state.connectors.items()):
        kind = connector.config.get("connector.class", "")
        try:
            problems = parsed(plugins.find(kind), connector.config).errors
        except UnknownPlugin:
            problems = [f"there is no connector for {kind}"]
        found.append(Adoptable(name, kind, state.target(name).value, problems))
    return found


def _read(cluster: Cluster, topic: str) -> ConfigState:
    partition = TopicPartition(topic, 0)
    position = list_offsets(cluster, {partition: EARLIEST})[partition]
    end = list_offsets(cluster, {partition: LATEST}, COMMITTED)[partition]
    state = ConfigState()
    while position < end:
        leader = cluster.leader(partition)
        for _, records, following in fetch(cluster, leader, {partition: position}, wait_ms=100):
            for record in records:
                try:
                    change = decode_config(record.key, record.value)
                except MalformedRecord:
                    continue
                if change is not None:
                    state.replay(change)
            position = following
    return state
