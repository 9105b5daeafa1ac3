"""Deliberate bugs in the coordinators, which the simulator has to find."""

from collections.abc import Callable
from uuid import UUID

from headrace.coordination.groups.consumer_state import ConsumerState
from headrace.coordination.groups.registry import Groups
from headrace.coordination.outcome import Outcome
from headrace.coordination.runtime import Runtime
from headrace.coordination.shards import Shard
from headrace.coordination.transaction_records import Transaction
from headrace.coordination.transaction_runtime import TransactionCoordinator
from headrace.errors import KafkaError
from headrace.types import BrokerId, TopicPartition
from tests.bugs.swaps import swap


def _set_timers_first() -> None:
    """Timers are set before the records are appended, and stay so if the append is refused."""
    apply = Runtime._apply

    def careless(
        self: Runtime[Groups],
        shard: Shard[Groups],
        outcome: Outcome,
        refuse: Callable[[KafkaError], None] | None = None,
    ) -> bool:
        self._timers.set(shard.index, outcome.timers)
        return apply(self, shard, outcome, refuse)

    swap(Runtime, "_apply", careless)


def _reply_at_once() -> None:
    """Clients are answered when their records are appended, before they are committed."""
    apply = Runtime._apply

    def careless(
        self: Runtime[Groups],
        shard: Shard[Groups],
        outcome: Outcome,
        refuse: Callable[[KafkaError], None] | None = None,
    ) -> bool:
        replies, outcome.replies = outcome.replies, []
        if not apply(self, shard, outcome, refuse):
            return False
        for reply in replies:
            reply.send()
        return True

    swap(Runtime, "_apply", careless)


def _assign_held_partitions() -> None:
    """A partition goes to its next member before the last one has given it up."""

    def nobody(_self: ConsumerState, _topic_id: UUID, _partition: int) -> None:
        return None

    swap(ConsumerState, "holder", nobody)


def _forget_markers() -> None:
    """A transaction is complete though another broker did not write its markers."""
    write = TransactionCoordinator._write_elsewhere

    async def careless(
        self: TransactionCoordinator,
        leader: BrokerId,
        partitions: list[TopicPartition],
        prepared: Transaction,
        commit: bool,
        epoch: int,
    ) -> set[TopicPartition]:
        await write(self, leader, partitions, prepared, commit, epoch)
        return set()

    swap(TransactionCoordinator, "_write_elsewhere", careless)


GROUP_BUGS = {
    "timers": _set_timers_first,
    "early-reply": _reply_at_once,
    "held-partitions": _assign_held_partitions,
}
TRANSACTION_BUGS = {"markers": _forget_markers}
