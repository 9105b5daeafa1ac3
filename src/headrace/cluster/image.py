"""An immutable image of the cluster: its brokers, topics, configs and partition leaders.

A change makes a new image, which shares everything that did not change with the old one. This
module makes no decisions and does no I/O.
"""

import uuid
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import NamedTuple, TypeVar

from headrace.cluster.features import FinalizedFeatures
from headrace.security.state import NOTHING, SecurityState
from headrace.types import BrokerId, Epoch

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")

NO_LEADER = -1
OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
SHARE_STATE_TOPIC = "__share_group_state"
INTERNAL_TOPICS = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC, SHARE_STATE_TOPIC})
"""Topics that only brokers write; clients see them as internal."""
CLUSTER_DEFAULT = ""
"""The key in `broker_configs` of the cluster-wide default configs."""


class Endpoint(NamedTuple):
    """The advertised address of a broker for the clients of one listener."""

    listener: str
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker and its addresses."""

    id: BrokerId
    host: str
    port: int
    """Host and port are for other brokers."""
    rack: str | None = None
    epoch: int = 0
    """Grows with every start of the broker."""
    endpoints: tuple[Endpoint, ...] = ()
    """The advertised address of each listener; empty for a release with only one listener."""

    def endpoint(self, listener: str) -> Endpoint | None:
        """The advertised address of a listener; None if the broker does not have it."""
        for endpoint in self.endpoints:
            if endpoint.listener == listener:
                return endpoint
        return None if self.endpoints else Endpoint(listener, self.host, self.port)


@dataclass(frozen=True, slots=True)
class PartitionState:
    """The replicas, ISR and leader of a partition; partitions in the same state share it."""

    leader: BrokerId
    leader_epoch: Epoch
    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]
    partition_epoch: int = 0
    eligible: tuple[BrokerId, ...] = ()
    """Eligible leader replicas: out of sync, but with all committed records (`elections.py`)."""
    last_leader: BrokerId = NO_LEADER
    """The last leader before the ISR became empty."""
    adding: tuple[BrokerId, ...] = ()
    """Replicas that a reassignment adds."""
    removing: tuple[BrokerId, ...] = ()
    """Replicas that are removed when the added ones are in sync."""


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic: its partitions by index, and the configs it was given."""

    name: str
    id: uuid.UUID
    partitions: tuple[PartitionState, ...]
    configs: Mapping[str, str]


def _nothing() -> Mapping[_Key, _Value]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Image:
    """The cluster as this broker knows it; `version` grows with each change."""

    version: int = 0
    cluster_id: str = ""
    controller_id: BrokerId = NO_LEADER
    brokers: Mapping[BrokerId, Broker] = field(default_factory=_nothing)
    topics: Mapping[str, Topic] = field(default_factory=_nothing)
    names: Mapping[uuid.UUID, str] = field(default_factory=_nothing)
    folded: Mapping[str, str] = field(default_factory=_nothing)
    """Names that contain `.` or `_`, by their form with `.` replaced by `_`."""
    broker_configs: Mapping[str, Mapping[str, str]] = field(default_factory=_nothing)

    group_configs: Mapping[str, Mapping[str, str]] = field(default_factory=_nothing)
    """The configs of groups that have any."""
    client_metrics: Mapping[str, Mapping[str, str]] = field(default_factory=_nothing)
    """Subscriptions to client metrics by their names: the configs of each."""

    security: SecurityState = NOTHING
    """Users, ACLs, quotas and delegation tokens."""
    features: FinalizedFeatures = field(default_factory=FinalizedFeatures)
    """The finalized levels of the cluster's features."""

    def with_topics(self, changed: Iterable[Topic], removed: Iterable[Topic] = ()) -> "Image":
        """The image with these topics added or changed, and those removed."""
        topics, names, folded = dict(self.topics), dict(self.names), dict(self.folded)
        for topic in removed:
            del topics[topic.name], names[topic.id]
            folded.pop(fold(topic.name), None)
        for topic in changed:
            topics[topic.name] = topic
            names[topic.id] = topic.name
            if (form := fold(topic.name)) != topic.name or "_" in topic.name:
                folded[form] = topic.name
        return replace(self, version=self.version + 1, topics=topics, names=names, folded=folded)

    def name_of(self, topic_id: uuid.UUID | None) -> str | None:
        """The name of the topic with this id; None if there is none."""
        return None if topic_id is None else self.names.get(topic_id)

    def without_listener(self, listener: str) -> frozenset[BrokerId]:
        """The brokers that do not have a listener."""
        return frozenset(
            broker.id for broker in self.brokers.values() if broker.endpoint(listener) is None
        )

    def with_broker(self, broker: Broker) -> "Image":
        """The image with this broker added or changed."""
        return replace(self, version=self.version + 1, brokers={**self.brokers, broker.id: broker})

    def without_broker(self, gone: BrokerId) -> "Image":
        """The image that other brokers may have if this broker is dead for them: one of them leads.

        Epochs are unchanged, so that any later metadata is newer.
        """
        others = {broker.id: broker for broker in self.brokers.values() if broker.id != gone}
        if not others:
            return self
        after: dict[PartitionState, PartitionState] = {}
        changed = []
        for topic in self.topics.values():
            for state in topic.partitions:
                if state not in after:
                    after[state] = _led_by(others, state) if state.leader == gone else state
            if any(after[state] is not state for state in topic.partitions):
                partitions = tuple(after[state] for state in topic.partitions)
                changed.append(replace(topic, partitions=partitions))
        controller_id = NO_LEADER if self.controller_id == gone else self.controller_id
        return replace(self.with_topics(changed), brokers=others, controller_id=controller_id)

    def with_broker_configs(self, name: str, configs: Mapping[str, str]) -> "Image":
        """The image after the configs of one broker, or of all (""), were replaced."""
        return replace(
            self, version=self.version + 1, broker_configs={**self.broker_configs, name: configs}
        )

    def with_group_configs(self, name: str, configs: Mapping[str, str]) -> "Image":
        """The image after the configs of one group were replaced."""
        groups = {**self.group_configs, name: configs}
        if not configs:
            del groups[name]
        return replace(self, version=self.version + 1, group_configs=groups)

    def with_client_metrics(self, name: str, configs: Mapping[str, str]) -> "Image":
        """The image after a subscription was replaced; without configs it no longer exists."""
        subscriptions = {**self.client_metrics, name: configs}
        if not configs:
            del subscriptions[name]
        return replace(self, version=self.version + 1, client_metrics=subscriptions)

    def with_security(self, state: SecurityState) -> "Image":
        """The image after users, ACLs, quotas or tokens changed."""
        return replace(self, version=self.version + 1, security=state)

    def with_features(self, features: FinalizedFeatures) -> "Image":
        """The image after levels of features changed."""
        return replace(self, version=self.version + 1, features=features)


def _led_by(brokers: Container[BrokerId], state: PartitionState) -> PartitionState:
    able = (one for one in state.replicas if one in state.isr and one in brokers)
    return replace(state, leader=next(able, NO_LEADER))


def fold(name: str) -> str:
    """A topic's name as metrics show it: two names that fold into one may not both exist."""
    return name.replace(".", "_")
