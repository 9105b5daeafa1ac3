"""Moving replicas of this broker from one data folder to another while they are read and written.

Records are copied into `<topic>-<partition>.<id>-future` while the partition is in use. When the
copy is complete, it replaces the partition between two requests:

    1. the rest is copied and synced; `moved-from` in the copy's folder marks it as complete
    2. the copy's folder gets the partition's name, and the event loop uses it from here on
    3. a worker syncs that, saves the offsets, and only then removes the old folder

A crash before 2 leaves a partition and an unfinished copy: the move continues, or starts over if
the stop was not clean. After it two folders may have one name; the one with `moved-from` is
valid. A partition is not compacted while it moves: compaction could remove a tombstone that the
copy needs.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from functools import partial

from headrace.disk import replace_file
from headrace.errors import ErrorCode, KafkaError
from headrace.log.checkpoints import MOVED_FROM, PARTITION_METADATA, read_topic_id
from headrace.log.directories import LogDirectories
from headrace.log.directory import LogDirectory
from headrace.log.log import Log
from headrace.replication.partition import Partition
from headrace.settings import Settings
from headrace.types import TopicPartition
from headrace.wire.batch import OVERHEAD, read_header

logger = logging.getLogger(__name__)

_READ_BYTES = 256 * 1024
_APPEND_BYTES = 64 * 1024
_APPEND_BATCHES = 100
"""Bytes appended to a copy between two yields: less than a millisecond of work."""
_LAST_BYTES = 256 * 1024
"""Bytes that may be missing when writes are paused for the rest; doubles with every attempt, so
that the move also ends if clients write faster than it copies."""
_PIECES_PER_SECOND = 4
"""The smallest piece where the rate is limited, so that a new limit soon takes effect."""
_SHORT_S = 0.001
_COMPACTION_CHECK_S = 0.1


class _Cancelled(Exception):
    """The move was cancelled."""


class _Move:
    """The move of one partition."""

    def __init__(self, partition: Partition, target: LogDirectory) -> None:
        self.partition = partition
        self.target = target
        self.cancelled = False
        self.generation = -1
        """The number of truncations of the log when the copy began; after another truncation the
        copy is no longer a prefix of the log."""
        self.task: asyncio.Task[None] | None = None

    @property
    def name(self) -> TopicPartition:
        return self.partition.name

    def continues(self, earlier: "_Move") -> bool:
        """Whether this move can continue the other's copy."""
        return self.partition is earlier.partition and self.target is earlier.target


