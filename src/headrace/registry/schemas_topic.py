"""The topic that holds everything: making it, and following it into a State.

A thread waits for records and hands them to the event loop, which alone touches the State that
readers see. Whoever has written something waits here until it has come back.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from headrace.registry.records import BadRecord, Change, decode
from headrace.registry.state import State

log = logging.getLogger("headrace.registry")
_silent = logging.getLogger("headrace.registry.librdkafka")
_silent.addHandler(logging.NullHandler())
_silent.propagate = False

POLL_S = 0.5
BATCH_RECORDS = 1000
FETCH_WAIT_MS = 50
ANSWER_TIMEOUT_S = 10.0
REPLICATION_FACTOR = 3


@dataclass(frozen=True, slots=True)
class Where:
    """The cluster and the topic."""

    bootstrap: str
    topic: str = "_schemas"
    properties: Mapping[str, str] = field(default_factory=dict)

    def client(self, **settings: object) -> dict[str, object]:
        """Settings of a librdkafka client."""
        return {
            "bootstrap.servers": self.bootstrap,
            "client.id": "headrace-registry",
            "logger": _silent,
            **self.properties,
            **settings,
        }


class TopicUnusable(Exception):
    """The cluster does not answer, or the topic cannot serve."""


def make_topic(where: Where, timeout_s: float) -> None:
    """Waits for the cluster and makes the topic if it is not there."""
    admin = AdminClient(where.client())
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            metadata = admin.list_topics(timeout=2)
            break
        except KafkaException as error:
            if time.monotonic() > deadline:
                raise TopicUnusable(
                    f"no Kafka cluster answers at {where.bootstrap}: {error.args[0].str()}"
                ) from None
    found = metadata.topics.get(where.topic)
    if found is None or found.error is not None:
        _create(admin, where, min(REPLICATION_FACTOR, len(metadata.brokers)))
    elif len(found.partitions) != 1:
        raise TopicUnusable(
            f"topic {where.topic} has {len(found.partitions)} partitions; it needs exactly one, "
            "for its records must have one order. Name another with --topic"
        )


def _create(admin: AdminClient, where: Where, factor: int) -> None:
    wanted = NewTopic(where.topic, 1, factor, config={"cleanup.policy": "compact"})
    try:
        admin.create_topics([wanted])[where.topic].result(ANSWER_TIMEOUT_S)
    except KafkaException as error:
        # Another instance may have been faster.
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise TopicUnusable(
                f"topic {where.topic} could not be made: {error.args[0].str()}"
            ) from None


class Follower:
    """Reads the topic from its beginning, for as long as the registry runs."""

    def __init__(self, where: Where) -> None:
        self.state = State()
        self.next_offset = 0
        """Everything below has been replayed."""
        self._where = where
        self._loop = asyncio.get_running_loop()
        self._caught_up = self._loop.create_future()
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="follower", daemon=True)

    async def start(self, timeout_s: float) -> None:
        """Returns when what was in the topic at the start is known."""
        self._thread.start()
        try:
            await asyncio.wait_for(asyncio.shield(self._caught_up), timeout_s)
        except TimeoutError:
            raise TopicUnusable(
                f"topic {self._where.topic} could not be read to its end within {timeout_s:.0f} s"
            ) from None

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    @property
    def is_following(self) -> bool:
        """Whether new records of the topic still come."""
        return self._caught_up.done() and self._thread.is_alive()

    async def reached(self, offset: int) -> None:
        """Returns when everything below `offset` has been replayed."""
        if self.next_offset < offset:
            future = self._loop.create_future()
            self._waiting.append((offset, future))
            await future

    async def copy_at(self, offset: int) -> State:
        """The state with everything below `offset`, for one who goes on from there."""
        await self.reached(offset)
        return self.state.copy()

    def _run(self) -> None:
        consumer = Consumer(
            self._where.client(
                **{
                    # The library insists on a name; no group is joined and nothing committed.
                    "group.id": "headrace-registry",
                    "enable.auto.commit": False,
                    "enable.auto.offset.store": False,
                    "enable.partition.eof": True,
                    "isolation.level": "read_committed",
                    "auto.offset.reset": "earliest",
                    # The end of the topic is known only after a fetch that finds nothing new.
                    "fetch.wait.max.ms": FETCH_WAIT_MS,
                    "fetch.error.backoff.ms": 50,
                }
            )
        )
        consumer.assign([TopicPartition(self._where.topic, 0, OFFSET_BEGINNING)])
        try:
            while not self._stopping.is_set():
                first = consumer.poll(POLL_S)
                if first is not None:
                    self._take([first, *consumer.consume(BATCH_RECORDS, timeout=0)])
        finally:
            consumer.close()

    def _take(self, messages: list[object]) -> None:
        """Decodes in this thread what the loop will replay."""
        changes: list[Change] = []
        reached = 0
        at_end = False
        for message in messages:
            error = message.error()  # type: ignore[attr-defined]
            offset = message.offset()  # type: ignore[attr-defined]
            if error is None:
                reached, at_end = offset + 1, False
                try:
                    change = decode(message.key(), message.value())  # type: ignore[attr-defined]
                except BadRecord as reason:
                    log.warning("offset %d of %s: %s", offset, self._where.topic, reason)
                    continue
                if change is not None:
                    changes.append(change)
            elif error.code() == KafkaError._PARTITION_EOF:
                # Transaction markers are no records: only the end tells that they are behind us.
                reached, at_end = max(reached, offset), True
            else:
                log.warning("reading %s: %s", self._where.topic, error.str())
        self._loop.call_soon_threadsafe(self._replay, changes, reached, at_end)

    def _replay(self, changes: list[Change], reached: int, at_end: bool) -> None:
        for change in changes:
            self.state.replay(change)
        self.next_offset = max(self.next_offset, reached)
        if at_end and not self._caught_up.done():
            self._caught_up.set_result(None)
        waiting, self._waiting = self._waiting, []
        for offset, future in waiting:
            if offset > self.next_offset:
                self._waiting.append((offset, future))
            elif not future.done():
                future.set_result(None)


def end_of(admin: AdminClient, topic: str) -> int:
    """The offset that the next record of the topic will have, transactions under way aside."""
    partition = TopicPartition(topic, 0)
    asked = admin.list_offsets(
        {partition: OffsetSpec.latest()},
        isolation_level=IsolationLevel.READ_COMMITTED,
        request_timeout=ANSWER_TIMEOUT_S,
    )
    return int(asked[partition].result().offset)
