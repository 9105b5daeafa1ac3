"""A world whose clients are transactional producers.

Beside the usual faults producers crash, and others take over their transactional ids. Some of those
that crashed go on for a while.
"""

import asyncio
from random import Random
from typing import Any

from kio.schema.offset_fetch.v9.request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from kio.schema.offset_fetch.v9.response import OffsetFetchResponse

from headrace.cluster.image import TRANSACTIONS_TOPIC
from headrace.replication.partition import Partition
from headrace.wire.primitives import GroupId, TopicName, i32
from tests.simulation.clients import records_in
from tests.simulation.coordinator_world import ORDERS, PARTITIONS, CoordinatorWorld
from tests.simulation.members import CoordinatorClient
from tests.simulation.transaction_judge import TransactionJudge
from tests.simulation.transactional import CommittedReader, TransactionalProducer
from tests.simulation.world import BROKERS

NAMES = ("first", "third")
"""Transactional ids, each in a partition of its own."""
GROUP = "pipeline"
"""Each id commits offsets of this group, for the partition with its number."""


class TransactionWorld(CoordinatorWorld):
    """One run."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.settings |= {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000"}
        self.transactions = TransactionJudge(self.judge.breaks)
        self._newest: dict[str, asyncio.Task[Any]] = {}
        """Of each id the producer that was started last."""
        self._started: dict[TransactionalProducer, asyncio.Task[Any]] = {}
        self._replaces = True

    def _start_clients(self) -> None:
        self.producers = []
        for name in NAMES:
            self._start_producer(name)
        self.committed = CommittedReader(
            self._clients, self.network, Random(self.random.random()), BROKERS, ORDERS, PARTITIONS,
            self.transactions,
        )  # fmt: skip
        self._run_client(self.committed.run())

    # ---------------------------------------------------------------------------- producers

    def _new_producer(self, name: str) -> TransactionalProducer:
        return TransactionalProducer(
            self._clients, self.network, Random(self.random.random()), BROKERS, name, ORDERS,
            PARTITIONS, (GROUP, NAMES.index(name)), self.transactions,
        )  # fmt: skip

    def _start_producer(self, name: str) -> None:
        """Start one, and another one whenever it has ended."""
        producer = self._new_producer(name)
        task = self._run_client(producer.run())
        self._newest[name] = self._started[producer] = task

        def ended(_task: asyncio.Task[Any]) -> None:
            if self._replaces and self._newest[name] is task:
                self.tell("world", f"a producer of {name} has ended")
                self.loop.later(self.random.expovariate(2), lambda: self._replace(name, task))

        task.add_done_callback(ended)

    def _replace(self, name: str, task: asyncio.Task[Any]) -> None:
        if self._replaces and self._newest[name] is task:
            self._start_producer(name)

    def crash(self, name: str) -> None:
        """Start another producer; the one before it is gone, or is only thought to be."""
        goes_on = self.random.random() < 0.5
        self.tell("world", f"a producer of {name} is replaced; it goes on: {goes_on}")
        if not goes_on:
            self._newest[name].cancel()
        self._start_producer(name)

    # ------------------------------------------------------------------------------- faults

    async def random_life(self) -> None:
        for _ in range(self.random.randint(4, 10)):
            await asyncio.sleep(self.random.expovariate(0.7))
            chance = self.random.random()
            if chance < 0.5:
                self.fault()
            elif chance < 0.9:
                self.crash(self.random.choice(NAMES))
            else:
                name = self.random.choice(NAMES)
                self.starve(self.coordinator_of(TRANSACTIONS_TOPIC, name).node)
        await asyncio.sleep(self.random.uniform(0, 3))

    # ---------------------------------------------------------------------------------- end

    async def _check_end(self) -> None:
        self._replaces = False
        for producer in self._started:
            producer.stopping = True
        await self.until(
            lambda: all(one.done() for one in self._started.values()), "producers have ended"
        )
        for name in NAMES:
            await self._clients.start(self._new_producer(name).take_over())
        await self.until(self._is_read, "all transactions have ended, and were read")
        self.transactions.check_written(self._written())
        self.transactions.check_ends()
        for index, name in enumerate(NAMES):
            offset, expected = await self._offset(index), self.transactions.last_offset(name)
            if offset != expected:
                raise self.judge.breaks(
                    f"{GROUP} has offset {offset} of {name}, but the last transaction with an "
                    f"offset that is visible is {expected}"
                )

    def _leaders(self) -> list[Partition]:
        """The leading replicas of the topic's partitions."""
        return [
            one
            for machine in self.machines
            if machine.broker is not None
            for one in machine.broker.replicas.topic(ORDERS)
            if one.leads
        ]

    def _is_read(self) -> bool:
        leaders = self._leaders()
        return len(leaders) == PARTITIONS and all(
            self.committed.offsets[one.name.partition] >= one.replica.log.end_offset
            for one in leaders
        )

    def _written(self) -> set[bytes]:
        """All values in the logs, of transactions that were aborted, too."""
        values = set()
        for partition in self._leaders():
            offset, log = 0, partition.replica.log
            while offset < log.end_offset:
                piece = log.read(offset, 1 << 20, log.end_offset, True)
                assert piece is not None
                for held in records_in(piece.read()):
                    values.add(held.value)
                    offset = held.offset + 1
        return values

    async def _offset(self, partition: int) -> int:
        topic = OffsetFetchRequestTopics(
            name=TopicName(ORDERS), partition_indexes=(i32(partition),)
        )
        request = OffsetFetchRequest(
            groups=(OffsetFetchRequestGroup(group_id=GroupId(GROUP), topics=(topic,)),),
            require_stable=True,
        )
        client = CoordinatorClient(self._clients, self.network, self.random, BROKERS)
        while True:
            answer = await client.ask(request, OffsetFetchResponse)
            if answer is not None and not answer.groups[0].error_code:
                (found,) = answer.groups[0].topics[0].partitions
                if not found.error_code:
                    return found.committed_offset
            await client.elsewhere()
