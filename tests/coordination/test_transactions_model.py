"""Random histories of producers that share a transactional id, with crashes and late requests.

The model is a log of each partition: who wrote, in which transaction, and the markers. Whatever
happens, a transaction whose producer was told that it is committed is committed in every partition,
and no record is between two transactions.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headrace.coordination.transaction_records import TransactionState
from headrace.coordination.transactions import Identity
from headrace.errors import ErrorCode, KafkaError
from headrace.types import TopicPartition
from tests.coordination.test_transactions import NAME, TIMEOUT_MS, Shard

PARTITIONS = [TopicPartition("orders", n) for n in range(3)]
V2 = 2


@dataclass
class Client:
    """A producer as it sees itself."""

    who: Identity
    writes: list[int] = field(default_factory=list)
    """The records of its open transaction."""
    fenced: bool = False


class Histories(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.shard = Shard()
        self.clients: list[Client] = []
        self.late: list[tuple[Identity, bool]] = []
        self.records = 0
        self.open: dict[TopicPartition, list[tuple[Identity, int]]] = {}
        self.visible: set[int] = set()
        self.hidden: set[int] = set()
        self.asked: set[int] = set()
        self.promised: set[int] = set()
        self.refused: set[int] = set()
        self.seen = 0
        self.identities: set[Identity] = set()

    def _markers(self) -> None:
        """Write the markers that the coordinator asked for since the last look."""
        for where, producer_id, epoch, commit in self.shard.markers[self.seen :]:
            written = self.open.pop(where, [])
            for who, record in written:
                assert who.producer_id == producer_id
                assert who.epoch < epoch
                (self.visible if commit else self.hidden).add(record)
        self.seen = len(self.shard.markers)

    @initialize()
    def begin(self) -> None:
        self.connect()

    @rule()
    def connect(self) -> None:
        """Another instance of the same application."""
        try:
            who = self.shard.init()
        except KafkaError as error:
            if error.code is not ErrorCode.CONCURRENT_TRANSACTIONS:
                raise
        else:
            assert who not in self.identities, "an epoch was given out twice"
            self.identities.add(who)
            self.clients.append(Client(who))
        self._markers()

    @rule(where=st.sampled_from(PARTITIONS))
    def write_with_the_newest(self, where: TopicPartition) -> None:
        self.write(len(self.clients) - 1, where)

    @rule(commit=st.booleans())
    def end_with_the_newest(self, commit: bool) -> None:
        self.end(len(self.clients) - 1, commit, lost=False)

    @rule(which=st.integers(0, 3), where=st.sampled_from(PARTITIONS))
    def write(self, which: int, where: TopicPartition) -> None:
        client = self.clients[which % len(self.clients)]
        try:
            self.shard.add(client.who, where)
        except KafkaError as error:
            client.fenced = client.fenced or error.code is not ErrorCode.CONCURRENT_TRANSACTIONS
            return
        self.records += 1
        self.open.setdefault(where, []).append((client.who, self.records))
        client.writes.append(self.records)

    @rule(which=st.integers(0, 3), commit=st.booleans(), lost=st.booleans())
    def end(self, which: int, commit: bool, lost: bool) -> None:
        client = self.clients[which % len(self.clients)]
        if not client.writes and (commit or not lost):
            return  # to abort nothing is allowed, and would be most of what happens here
        self.late.append((client.who, commit))
        # An earlier answer was lost: whatever is said now, it may be committed.
        in_doubt = bool(client.writes) and self.asked.issuperset(client.writes)
        self.asked.update(client.writes if commit else ())
        try:
            later = self.shard.end(client.who, commit)
            if lost:
                # The answer did not arrive, so the client asks again.
                later = self.shard.end(client.who, commit)
        except KafkaError as error:
            if error.code is not ErrorCode.CONCURRENT_TRANSACTIONS:
                client.fenced = True
                self.refused.update(client.writes if commit and not in_doubt else ())
                client.writes = []
        else:
            (self.promised if commit else self.refused).update(client.writes)
            client.writes = []
            client.who = later
            self.identities.add(later)
        self._markers()

    @rule(which=st.integers(0, 3))
    def deliver_late(self, which: int) -> None:
        """An end that the network held up arrives once more."""
        if self.late:
            who, commit = self.late[-1 - which % len(self.late)]
            before = self.shard.one
            try:
                self.shard.end(who, commit)
            except KafkaError:
                assert self.shard.one == before
            self._markers()

    @precondition(
        lambda self: self.shard.one.state is TransactionState.ONGOING and not self.shard.held
    )
    @rule()
    def hold_markers(self) -> None:
        self.shard.held = True

    @precondition(lambda self: self.shard.held)
    @rule()
    def write_held_markers(self) -> None:
        self.shard.held = False
        self.shard.apply(self.shard.state.loaded(0))
        self._markers()

    @rule()
    def crash(self) -> None:
        self.shard.restart()
        self._markers()
        assert self.shard.one.state not in (
            TransactionState.PREPARE_COMMIT,
            TransactionState.PREPARE_ABORT,
        )

    @rule()
    def time_passes(self) -> None:
        self.shard.state.wall.ms += TIMEOUT_MS
        self.shard.apply(self.shard.state.abort_timed_out())
        self._markers()

    @invariant()
    def promises_are_kept(self) -> None:
        assert self.visible <= self.asked, "committed, though its producer did not ask for it"
        assert not self.visible & self.refused
        assert not self.hidden & self.promised
        if NAME in self.shard.state.ids and self.shard.one.state not in (
            TransactionState.PREPARE_COMMIT,
            TransactionState.PREPARE_ABORT,
        ):
            assert self.promised <= self.visible

    @invariant()
    def only_an_open_transaction_has_records_without_a_marker(self) -> None:
        if self.shard.one.state in (
            TransactionState.COMPLETE_COMMIT,
            TransactionState.COMPLETE_ABORT,
            TransactionState.EMPTY,
        ):
            assert not any(self.open.values())


Histories.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestHistories = Histories.TestCase
