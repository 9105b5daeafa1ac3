"""The command topic: what a server knows, and the only way to change it.

The server writes in transactions, as the only producer of the topic's transactional id. A server
that starts takes the id over: the next write of an earlier server fails. A server acts only on
records that it has read back.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence

from headrace.client.cluster import Cluster
from headrace.client.committed_records import TopicRecord
from headrace.client.config import ClientConfig
from headrace.client.errors import ClientError
from headrace.errors import ErrorCode, KafkaError
from headrace.service.errors import HttpError, TopicUnusable
from headrace.service.internal_topics import (
    Follow,
    InternalTopic,
    KeyValue,
    TopicFollower,
    TopicWriter,
    make_topics,
)
from headrace.types import TopicPartition

log = logging.getLogger("headrace.sql")

START_TIMEOUT_S = 60.0
WRITE_TIMEOUT_S = 30.0
FENCED = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)


class WriterFenced(Exception):
    """Another server has become the writer of the command topic."""


class CommandTopic:
    """Follows and writes the topic; methods and callbacks run in the event loop."""

    def __init__(
        self, config: ClientConfig, topic: InternalTopic, take: Callable[[TopicRecord], None]
    ) -> None:
        """`take` is called with each record, in order."""
        self._config = config
        self._topic = topic
        self._take = take
        self._partition = TopicPartition(topic.name, 0)
        self._follower: TopicFollower | None = None
        self._writer: TopicWriter | None = None
        self.cluster_id = ""

    @property
    def name(self) -> str:
        return self._topic.name

    @property
    def is_running(self) -> bool:
        return self._follower is not None and self._follower.is_running

    async def start(self) -> None:
        """Creates the topic if there is none, and reads it to its end; StartFailure."""
        topic = self._topic
        partitions = await asyncio.to_thread(self._prepare)
        if partitions != 1:
            raise TopicUnusable(
                f"topic {topic.name} ({topic.setting}) has {partitions} partitions but must have "
                "exactly one, because its records need a total order"
            )
        self._writer = TopicWriter(self._config, {topic.name: 1}, f"{topic.name}-writer")
        self._follower = TopicFollower(self._config, [Follow(topic.name, 1, self._take)])
        self._follower.start()
        await self._read_to_end()

    async def take_over(self) -> None:
        """Become the writer, and read what the earlier one has written."""
        assert self._writer is not None, "the topic is started"
        try:
            await self._writer.take_over()
        except (KafkaError, ClientError) as error:
            raise TopicUnusable(
                f"this server cannot become the writer of topic {self.name}: {error}"
            ) from None
        await self._read_to_end()

    async def _read_to_end(self) -> None:
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                await self.refresh()
        except (TimeoutError, HttpError):
            raise TopicUnusable(
                f"topic {self.name} could not be read to its end within {START_TIMEOUT_S:.0f} s"
            ) from None

    def _prepare(self) -> int:
        with Cluster(self._config) as cluster:
            counts = make_topics(cluster, [self._topic])
            self.cluster_id = cluster.metadata(()).cluster_id or ""
        return counts[self._topic.name]

    async def stop(self) -> None:
        """Returns when nothing is read or written any more."""
        if self._follower is not None:
            await asyncio.to_thread(self._follower.stop)
        if self._writer is not None:
            await asyncio.to_thread(self._writer.close)

    async def end(self) -> int:
        """The offset of the next record. It grows with each write."""
        assert self._writer is not None, "the topic is started"
        try:
            async with asyncio.timeout(WRITE_TIMEOUT_S):
                return (await self._writer.ends([self._partition]))[self._partition]
        except (KafkaError, ClientError, TimeoutError) as error:
            raise HttpError(500, f"Topic {self.name} cannot be read: {error}") from error

    async def refresh(self) -> None:
        """Returns when everything that is in the topic now has been passed to `take`."""
        await self._reach(await self.end())

    async def write(self, records: Sequence[KeyValue]) -> int:
        """The offset of the last of these records, which are stored and read back.

        They are written in one transaction. WriterFenced if another server has taken over.
        """
        assert self._writer is not None, "the topic is started"
        try:
            async with asyncio.timeout(WRITE_TIMEOUT_S):
                ends = await self._writer.write(self.name, records)
                await self._reach(ends[self._partition])
        except KafkaError as error:
            if error.code in FENCED:
                raise WriterFenced from error
            raise HttpError(500, f"Topic {self.name} cannot be written: {error}") from error
        except ClientError as error:
            raise HttpError(500, f"Topic {self.name} cannot be written: {error}") from error
        except TimeoutError:
            raise HttpError(
                500,
                f"Topic {self.name} could not be written and read back within "
                f"{WRITE_TIMEOUT_S:.0f} s; it is unknown whether the statement is stored. "
                "LIST and DESCRIBE show whether it is",
            ) from None
        return ends[self._partition] - 1

    async def _reach(self, end: int) -> None:
        assert self._follower is not None, "the topic is started"
        await self._follower.reached({self._partition: end})
