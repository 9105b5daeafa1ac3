"""The cluster's metadata as this broker holds it: the image, and its changes.

`controller.py` decides a change on the current image; it is committed to the store and then
published: the image is replaced and every listener is called. If another broker committed first,
the store is read again and the change is decided again. `refresh` reads changes of other brokers.
`metadata_nodes.py` has the nodes of the store, `registration.py` those of live brokers.

`controller.py` is imported by the first change, so that a broker starts faster.
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from headrace.clock import Clock
from headrace.cluster.features import FeatureUpdate, updated
from headrace.cluster.image import Broker, Image, PartitionState, Topic
from headrace.cluster.metadata_nodes import MetadataNodes
from headrace.cluster.producer_ids import ProducerIds
from headrace.cluster.store import Change, Conflict, Store
from headrace.errors import ErrorCode, KafkaError
from headrace.security.state import SecurityState
from headrace.types import BrokerId

if TYPE_CHECKING:
    from headrace.cluster.controller import (
        Alteration,
        AlteredConfigs,
        Defaults,
        Growth,
        NewTopic,
    )

ATTEMPTS = 10
"""How often a change is decided again after a conflict with another broker's commit."""

Listener = Callable[[Image, Image], None]
_Result = TypeVar("_Result")
_Wanted = TypeVar("_Wanted")


class FoundTopic(NamedTuple):
    """A topic that has folders on disk."""

    name: str
    id: uuid.UUID
    partitions: int


@dataclass(slots=True)
class MetadataChange(Generic[_Result]):
    """The response, the changes to write, and the image after they are written."""

    results: list[_Result]
    image: Image
    changes: list[Change] = field(default_factory=list)