class Moves:
    """All moves of this broker."""

    def __init__(
        self,
        directories: LogDirectories,
        executor: Executor,
        settings_now: Callable[[], Settings],
        flush_later: Callable[[Partition], None],
    ) -> None:
        self._directories = directories
        self._executor = executor
        self._settings_now = settings_now
        self._flush_later = flush_later
        self._moves: dict[TopicPartition, _Move] = {}
        self._slots: asyncio.Semaphore | None = None

    @property
    def under_way(self) -> int:
        """How many replicas are moving or queued."""
        return len(self._moves)

    def begin(self, partition: Partition, target: LogDirectory) -> None:
        """Move the partition to `target`; this cancels a running move to another folder.

        KafkaError 56 if no copy can be made there.
        """
        name = partition.name
        under_way = self._moves.get(name)
        if under_way is not None and not under_way.cancelled:
            if under_way.target is target:
                return
            under_way.cancelled = True
        home = self._directories.home_of(name)
        if home is None:
            self._directories.prefer(name, target)
        elif home is not target:
            self._start(_Move(partition, target), under_way)

    def resume(self, partition_of: Callable[[TopicPartition], Partition | None]) -> None:
        """Continue the moves that the last run did not finish."""
        for directory in self._directories.healthy:
            for name in [*directory.futures]:
                partition = partition_of(name)
                home = self._directories.home_of(name)
                if partition is not None and home is not None and home is not directory:
                    self._start(_Move(partition, directory), self._moves.get(name))
                elif len(self._directories.healthy) == len(self._directories.all):
                    self._executor.submit(_remove, name, directory.futures.discard(name))

    def stop(self) -> None:
        """Stop all moves; the next start continues them."""
        for move in self._moves.values():
            if move.task is not None:
                move.task.cancel()

    def _start(self, move: _Move, earlier: _Move | None) -> None:
        if earlier is None and move.name not in move.target.futures:
            self._create(move)  # immediately, so that DescribeLogDirs shows the copy
        self._moves[move.name] = move
        move.task = asyncio.get_running_loop().create_task(self._run(move, earlier))

    def _create(self, move: _Move) -> Log:
        partition = move.partition
        return move.target.futures.create(move.name, partition.topic_id, partition.settings)

    # -- one move -------------------------------------------------------------------------------

    async def _run(self, move: _Move, earlier: _Move | None) -> None:
        if earlier is not None and earlier.task is not None:
            await asyncio.wait([earlier.task])
        if self._slots is None:
            threads = self._settings_now().value("num.replica.alter.log.dirs.threads")
            count = threads if isinstance(threads, int) else len(self._directories.all)
            self._slots = asyncio.Semaphore(count)
        try:
            async with self._slots:
                await self._move(move)
        except _Cancelled:
            logger.info("cancelled the move of %s to %s", move.name, move.target.path)
        except Exception as error:
            known = isinstance(error, KafkaError | OSError)
            logger.error(
                "moving %s to %s failed: %s", move.name, move.target.path, error,
                exc_info=None if known else error,
            )  # fmt: skip
        later = self._moves.get(move.name)
        if later is move:
            del self._moves[move.name]
        wanted = later is not None and later is not move and later.continues(move)
        if move.name in move.target.futures and not wanted:
            try:
                await self._in_worker(move.target.futures.discard(move.name))
            except (KafkaError, OSError) as error:
                logger.error("cannot remove the unfinished copy of %s: %s", move.name, error)

    async def _move(self, move: _Move) -> None:
        partition, target = move.partition, move.target
        while partition.replica.log.compacting:
            await asyncio.sleep(_COMPACTION_CHECK_S)
            self._check(move)
        source = self._directories.home_of(move.name)
        self._check(move)
        copy = await self._opened(move, source)
        logger.info("moving %s to %s", move.name, target.path)
        budget = _LAST_BYTES
        while True:
            await self._follow(move, copy)
            await self._in_worker(copy.flush)
            self._check(move)
            marker = f"{copy.folder}/{MOVED_FROM}"
            origin = partition.replica.log.folder.encode()
            await self._in_worker(partial(replace_file, target.disk, marker, origin))
            self._check(move)
            if move.generation == partition.replica.log.generation and self._catch_up(
                move, copy, budget
            ):
                break
            budget *= 2
        copy.flush()
        finish = self._directories.exchange(move.name, target)
        copy.use_settings(partition.settings)
        partition.replica.opened = copy
        if partition.flushes_first:
            self._flush_later(partition)  # a request may wait for a flush of the old log
        await self._in_worker(finish)
        logger.info("moved %s to %s", move.name, target.path)

    async def _opened(self, move: _Move, source: LogDirectory | None) -> Log:
        """The copy: a new one, or that of an earlier run if both folders were closed cleanly."""
        target = move.target
        future = target.futures.get(move.name)
        if future is not None and future.log is not None:
            return future.log
        if future is not None:
            clean = (
                target.folder.stopped_cleanly
                and source is not None
                and source.folder.stopped_cleanly
            )
            topic_id = read_topic_id(target.disk, f"{future.folder}/{PARTITION_METADATA}")
            if clean and topic_id == move.partition.topic_id:
                settings = move.partition.settings
                copy = await asyncio.get_running_loop().run_in_executor(
                    self._executor, target.futures.open, move.name, settings
                )
                if copy.end_offset <= move.partition.replica.log.end_offset:
                    move.generation = move.partition.replica.log.generation
                    return copy
            await self._in_worker(target.futures.discard(move.name))
        return self._create(move)

    async def _follow(self, move: _Move, copy: Log) -> None:
        """Copy until nothing is left, yielding to other tasks in between."""
        loop = asyncio.get_running_loop()
        while True:
            self._check(move)
            source = move.partition.replica.log
            if source.generation != move.generation:
                if copy.end_offset > 0:
                    copy.restart_at(source.start_offset)
                move.generation = source.generation
            rate = self._settings_now().integer("replica.alter.log.dirs.io.max.bytes.per.second")
            size = min(_READ_BYTES, max(rate // _PIECES_PER_SECOND, 1))
            piece = source.read(_next_offset(source, copy), size, source.end_offset, True)
            if piece is None:
                return
            data = await loop.run_in_executor(self._executor, piece.read)
            if source.generation != move.generation:
                continue
            view = memoryview(data)
            _begin_at(source, copy, read_header(view, 0)[0])
            for start, end in _slices(view):
                copy.append_replica(view, start, end, move.target.clock.now_ms())
                await asyncio.sleep(0)
            if len(data) / rate > _SHORT_S:
                await asyncio.sleep(len(data) / rate)

    def _catch_up(self, move: _Move, copy: Log, budget: int) -> bool:
        """Copy the rest without yielding; False if it is more than `budget` bytes."""
        source = move.partition.replica.log
        while True:
            offset = _next_offset(source, copy)
            piece = source.read(offset, _READ_BYTES, source.end_offset, True)
            if piece is None:
                break
            budget -= piece.length
            if budget < 0:
                return False
            view = memoryview(piece.read())
            _begin_at(source, copy, read_header(view, 0)[0])
            copy.append_replica(view, 0, len(view), move.target.clock.now_ms())
        if copy.end_offset < source.end_offset:
            copy.skip_to(source.end_offset)
        return True

    def _check(self, move: _Move) -> None:
        if move.cancelled or move.partition.closed or not move.partition.hosted:
            raise _Cancelled
        if move.target.offline is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"it is offline: {move.target.offline}")

    async def _in_worker(self, work: Callable[[], object]) -> None:
        await asyncio.get_running_loop().run_in_executor(self._executor, work)


def _remove(name: TopicPartition, work: Callable[[], None]) -> None:
    try:
        work()
    except OSError as error:
        logger.error("cannot remove the unfinished copy of %s: %s", name, error)


def _next_offset(source: Log, copy: Log) -> int:
    return max(copy.end_offset, source.start_offset)


def _begin_at(source: Log, copy: Log, offset: int) -> None:
    """Retention may have deleted records beyond the copy's end: the copy must not get a gap."""
    if copy.end_offset < source.start_offset:
        copy.restart_at(offset)


def _slices(view: memoryview) -> Iterator[tuple[int, int]]:
    """Whole batches, few enough that appending them does not delay other requests."""
    start = end = batches = 0
    while end < len(view):
        end += read_header(view, end)[1] + OVERHEAD
        batches += 1
        if end - start >= _APPEND_BYTES or batches == _APPEND_BATCHES:
            yield start, end
            start, batches = end, 0
    if end > start:
        yield start, end
