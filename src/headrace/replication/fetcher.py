"""The replica fetcher: fetches from one leader for all partitions that follow it.

A new follower first truncates its log to where it agrees with the leader's (`truncation.py`), and
then appends the leader's batches unchanged after a check of their checksums. There is one
incremental fetch session per leader; a partition with an error is delayed for a while.
"""

import asyncio
import contextlib
import logging
import struct
from collections.abc import Iterable
from concurrent.futures import Executor

from headrace.client.aio import AsyncConnection, Connect, Interrupted
from headrace.client.errors import ClientError, Unreachable
from headrace.client.protocol import Response
from headrace.clock import Clock
from headrace.cluster.image import Broker
from headrace.errors import ErrorCode, KafkaError
from headrace.replication.flusher import flush_log
from headrace.replication.forks import ForkInProgress
from headrace.replication.partition import Partition
from headrace.replication.throttle import Throttle
from headrace.replication.truncation import next_step
from headrace.settings import Settings
from headrace.types import Epoch, TopicPartition
from headrace.wire import replica_fetch
from headrace.wire.batch import CHECKSUMMED_FROM, HEADER_BYTES, read_header
from headrace.wire.checksum import crc32c
from headrace.wire.replica_fetch import FetchAnswer, FetchedPartition, FetchLimits, PartitionToFetch

logger = logging.getLogger(__name__)

_PAUSE_S = 0.1
"""The delay after an error of a partition, and after the first failed connection to the leader."""
_CONNECT_TIMEOUT_S = 5.0

_Key = tuple[bytes, int]


class _Followed:
    """One partition that follows the leader."""

    __slots__ = ("epoch", "logged_error", "not_before", "partition", "session_offset", "truncated")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.epoch: Epoch = partition.leader_epoch
        self.truncated = False
        self.session_offset = -1
        """The fetch offset in the fetch session; -1 if the partition is not in the session."""
        self.not_before = 0.0
        self.logged_error = ""
        """The last error that was logged; it is not logged again at each attempt."""

    @property
    def key(self) -> _Key:
        return self.partition.topic_id.bytes, self.partition.name.partition

    @property
    def is_current(self) -> bool:
        """Whether the partition still follows in that epoch, and has a disk to write to."""
        partition, log = self.partition, self.partition.replica.opened
        return (
            partition.hosted
            and not partition.leads
            and not partition.closed
            and partition.leader_epoch == self.epoch
            and (log is None or log.availability.offline is None)
        )