class Metadata:
    """Reads, changes and publishes the image; one per broker, used from one thread."""

    def __init__(
        self, store: Store, node_id: BrokerId, clock: Clock, inter_broker_listener: str = ""
    ) -> None:
        """`inter_broker_listener` names the listener of other brokers that this one connects to."""
        self.image = Image()
        self.listeners: list[Listener] = []
        """Called with the old image and the new one, after each change."""
        self.node_id = node_id
        self.nodes = MetadataNodes(store, inter_broker_listener)
        self.producer_ids = ProducerIds(self.nodes)
        self._clock = clock
        self._alone: Broker | None = None

    def load(self, known_cluster_id: str | None = None) -> None:
        """Read everything; a new store gets a cluster id, the known one if given."""
        cluster_id = self.nodes.cluster_id(known_cluster_id or new_cluster_id())
        self._publish(self._read(cluster_id))

    def refresh(self) -> None:
        """Read the changes of other brokers."""
        image = self._read(self.image.cluster_id)
        if not _same(self.image, image):
            self._publish(image)

    def _read(self, cluster_id: str) -> Image:
        image = self.nodes.read(cluster_id, self.image.version)
        if self._alone is None:
            return image
        return replace(image, brokers={self._alone.id: self._alone}, controller_id=self._alone.id)

    def _publish(self, image: Image) -> None:
        old, self.image = self.image, image
        for listener in self.listeners:
            listener(old, image)

    # ----------------------------------------------------------------------------- change

    def change(
        self, decide: Callable[[Image], MetadataChange[_Result]], *, validate_only: bool = False
    ) -> list[_Result]:
        """Decide a change and commit it; decided again if another broker committed first."""
        for _ in range(ATTEMPTS):
            decision = decide(self.image)
            if validate_only or not decision.changes:
                return decision.results
            try:
                self.commit(decision)
            except Conflict:
                self._publish(self._read(self.image.cluster_id))
            else:
                return decision.results
        raise KafkaError(
            ErrorCode.REQUEST_TIMED_OUT,
            f"other brokers changed the metadata {ATTEMPTS} times while this change was made",
        )

    def commit(self, decision: MetadataChange[_Result]) -> None:
        """Write the changes and publish the image; Conflict if another broker committed first."""
        self.nodes.commit(decision.changes, decision.image)
        self._publish(decision.image)

    # ------------------------------------------------------------------------- partitions

    def stand_alone(self, broker: Broker) -> None:
        """Register as the only broker. No other broker reads this store, so nothing is written.

        A broker whose disk is full must be able to start.
        """
        self._alone = broker
        self._publish(replace(self.image.with_broker(broker), controller_id=broker.id))

    def registered(self) -> set[BrokerId]:
        """The brokers that have ever been in this cluster, alive or not."""
        return self.nodes.known_brokers() | self.image.brokers.keys()

    def alter_partitions(
        self,
        decide_topics: Callable[[Image], list[Topic]],
        *,
        as_controller: bool = False,
        starts: Iterable[tuple[BrokerId, int]] = (),
    ) -> None:
        """Change partition states.

        Fails if the registration of this broker, or one of those in `starts`, is no longer valid,
        or if the change needs the controller and this broker no longer is the controller.
        """

        def decide(image: Image) -> MetadataChange[None]:
            topics = decide_topics(image)
            if not topics:
                return MetadataChange([], image)
            changes = [*self._guard(as_controller), *self.nodes.check_starts(starts)]
            changes += [self.nodes.put_topic(topic) for topic in topics]
            return MetadataChange([], image.with_topics(topics), changes)

        self.change(decide)

    def ask_partitions(
        self, decide_topics: Callable[[Image], tuple[list[_Result], list[Topic]]]
    ) -> list[_Result]:
        """As `alter_partitions`, for requests with a result for each partition."""
        results: list[_Result] = []

        def decide(image: Image) -> list[Topic]:
            nonlocal results
            results, topics = decide_topics(image)
            return topics

        self.alter_partitions(decide)
        return results

    def _guard(self, as_controller: bool) -> list[Change]:
        """The checks of a commit that changes partitions; KafkaError if one cannot succeed."""
        if self._alone is not None:
            return []
        if as_controller:
            is_controller = self.image.controller_id == self.node_id
            check = self.nodes.check_controller() if is_controller else None
        else:
            check = self.nodes.check_registration(self.node_id)
        if check is None:
            raise KafkaError(
                ErrorCode.NOT_CONTROLLER if as_controller else ErrorCode.STALE_BROKER_EPOCH
            )
        return [check]

    # ----------------------------------------------------------------------------- topics

    def create_topics(
        self, wanted: Sequence[NewTopic], defaults: Defaults, *, validate_only: bool = False
    ) -> list[Topic | KafkaError]:
        """Create topics; returns the topic or an error for each request."""
        from headrace.cluster import controller
        from headrace.cluster.fork_rules import FORK_OF

        def decide(image: Image) -> MetadataChange[Topic | KafkaError]:
            results = controller.create_topics(image, wanted, defaults, new_topic_id)
            topics = [one for one in results if isinstance(one, Topic)]
            if validate_only:
                return MetadataChange(results, image)
            changes = [self.nodes.create_topic(topic) for topic in topics]
            # A fork has the in-sync replicas of its parent.
            parents = {topic.configs.get(FORK_OF) for topic in topics}
            changes += self.nodes.check_topics(name for name in parents if name)
            return MetadataChange(results, image.with_topics(topics), changes)

        return self.change(decide)

    def create_topic(self, new: NewTopic, defaults: Defaults) -> Topic:
        """Create one topic; raises the error of `create_topics`."""
        (result,) = self.create_topics([new], defaults)
        if isinstance(result, KafkaError):
            raise result
        return result

    def delete_topics(self, names: Sequence[str]) -> list[KafkaError | None]:
        """Delete topics permanently: their ids are never accepted again."""

        def decide(image: Image) -> MetadataChange[KafkaError | None]:
            decision = MetadataChange[KafkaError | None]([], image)
            gone = {}
            for name in names:
                topic = image.topics.get(name)
                if topic is None or name in gone:
                    error = KafkaError(
                        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"unknown topic '{name}'"
                    )
                    decision.results.append(error)
                    continue
                gone[name] = topic
                decision.results.append(None)
                decision.changes += self.nodes.delete_topic(topic, self._clock.now_ms())
            decision.image = image.with_topics((), gone.values())
            return decision

        return self.change(decide)

    def create_partitions(
        self, wanted: Sequence[Growth], *, validate_only: bool = False
    ) -> list[KafkaError | None]:
        """Add partitions to topics; returns None or an error for each."""
        from headrace.cluster import controller

        def decide(image: Image) -> MetadataChange[KafkaError | None]:
            results, topics = _try_each(wanted, partial(controller.grow_topic, image))
            changes = [self.nodes.put_topic(topic) for topic in topics]
            grown = image.with_topics(topics) if topics else image
            return MetadataChange(results, grown, changes)

        return self.change(decide, validate_only=validate_only)

    def alter_configs(
        self, wanted: Sequence[Alteration], *, validate_only: bool = False
    ) -> list[KafkaError | None]:
        """Alter the configs of topics, brokers, groups and client metrics subscriptions.

        Returns None or an error for each. Each resource may be named once.
        """
        from headrace.cluster import controller

        def decide(image: Image) -> MetadataChange[KafkaError | None]:
            results, altered = _try_each(wanted, partial(controller.alter_configs, image))
            topics = [one for one in altered if isinstance(one, Topic)]
            changes = [self.nodes.put_topic(topic) for topic in topics]
            changed = image.with_topics(topics) if topics else image
            for one in altered:
                if not isinstance(one, Topic):
                    changed = _with_configs(changed, one)
                    changes += self.nodes.put_configs(one)
            return MetadataChange(results, changed, changes)

        return self.change(decide, validate_only=validate_only)

    def alter_security(
        self, decide_state: Callable[[SecurityState], tuple[list[_Result], SecurityState]]
    ) -> list[_Result]:
        """Change users, ACLs, quotas or tokens."""

        def decide(image: Image) -> MetadataChange[_Result]:
            results, state = decide_state(image.security)
            changes = self.nodes.put_security(image.security, state)
            return MetadataChange(results, image.with_security(state), changes)

        return self.change(decide)

    def update_features(
        self, updates: Sequence[FeatureUpdate], *, validate_only: bool = False
    ) -> None:
        """Change the levels of features; KafkaError, and no change, if one is refused."""

        def decide(image: Image) -> MetadataChange[None]:
            features = updated(image.features, updates, self.node_id)
            if features is image.features:
                return MetadataChange([], image)
            changes = [self.nodes.put_features(features)]
            return MetadataChange([], image.with_features(features), changes)

        self.change(decide, validate_only=validate_only)

    def adopt_topics(self, found: Iterable[FoundTopic]) -> list[FoundTopic]:
        """Register topics that have folders here but are unknown to the store.

        Returns those that cannot be registered: deleted topics, and topics whose name is in use.
        """
        candidates = list(found)

        def decide(image: Image) -> MetadataChange[FoundTopic]:
            refused: list[FoundTopic] = []
            adopted: dict[str, Topic] = {}
            for one in candidates:
                known = image.topics.get(one.name) or adopted.get(one.name)
                if known is not None and known.id == one.id:
                    continue
                if known is not None or one.id in image.names or self.nodes.was_deleted(one.id):
                    refused.append(one)
                else:
                    here = (self.node_id,)
                    state = PartitionState(self.node_id, 0, here, here)
                    adopted[one.name] = Topic(one.name, one.id, (state,) * one.partitions, {})
            topics = adopted.values()
            changes = [self.nodes.create_topic(topic) for topic in topics]
            return MetadataChange(refused, image.with_topics(topics), changes)

        return self.change(decide)


