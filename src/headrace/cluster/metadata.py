"""The cluster's metadata as this broker holds it: the image, kept in step with the store.

`controller.py` decides a change on the current image; it is committed to the store and then
published: the image is replaced and every listener is called. If another broker committed first,
the store is read again and the change is decided again. `refresh` reads changes of other brokers.

The nodes: `/cluster`, `/brokers/<id>`, `/topics/<name>`, `/configs/<broker id or default>`,
`/group_configs/<group id, percent-encoded>`, `/client_metrics/<subscription, percent-encoded>`,
those of `security_nodes.py`, `/deleted/<topic id>`, `/producer_ids`, `/controller`; and those that
live as long as their broker's session, `/live/<broker id>` and `/live/controller`. Each value is
JSON.
"""

import base64
import json
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from headrace.clock import Clock
from headrace.cluster import controller
from headrace.cluster.controller import Alteration, AlteredConfigs, Defaults, Growth, NewTopic
from headrace.cluster.image import (
    CLUSTER_DEFAULT,
    NO_LEADER,
    Broker,
    Endpoint,
    Image,
    PartitionState,
    Topic,
)
from headrace.cluster.registrations import same_starts
from headrace.cluster.security_nodes import SecurityNodes, changed_nodes
from headrace.cluster.store import (
    LIVE,
    Change,
    CheckVersion,
    Conflict,
    Create,
    Delete,
    Put,
    Store,
    StoreError,
    StoreNode,
)
from headrace.errors import ErrorCode, KafkaError, SettingError
from headrace.security.state import SecurityState
from headrace.types import BrokerId

PRODUCER_ID_BLOCK = 1000
ATTEMPTS = 10
"""How often a change is decided again after a conflict with another broker's commit."""

Listener = Callable[[Image, Image], None]
_Result = TypeVar("_Result")
_Wanted = TypeVar("_Wanted")
_Content: TypeAlias = dict[str, Any]  # JSON that this module wrote

CONTROLLER = "controller"


def _no_topics(_image: Image) -> list[Topic]:
    return []


class FoundTopic(NamedTuple):
    """A topic that has folders on disk."""

    name: str
    id: uuid.UUID
    partitions: int