class Fetcher:
    """Follows all partitions that one broker leads."""

    def __init__(
        self,
        leader: Broker,
        me: Broker,
        settings: Settings,
        executor: Executor,
        clock: Clock,
        throttle: Throttle,
        connect: Connect,
    ) -> None:
        self.leader = leader
        self._connect = connect
        self.me = me
        self._clock = clock
        self._executor = executor
        self._throttle = throttle
        self._limits = FetchLimits(
            settings.integer("replica.fetch.wait.max.ms"),
            settings.integer("replica.fetch.min.bytes"),
            settings.integer("replica.fetch.response.max.bytes"),
            settings.integer("replica.fetch.max.bytes"),
        )
        self._timeout_s = settings.integer("replica.socket.timeout.ms") / 1000
        self._longest_pause_s = max(settings.integer("replica.fetch.backoff.ms") / 1000, _PAUSE_S)
        self._pause_s = _PAUSE_S
        self._followed: dict[_Key, _Followed] = {}
        self._forgotten: list[_Key] = []
        self._session = (0, 0)
        self._changed = asyncio.Event()
        # The request in flight, if it is a long poll.
        self._long_poll: AsyncConnection | None = None
        self._logged_error = ""
        """The last error of the leader that was logged; empty while fetching works."""

    def follow(self, partitions: Iterable[Partition]) -> None:
        """Follow these, and nothing else."""
        wanted = {(one.topic_id.bytes, one.name.partition): one for one in partitions}
        for key in [key for key in self._followed if key not in wanted]:
            self._forget(key)
        for key, partition in wanted.items():
            known = self._followed.get(key)
            if known is not None and known.is_current and known.partition is partition:
                continue
            if known is not None:
                self._forget(key)
            self._followed[key] = _Followed(partition)
            if self._long_poll is not None:
                # Acknowledgements of new partitions wait for this fetch: interrupt the long poll.
                self._long_poll.interrupt()
        self._changed.set()

    def _forget(self, key: _Key) -> None:
        if self._followed.pop(key).session_offset >= 0:
            self._forgotten.append(key)

    async def run(self) -> None:
        """Follow until cancelled."""
        while True:
            try:
                await self._follow_connected()
            except Interrupted:
                continue
            except Exception as error:
                self._log_failure(error)
            await asyncio.sleep(self._pause_s)
            self._pause_s = min(2 * self._pause_s, self._longest_pause_s)

    def _log_failure(self, error: Exception) -> None:
        """Log why the leader cannot be fetched from, unless that was logged before."""
        if self._logged_error != repr(error):
            self._logged_error = repr(error)
            known = isinstance(error, ClientError)
            logger.log(
                logging.INFO if known else logging.ERROR,
                "cannot fetch from broker %d: %s; retrying", self.leader.id, error,
                exc_info=None if known else error,
            )  # fmt: skip

    def _fetched(self) -> None:
        """The leader has answered a fetch: the next failure is retried soon, and logged."""
        self._pause_s = _PAUSE_S
        if self._logged_error:
            self._logged_error = ""
            logger.info("fetching from broker %d again", self.leader.id)

    async def _follow_connected(self) -> None:
        leader = self.leader
        client_id = f"broker-{self.me.id}-fetcher"
        timeout_s = min(self._timeout_s, _CONNECT_TIMEOUT_S)
        peer = await self._connect(leader.host, leader.port, client_id, timeout_s)
        try:
            self._begin_session()
            while True:
                ready = self._ready()
                if not ready and not self._forgotten:
                    await self._wait_for_work()
                    continue
                new = [one for one in ready if not one.truncated]
                if new:
                    await self._truncate(peer, new)
                await self._fetch(peer, [one for one in ready if one.truncated])
                self._fetched()
        finally:
            peer.close()

    async def _wait_for_work(self) -> None:
        """Wait until there is a partition to follow, or until a delay has passed."""
        self._changed.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PAUSE_S if self._followed else None):
                await self._changed.wait()

    def _ready(self) -> list[_Followed]:
        now = asyncio.get_running_loop().time()
        for key in [key for key, one in self._followed.items() if not one.is_current]:
            self._forget(key)
        if self._throttle.is_on and self._throttle.is_exceeded:
            for one in self._followed.values():
                if one.not_before <= now and self._throttle.applies_to(one.partition):
                    self._delay(one)
        return [one for one in self._followed.values() if one.not_before <= now]

    def _cannot_follow(self, one: _Followed, error: Exception) -> None:
        """Log an error of one partition once, and retry after a delay."""
        if isinstance(error, ForkInProgress):
            self._delay(one)
            return
        logged_error = error.message if isinstance(error, KafkaError) else repr(error)
        if one.logged_error != logged_error:
            one.logged_error = logged_error
            known = isinstance(error, KafkaError)
            logger.error(
                "cannot follow %s: %s; it is tried again", one.partition.name, logged_error,
                exc_info=None if known else error,
            )  # fmt: skip
        self._delay(one)

    def _delay(self, one: _Followed) -> None:
        """Delay a partition; it leaves the fetch session until then."""
        one.not_before = asyncio.get_running_loop().time() + _PAUSE_S
        if one.session_offset >= 0:
            one.session_offset = -1
            self._forgotten.append(one.key)

    def _begin_session(self) -> None:
        self._session = (0, 0)
        self._forgotten.clear()
        for one in self._followed.values():
            one.session_offset = -1

    # ------------------------------------------------------------------------------ truncation

    async def _truncate(self, peer: AsyncConnection, new: list[_Followed]) -> None:
        """Truncate each log to where it agrees with the leader's."""
        epochs: dict[_Key, Epoch] = {}
        for one in new:
            try:
                latest = one.partition.replica.log.epochs.latest
                # A fetch offset acknowledges everything below it.
                one.partition.check_whole()
            except Exception as error:
                self._cannot_follow(one, error)
                continue
            if (
                latest < 0
                or one.partition.replica.log.end_offset == one.partition.replica.log.start_offset
            ):
                one.truncated = True
            else:
                epochs[one.key] = latest
        while epochs:
            answers = await self._ends_of_epochs(peer, epochs)
            for key in list(epochs):
                followed = self._followed.get(key)
                answer = answers.get(key)
                again = None
                if followed is not None and followed.is_current and answer is not None:
                    again = self._truncate_one(followed, answer)
                elif followed is not None:
                    self._delay(followed)
                if again is None:
                    del epochs[key]
                else:
                    epochs[key] = again

    def _truncate_one(self, one: _Followed, answer: tuple[Epoch, int]) -> Epoch | None:
        """Truncate the log by the leader's answer; the epoch to ask about next, if any."""
        partition, log = one.partition, one.partition.replica.log
        step = next_step(log.epochs, log.end_offset, partition.replica.high_watermark, answer)
        try:
            if step.end < log.end_offset:
                logger.info("truncating %s from %d to %d, where it diverges from its leader",
                            partition.name, log.end_offset, step.end)  # fmt: skip
                partition.replica.truncate_to(step.end)
        except Exception as error:
            self._cannot_follow(one, error)
            return None
        one.truncated = step.epoch is None
        return step.epoch

    async def _ends_of_epochs(
        self, peer: AsyncConnection, epochs: dict[_Key, Epoch]
    ) -> dict[_Key, tuple[Epoch, int]]:
        """OffsetForLeaderEpoch: (epoch, its end) of each partition that the leader knows."""
        from kio.schema.offset_for_leader_epoch.v4.response import OffsetForLeaderEpochResponse

        from headrace.replication.epoch_request import epoch_request

        asked = {self._followed[key].partition.name: key for key in epochs}
        request = epoch_request(
            self.me.id,
            [(name, self._followed[key].epoch, epochs[key]) for name, key in asked.items()],
        )
        answer = await peer.ask(request, OffsetForLeaderEpochResponse)
        found: dict[_Key, tuple[Epoch, int]] = {}
        for topic in answer.topics:
            for row in topic.partitions:
                key = asked.get(TopicPartition(str(topic.topic), int(row.partition)))
                if key is not None and not row.error_code:
                    found[key] = (int(row.leader_epoch), int(row.end_offset))
        return found

    # -------------------------------------------------------------------------------- fetching

    async def _fetch(self, peer: AsyncConnection, ready: list[_Followed]) -> None:
        """Send one Fetch and apply its response."""
        wanted = []
        for one in ready:
            log = one.partition.replica.log  # which `_truncate` has opened
            if one.session_offset != log.end_offset:
                one.session_offset = log.end_offset
                topic_id, index = one.key
                wanted.append(
                    PartitionToFetch(
                        topic_id, index, one.epoch, one.session_offset, log.start_offset
                    )
                )
        # A leader adds before it forgets: a re-added partition must not be in both lists.
        again = {(one.topic_id, one.partition) for one in wanted}
        forgotten = [key for key in self._forgotten if self._session[0] and key not in again]
        self._forgotten = []
        body = replica_fetch.fetch_request(
            (self.me.id, self.me.epoch), self._limits, self._session, wanted, forgotten
        )
        self._long_poll = peer
        try:
            key, newest, oldest = replica_fetch.API_KEY, replica_fetch.VERSION, replica_fetch.OLDEST
            version = peer.conversation.version(key, newest, oldest)
            raw = await peer.ask_encoded(key, version, body)
        finally:
            self._long_poll = None
        try:
            answer = replica_fetch.read_answer(raw.data, raw.start, raw.end)
        except (ValueError, IndexError, struct.error) as error:
            raise Unreachable(f"an answer to Fetch cannot be read: {error}") from error
        if answer.error:
            self._begin_session()
            if answer.error not in (
                ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
                ErrorCode.INVALID_FETCH_SESSION_EPOCH,
            ):
                await asyncio.sleep(_PAUSE_S)
            return
        epoch = self._session[1]
        self._session = (answer.session_id, epoch + 1) if answer.session_id else (0, 0)
        if not answer.session_id:
            for one in self._followed.values():
                one.session_offset = -1
        await self._take(raw, answer)

    async def _take(self, raw: Response, answer: FetchAnswer) -> None:
        """Append the fetched batches."""
        flushes = []
        with memoryview(raw.data) as view:
            for fetched in answer.partitions:
                one = self._followed.get((fetched.topic_id, fetched.partition))
                if one is None or not one.is_current or not one.truncated:
                    continue  # the fetch may have been sent before the log was truncated
                try:
                    self._append_one(one, fetched, view)
                except KafkaError as error:
                    self._cannot_follow(one, error)
                except Exception as error:
                    one.truncated = False
                    self._cannot_follow(one, error)
                if one.partition.flushes_first and fetched.end > fetched.start:
                    flushes.append(one)
        loop = asyncio.get_running_loop()
        for one in flushes:
            # The next fetch offset acknowledges everything below it.
            outcome = await loop.run_in_executor(self._executor, flush_log, one.partition)
            if isinstance(outcome, KafkaError):
                self._cannot_follow(one, outcome)

    def _append_one(self, one: _Followed, fetched: FetchedPartition, view: memoryview) -> None:
        partition = one.partition
        log = partition.replica.log
        if fetched.error:
            self._failed(one, fetched)
            return
        if fetched.end > fetched.start:
            _check_batches(view, fetched.start, fetched.end)
            if self._throttle.is_on and self._throttle.applies_to(partition):
                self._throttle.copied(fetched.end - fetched.start)
            log.append_replica(view, fetched.start, fetched.end, self._clock.now_ms())
            partition.traffic.replication_bytes_in += fetched.end - fetched.start
        if fetched.log_start > log.start_offset:
            log.delete_records_before(min(fetched.log_start, log.end_offset))
        partition.replica.use_leader_high_watermark(fetched.high_watermark)

    def _failed(self, one: _Followed, fetched: FetchedPartition) -> None:
        partition = one.partition
        if fetched.error == ErrorCode.OFFSET_OUT_OF_RANGE:
            if fetched.log_start > partition.replica.log.end_offset:
                logger.warning(
                    "%s ended at %d, and its leader's log starts at %d: restarting the log there",
                    partition.name, partition.replica.log.end_offset, fetched.log_start,
                )  # fmt: skip
                partition.replica.restart_at(fetched.log_start)
                return
            one.truncated = False
        self._delay(one)


def _check_batches(view: memoryview, pos: int, end: int) -> None:
    """ValueError unless these are whole batches with valid checksums."""
    while pos < end:
        if end - pos < HEADER_BYTES:
            raise ValueError("incomplete batch")
        header = read_header(view, pos)
        stop = pos + header.size_bytes
        if not pos + HEADER_BYTES <= stop <= end:
            raise ValueError("batch exceeds the response")
        if crc32c(view[pos + CHECKSUMMED_FROM : stop]) != header.crc:
            raise ValueError(f"batch at offset {header.base_offset} fails its checksum")
        pos = stop
