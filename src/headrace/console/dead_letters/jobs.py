"""Sends dead letters back in the background, at a rate, with progress that survives a restart.

Letters are read, sent and committed in small chunks. If the console dies between sending and
committing, the letters of one chunk are sent again.
"""

import asyncio
import contextlib
import logging
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from headrace.admin.dead_letters import Resend, StoredLetter, plan_resend
from headrace.client.cluster import Cluster
from headrace.client.offsets import COMMITTED
from headrace.client.partitioner import partition_of
from headrace.client.producing import ProducerIdentity, init_producer, produce
from headrace.console.cluster_threads import ClusterThreads
from headrace.console.dead_letters.progress import LetterProgress, write_progress
from headrace.console.dead_letters.scan import (
    LetterRange,
    ResendOrder,
    letter_ranges,
    partition_counts,
    stored,
    wanted,
)
from headrace.console.records.reading import PageBudget, read_records
from headrace.service.errors import HttpError
from headrace.types import TopicPartition
from headrace.wire.records import Record, encode_batch

MOST_PER_CHUNK = 100
CHUNKS_PER_S = 2
BATCH_BYTES = 500_000
"""Of keys, values and headers; brokers accept about a megabyte by default."""
MOST_REASONS = 20
STOP_TIMEOUT_S = 10.0

_log = logging.getLogger("headrace.console")


