"""Transactional producers of the simulation, and a reader of committed records.

A producer begins transactions, writes to several partitions, perhaps commits an offset of a group,
and commits or aborts. Where a retry does not help it ends; the world starts another one with the
same transactional id. One that is told to crash may go on for a while, as a process that is only
thought to be dead.
"""

import asyncio
from collections.abc import Iterator
from itertools import pairwise
from random import Random

from kio.schema.add_offsets_to_txn.v3.request import AddOffsetsToTxnRequest
from kio.schema.add_offsets_to_txn.v3.response import AddOffsetsToTxnResponse
from kio.schema.add_partitions_to_txn.v3.request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from kio.schema.add_partitions_to_txn.v3.response import AddPartitionsToTxnResponse
from kio.schema.end_txn.v5.request import EndTxnRequest
from kio.schema.end_txn.v5.response import EndTxnResponse
from kio.schema.init_producer_id.v4.request import InitProducerIdRequest
from kio.schema.init_producer_id.v4.response import InitProducerIdResponse
from kio.schema.txn_offset_commit.v5.request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kio.schema.txn_offset_commit.v5.response import TxnOffsetCommitResponse

from headrace.client.errors import RETRIABLE, ClientError
from headrace.client.fetching import FetchPlan, fetch_request, parse_fetch, whole_batches
from headrace.errors import ErrorCode
from headrace.types import TopicPartition
from headrace.wire import codec
from headrace.wire.batch import CONTROL, TRANSACTIONAL, read_header
from headrace.wire.markers import decode_marker
from headrace.wire.primitives import (
    GroupId,
    ProducerId,
    TopicName,
    TransactionalId,
    i16,
    i32,
    i64,
    milliseconds,
)
from headrace.wire.records import Record, encode_batch, iterate
from tests.simulation.clients import produce_body, produced
from tests.simulation.loop import Process
from tests.simulation.members import CoordinatorClient
from tests.simulation.network import Network
from tests.simulation.transaction_judge import Attempt, TransactionJudge

TIMEOUT_MS = 4000
_PRODUCE, _FETCH, _FETCH_VERSION = 0, 1, 12
_OLD_PRODUCE, _NEW_PRODUCE = 11, 12
"""From version 12 on, a Produce adds its partition to the transaction."""


class Ended(Exception):
    """This producer cannot go on: it is fenced, or nobody knows what became of a request."""


class TransactionalProducer:
    """One process that uses a transactional id."""

    def __init__(
        self,
        process: Process,
        network: Network,
        random: Random,
        nodes: int,
        name: str,
        topic: str,
        partitions: int,
        group: tuple[str, int],
        judge: TransactionJudge,
    ) -> None:
        self.name = name
        self.stopping = False
        self._random = random
        self._topic = topic
        self._partitions = partitions
        self._group, self._group_partition = group
        self._judge = judge
        self._new_protocol = random.random() < 0.5
        """Whether it speaks transaction version 2: each end of a transaction brings a new epoch."""
        self._producer_id = self._epoch = -1
        self._sequences = [0] * partitions

        def client() -> CoordinatorClient:
            return CoordinatorClient(process, network, Random(random.random()), nodes)

        self._coordinator, self._group_coordinator = client(), client()
        self._leaders = [client() for _ in range(partitions)]

    async def run(self) -> None:
        try:
            await self._init()
            while not self.stopping:
                attempt = self._judge.begin(self.name)
                await self._write(attempt)
                await self._end(attempt, commit=self._random.random() < 0.7)
                await asyncio.sleep(self._random.expovariate(4))
        except Ended:
            return

    async def take_over(self) -> None:
        """Only fence all others, which ends their transactions."""
        await self._init()

    async def _init(self) -> None:
        request = InitProducerIdRequest(
            transactional_id=TransactionalId(self.name),
            transaction_timeout=milliseconds(TIMEOUT_MS),
        )
        while True:
            answer = await self._coordinator.ask(request, InitProducerIdResponse)
            if answer is not None and not await self._again(self._coordinator, answer.error_code):
                break
        self._producer_id, self._epoch = answer.producer_id, answer.producer_epoch
        self._judge.initialized(self.name, self._epoch)

    async def _write(self, attempt: Attempt) -> None:
        count = self._random.randint(1, self._partitions)
        for partition in self._random.sample(range(self._partitions), count):
            if not self._new_protocol:
                await self._add(partition)
            for _ in range(self._random.randint(1, 2)):
                value = f"{self.name}.{attempt.number}.{partition}.{self._sequences[partition]}"
                await self._produce(partition, value.encode())
                attempt.values.add(value.encode())
        if self._random.random() < 0.5:
            await self._commit_offset(attempt.number)
            attempt.has_offsets = True

    async def _add(self, partition: int) -> None:
        topic = AddPartitionsToTxnTopic(name=TopicName(self._topic), partitions=(i32(partition),))
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=TransactionalId(self.name),
            v3_and_below_producer_id=ProducerId(self._producer_id),
            v3_and_below_producer_epoch=i16(self._epoch),
            v3_and_below_topics=(topic,),
        )
        while True:
            answer = await self._coordinator.ask(request, AddPartitionsToTxnResponse)
            if answer is not None:
                (result,) = answer.results_by_topic_v3_and_below[0].results_by_partition
                if not await self._again(self._coordinator, result.partition_error_code):
                    return

    async def _produce(self, partition: int, value: bytes) -> None:
        batch = encode_batch(
            [Record(0, 1_700_000_000_000, None, value)],
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            base_sequence=self._sequences[partition],
            attributes=TRANSACTIONAL,
        )
        self._sequences[partition] += 1
        body = produce_body(self._topic.encode(), partition, bytes(batch), self.name.encode())
        version = _NEW_PRODUCE if self._new_protocol else _OLD_PRODUCE
        self._judge.sends(self.name, self._epoch, value)
        while True:
            raw = await self._leaders[partition].ask_raw(_PRODUCE, version, body)
            if raw is not None:
                _, code, _ = produced(raw, 1 + 1 + len(self._topic) + 1)
                if not await self._again(self._leaders[partition], code):
                    return

    async def _commit_offset(self, offset: int) -> None:
        if not self._new_protocol:
            added = AddOffsetsToTxnRequest(
                transactional_id=TransactionalId(self.name),
                producer_id=ProducerId(self._producer_id),
                producer_epoch=i16(self._epoch),
                group_id=GroupId(self._group),
            )
            while True:
                joined = await self._coordinator.ask(added, AddOffsetsToTxnResponse)
                if joined is not None and not await self._again(
                    self._coordinator, joined.error_code
                ):
                    break
        partition = TxnOffsetCommitRequestPartition(
            partition_index=i32(self._group_partition),
            committed_offset=i64(offset),
            committed_metadata="",
        )
        request = TxnOffsetCommitRequest(
            transactional_id=TransactionalId(self.name),
            group_id=GroupId(self._group),
            producer_id=ProducerId(self._producer_id),
            producer_epoch=i16(self._epoch),
            topics=(
                TxnOffsetCommitRequestTopic(name=TopicName(self._topic), partitions=(partition,)),
            ),
        )
        newest = 5 if self._new_protocol else 3
        while True:
            answer = await self._group_coordinator.ask(
                request, TxnOffsetCommitResponse, version=newest
            )
            if answer is not None:
                code = answer.topics[0].partitions[0].error_code
                if not await self._again(self._group_coordinator, code):
                    return

    async def _end(self, attempt: Attempt, *, commit: bool) -> None:
        request = EndTxnRequest(
            transactional_id=TransactionalId(self.name),
            producer_id=ProducerId(self._producer_id),
            producer_epoch=i16(self._epoch),
            committed=commit,
        )
        attempt.asked_to_commit = commit
        newest = 5 if self._new_protocol else 3
        while True:
            answer = await self._coordinator.ask(request, EndTxnResponse, version=newest)
            if answer is not None and not await self._again(self._coordinator, answer.error_code):
                break
        attempt.committed = commit
        if self._new_protocol:
            self._producer_id, self._epoch = answer.producer_id, answer.producer_epoch
            self._sequences = [0] * self._partitions

    async def _again(self, client: CoordinatorClient, code: int) -> bool:
        """Whether to send a request again; Ended if that does not help."""
        if not code:
            return False
        if code == ErrorCode.CONCURRENT_TRANSACTIONS:
            await asyncio.sleep(self._random.uniform(0.02, 0.1))
        elif code in RETRIABLE:
            await client.elsewhere()
        else:
            raise Ended
        return True


