"""A client's view of the cluster: brokers, leaders and coordinators, and requests with retries.

Leaders and coordinators are cached until a request fails; then they are looked up again. A Cluster
is not thread-safe: each thread creates its own.
"""

import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

from headrace.client.config import ClientConfig
from headrace.client.connection import Connection
from headrace.client.errors import ClientError, Unreachable, check, error_of, is_retriable
from headrace.errors import ErrorCode, KafkaError
from headrace.types import Address, TopicPartition
from headrace.wire.primitives import TopicName, i8

if TYPE_CHECKING:
    from kio.schema.metadata.v12.response import MetadataResponse

GROUP, TRANSACTION = 0, 1
NEW_TOPIC_PATIENCE_S = 5.0
"""How long brokers may take to learn of a topic that was just created."""

Shape = TypeVar("Shape")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class TopicLeaders:
    """A topic's partitions, in their order, and the leader of each; -1 without one."""

    name: str
    leaders: tuple[int, ...]
    internal: bool
    topic_id: uuid.UUID | None
    """Another id means another topic with the same name; None if brokers have no topic ids."""


class Cluster:
    """Connections to the brokers of one cluster, opened when they are needed."""

    def __init__(self, config: ClientConfig) -> None:
        self.config = config
        self._brokers: dict[int, Address] = {}
        self._connections: dict[Address, Connection] = {}
        self._spares: dict[Address, Connection] = {}
        """Connections that were given back, one for each broker."""
        self._topics: dict[str, TopicLeaders] = {}
        self._coordinators: dict[tuple[int, str], int] = {}
        self._controller: int | None = None
        self._failed: set[Address] = set()
        """Brokers whose last connection or request failed; others are tried before them."""
        self.kept = False
        """Whether leaders and connections are from earlier work, so that the first error may only
        mean that they are out of date; `renew` then."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        for connections in (self._connections, self._spares):
            for connection in connections.values():
                connection.close()
            connections.clear()

    # ------------------------------------------------------------------------- one attempt each

    def ask(self, request: object, shape: type[Shape], broker: int | None = None) -> Shape:
        """Send one request to one broker, or to any that can be reached."""
        connection = self._any() if broker is None else self._connection(self._address(broker))
        try:
            answer = connection.ask(request, shape)
        except BaseException:
            # A part of a response may still arrive on it.
            self._failed.add(connection.address)
            self._connections.pop(connection.address, None)
            connection.close()
            raise
        self._failed.discard(connection.address)
        return answer

    def ask_controller(self, request: object, shape: type[Shape]) -> Shape:
        """Send one request to the controller, or to the broker that stands in for it."""
        if self._controller is None:
            self.metadata(())
        return self.ask(request, shape, self._controller)

    def version(self, broker: int, request: object) -> int:
        """The version in which this request is sent to a broker."""
        api_key: int = request.__api_key__  # type: ignore[attr-defined]
        newest: int = request.__version__  # type: ignore[attr-defined]
        return self._connection(self._address(broker)).version(api_key, newest)

    def connect(self, broker: int) -> Connection:
        """A connection that the caller owns: one that was given back, or a new one."""
        address = self._address(broker)
        spare = self._spares.pop(address, None)
        if spare is not None and spare.is_quiet():
            return spare
        if spare is not None:
            spare.close()
        return Connection(address, self.config)

    def give_back(self, connection: Connection) -> None:
        """Keep a connection of `connect` for its next caller, unless responses are due on it."""
        if connection.address in self._spares or not connection.is_quiet():
            connection.close()
        else:
            connection.release_buffer()
            self._spares[connection.address] = connection

    def metadata(self, names: Iterable[str] | None) -> "MetadataResponse":
        """The brokers, and these topics or all; no topic is created."""
        from kio.schema.metadata.v12.request import MetadataRequest, MetadataRequestTopic
        from kio.schema.metadata.v12.response import MetadataResponse

        asked = (
            None
            if names is None
            else tuple(MetadataRequestTopic(topic_id=None, name=TopicName(n)) for n in names)
        )
        answer = self.ask(
            MetadataRequest(
                topics=asked,
                allow_auto_topic_creation=False,
                include_topic_authorized_operations=False,
            ),
            MetadataResponse,
        )
        self._brokers = {
            int(row.node_id): Address(row.host, int(row.port)) for row in answer.brokers
        }
        controller = int(answer.controller_id)
        self._controller = controller if controller in self._brokers else None
        return answer

    def topics(self, names: Iterable[str] | None) -> dict[str, TopicLeaders]:
        """The named topics, or all; missing ones are left out."""
        found: dict[str, TopicLeaders] = {}
        for row in self.metadata(names).topics:
            code = int(row.error_code)
            if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or row.name is None:
                continue
            if code != ErrorCode.LEADER_NOT_AVAILABLE:
                check(code, f"asking about topic {row.name}")
            parts = sorted(row.partitions, key=lambda part: part.partition_index)
            leaders = tuple(int(part.leader_id) for part in parts)
            found[str(row.name)] = TopicLeaders(
                str(row.name), leaders, row.is_internal, row.topic_id
            )
        self._topics |= found
        return found

    def led_by(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[int, dict[str, list[TopicPartition]]]:
        """Partitions by their leaders and by topic, as Metadata has them now.

        Left out are partitions that do not exist, have no leader, or may not be described.
        """
        wanted = list(partitions)
        leaders = {
            TopicPartition(str(row.name), int(part.partition_index)): int(part.leader_id)
            for row in self.metadata({partition.topic for partition in wanted}).topics
            for part in row.partitions
        }
        found: dict[int, dict[str, list[TopicPartition]]] = {}
        for partition in wanted:
            if (leader := leaders.get(partition, -1)) >= 0:
                topics = found.setdefault(leader, {})
                topics.setdefault(partition.topic, []).append(partition)
        return found

    def brokers(self) -> dict[int, Address]:
        """The live brokers, according to one of them."""
        self.topics(())
        return dict(self._brokers)

    def leader(self, partition: TopicPartition) -> int:
        """The leader of the partition, from the cache if possible."""
        topic = self._topics.get(partition.topic)
        if topic is None or partition.partition >= len(topic.leaders):
            self.topics(self._topics.keys() | {partition.topic})
            topic = self._topics.get(partition.topic)
        if topic is None or partition.partition >= len(topic.leaders):
            raise error_of(3, f"partition {partition}", "it does not exist")
        leader = topic.leaders[partition.partition]
        if leader < 0:
            self._topics.pop(partition.topic, None)
            raise error_of(5, f"partition {partition}", "it has no leader at present")
        return leader

    def topic_id(self, name: str) -> uuid.UUID | None:
        """The cached id of a topic; None if it is not known."""
        topic = self._topics.get(name)
        return None if topic is None else topic.topic_id

    def by_leader(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[int, dict[str, list[TopicPartition]]]:
        """Partitions by the broker that leads them, and by topic; asks once for all unknown."""
        wanted = list(partitions)
        unknown = {partition.topic for partition in wanted} - self._topics.keys()
        if unknown:
            self.topics(self._topics.keys() | unknown)
        found: dict[int, dict[str, list[TopicPartition]]] = {}
        for partition in wanted:
            topics = found.setdefault(self.leader(partition), {})
            topics.setdefault(partition.topic, []).append(partition)
        return found

    def coordinator(self, kind: int, key: str) -> int:
        """The broker that coordinates a group or a transactional id."""
        (broker,) = self.by_coordinator(kind, (key,))
        return broker

    def by_coordinator(self, kind: int, keys: Iterable[str]) -> dict[int, list[str]]:
        """Groups or transactional ids by the broker that coordinates them."""
        from kio.schema.find_coordinator.v4.request import FindCoordinatorRequest
        from kio.schema.find_coordinator.v4.response import FindCoordinatorResponse

        wanted = tuple(keys)
        unknown = tuple(key for key in wanted if (kind, key) not in self._coordinators)
        if unknown:
            request = FindCoordinatorRequest(key_type=i8(kind), coordinator_keys=unknown)
            for row in self.ask(request, FindCoordinatorResponse).coordinators:
                what = f"finding the coordinator of {row.key!r}"
                check(int(row.error_code), what, row.error_message)
                self._brokers[int(row.node_id)] = Address(row.host, int(row.port))
                self._coordinators[kind, row.key] = int(row.node_id)
        found: dict[int, list[str]] = {}
        for key in wanted:
            found.setdefault(self._coordinators[kind, key], []).append(key)
        return found

    def forget(self) -> None:
        """Clear the cached leaders and coordinators."""
        self._controller = None
        self._topics.clear()
        self._coordinators.clear()

    def renew(self) -> None:
        """Forget all that was kept from earlier work, and close its connections."""
        self.close()
        self.forget()
        self.kept = False

    # ---------------------------------------------------------------------------------- retries

    def retry(
        self, what: str, attempt: Callable[[], Result], timeout_s: float | None = None
    ) -> Result:
        """The result of `attempt`, which is retried with back-off after retriable errors."""
        limit_s = self.config.total_timeout_s if timeout_s is None else timeout_s
        deadline = time.monotonic() + limit_s
        pause_s = self.config.retry_backoff_s
        while True:
            try:
                return attempt()
            except (KafkaError, Unreachable) as error:
                if not is_retriable(error):
                    raise
                self.forget()
                if time.monotonic() + pause_s > deadline:
                    raise _gave_up(what, error, limit_s) from error
                time.sleep(pause_s)
                pause_s = min(pause_s * 2, self.config.retry_backoff_max_s)

    def existing_topics(self, names: Sequence[str]) -> dict[str, TopicLeaders]:
        """The named topics; an error lists those that do not exist."""

        def attempt() -> dict[str, TopicLeaders]:
            found = self.topics(names)
            missing = [name for name in names if name not in found]
            if missing:
                raise error_of(3, f"topic {', '.join(missing)}", "it does not exist")
            return found

        return self.retry("asking about topics", attempt, NEW_TOPIC_PATIENCE_S)

    # ------------------------------------------------------------------------------ connections

    def _address(self, broker: int) -> Address:
        if broker not in self._brokers:
            self.topics(())
        if broker not in self._brokers:
            raise Unreachable(f"broker {broker} is not in the cluster at present")
        return self._brokers[broker]

    def _connection(self, address: Address) -> Connection:
        if address not in self._connections:
            self._failed.add(address)
            self._connections[address] = Connection(address, self.config)
            self._failed.discard(address)
        return self._connections[address]

    def _any(self) -> Connection:
        """An open connection, or the first that can be opened."""
        places = dict.fromkeys(
            (*self._connections, *self._brokers.values(), *self.config.bootstrap)
        )
        trouble: list[str] = []
        for address in sorted(places, key=self._failed.__contains__):
            try:
                return self._connection(address)
            except Unreachable as error:
                trouble.append(str(error))
        raise Unreachable("; ".join(trouble))


def _gave_up(what: str, error: Exception, limit_s: float) -> ClientError | KafkaError:
    text = f"{what} did not succeed within {limit_s:g} s: {error}"
    if isinstance(error, KafkaError):
        return KafkaError(error.code, text)
    return Unreachable(text)
