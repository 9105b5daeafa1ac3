"""Compaction in a running broker: finds logs that are due, and starts processes that compact them.

There are up to `log.cleaner.threads` processes. Each is started when there is work and ended when
there is none. A process writes new files; the event loop only renames them into place, which takes
less than a millisecond. The rules of compaction are in `log/compaction/`.
"""

import asyncio
import logging
import os
import sys
from asyncio.subprocess import PIPE, Process
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass

from headrace.broker.metrics.values import Metrics
from headrace.clock import Clock
from headrace.errors import ErrorCode, KafkaError
from headrace.log.compaction.job import (
    Answer,
    Cleaned,
    Failed,
    Finished,
    Job,
    decode_answer,
    encode_job,
)
from headrace.log.compaction.plan import CompactionPlan
from headrace.log.compaction.start import CompactionLimits, job_for, plan_for
from headrace.log.compaction.swap import put_in_place, remove_cleaned
from headrace.log.directory import LogDirectory
from headrace.log.log import Log
from headrace.log.segment import Segment
from headrace.replication.partition import Partition
from headrace.replication.replicas import Replicas
from headrace.settings import Settings
from headrace.types import TopicPartition

logger = logging.getLogger(__name__)

_OPENED_AT_ONCE = 20
"""How many logs unused since the start are opened at once to check for compaction."""
_LINE_BYTES_MAX = 64 << 20
_REST_MAX_MS = 3_600_000
_MIB = 1 << 20


class _Stale(Exception):
    """The log changed during its compaction in a way that makes the result invalid."""


@dataclass(frozen=True, slots=True)
class _Failures:
    count: int
    rest_until: float
    plan: CompactionPlan | None


class Worker:
    """The process that compacts; started at its first job."""

    def __init__(self) -> None:
        self._process: Process | None = None

    async def begin(self, job: Job) -> None:
        """Send a job."""
        if self._process is None:
            command = (sys.executable, "-P", "-m", "headrace.log.compaction.worker")
            self._process = await asyncio.create_subprocess_exec(
                *command,
                str(os.getpid()),
                stdin=PIPE,
                stdout=PIPE,
                limit=_LINE_BYTES_MAX,
                # One thread computes; numpy would start one for each core.
                env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
            )
        assert self._process.stdin is not None
        self._process.stdin.write(encode_job(job))

    async def answer(self) -> Answer:
        """The next answer to the job."""
        process = self._process
        assert process is not None
        assert process.stdout is not None
        line = await process.stdout.readline()
        if line:
            return decode_answer(line)
        self._process = None
        return Failed(f"its process ended with code {await process.wait()}")

    def kill(self) -> None:
        """Kill the process."""
        process, self._process = self._process, None
        if process is not None:
            with suppress(ProcessLookupError):
                process.kill()

    async def stop(self) -> None:
        """End the process after its last job."""
        process, self._process = self._process, None
        if process is not None and process.stdin is not None:
            process.stdin.close()
            await process.wait()