@dataclass(slots=True)
class _Decision(Generic[_Result]):
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
        self._store = store
        self._node_id = node_id
        self._clock = clock
        self._inter_broker_listener = inter_broker_listener
        self._versions: dict[str, int] = {}
        # By name: the value of its node, and the topic parsed from it.
        self._topics_read: dict[str, tuple[bytes, Topic]] = {}
        self._security_nodes = SecurityNodes()
        self._alone: Broker | None = None
        self._producer_ids = iter(range(0))

    def load(self, known_cluster_id: str | None = None) -> None:
        """Read everything; a new store gets a cluster id, the known one if given."""
        cluster_id = self._cluster_id(known_cluster_id or new_cluster_id())
        self._publish(self._read(cluster_id))

    def refresh(self) -> None:
        """Read the changes of other brokers."""
        image = self._read(self.image.cluster_id)
        if not _same(self.image, image):
            self._publish(image)

    # ------------------------------------------------------------------------- membership

    def stand_alone(self, broker: Broker) -> None:
        """Register as the only broker. No other broker reads this store, so nothing is written.

        A broker whose disk is full must be able to start.
        """
        self._alone = broker
        self._publish(replace(self.image.with_broker(broker), controller_id=broker.id))

    def join(
        self, broker: Broker, folder: str, others: Callable[[Image], list[Topic]] = _no_topics
    ) -> Broker:
        """Register this broker until its session ends; returns the registration with its epoch.

        `others` are the topics that the registration changes, decided on the image. `folder` names
        its data: an existing registration is replaced if it has the same data, because this process
        holds the lock of that data.
        """
        registered = broker

        def decide(image: Image) -> _Decision[None]:
            nonlocal registered
            path = f"/brokers/{broker.id}"
            known = self._store.get(path)
            before: int = json.loads(known.value).get("epoch", 0) if known else 0
            registered = replace(broker, epoch=before + 1)
            self._versions.pop(path, None)
            if known is not None:
                self._versions[path] = known.version
            changes = [self._write(path, _dump({"epoch": registered.epoch}))]
            changes += self._leave(broker, folder)
            value = _dump_broker(registered, folder)
            changes.append(Create(f"{LIVE}/{broker.id}", value, ephemeral=True))
            topics = others(image)
            changes += [self._write_topic(topic) for topic in topics]
            after = image.with_topics(topics).with_broker(registered)
            if self._store.get(f"{LIVE}/{CONTROLLER}") is None:
                changes += self._take_control()
                after = replace(after, controller_id=broker.id)
            return _Decision([], after, changes)

        self._change(decide)
        return registered

    def _leave(self, broker: Broker, folder: str) -> list[Change]:
        """Removes an earlier registration; SettingError if another broker uses the id."""
        path = f"{LIVE}/{broker.id}"
        node = self._store.get(path)
        if node is None:
            return []
        other = json.loads(node.value)
        if other["folder"] != folder:
            raise SettingError(
                f"node.id={broker.id} is taken: the broker at {other['host']}:{other['port']} has "
                "it and is running. Give this one another --node-id and a data folder of its own."
            )
        self._versions[path] = node.version
        return [Delete(path, node.version)]

    def become_controller(self) -> bool:
        """Whether this broker is the controller now; at most one is, until its session ends."""
        try:
            self._commit(self._take_control())
        except Conflict:
            self.refresh()
            return self.image.controller_id == self._node_id
        self._publish(replace(self.image, controller_id=self._node_id))
        return True

    def _take_control(self) -> list[Change]:
        node = self._store.get("/controller")
        epoch: int = json.loads(node.value)["epoch"] + 1 if node else 1
        self._versions.pop("/controller", None)
        if node is not None:
            self._versions["/controller"] = node.version
        value = _dump({"broker": self._node_id, "epoch": epoch})
        return [
            Create(f"{LIVE}/{CONTROLLER}", value, ephemeral=True),
            self._write("/controller", _dump({"epoch": epoch})),
        ]

    def registered(self) -> set[BrokerId]:
        """The brokers that have ever been in this cluster, alive or not."""
        return {int(name) for name in self._store.children("/brokers")} | self.image.brokers.keys()

    def alter_partitions(
        self,
        decide_topics: Callable[[Image], list[Topic]],
        *,
        as_controller: bool = False,
        starts: Iterable[tuple[BrokerId, int]] = (),
    ) -> None:
        """Change partition states; decided again if another broker committed first.

        Fails if the registration of this broker, or one of those in `starts`, is no longer valid,
        or if the change needs the controller and this broker no longer is the controller.
        """

        def decide(image: Image) -> _Decision[None]:
            topics = decide_topics(image)
            if not topics:
                return _Decision([], image)
            changes = [*self._guard(as_controller), *same_starts(self._store, starts)]
            changes += [self._write_topic(topic) for topic in topics]
            return _Decision([], image.with_topics(topics), changes)

        self._change(decide)

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
        """The checks of a commit that changes partitions; KafkaError if one fails already."""
        if self._alone is not None:
            return []
        path = "/controller" if as_controller else f"{LIVE}/{self._node_id}"
        version = self._versions.get(path)
        if version is None or (as_controller and self.image.controller_id != self._node_id):
            raise KafkaError(
                ErrorCode.NOT_CONTROLLER if as_controller else ErrorCode.STALE_BROKER_EPOCH
            )
        return [CheckVersion(path, version)]

    # ----------------------------------------------------------------------------- topics

    def create_topics(
        self, wanted: Sequence[NewTopic], defaults: Defaults, *, validate_only: bool = False
    ) -> list[Topic | KafkaError]:
        """Create topics; for each request the topic, or the error that refuses it."""

        def decide(image: Image) -> _Decision[Topic | KafkaError]:
            results = controller.create_topics(image, wanted, defaults, new_topic_id)
            topics = [one for one in results if isinstance(one, Topic)]
            if validate_only:
                return _Decision(results, image)
            changes = [Create(f"/topics/{topic.name}", _dump_topic(topic)) for topic in topics]
            return _Decision(results, image.with_topics(topics), [*changes])

        return self._change(decide)

    def create_topic(self, new: NewTopic, defaults: Defaults) -> Topic:
        """Create one topic; KafkaError if that is refused."""
        (result,) = self.create_topics([new], defaults)
        if isinstance(result, KafkaError):
            raise result
        return result

    def delete_topics(self, names: Sequence[str]) -> list[KafkaError | None]:
        """Delete topics permanently: their ids are never accepted again."""

        def decide(image: Image) -> _Decision[KafkaError | None]:
            decision = _Decision[KafkaError | None]([], image)
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
                path = f"/topics/{name}"
                grave = _dump({"name": name, "deleted_ms": self._clock.now_ms()})
                decision.changes.append(Create(f"/deleted/{topic.id}", grave))
                decision.changes.append(Delete(path, self._versions[path]))
            decision.image = image.with_topics((), gone.values())
            return decision

        return self._change(decide)

    def create_partitions(
        self, wanted: Sequence[Growth], *, validate_only: bool = False
    ) -> list[KafkaError | None]:
        """Add partitions to topics; for each None, or the error that refuses it."""

        def decide(image: Image) -> _Decision[KafkaError | None]:
            results, topics = _try_each(wanted, partial(controller.grow_topic, image))
            changes = [self._write_topic(topic) for topic in topics]
            grown = image.with_topics(topics) if topics else image
            return _Decision(results, grown, changes)

        return self._change(decide, validate_only)

    def alter_configs(
        self, wanted: Sequence[Alteration], *, validate_only: bool = False
    ) -> list[KafkaError | None]:
        """Alter the configs of topics, brokers, groups and subscriptions to client metrics.

        For each None, or its error.

        Each resource may be named once.
        """

        def decide(image: Image) -> _Decision[KafkaError | None]:
            results, altered = _try_each(wanted, partial(controller.alter_configs, image))
            topics = [one for one in altered if isinstance(one, Topic)]
            changes = [self._write_topic(topic) for topic in topics]
            changed = image.with_topics(topics) if topics else image
            for one in altered:
                if isinstance(one, AlteredConfigs) and one.of == "group":
                    changed = changed.with_group_configs(one.name, one.configs)
                    changes += self._write_configs("/group_configs", one)
                elif isinstance(one, AlteredConfigs) and one.of == "client-metrics":
                    changed = changed.with_client_metrics(one.name, one.configs)
                    changes += self._write_configs("/client_metrics", one)
                elif isinstance(one, AlteredConfigs):
                    changed = changed.with_broker_configs(one.name, one.configs)
                    path = f"/configs/{one.name or 'default'}"
                    changes.append(self._write(path, _dump(one.configs)))
            return _Decision(results, changed, changes)

        return self._change(decide, validate_only)

    def alter_security(
        self, decide_state: Callable[[SecurityState], tuple[list[_Result], SecurityState]]
    ) -> list[_Result]:
        """Change users, ACLs, quotas or tokens; decided again if another broker was faster."""

        def decide(image: Image) -> _Decision[_Result]:
            results, state = decide_state(image.security)
            changes: list[Change] = []
            for path, value in changed_nodes(image.security, state):
                if value is not None:
                    changes.append(self._write(path, value))
                else:
                    changes.append(Delete(path, self._versions[path]))
            return _Decision(results, image.with_security(state), changes)

        return self._change(decide)

    def _write_configs(self, parent: str, altered: AlteredConfigs) -> list[Change]:
        """The node of a resource's configs; a resource without any has none."""
        path = f"{parent}/{_node_name(altered.name)}"
        if altered.configs:
            return [self._write(path, _dump(altered.configs))]
        version = self._versions.get(path)
        return [] if version is None else [Delete(path, version)]

    def adopt_topics(self, found: Iterable[FoundTopic]) -> list[FoundTopic]:
        """Register topics that have folders here but are unknown to the store.

        Returns those that cannot be registered: deleted topics, and topics whose name is in use.
        """
        buried = self._store.children("/deleted").keys()
        candidates = list(found)

        def decide(image: Image) -> _Decision[FoundTopic]:
            strange: list[FoundTopic] = []
            adopted: dict[str, Topic] = {}
            for one in candidates:
                known = image.topics.get(one.name) or adopted.get(one.name)
                if known is not None and known.id == one.id:
                    continue
                if known is not None or str(one.id) in buried or one.id in image.names:
                    strange.append(one)
                else:
                    here = (self._node_id,)
                    state = PartitionState(self._node_id, 0, here, here)
                    adopted[one.name] = Topic(one.name, one.id, (state,) * one.partitions, {})
            topics = adopted.values()
            changes = [Create(f"/topics/{topic.name}", _dump_topic(topic)) for topic in topics]
            return _Decision(strange, image.with_topics(topics), [*changes])

        return self._change(decide)

    def was_deleted(self, topic_id: uuid.UUID) -> bool:
        """Whether a topic with this id was deleted here."""
        return self._store.get(f"/deleted/{topic_id}") is not None

    # ----------------------------------------------------------------------- producer ids

    def next_producer_id(self) -> int:
        """A producer id that was never allocated before, not even before a crash."""
        for producer_id in self._producer_ids:
            return producer_id
        path = "/producer_ids"
        for _ in range(ATTEMPTS):
            node = self._store.get(path)
            first: int = json.loads(node.value)["next"] if node else _first_producer_id()
            value = _dump({"next": first + PRODUCER_ID_BLOCK})
            change = Put(path, value, node.version) if node else Create(path, value)
            try:
                self._commit([change])
            except Conflict:
                continue
            self._producer_ids = iter(range(first, first + PRODUCER_ID_BLOCK))
            return next(self._producer_ids)
        raise _contended()

    # ------------------------------------------------------------------- decide and write

    def _change(
        self, decide: Callable[[Image], _Decision[_Result]], validate_only: bool = False
    ) -> list[_Result]:
        for _ in range(ATTEMPTS):
            decision = decide(self.image)
            if validate_only or not decision.changes:
                return decision.results
            try:
                self._commit(decision.changes)
            except Conflict:
                self._publish(self._read(self.image.cluster_id))
                continue
            for change in decision.changes:
                parent, _, name = change.path.rpartition("/")
                if parent == "/topics" and isinstance(change, Create | Put):
                    self._topics_read[name] = (change.value, decision.image.topics[name])
            self._publish(decision.image)
            return decision.results
        raise _contended()

    def _write_topic(self, topic: Topic) -> Change:
        return self._write(f"/topics/{topic.name}", _dump_topic(topic))

    def _write(self, path: str, value: bytes) -> Change:
        version = self._versions.get(path)
        return Create(path, value) if version is None else Put(path, value, version)

    def _commit(self, changes: Sequence[Change]) -> None:
        try:
            self._store.commit(changes)
        except StoreError as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        for change in changes:
            if isinstance(change, Delete):
                del self._versions[change.path]
            elif not isinstance(change, CheckVersion):
                version = change.version + 1 if isinstance(change, Put) else 0
                self._versions[change.path] = version

    def _publish(self, image: Image) -> None:
        old, self.image = self.image, image
        for listener in self.listeners:
            listener(old, image)

    # ------------------------------------------------------------------------------- read

    def _cluster_id(self, proposed: str) -> str:
        node = self._store.get("/cluster")
        if node is None:
            try:
                self._store.commit([Create("/cluster", _dump({"id": proposed}))])
                return proposed
            except Conflict:
                node = self._store.get("/cluster")
        assert node is not None, "nobody deletes the cluster node"
        found: str = json.loads(node.value)["id"]
        return found

    def _read(self, cluster_id: str) -> Image:
        self._versions.clear()
        brokers, controller = {}, NO_LEADER
        if self._alone is not None:
            brokers, controller = {self._alone.id: self._alone}, self._alone.id
        for name, content in self._read_children(LIVE):
            if name == CONTROLLER:
                controller = content["broker"]
            else:
                listener = self._inter_broker_listener
                brokers[int(name)] = _load_broker(int(name), content, listener)
        self._read_version("/controller")
        configs = {
            CLUSTER_DEFAULT if name == "default" else name: content
            for name, content in self._read_children("/configs")
        }
        image = Image(
            version=self.image.version,
            cluster_id=cluster_id,
            controller_id=controller,
            brokers=brokers,
            broker_configs=configs,
            group_configs={
                _resource(name): content for name, content in self._read_children("/group_configs")
            },
            client_metrics={
                _resource(name): content for name, content in self._read_children("/client_metrics")
            },
            security=self._security_nodes.read(self._store, self._versions),
        )
        return image.with_topics(self._read_topics())

    def _read_version(self, path: str) -> None:
        node = self._store.get(path)
        if node is not None:
            self._versions[path] = node.version

    def _read_topics(self) -> list[Topic]:
        """All topics; an unchanged node gives the same object as before."""
        nodes = self._store.children("/topics")
        known, self._topics_read = self._topics_read, {}
        fresh: list[tuple[str, StoreNode]] = []
        for name, node in nodes.items():
            self._versions[f"/topics/{name}"] = node.version
            before = known.get(name)
            if before is not None and before[0] == node.value:
                self._topics_read[name] = before
            else:
                fresh.append((name, node))
        # Parsing everything at once takes a third of the time of 10,000 small parses.
        contents = json.loads(b"[" + b",".join(node.value for _, node in fresh) + b"]")
        states: dict[PartitionState, PartitionState] = {}
        for (name, node), content in zip(fresh, contents, strict=True):
            self._topics_read[name] = (node.value, _load_topic(name, content, states))
        return [self._topics_read[name][1] for name in nodes]

    def _read_children(self, path: str) -> Iterable[tuple[str, _Content]]:
        nodes = self._store.children(path)
        for name, node in nodes.items():
            self._versions[f"{path}/{name}"] = node.version
        contents = json.loads(b"[" + b",".join(node.value for node in nodes.values()) + b"]")
        return zip(nodes, contents, strict=True)


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