class CommittedReader:
    """Reads all partitions as `read_committed` has it."""

    def __init__(
        self,
        process: Process,
        network: Network,
        random: Random,
        nodes: int,
        topic: str,
        partitions: int,
        judge: TransactionJudge,
    ) -> None:
        self.offsets = [0] * partitions
        self._random = random
        self._topic = topic
        self._judge = judge
        self._clients = [
            CoordinatorClient(process, network, Random(random.random()), nodes)
            for _ in range(partitions)
        ]

    async def run(self) -> None:
        while True:
            for partition in range(len(self.offsets)):
                await self._read(partition)
            await asyncio.sleep(self._random.expovariate(5))
            if self._random.random() < 0.02:
                self.offsets = [self._random.randint(0, one) for one in self.offsets]

    async def _read(self, partition: int) -> None:
        client, offset = self._clients[partition], self.offsets[partition]
        plan = FetchPlan(TopicPartition(self._topic, partition), isolation=1, max_wait_ms=10)
        request = codec.encode_request(_FETCH_VERSION, fetch_request(plan, offset, _FETCH_VERSION))
        try:
            answer = await (await client.connected()).ask_encoded(_FETCH, _FETCH_VERSION, request)
        except ClientError:
            await client.elsewhere()
            return
        body = parse_fetch(answer)
        if body.error:
            await client.elsewhere()
            return
        positions, end = whole_batches(answer.data, body.records_at, body.records_end)
        batches = [bytes(answer.data[start:stop]) for start, stop in pairwise((*positions, end))]
        for batch in batches:
            self.offsets[partition] = read_header(batch, 0).next_offset
        for found, value in committed_records(batches, body.aborted):
            if found >= offset:
                self._judge.read(partition, found, value)


def committed_records(
    batches: list[bytes], aborted: list[tuple[int, int]]
) -> Iterator[tuple[int, bytes]]:
    """Offsets and values of records, without those of aborted transactions, as clients do it."""
    waiting = sorted(aborted, key=lambda one: one[1])
    now: set[int] = set()
    for batch in batches:
        header = read_header(batch, 0)
        while waiting and waiting[0][1] <= header.last_offset:
            now.add(waiting.pop(0)[0])
        if header.attributes & CONTROL:
            marker = decode_marker(batch)
            if marker is not None and not marker.commit:
                now.discard(header.producer_id)
        elif not (header.attributes & TRANSACTIONAL and header.producer_id in now):
            for record in iterate(batch, 0, len(batch), 1 << 20):
                yield record.offset, record.value or b""