def _with_configs(image: Image, altered: AlteredConfigs) -> Image:
    if altered.of == "group":
        return image.with_group_configs(altered.name, altered.configs)
    if altered.of == "client-metrics":
        return image.with_client_metrics(altered.name, altered.configs)
    return image.with_broker_configs(altered.name, altered.configs)


def _try_each(
    wanted: Iterable[_Wanted], decide: Callable[[_Wanted], _Result]
) -> tuple[list[KafkaError | None], list[_Result]]:
    """For each request None or its error, and the new state of those that succeed."""
    results: list[KafkaError | None] = []
    made: list[_Result] = []
    for one in wanted:
        try:
            made.append(decide(one))
            results.append(None)
        except KafkaError as error:
            results.append(error)
    return results, made


def new_topic_id() -> uuid.UUID:
    """A random id whose printed form does not begin with a dash, which Kafka's tools reject."""
    while True:
        topic_id = uuid.uuid4()
        # The first six bits are the first character of its base64 form; 62 is the dash.
        if topic_id.bytes[0] >> 2 != 62:
            return topic_id


def new_cluster_id() -> str:
    """A random id in Kafka's form: 22 characters of URL-safe base64."""
    return base64.urlsafe_b64encode(new_topic_id().bytes).decode().rstrip("=")


def _same(old: Image, new: Image) -> bool:
    """Whether two images are equal except for their versions."""
    return (
        old.brokers == new.brokers
        and old.controller_id == new.controller_id
        and old.broker_configs == new.broker_configs
        and old.group_configs == new.group_configs
        and old.client_metrics == new.client_metrics
        and old.security == new.security
        and old.features == new.features
        and old.topics.keys() == new.topics.keys()
        and all(old.topics[name] is topic for name, topic in new.topics.items())
    )
