"""The committed records of a topic as they come, for PRINT."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from headrace.client.cluster import Cluster
from headrace.client.config import ClientConfig
from headrace.client.errors import ClientError, check, is_retriable
from headrace.client.first_batches import fetch_partitions
from headrace.client.offsets import COMMITTED, EARLIEST, LATEST, list_offsets
from headrace.client.topics import describe_topics
from headrace.errors import KafkaError
from headrace.sql.views.fetched_records import committed_of
from headrace.types import TopicPartition
from headrace.wire.records import Record

WAIT_MS = 200
PARTITION_BYTES = 256 << 10

Tailed = tuple[int, Record]
"""A partition and a record of it."""


class PrintedTopic:
    """Reads a topic in a thread of its own."""

    def __init__(self, config: ClientConfig, topic: str) -> None:
        self._topic = topic
        self._cluster = Cluster(config)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="sql-tail")
        self._positions: dict[TopicPartition, int] = {}

    async def start(self, *, from_beginning: bool) -> None:
        """Find the first offsets; KafkaError, ClientError."""

        def find() -> None:
            found = describe_topics(self._cluster, [self._topic]).get(self._topic)
            if found is None or not found.partitions:
                raise ClientError(f"topic {self._topic} does not exist")
            partitions = [TopicPartition(self._topic, index) for index in found.partitions]
            where = EARLIEST if from_beginning else LATEST
            wanted = dict.fromkeys(partitions, where)
            self._positions = list_offsets(self._cluster, wanted, COMMITTED)

        await asyncio.get_running_loop().run_in_executor(self._thread, find)

    async def batches(self) -> AsyncIterator[Sequence[Tailed]]:
        """Records in the order of their timestamps as far as they arrive together; endless."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                found = await loop.run_in_executor(self._thread, self._poll)
            except (KafkaError, ClientError) as error:
                if not is_retriable(error):
                    raise
                self._cluster.renew()
                await asyncio.sleep(self._cluster.config.retry_backoff_s)
                continue
            if found:
                yield found

    def _poll(self) -> list[Tailed]:
        found: list[Tailed] = []
        leaders = self._cluster.by_leader(self._positions)
        for broker, topics in leaders.items():
            wanted = {each: self._positions[each] for rows in topics.values() for each in rows}
            answers = fetch_partitions(
                self._cluster, broker, wanted, PARTITION_BYTES, COMMITTED, WAIT_MS // len(leaders)
            )
            for partition, answer in answers.items():
                check(int(answer.error or 0), f"reading {partition}")
                records, following = committed_of(answer, wanted[partition])
                self._positions[partition] = following
                found += ((partition.partition, record) for record in records)
        return sorted(found, key=lambda each: each[1].timestamp)

    def close(self) -> None:
        """Returns at once. The thread closes its connections when its last request has ended."""
        self._thread.submit(self._cluster.close)
        self._thread.shutdown(wait=False)
