"""Producers and readers of the simulation; they retry as clients do, and remember what they saw."""

import asyncio
import struct
from collections.abc import Callable, Iterator
from random import Random
from typing import NamedTuple, Protocol

from headrace.client.errors import Unreachable
from headrace.errors import ErrorCode
from headrace.wire import replica_fetch
from headrace.wire.batch import HEADER_BYTES, read_header
from headrace.wire.records import Record, encode_batch, iterate
from headrace.wire.replica_fetch import FetchLimits, PartitionToFetch
from headrace.wire.varint import uvarint
from tests.simulation.broker import PORT
from tests.simulation.loop import Process
from tests.simulation.network import Network, SimulatedPeer

MOST_UNDER_WAY = 5
"""Batches of one producer, as Kafka's clients have it."""
_TIMEOUT_S = 2.0
_PRODUCE, _PRODUCE_VERSION = 0, 9
_LIMITS = FetchLimits(500, 1, 1 << 20, 1 << 20)
produced = struct.Struct(">ihq").unpack_from
_RETRIED = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.KAFKA_STORAGE_ERROR,
}


class Witness(Protocol):
    """Who is told what clients saw."""

    def acknowledged(self, offset: int, value: bytes) -> None: ...

    def read(self, offset: int, value: bytes) -> None: ...

    def refused(self, node: int, code: ErrorCode, under_way: int) -> None: ...


class Client:
    """Asks one broker after the other until it has found the leader."""

    def __init__(self, process: Process, network: Network, random: Random, nodes: int) -> None:
        self.process = process
        self._network = network
        self._random = random
        self._nodes = nodes
        self._node = random.randint(1, nodes)
        self._peer: SimulatedPeer | None = None
        self.stopping = False

    async def run(self) -> None:
        """Until told to stop."""
        raise NotImplementedError

    async def ask_raw(self, key: int, version: int, body: bytes) -> bytes | None:
        """An answer's body; None if nobody knows what became of it."""
        try:
            answer = await (await self.connected()).ask_encoded(key, version, body)
            return bytes(answer.data[answer.start : answer.end])
        except Unreachable:
            await self.elsewhere()
            return None

    async def connected(self) -> SimulatedPeer:
        if self._peer is None:
            port = PORT + self._node
            self._peer = await self._network.connect(
                self.process, port, self.process.name, _TIMEOUT_S
            )
        return self._peer

    async def elsewhere(self) -> None:
        if self._peer is not None:
            self._peer.close()
        self._peer = None
        self._node = self._random.randint(1, self._nodes)
        await asyncio.sleep(self._random.uniform(0.01, 0.2))


class SimulatedProducer(Client):
    """An idempotent producer with acks=all; sends batches, several at once, until each is
    acknowledged."""

    def __init__(
        self,
        process: Process,
        network: Network,
        random: Random,
        nodes: int,
        topic: str,
        producer_id: int,
        witness: Witness,
        now_ms: Callable[[], int],
        *,
        gives_up: bool,
    ) -> None:
        super().__init__(process, network, random, nodes)
        self._gives_up = gives_up
        """Whether it begins anew where no retry helps."""
        self._topic = topic.encode()
        self._producer_id = producer_id
        self._witness = witness
        self._now_ms = now_ms
        self._window = random.choice((1, 2, MOST_UNDER_WAY))
        self._sequence = 0
        self._sent = 0
        self.done = False

    async def run(self) -> None:
        waiting: list[_Batch] = []
        while waiting or not self.stopping:
            while len(waiting) < self._window and not self.stopping:
                waiting.append(self._next_batch())
            waiting = await self._deliver(waiting)
            await asyncio.sleep(self._random.expovariate(8))
        self.done = True

    def _next_batch(self) -> "_Batch":
        values = []
        for _ in range(self._random.randint(1, 3)):
            values.append(b"%d.%d" % (self._producer_id, self._sent))
            self._sent += 1
        records = [Record(0, self._now_ms(), None, value) for value in values]
        batch = encode_batch(
            records,
            producer_id=self._producer_id,
            producer_epoch=0,
            base_sequence=self._sequence,
        )
        self._sequence += len(values)
        return _Batch(values, produce_body(self._topic, 0, bytes(batch)))

    async def _deliver(self, waiting: "list[_Batch]") -> "list[_Batch]":
        """Send all of them at once; those that have to be sent again."""
        try:
            peer = await self.connected()
        except Unreachable:
            await self.elsewhere()
            return waiting
        node = self._node
        asked = [peer.send(_PRODUCE, _PRODUCE_VERSION, one.body) for one in waiting]
        await asyncio.wait(asked, timeout=_TIMEOUT_S)
        left = []
        for batch, answer in zip(waiting, asked, strict=True):
            if not answer.done() or answer.exception() is not None:
                answer.cancel()
                left.append(batch)
                continue
            _, code, base = produced(answer.result(), 9 + 1 + 1 + len(self._topic) + 1)
            if code:
                # Behind one that was refused, a batch is out of order.
                if code not in _RETRIED and not left:
                    self._witness.refused(node, ErrorCode(code), self._window)
                    if self._gives_up or self._window > 1:
                        self._producer_id += 100
                        self._sequence = 0
                        return []
                left.append(batch)
                continue
            for index, value in enumerate(batch.values):
                self._witness.acknowledged(base + index, value)
        if left:
            await self.elsewhere()
        return left