class Compaction:
    """Chooses the logs that are due, and compacts them."""

    def __init__(
        self, replicas: Replicas, executor: Executor, clock: Clock, metrics: Metrics
    ) -> None:
        self._replicas = replicas
        self._metrics = metrics
        metrics.watch("headrace_compaction_in_progress", lambda: len(self._in_progress))
        self._executor = executor
        self._clock = clock
        self._in_progress: set[TopicPartition] = set()
        self._failures: dict[TopicPartition, _Failures] = {}
        self._workers: list[Worker] = []
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin; needs a running event loop."""
        self._tasks.append(asyncio.get_running_loop().create_task(self._run()))

    def stop(self) -> None:
        """Kill all processes; unfinished work is repeated after the next start."""
        for task in self._tasks:
            task.cancel()
        for worker in self._workers:
            worker.kill()

    @property
    def _settings(self) -> Settings:
        return self._replicas.settings_now

    async def _run(self) -> None:
        while True:
            while len(self._workers) < self._settings.integer("log.cleaner.threads"):
                self._workers.append(Worker())
                worker = self._work(len(self._workers) - 1)
                self._tasks.append(asyncio.get_running_loop().create_task(worker))
            await self._rest()

    async def _rest(self) -> None:
        await asyncio.sleep(self._settings.integer("log.cleaner.backoff.ms") / 1000)

    async def _work(self, index: int) -> None:
        """Compact one log after the other, while the setting permits this many workers."""
        while True:
            try:
                while index < self._settings.integer("log.cleaner.threads"):
                    found = self._dirtiest()
                    if found is None:
                        break
                    await self._compact(self._workers[index], *found)
                await self._workers[index].stop()
            except Exception:
                logger.exception("compaction failed; it will be retried")
                self._workers[index].kill()
            await self._rest()

    # -- choosing -------------------------------------------------------------------------------

    def _dirtiest(self) -> tuple[Partition, CompactionPlan] | None:
        """Of the logs that are due, the one with the largest dirty part."""
        now_ms, now = self._clock.now_ms(), self._clock.monotonic()
        plans: list[tuple[Partition, CompactionPlan]] = []
        unopened = _OPENED_AT_ONCE
        wanted = [
            partition
            for partition in self._replicas.all_partitions()
            if "compact" in partition.settings.cleanup_policy
        ]
        names = {partition.name for partition in wanted}
        self._failures = {name: each for name, each in self._failures.items() if name in names}
        for partition in wanted:
            failures = self._failures.get(partition.name)
            if (
                partition.name in self._in_progress
                or (failures is not None and failures.rest_until > now)
                # A log that is moving is skipped, because its copy could miss a tombstone.
                or self._replicas.directories.is_moving(partition.name)
            ):
                continue
            if not partition.replica.opened:
                unopened -= 1
                if unopened < 0:
                    continue
            try:
                if partition.replica.log.availability.offline is None:
                    plans.append((partition, self._plan(partition, now_ms)))
            except Exception as error:  # the other logs are compacted
                known = isinstance(error, KafkaError | OSError)
                logger.warning(
                    "%s cannot be compacted: %s", partition.name, error,
                    exc_info=None if known else error,
                )  # fmt: skip
                self._note_failure(partition.name)
        self._tell(now_ms, [found for _, found in plans])
        due = [item for item in plans if item[1].is_due(item[0].settings)]
        return max(due, key=lambda item: item[1].dirty_ratio, default=None)

    def _tell(self, now_ms: int, plans: list[CompactionPlan]) -> None:
        """Update the metrics after each pass."""
        failed = [failures.plan for failures in self._failures.values()]
        known = [*plans, *(found for found in failed if found is not None)]
        for metric, value in (
            ("max_dirty_ratio", max((found.dirty_ratio for found in known), default=0)),
            ("uncleanable_partitions", len(failed)),
            ("uncleanable_bytes", sum(found.dirty_bytes for found in failed if found is not None)),
            ("last_look_timestamp_seconds", now_ms / 1000),
        ):
            self._metrics.set(f"headrace_compaction_{metric}", value)

    def _plan(self, partition: Partition, now_ms: int) -> CompactionPlan:
        cleaned_to = self._home(partition.name).checkpoints.cleaned_to(partition.name)
        return plan_for(
            partition.replica.log, cleaned_to, partition.replica.last_stable_offset, now_ms
        )

    def _home(self, name: TopicPartition) -> LogDirectory:
        home = self._replicas.directories.home_of(name)
        if home is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the topic was deleted")
        return home

    def _note_failure(self, name: TopicPartition, found: CompactionPlan | None = None) -> None:
        known = self._failures.get(name)
        count = known.count + 1 if known is not None else 1
        backoff_ms = max(self._settings.integer("log.cleaner.backoff.ms"), 1000)
        rest_ms = min(backoff_ms << min(count, 20), _REST_MAX_MS)
        rest_until = self._clock.monotonic() + rest_ms / 1000
        self._failures[name] = _Failures(count, rest_until, found)

    # -- doing ----------------------------------------------------------------------------------

    async def _compact(self, worker: Worker, partition: Partition, found: CompactionPlan) -> None:
        name, log = partition.name, partition.replica.log
        home = self._home(name)
        self._in_progress.add(name)
        log.compacting = True
        try:
            loop = asyncio.get_running_loop()
            # After a crash, recovery does not scan what was compacted: it has gaps, which would
            # look like damage.
            await loop.run_in_executor(self._executor, home.checkpoint)
            found = self._plan(partition, self._clock.now_ms())
            if not found.is_due(log.settings):
                return
            await worker.begin(job_for(log, found, self._limits(), self._clock.now_ms()))
            finished = await self._take_answers(worker, log)
            if home.has(name):
                home.checkpoints.set_cleaned_to(name, finished.clean_to)
            await loop.run_in_executor(self._executor, _save, home, log)
            self._failures.pop(name, None)
            _report(name, found, finished)
            self._count(name, finished)
        except _Stale as reason:
            logger.info("cancelled the compaction of %s: %s", name, reason)
            self._metrics.add("headrace_compaction_runs_total", 1, "given_up")
            await self._discard(worker, log)
        except KafkaError as error:
            logger.error("the compaction of %s failed: %s", name, error)
            self._metrics.add("headrace_compaction_runs_total", 1, "failed")
            self._note_failure(name, found)
            await self._discard(worker, log)
        finally:
            log.compacting = False
            self._in_progress.discard(name)

    def _count(self, name: TopicPartition, run: Finished) -> None:
        metrics, topic = self._metrics, name.topic
        metrics.add("headrace_compaction_runs_total", 1, "finished")
        for what, read, kept in (
            ("bytes", run.bytes_read, run.bytes_kept),
            ("records", run.records_read, run.records_kept),
        ):
            metrics.add(f"headrace_compaction_read_{what}_total", read, topic)
            metrics.add(f"headrace_compaction_removed_{what}_total", read - kept, topic)
        metrics.add("headrace_compaction_seconds_total", run.seconds)
        metrics.set("headrace_compaction_last_seconds", run.seconds)
        ended_s = self._clock.now_ms() / 1000
        metrics.set("headrace_compaction_last_end_timestamp_seconds", ended_s)

    async def _take_answers(self, worker: Worker, log: Log) -> Finished:
        """Swap in each group of segments when it is complete, until the job is finished."""
        before = {segment.base_offset: segment for segment in log.segments}
        generation = log.generation
        while True:
            answer = await worker.answer()
            if log.availability.offline is not None:
                raise _Stale(log.availability.offline)
            if isinstance(answer, Finished):
                return answer
            if isinstance(answer, Failed):
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, answer.reason)
            self._put_in_place(log, [before[base] for base in answer.sources], answer, generation)
            await asyncio.sleep(0)

    def _put_in_place(self, log: Log, old: list[Segment], answer: Cleaned, generation: int) -> None:
        if log.generation != generation or not {*old} <= {*log.segments}:
            raise _Stale("segments were deleted or truncated meanwhile")
        if "compact" not in log.settings.cleanup_policy:
            raise _Stale("cleanup.policy was changed")
        put_in_place(log, old, answer.size, answer.aborted)

    async def _discard(self, worker: Worker, log: Log) -> None:
        worker.kill()
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._executor, remove_cleaned, log.disk, log.folder)

    def _limits(self) -> CompactionLimits:
        settings = self._settings
        threads = max(settings.integer("log.cleaner.threads"), 1)
        return CompactionLimits(
            settings.integer("log.cleaner.dedupe.buffer.size") // threads,
            settings.real("log.cleaner.io.buffer.load.factor"),
            settings.real("log.cleaner.io.max.bytes.per.second") / threads,
            self._replicas.max_decompressed_bytes,
        )


def _save(home: LogDirectory, log: Log) -> None:
    """Make the swap and the checkpoint durable."""
    try:
        log.disk.sync_folder(log.folder)
        log.transactions.save_checksums(log.disk, log.folder)
        home.check_online()
        home.checkpoints.write_cleaned_to()
    except OSError as error:
        if log.availability.offline is None:
            raise log.availability.fail(
                f"cannot save the compaction checkpoint of {log.folder}: {error}"
            ) from error


def _report(name: TopicPartition, found: CompactionPlan, finished: Finished) -> None:
    logger.info(
        "compacted %s, dirty from offset %d to %d: kept %d of %d records, %.1f of %.1f MB, "
        "in %.1f s (%.1f MB/s)",
        name,
        found.first_dirty,
        finished.clean_to,
        finished.records_kept,
        finished.records_read,
        finished.bytes_kept / _MIB,
        finished.bytes_read / _MIB,
        finished.seconds,
        finished.bytes_read / _MIB / max(finished.seconds, 0.001),
    )