def _first_producer_id() -> int:
    """The first producer id of a cluster, at random.

    Logs copied from another cluster contain that cluster's producers, whose ids must not be
    allocated again here.
    """
    return uuid.uuid4().int >> 88 << 16


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


def _contended() -> KafkaError:
    return KafkaError(
        ErrorCode.REQUEST_TIMED_OUT,
        f"other brokers changed the metadata {ATTEMPTS} times while this change was made",
    )


def _node_name(resource: str) -> str:
    """A group or subscription as the name of a node: no slashes, and not `.` or `..`."""
    from urllib.parse import quote  # imported here: a broker without such configs starts faster

    return quote(resource, safe="").replace(".", "%2E")


def _resource(node_name: str) -> str:
    from urllib.parse import unquote

    return unquote(node_name)


def _dump(value: Mapping[str, object]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _dump_topic(topic: Topic) -> bytes:
    """Each state once, and for each partition the number of its state."""
    numbers: dict[PartitionState, int] = {}
    partitions = [numbers.setdefault(state, len(numbers)) for state in topic.partitions]
    states = [_dump_state(state) for state in numbers]
    return _dump(
        {
            "id": topic.id.hex,
            "configs": dict(topic.configs),
            "states": states,
            "partitions": partitions,
        }
    )


def _dump_state(state: PartitionState) -> list[object]:
    """A short form: most partitions have only default values."""
    usual = [state.leader, state.leader_epoch, state.replicas, state.isr, state.partition_epoch]
    rest = [state.eligible, state.last_leader, state.adding, state.removing]
    return usual if rest == [(), NO_LEADER, (), ()] else usual + rest


def _load_topic(name: str, content: _Content, known: dict[PartitionState, PartitionState]) -> Topic:
    states = []
    for values in content["states"]:
        plain: list[Any] = [tuple(one) if isinstance(one, list) else one for one in values]
        state = PartitionState(*plain)
        states.append(known.setdefault(state, state))
    partitions = tuple([states[number] for number in content["partitions"]])
    return Topic(name, uuid.UUID(int=int(content["id"], 16)), partitions, content["configs"])


def _dump_broker(broker: Broker, folder: str) -> bytes:
    return _dump(
        {
            "host": broker.host,
            "port": broker.port,
            "rack": broker.rack,
            "epoch": broker.epoch,
            "folder": folder,
            "endpoints": broker.endpoints,
        }
    )


def _load_broker(broker_id: int, content: _Content, inter_broker_listener: str) -> Broker:
    """A broker as this one sees it: reached through this one's own listener for brokers.

    A cluster may change from one such listener to another broker by broker.
    """
    endpoints = tuple(Endpoint(*one) for one in content.get("endpoints", ()))
    broker = Broker(
        broker_id, content["host"], content["port"], content["rack"], content["epoch"], endpoints
    )
    found = broker.endpoint(inter_broker_listener)
    return broker if found is None else replace(broker, host=found.host, port=found.port)


def _same(old: Image, new: Image) -> bool:
    """Whether two images differ in nothing but their number."""
    return (
        old.brokers == new.brokers
        and old.controller_id == new.controller_id
        and old.broker_configs == new.broker_configs
        and old.group_configs == new.group_configs
        and old.client_metrics == new.client_metrics
        and old.security == new.security
        and old.topics.keys() == new.topics.keys()
        and all(old.topics[name] is topic for name, topic in new.topics.items())
    )
