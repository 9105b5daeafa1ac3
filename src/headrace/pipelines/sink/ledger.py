"""The ledger of exactly-once writes: the decided epochs of a query, and their transactions.

Tasks write in transactions that they leave open. The driver writes the ids and epochs of their
producers into the ledger; then the epoch is decided: a restart after a crash commits the same
transactions. The ledger is the metadata of a committed offset of a group without members; the
offset is the next epoch. The driver writes it in its own transaction, so that an older driver that
still runs is fenced. A marker in each task's transaction, an offset in a group of the task, shows
later whether the transaction was committed or aborted by its timeout.

    group and transactional id           offset       metadata
    PREFIX.QUERY                         epoch + 1    the number of tasks and the first entries;
                                                      for a batch write the run of its query
    PREFIX.QUERY.more-N                  epoch + 1    further entries, written before
    PREFIX.QUERY.TASK                    epoch + 1    (the marker)

All offsets are of partition 0 of the target topic, which must exist.

Queries with different checkpoints that continue each other, such as a connector that moves to
another machine, have different query ids. They share the prefix and name an owner: the driver then
decides with the transactional id PREFIX, and only if the group PREFIX.owner has its own name as
metadata (`takeover.py`).
"""

import base64
import struct
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from headrace.client import groups, producing
from headrace.client.cluster import Cluster
from headrace.client.errors import Unreachable, is_retriable
from headrace.client.producing import ProducerIdentity
from headrace.errors import ErrorCode, KafkaError
from headrace.pipelines.sink.epoch import Epoch
from headrace.types import TopicPartition

# Brokers accept up to 4,096 bytes of metadata of an offset (`offset.metadata.max.bytes`).
ENTRIES_A_GROUP = 250
# A live driver needs a few milliseconds to decide.
PENDING_S = 2.0
ONGOING = "Ongoing"
"""The state of an open transaction."""
_HEAD = struct.Struct(">I")
_ENTRY = struct.Struct(">qh")

LOST = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)
"""The errors of a transaction that was ended by a timeout or a newer producer."""


class LedgerError(RuntimeError):
    """The ledger does not permit this write. The message says why and what to do."""


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """A task's producer, whose open transaction is its part of the epoch."""

    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class Page:
    """An entry of the ledger: a decided epoch, with the producer of each task."""

    epoch: int
    entries: tuple[LedgerEntry, ...]
    run: uuid.UUID | None = None
    """The run of the query that decided; known for batch writes only."""