class LetterSender:
    """An idempotent producer of records that are sent back."""

    def __init__(self) -> None:
        self._identity: ProducerIdentity | None = None
        self._sequences: dict[TopicPartition, int] = {}

    def send(self, cluster: Cluster, resends: Iterable[Resend], counts: dict[str, int]) -> None:
        """Writes the records; returns when all replicas in sync have them."""
        if self._identity is None:
            self._identity = init_producer(cluster)
        batches: dict[TopicPartition, list[list[Record]]] = {}
        sizes: Counter[TopicPartition] = Counter()
        for each in resends:
            new = each.record
            index = new.partition
            if index is None:
                index = partition_of(new.key, counts[each.topic])
            place = TopicPartition(each.topic, index)
            record = Record(0, time.time_ns() // 1_000_000, new.key, new.value, new.headers)
            size = _size(record)
            waiting = batches.setdefault(place, [[]])
            if waiting[-1] and sizes[place] + size > BATCH_BYTES:
                waiting.append([])
                sizes[place] = 0
            waiting[-1].append(record)
            sizes[place] += size
        while batches:
            self._send_round(cluster, {place: each.pop(0) for place, each in batches.items()})
            batches = {place: each for place, each in batches.items() if each}

    def _send_round(self, cluster: Cluster, batches: dict[TopicPartition, list[Record]]) -> None:
        assert self._identity is not None
        encoded = {
            place: encode_batch(
                records,
                producer_id=self._identity.producer_id,
                producer_epoch=self._identity.epoch,
                base_sequence=self._sequences.get(place, 0),
            )
            for place, records in batches.items()
        }
        produce(cluster, encoded)
        for place, records in batches.items():
            self._sequences[place] = self._sequences.get(place, 0) + len(records)


def _size(record: Record) -> int:
    headers = sum(len(name) + len(value or b"") for name, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers


@dataclass(slots=True)
class ChunkOutcome:
    """What became of some letters of a partition."""

    progress: LetterProgress
    sent: int = 0
    passed_over: int = 0
    refused: Counter[str] = field(default_factory=Counter)


def send_chunk(
    cluster: Cluster,
    order: ResendOrder,
    letters: LetterRange,
    progress: LetterProgress,
    most: int,
    sender: LetterSender,
) -> ChunkOutcome:
    """Sends the next letters of a partition and commits the progress."""
    place = TopicPartition(order.topic, letters.partition)
    start, end = progress.position, letters.bounds.end
    budget = PageBudget()
    found: list[StoredLetter] = []
    following = end
    for record, _ in read_records(cluster, place, start, end, budget, COMMITTED):
        if len(found) >= most:
            following = record.offset
            break
        found.append(stored(order.topic, letters.partition, record))
    else:
        if budget.exhausted:
            following = found[-1].offset + 1 if found else start
    fresh = [each for each in found if each.offset not in progress.sent]
    chosen = [each for each in fresh if wanted(order, each)]
    counts = partition_counts(cluster)
    plan = plan_resend(chosen, counts, target=order.target)
    sender.send(cluster, plan.resends, counts)
    after = progress.moved_to(following)
    write_progress(cluster, order.topic, letters.partition, after)
    refused = Counter(each.reason for each in plan.refused)
    return ChunkOutcome(after, len(plan.resends), len(fresh) - len(chosen), refused)


class ResendJob:
    """One run of sending back the letters of a topic."""

    def __init__(self, cluster: ClusterThreads, order: ResendOrder) -> None:
        self._cluster = cluster
        self.order = order
        self.state = "running"
        """running, stopped, finished or failed."""
        self.started_ms = time.time_ns() // 1_000_000
        self.total = 0
        self.done = 0
        """Offsets that were looked at."""
        self.sent = 0
        self.passed_over = 0
        self.refused: Counter[str] = Counter()
        self.problem = ""
        self._stop = asyncio.Event()
        self._task = asyncio.create_task(self._run())

    @property
    def running(self) -> bool:
        return self.state == "running"

    async def stop(self) -> None:
        """Ends the run after its present chunk."""
        self._stop.set()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(self._task), STOP_TIMEOUT_S)

    async def _run(self) -> None:
        try:
            finished = await self._send_all()
            self.state = "finished" if finished else "stopped"
        except HttpError as error:
            self.state, self.problem = "failed", error.message
            _log.warning("sending back letters of %s failed: %s", self.order.topic, error.message)
        except Exception:
            self.state, self.problem = "failed", "Sending back failed; see the console's log"
            _log.exception("sending back letters of %s failed", self.order.topic)

    async def _send_all(self) -> bool:
        order = self.order
        ranges = await self._cluster.run(
            letter_ranges, order.topic, from_beginning=order.from_beginning
        )
        self.total = sum(each.bounds.end - each.start for each in ranges)
        sender = LetterSender()
        most = max(1, min(MOST_PER_CHUNK, order.rate_per_s // CHUNKS_PER_S))
        for letters in ranges:
            progress = LetterProgress(letters.start, letters.progress.sent)
            while progress.position < letters.bounds.end:
                if self._stop.is_set():
                    return False
                began = time.monotonic()
                outcome = await self._cluster.run(
                    send_chunk, order, letters, progress, most, sender
                )
                self.done += outcome.progress.position - progress.position
                progress = outcome.progress
                self._count(outcome)
                await self._pause(outcome.sent / order.rate_per_s - (time.monotonic() - began))
        return True

    def _count(self, outcome: ChunkOutcome) -> None:
        self.sent += outcome.sent
        self.passed_over += outcome.passed_over
        for reason, number in outcome.refused.items():
            known = reason in self.refused or len(self.refused) < MOST_REASONS
            self.refused[reason if known else "other reasons"] += number

    async def _pause(self, seconds: float) -> None:
        if seconds > 0:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), seconds)


class ResendJobs:
    """The last run of each topic; one topic has one run at a time."""

    def __init__(self, cluster: ClusterThreads) -> None:
        self._cluster = cluster
        self.by_topic: dict[str, ResendJob] = {}

    def start(self, order: ResendOrder) -> ResendJob:
        self.check_free(order.topic)
        job = self.by_topic[order.topic] = ResendJob(self._cluster, order)
        return job

    def check_free(self, topic: str) -> None:
        """Raises HttpError if letters of the topic are being sent."""
        job = self.by_topic.get(topic)
        if job is not None and job.running:
            raise HttpError(409, f"Letters of {topic} are being sent back already; stop that first")

    @property
    def is_running(self) -> bool:
        return any(each.running for each in self.by_topic.values())

    async def stop(self) -> None:
        """Ends all runs; the next console continues where they were."""
        await asyncio.gather(*(each.stop() for each in self.by_topic.values() if each.running))
