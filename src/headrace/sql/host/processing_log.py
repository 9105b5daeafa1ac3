"""The processing log: a topic with the records that queries could not read, as in ksqlDB.

Entries are JSON. They are written at least once, in the background: a query never waits for its
log, and does not fail with it.
"""

import json
import logging
import queue
import threading
import time
from collections.abc import Iterable, Mapping

from headrace.client.cluster import Cluster
from headrace.client.config import ClientConfig
from headrace.client.errors import ClientError
from headrace.client.producing import produce
from headrace.client.topics import create_topics
from headrace.errors import ErrorCode, KafkaError
from headrace.sql.host.bad_records import UnreadableInput
from headrace.types import TopicPartition
from headrace.wire.records import Record, encode_batch

LONGEST_QUEUE = 10_000
MOST_AT_ONCE = 500
TRY_EVERY_S = 10.0
TOPIC_SETTINGS = {"cleanup.policy": "delete"}

log = logging.getLogger(__name__)


class ProcessingLog:
    """Writes entries of a queue; entries beyond its length are dropped, and counted in the next."""

    def __init__(self, config: ClientConfig, topic: str) -> None:
        self._config = config
        self._topic = topic
        self._entries: queue.Queue[bytes] = queue.Queue(LONGEST_QUEUE)
        self._is_ready = False
        threading.Thread(target=self._write_for_ever, daemon=True, name="processing-log").start()

    def add(self, query: str, count: int, records: Iterable[UnreadableInput]) -> None:
        """Add the records of an epoch; `count` is the number of all of them."""
        told = 0
        for each in records:
            told += 1
            where = {"topic": each.topic, "partition": each.partition, "offset": each.offset}
            self._put(query, each.reason, where)
        if count > told:
            self._put(query, f"{count - told} more records of the same epoch", {})

    def _put(self, query: str, reason: str, where: Mapping[str, object]) -> None:
        entry = {
            "level": "ERROR",
            "logger": f"processing.{query}.deserializer",
            "time": time.time_ns() // 1_000_000,
            "message": {"type": 0, "deserializationError": {"errorMessage": reason, **where}},
        }
        try:
            self._entries.put_nowait(json.dumps(entry).encode())
        except queue.Full:
            log.warning("an entry of %s is dropped: the cluster does not take them", self._topic)

    def _write_for_ever(self) -> None:
        while True:
            entries = [self._entries.get()]
            while len(entries) < MOST_AT_ONCE and not self._entries.empty():
                entries.append(self._entries.get_nowait())
            while not self._written(entries):
                time.sleep(TRY_EVERY_S)

    def _written(self, entries: list[bytes]) -> bool:
        now_ms = time.time_ns() // 1_000_000
        batch = encode_batch([Record(0, now_ms, None, each) for each in entries])
        try:
            with Cluster(self._config) as cluster:
                if not self._is_ready:
                    self._create(cluster)
                produce(cluster, {TopicPartition(self._topic, 0): batch})
        except (ClientError, KafkaError) as error:
            log.warning("%s cannot be written: %s", self._topic, error)
            return False
        return True

    def _create(self, cluster: Cluster) -> None:
        refused = create_topics(cluster, [self._topic], partitions=1, configs=TOPIC_SETTINGS)
        for error in refused.values():
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise error
        self._is_ready = True
