"""An idempotent producer of whole batches, with several requests in flight.

Up to five requests per broker wait for their responses, because brokers keep the last five batches
of a producer. After an error or a broken connection, all batches without a response are sent again,
one by one and in order: with the sequence numbers the broker drops duplicates.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from headrace.client import producing
from headrace.client.cluster import Cluster
from headrace.client.connection import Connection
from headrace.client.errors import Unreachable
from headrace.client.producing import ProducerIdentity
from headrace.errors import ErrorCode, KafkaError
from headrace.types import TopicPartition
from headrace.wire import codec

MAX_IN_FLIGHT = 5
Batches = Mapping[TopicPartition, bytearray]


@dataclass(slots=True)
class _Line:
    """A connection to a broker and its requests without a response."""

    connection: Connection
    waiting: deque[Batches]


class BatchProducer:
    """Sends batches with a producer id and sequence; not thread-safe."""

    def __init__(
        self, cluster: Cluster, identity: ProducerIdentity, in_flight: int = MAX_IN_FLIGHT
    ) -> None:
        self.identity = identity
        self._cluster = cluster
        self._in_flight = in_flight
        self._lines: dict[int, _Line] = {}
        self._sequences: dict[TopicPartition, int] = {}
        self._added: set[TopicPartition] = set()

    def sequence(self, partition: TopicPartition, records: int) -> int:
        """The first of the next `records` sequence numbers of a partition."""
        first = self._sequences.get(partition, 0)
        self._sequences[partition] = (first + records) % (1 << 31)
        return first

    def send(self, batches: Batches) -> None:
        """Send one batch for each partition; waits only while too many are in flight."""
        self._add_to_transaction(batches)
        unsent = dict(batches)
        try:
            for broker, topics in self._cluster.by_leader(batches).items():
                line = self._line(broker)
                some = {each: unsent.pop(each) for parts in topics.values() for each in parts}
                self._send(line, some)
        except (KafkaError, Unreachable):
            self._recover(unsent)

    def flush(self) -> None:
        """Wait until every batch has a response."""
        try:
            for line in self._lines.values():
                while line.waiting:
                    self._receive(line)
        except (KafkaError, Unreachable):
            self._recover({})

    def close(self) -> None:
        """Close the connection without waiting for outstanding responses."""
        for line in self._lines.values():
            line.connection.close()
        self._lines.clear()

    def _add_to_transaction(self, batches: Batches) -> None:
        if self.identity.transactional_id is None:
            return
        new = [partition for partition in batches if partition not in self._added]
        if new:
            producing.add_partitions(self._cluster, self.identity, new)
            self._added.update(new)

    def _line(self, broker: int) -> _Line:
        if broker not in self._lines:
            self._lines[broker] = _Line(self._cluster.connect(broker), deque())
        return self._lines[broker]

    def _send(self, line: _Line, batches: Batches) -> None:
        line.waiting.append(batches)
        timeout_s = self._cluster.config.request_timeout_s
        request = producing.produce_request(
            batches, self.identity, producing.ALL_REPLICAS, timeout_s
        )
        line.connection.send(request)
        while len(line.waiting) >= self._in_flight:
            self._receive(line)

    def _receive(self, line: _Line) -> None:
        from kio.schema.produce.v9.response import ProduceResponse

        answer = line.connection.receive(reuse=True)
        shape = codec.decode_response(answer.version, ProduceResponse, answer.data, answer.start)
        for topic in shape.responses:
            for row in topic.partition_responses:
                if row.error_code not in (0, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                    raise KafkaError(ErrorCode(int(row.error_code)), row.error_message or "")
        line.waiting.popleft()

    def _recover(self, unsent: Batches) -> None:
        """Send all batches without a response again, one by one with retries."""
        again = [batches for line in self._lines.values() for batches in line.waiting]
        self.close()
        self._cluster.forget()
        for batches in (*again, unsent):
            for partition, batch in batches.items():
                try:
                    producing.produce(self._cluster, {partition: batch}, self.identity)
                except KafkaError as error:
                    if error.code != ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                        raise
