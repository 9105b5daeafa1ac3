"""The compacted topic with the last state of every streaming query: its publisher and its reader.

Key: the query's id, which its checkpoint keeps across restarts. Value: `progress.Query` as JSON. It
is an ordinary topic of any Kafka cluster.
"""

import json
import logging
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.client.cluster import Cluster
from headrace.client.config import client_config, from_librdkafka
from headrace.client.errors import ClientError
from headrace.client.topics import create_topics
from headrace.errors import ErrorCode, KafkaError
from headrace.pipelines.running.progress import Query, from_json

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message, Producer

TOPIC = "__headrace_queries"
# Queries without an update for a week are deleted.
TOPIC_SETTINGS = {
    "cleanup.policy": "compact,delete",
    "retention.ms": "604800000",
    "segment.ms": "86400000",
}

CLIENT_ID = "headrace-queries"
TRY_EVERY_S = 30
ANSWER_TIMEOUT_S = 10

log = logging.getLogger(__name__)
_silent = logging.getLogger(f"{__name__}.librdkafka")
_silent.addHandler(logging.NullHandler())
_silent.propagate = False


def client_settings(bootstrap: str, properties: Mapping[str, str]) -> dict[str, object]:
    return {
        "client.id": CLIENT_ID,
        "log_level": 0,
        **properties,
        "bootstrap.servers": bootstrap,
    }


def create(bootstrap: str, properties: Mapping[str, str]) -> None:
    """Creates the topic if it does not exist; raises ClientError or KafkaError."""
    known = {
        "client.id": CLIENT_ID,
        **from_librdkafka(properties),
        "bootstrap.servers": bootstrap,
    }
    config = replace(
        client_config(known), request_timeout_s=ANSWER_TIMEOUT_S, total_timeout_s=ANSWER_TIMEOUT_S
    )
    with Cluster(config) as cluster:
        refused = create_topics(cluster, [TOPIC], partitions=1, configs=TOPIC_SETTINGS)
    for error in refused.values():
        if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise error


class Publisher:
    """Writes queries to the topic. It never blocks or fails a query."""

    def __init__(self, bootstrap: str, properties: Mapping[str, str]) -> None:
        self._bootstrap = bootstrap
        self._properties = dict(properties)
        self._ready = False
        self._try_after_s = 0.0
        self._complained = False
        self._producer = self._make_producer()
        """None if librdkafka refuses the properties, such as a login with GSSAPI."""

    def _make_producer(self) -> "Producer | None":
        from confluent_kafka import KafkaException, Producer

        settings = {
            **client_settings(self._bootstrap, self._properties),
            "linger.ms": 20,
            "message.timeout.ms": 30_000,
            "queue.buffering.max.messages": 1000,
            # Progress that a retry puts in another order would show an old state for good.
            "enable.idempotence": True,
        }
        try:
            return Producer(settings, logger=_silent)
        except KafkaException as error:
            self._complain(str(error))
            return None

    def publish(self, query: Query) -> None:
        """Send a query's state; a failing cluster is logged once."""
        from confluent_kafka import KafkaException

        if self._producer is None:
            return
        try:
            if not self._made_topic():
                return
            value = json.dumps(query.as_json())
            self._producer.produce(TOPIC, key=query.id, value=value, on_delivery=self._delivered)
            self._producer.poll(0)
        except (KafkaException, KafkaError, ClientError, BufferError) as error:
            self._complain(str(error))

    def _made_topic(self) -> bool:
        """Whether the topic exists. After a failure it is not checked at every event, because
        an attempt takes long and Spark's events are handled one after the other."""
        if not self._ready and time.monotonic() >= self._try_after_s:
            self._try_after_s = time.monotonic() + TRY_EVERY_S
            create(self._bootstrap, self._properties)
            self._ready = True
        return self._ready

    def flush(self, timeout_s: float) -> None:
        if self._producer is not None:
            self._producer.flush(timeout_s)

    def _delivered(self, error: object, message: "Message") -> None:
        if error is not None:
            self._complain(str(error))

    def _complain(self, reason: str) -> None:
        if not self._complained:
            self._complained = True
            log.warning(
                "progress of queries cannot be published to %s at %s: %s",
                TOPIC,
                self._bootstrap,
                reason,
            )


class QueryWatcher:
    """All queries of a cluster in the topic so far. The caller owns the consumer."""

    def __init__(self, consumer: "Consumer") -> None:
        from confluent_kafka import OFFSET_BEGINNING, TopicPartition

        self.queries: dict[str, Query] = {}
        self._consumer = consumer
        consumer.assign([TopicPartition(TOPIC, 0, OFFSET_BEGINNING)])

    def catch_up(self, timeout_s: float) -> bool:
        """Read to the end of the topic; False if it was not reached in time."""
        return any(self._read(timeout_s))

    def advance(self, timeout_s: float) -> None:
        """Process the records that arrive within this time."""
        for _ in self._read(timeout_s):
            pass

    def _read(self, timeout_s: float) -> Iterator[bool]:
        from confluent_kafka import KafkaError as LibraryError

        deadline = time.monotonic() + timeout_s
        while (left := deadline - time.monotonic()) > 0:
            message = self._consumer.poll(left)
            if message is None:
                continue
            if (problem := message.error()) is not None:
                yield problem.code() == LibraryError._PARTITION_EOF
            else:
                self._take(message)

    def _take(self, message: "Message") -> None:
        key, value = message.key(), message.value()
        if key is None:
            return
        name = key.decode(errors="replace")
        if value is None:
            self.queries.pop(name, None)
            return
        query = parse_query(value)
        if query is None:
            log.debug("ignoring a record of %s with the key %r, which is not a query", TOPIC, name)
        else:
            self.queries[name] = query


def parse_query(value: bytes) -> Query | None:
    """The query in a record; None if another program or a later version has written it."""
    try:
        return from_json(json.loads(value))
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
