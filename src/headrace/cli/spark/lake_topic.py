"""A topic for `headrace lake verify`, read with read_committed through librdkafka, which is
independent of the source that filled the table."""

import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

import numpy as np

from headrace.cli import client

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.pipelines.lake.verify import Offsets
    from headrace.types import TopicPartition

BATCH_RECORDS = 10_000
SILENCE_S = 15.0


class LibrdkafkaReader:
    """A consumer without a group that reads one partition after the other."""

    def __init__(self, bootstrap: str, client_config: str | None) -> None:
        self._cluster = client.connect(bootstrap, client_config)
        settings: dict[str, object] = {"isolation.level": "read_committed"}
        self._consumer = client.library_consumer(self._cluster, settings)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._consumer.close()

    def bounds(self, topic: str) -> "Mapping[int, tuple[int, int]]":
        """The first offset and the last stable offset of each partition.

        The offsets come from librdkafka, too: a proof must not depend on the client that the Spark
        source shares with the command line.
        """
        from confluent_kafka import KafkaException, TopicPartition

        from headrace.admin.topics import existing_topics

        with client.admin(self._cluster) as connected:
            (found,) = existing_topics(connected, [topic])
        bounds: dict[int, tuple[int, int]] = {}
        for index in found.partitions:
            place = TopicPartition(topic, index)
            try:
                first, end = self._consumer.get_watermark_offsets(
                    place, timeout=client.ANSWER_TIMEOUT_S
                )
            except KafkaException as error:
                raise client.failure(
                    self._cluster, error.args[0], f"offsets of {topic}-{index}"
                ) from None
            bounds[index] = (int(first), int(end))
        return bounds

    def offsets(self, place: "TopicPartition", first: int, last: int) -> "Offsets":
        """The offsets of all visible records from `first` to `last`."""
        from confluent_kafka import KafkaError, TopicPartition

        self._consumer.assign([TopicPartition(place.topic, place.partition, first)])
        seen: list[int] = []
        heard = time.monotonic()
        while True:
            messages = self._consumer.consume(BATCH_RECORDS, timeout=0.2)
            if messages:
                heard = time.monotonic()
            elif time.monotonic() - heard > SILENCE_S:
                raise client.unreachable(
                    self._cluster,
                    f"no records for {SILENCE_S:.0f} s from {place.topic}-{place.partition}",
                )
            for message in messages:
                problem = message.error()
                if problem is None:
                    seen.append(message.offset())
                elif problem.code() == KafkaError._PARTITION_EOF:
                    return _within(seen, first, last)
                elif message.topic() is not None:
                    raise client.failure(self._cluster, problem, f"reading {place.topic}")
            if seen and seen[-1] >= last:
                return _within(seen, first, last)


def _within(seen: list[int], first: int, last: int) -> "Offsets":
    offsets = np.array(seen, np.int64)
    return offsets[(offsets >= first) & (offsets <= last)]