def produce_body(
    topic: bytes, partition: int, batch: bytes, transactional_id: bytes | None = None
) -> bytes:
    """A Produce of one batch with acks=all, in versions 9 to 12."""
    name = b"\0" if transactional_id is None else _compact(transactional_id)
    head = name + struct.pack(">hi", -1, 1500) + b"\x02" + _compact(topic)
    return head + b"\x02" + struct.pack(">i", partition) + _compact(batch) + b"\0\0\0"


def _compact(data: bytes) -> bytes:
    return uvarint(len(data) + 1) + data


class _Batch(NamedTuple):
    values: list[bytes]
    body: bytes
    """Of the request that brings it."""


class SimulatedReader(Client):
    """Reads the whole topic in its order, over and over again."""

    def __init__(
        self,
        process: Process,
        network: Network,
        random: Random,
        nodes: int,
        topic_id: bytes,
        witness: Witness,
    ) -> None:
        super().__init__(process, network, random, nodes)
        self._topic_id = topic_id
        self._witness = witness
        self.offset = 0

    async def run(self) -> None:
        while not self.stopping:
            wanted = PartitionToFetch(self._topic_id, 0, -1, self.offset, 0)
            body = replica_fetch.fetch_request((-1, -1), _LIMITS, (0, -1), [wanted], ())
            raw = await self.ask_raw(replica_fetch.API_KEY, replica_fetch.VERSION, body)
            if raw is None:
                continue
            data = bytearray(raw)
            answer = replica_fetch.read_answer(data, 0, len(data))
            (found,) = answer.partitions
            if found.error:
                if found.error not in _RETRIED:
                    self._witness.refused(self._node, ErrorCode(found.error), 1)
                    self.offset = 0
                await self.elsewhere()
                continue
            for offset, _, value in records_in(bytes(data[found.start : found.end])):
                if offset >= self.offset:
                    self._witness.read(offset, value)
                    self.offset = offset + 1
            if self._random.random() < 0.02:
                self.offset = self._random.randint(0, self.offset)
            await asyncio.sleep(self._random.expovariate(10))


class Held(NamedTuple):
    """A record as it lies in a log."""

    offset: int
    epoch: int
    """Of the leader that wrote it."""
    value: bytes


def records_in(data: bytes) -> Iterator[Held]:
    """The records of all whole batches."""
    pos = 0
    while pos + HEADER_BYTES <= len(data):
        header = read_header(data, pos)
        end = pos + header.size_bytes
        for record in iterate(data, pos, end, 1 << 20):
            yield Held(record.offset, header.partition_leader_epoch, record.value or b"")
        pos = end
