"""Transactions: open ones, those that hold back the last stable offset, and aborts."""

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.admin.errors import NotFound
from headrace.admin.topics import existing_topics
from headrace.client.cluster import Cluster
from headrace.client.offsets import COMMITTED, LATEST, available_offsets
from headrace.client.producing import init_producer
from headrace.client.topics import describe_topics
from headrace.client.transactions import (
    ActiveProducer,
    TransactionDescription,
    active_producers,
    active_producers_of,
    describe_transaction,
    describe_transactions,
    list_transactions,
    write_abort_marker,
)
from headrace.errors import ErrorCode, KafkaError
from headrace.types import TopicPartition

ONGOING = "Ongoing"
OPEN_STATES = (ONGOING, "PrepareCommit", "PrepareAbort")
NO_TRANSACTION = -1


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction that is not completed, according to its coordinator."""

    transactional_id: str
    state: str
    producer_id: int
    epoch: int
    timeout_ms: int
    age_ms: int | None
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class TransactionHold:
    """A producer with an open transaction in a partition, which holds back read_committed readers.

    Without a `transactional_id` no coordinator has the transaction: it hangs, and only an abort in
    the partition ends it.
    """

    producer_id: int
    epoch: int
    start_offset: int
    transactional_id: str | None
    state: str | None

    @property
    def hanging(self) -> bool:
        return self.transactional_id is None


@dataclass(frozen=True, slots=True)
class HeldPartition:
    """A partition whose last stable offset is behind its end, and the producers that hold it."""

    partition: TopicPartition
    last_stable: int
    end: int
    holds: tuple[TransactionHold, ...]

    @property
    def hidden(self) -> int:
        """Offsets that read_committed readers do not get."""
        return self.end - self.last_stable


@dataclass(frozen=True, slots=True)
class TransactionAbort:
    """The result of an abort; the producer is fenced also if no transaction was open."""

    aborted: bool
    producer_id: int
    transactional_id: str | None = None
    partition: TopicPartition | None = None


def open_transactions(cluster: Cluster, now_ms: int) -> list[OpenTransaction]:
    """The transactions that are not completed, the oldest first."""
    listed = list_transactions(cluster, OPEN_STATES)
    found = describe_transactions(cluster, (each.transactional_id for each in listed))
    rows = [
        OpenTransaction(
            each.transactional_id,
            each.state,
            each.producer_id,
            each.epoch,
            each.timeout_ms,
            None if each.start_ms is None else max(now_ms - each.start_ms, 0),
            each.partitions,
        )
        for each in found.values()
        # Some have ended between the two requests.
        if each.state in OPEN_STATES
    ]
    return sorted(rows, key=lambda each: (-(each.age_ms or 0), each.transactional_id))


def held_partitions(cluster: Cluster, topics: Sequence[str] | None = None) -> list[HeldPartition]:
    """The partitions, of these topics or of all, with a held back last stable offset."""
    known = describe_topics(cluster, topics)
    partitions = [
        TopicPartition(topic.name, index) for topic in known.values() for index in topic.led
    ]
    stable = available_offsets(cluster, dict.fromkeys(partitions, LATEST), COMMITTED)
    ends = available_offsets(cluster, dict.fromkeys(partitions, LATEST))
    both = [at for at in partitions if at in stable and at in ends]
    behind = sorted(at for at in both if stable[at].offset < ends[at].offset)
    holds = _holds(cluster, behind) if behind else {}
    return [
        HeldPartition(at, stable[at].offset, ends[at].offset, holds[at])
        for at in behind
        # Some have ended between the requests.
        if holds[at]
    ]


def _holds(
    cluster: Cluster, partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, tuple[TransactionHold, ...]]:
    """The open transactions of each partition; the one that holds the last stable offset first.

    The leaders are asked before and after the coordinators. A transaction that is open both times
    was open in between, so a coordinator that has it lists it.
    """
    before = active_producers_of(cluster, partitions)
    listed = list_transactions(cluster, OPEN_STATES)
    known = describe_transactions(cluster, (each.transactional_id for each in listed))
    owners = {each.producer_id: each for each in known.values()}
    after = active_producers_of(cluster, partitions)
    found: dict[TopicPartition, tuple[TransactionHold, ...]] = {}
    for at in partitions:
        starts = {(each.producer_id, each.transaction_start) for each in before[at]}
        still_open = [
            each
            for each in after[at]
            if each.transaction_start != NO_TRANSACTION
            and (each.producer_id, each.transaction_start) in starts
        ]
        still_open.sort(key=lambda each: each.transaction_start)
        found[at] = tuple(hold_of(at, each, owners.get(each.producer_id)) for each in still_open)
    return found


def hold_of(
    partition: TopicPartition, producer: ActiveProducer, owner: TransactionDescription | None
) -> TransactionHold:
    """An open transaction; it hangs if its coordinator does not have the partition in it."""
    if owner is not None and owner.state == ONGOING and partition not in owner.partitions:
        owner = None
    return TransactionHold(
        producer.producer_id,
        producer.epoch,
        producer.transaction_start,
        None if owner is None else owner.transactional_id,
        None if owner is None else owner.state,
    )


def existing_transaction(cluster: Cluster, transactional_id: str) -> TransactionDescription:
    """The transactional id; NotFound if it does not exist."""
    try:
        return describe_transaction(cluster, transactional_id)
    except KafkaError as error:
        if error.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            raise
        raise NotFound(
            f"transactional id {transactional_id!r} does not exist",
            "`headrace transactions list` shows all.",
        ) from None


def abort_transaction(cluster: Cluster, found: TransactionDescription) -> TransactionAbort:
    """Abort the open transaction of a transactional id, and fence its producer."""
    init_producer(cluster, found.transactional_id, found.timeout_ms)
    return TransactionAbort(found.state == ONGOING, found.producer_id, found.transactional_id)


def abort_hanging(
    cluster: Cluster, partition: TopicPartition, start_offset: int
) -> TransactionAbort:
    """Abort in one partition the transaction that began at an offset, without its coordinator."""
    (topic,) = existing_topics(cluster, [partition.topic])
    if partition.partition not in topic.led:
        raise NotFound(f"topic {topic.name!r} has no partition {partition.partition} with a leader")
    for producer in active_producers(cluster, partition):
        if producer.transaction_start == start_offset:
            write_abort_marker(cluster, partition, producer)
            return TransactionAbort(True, producer.producer_id, partition=partition)
    raise NotFound(f"{partition} has no open transaction that began at offset {start_offset}")