@dataclass(frozen=True, slots=True)
class Ledger:
    """The ledger of one query; picklable for executors."""

    prefix: str
    topic: str
    timeout_ms: int
    owner: str | None = None
    """The driver that may decide; None: the last one of the query."""

    def task_id(self, epoch: Epoch, task: int) -> str:
        """The transactional id of a task, and the group of its marker."""
        return f"{self.prefix}.{epoch.query}.{task}"

    def read(self, cluster: Cluster, query: str) -> Page | None:
        """The newest decided epoch; None if there is none, or if its offset has expired."""
        head = self._read(cluster, query, f"{self.prefix}.{query}")
        if head is None:
            return None
        number, data = head
        (count,) = _HEAD.unpack_from(data)
        end = _HEAD.size + min(count, ENTRIES_A_GROUP) * _ENTRY.size
        entries = _entries(data[_HEAD.size : end])
        run = uuid.UUID(bytes=data[end:]) if data[end:] else None
        more = 0
        while len(entries) < count:
            found = self._read(cluster, query, f"{self.prefix}.{query}.more-{more}")
            if found is None or found[0] != number:
                raise LedgerError(
                    f"the ledger of query {query} is incomplete: {len(entries)} of {count} entries "
                    f"of epoch {number - 1} are left; {_forgotten(self.prefix, query)}"
                )
            entries += _entries(found[1])
            more += 1
        return Page(number - 1, tuple(entries), run)

    def begin(self, cluster: Cluster, query: str) -> ProducerIdentity:
        """Become the query's only driver; the previous one is fenced."""
        if self.owner is None:
            return producing.init_producer(cluster, f"{self.prefix}.{query}", self.timeout_ms)
        driver = producing.init_producer(cluster, self.prefix, self.timeout_ms)
        # From here on nobody becomes the owner without fencing this producer.
        found = groups.committed_offsets(cluster, self._owner_group, [self._place()])
        present = found.get(self._place())
        if present is not None and present.metadata != self.owner:
            raise LedgerError(
                f"another driver writes with the prefix {self.prefix} now; this one must stop"
            )
        return driver

    def become_owner(self, cluster: Cluster) -> None:
        """Fence the present owner: it decides no epoch after this returns."""
        assert self.owner is not None, "a ledger without owners"
        driver = producing.init_producer(cluster, self.prefix, self.timeout_ms)
        self._write(cluster, driver, self._owner_group, 0, self.owner)
        producing.end_transaction(cluster, driver, commit=True)

    @property
    def _owner_group(self) -> str:
        return f"{self.prefix}.owner"

    def decide(self, cluster: Cluster, driver: ProducerIdentity, query: str, page: Page) -> None:
        """Write a page. After a return the epoch is decided; after an exception it may be."""
        entries = page.entries
        pages = [
            entries[start : start + ENTRIES_A_GROUP]
            for start in range(0, max(1, len(entries)), ENTRIES_A_GROUP)
        ]
        name = f"{self.prefix}.{query}"
        texts = {f"{name}.more-{n}": _packed(part) for n, part in enumerate(pages[1:])}
        run = page.run.bytes if page.run is not None else b""
        texts[name] = _HEAD.pack(len(entries)) + _packed(pages[0]) + run
        for group, data in texts.items():
            self._write(cluster, driver, group, page.epoch, base64.b64encode(data).decode())
        producing.end_transaction(cluster, driver, commit=True)

    def mark(self, cluster: Cluster, task: ProducerIdentity, epoch: int) -> None:
        """Add the marker to a task's transaction."""
        self._write(cluster, task, task.in_transactions, epoch, "")

    def marked(self, cluster: Cluster, task: ProducerIdentity, epoch: int) -> bool:
        """Whether a transaction of this task and epoch was committed.

        Called by the task's newest producer, so that no older transaction is open.
        """
        found = groups.committed_offsets(cluster, task.in_transactions, [self._place()])
        committed = found.get(self._place())
        return committed is not None and committed.offset > epoch

    def end(self, cluster: Cluster, name: str, entry: LedgerEntry) -> bool:
        """Commit a decided transaction; False if it was lost. Idempotent."""
        producer = ProducerIdentity(entry.producer_id, entry.producer_epoch, name)
        try:
            producing.end_transaction(cluster, producer, commit=True)
        except KafkaError as error:
            if error.code in LOST:
                return False
            raise
        return True

    def _place(self) -> TopicPartition:
        return TopicPartition(self.topic, 0)

    def _read(self, cluster: Cluster, query: str, group: str) -> tuple[int, bytes] | None:
        place = self._place()
        deadline = time.monotonic() + cluster.config.total_timeout_s
        while True:
            try:
                offsets = groups.committed_offsets(cluster, group, [place], timeout_s=PENDING_S)
                break
            except (KafkaError, Unreachable) as error:
                if not is_retriable(error) or time.monotonic() > deadline:
                    raise
                pending = isinstance(error, KafkaError) and (
                    error.code == ErrorCode.UNSTABLE_OFFSET_COMMIT
                )
            if pending:
                # A driver died while it decided. Its successor completes or aborts the transaction.
                self.begin(cluster, query)
        found = offsets.get(place)
        return None if found is None else (found.offset, base64.b64decode(found.metadata))

    def _write(
        self, cluster: Cluster, producer: ProducerIdentity, group: str, epoch: int, text: str
    ) -> None:
        producing.add_offsets(cluster, producer, group)
        offsets = {self._place(): (epoch + 1, text)}
        producing.commit_offsets_in_transaction(cluster, producer, group, offsets)


def check_history(page: Page | None, epoch: Epoch, prefix: str, *, begin_anew: bool) -> None:
    """LedgerError if this epoch may be a replay, or is older than the ledger."""
    if page is None and epoch.number > 0 and not begin_anew:
        raise LedgerError(
            f"query {epoch.query} is at epoch {epoch.number}, but the ledger of earlier epochs is "
            f"missing; {_forgotten(prefix, epoch.query)}"
        )


def _forgotten(prefix: str, query: str) -> str:
    return (
        f"the broker keeps the group {prefix}.{query} for offsets.retention.minutes after its "
        "last commit and as long as its topic exists, and a query that wrote with "
        "delivery=at-least-once has none. If the last run ended normally, begin a new ledger "
        'with .option("ledger", "new")'
    )


def _packed(entries: Sequence[LedgerEntry]) -> bytes:
    return b"".join(_ENTRY.pack(each.producer_id, each.producer_epoch) for each in entries)


def _entries(data: bytes) -> list[LedgerEntry]:
    return [LedgerEntry(*fields) for fields in _ENTRY.iter_unpack(data)]
