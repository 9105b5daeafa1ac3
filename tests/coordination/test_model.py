"""The guarantees hold for any sequence of joins, syncs, leaves, timeouts, commits and restarts:

one owner for each partition and generation, every partition owned once a generation is complete,
and committed offsets that never go back.
"""

from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from headrace.coordination.groups.group import Committer, Joined, Synced
from headrace.coordination.groups.rebalance import STABLE
from headrace.coordination.outcome import Token
from headrace.errors import ErrorCode, KafkaError
from tests.coordination.replies import reply_of
from tests.coordination.shard import GROUP, Shard

PARTITIONS = 5
CLIENTS = st.integers(0, 4)
STATIC = {3: "static-a", 4: "static-b"}  # clients with an instance id of their own


@dataclass
class Client:
    """A member as it sees itself."""

    instance_id: str | None
    member_id: str = ""
    generation: int = -1
    owned: frozenset[int] = frozenset()
    joined: Joined | None = None
    join_token: Token[Joined] | None = None
    sync_token: Token[Synced] | None = None

    def forget(self) -> None:
        """It is told that it is no member."""
        self.member_id = ""
        self.reset()

    def reset(self) -> None:
        """It has to join again."""
        self.generation = -1
        self.owned = frozenset()
        self.joined = None


class Coordination(RuleBasedStateMachine):
    @initialize(delay_ms=st.sampled_from([0, 3000]), max_size=st.sampled_from([3, 100]))
    def start(self, delay_ms: int, max_size: int) -> None:
        self.shard = Shard(
            {
                "group.initial.rebalance.delay.ms": str(delay_ms),
                "group.max.size": str(max_size),
            }
        )
        self.clients = [Client(STATIC.get(index)) for index in range(5)]
        self.offsets = dict.fromkeys(range(PARTITIONS), -1)

    # ------------------------------------------------------------------------------ what happens

    @rule(index=CLIENTS, handshake=st.booleans())
    def join(self, index: int, handshake: bool) -> None:
        client = self.clients[index]
        client.reset()
        client.sync_token = None
        client.join_token = self.shard.join(
            client.member_id,
            instance_id=client.instance_id,
            requires_member_id=handshake,
            # A static member may miss a whole generation without being given up.
            session_ms=10_000 if client.instance_id is None else 60_000,
            rebalance_ms=20_000,
        )
        self._hear()

    @rule(
        order=st.permutations(range(5)),
        count=st.integers(1, 4),
        rounds=st.integers(2, 5),
        ms=st.sampled_from([0, 3000, 21_000]),
    )
    def behave(self, order: list[int], count: int, rounds: int, ms: int) -> None:
        """Some clients do for a while what a client should do: most generations come from here."""
        for _ in range(rounds):
            self.advance(ms)
            for index in order[:count]:
                client = self.clients[index]
                if client.join_token is not None or client.sync_token is not None:
                    continue
                if client.generation >= 0:
                    self.heartbeat(index)
                if client.joined is not None and client.generation < 0:
                    self.sync(index)
                elif client.joined is None:
                    self.join(index, True)

    @rule(index=CLIENTS)
    def sync(self, index: int) -> None:
        client = self.clients[index]
        if client.joined is None:
            return
        joined = client.joined
        parts: dict[str, bytes] = {}
        if joined.leader == joined.member_id and not joined.skip_assignment:
            ids = sorted(member.member_id for member in joined.members)
            parts = {
                member_id: bytes(range(at, PARTITIONS, len(ids)))
                for at, member_id in enumerate(ids)
            }
        client.sync_token = self.shard.sync(
            client.member_id, joined.generation, parts, instance_id=client.instance_id
        )
        self._hear()

    @rule(index=CLIENTS)
    def heartbeat(self, index: int) -> None:
        client = self.clients[index]
        if client.generation >= 0:
            code = self.shard.heartbeat(client.member_id, client.generation, client.instance_id)
            self._obey(client, code)
            self._hear()

    @rule(index=CLIENTS)
    def leave(self, index: int) -> None:
        client = self.clients[index]
        if client.member_id:
            self.shard.leave((client.member_id, client.instance_id))
            self._hear()
            client.forget()
            client.join_token = client.sync_token = None

    @rule(index=CLIENTS)
    def vanish(self, index: int) -> None:
        """The process is killed; another one starts in its place."""
        self.clients[index] = Client(self.clients[index].instance_id)

    @rule(index=CLIENTS, step=st.integers(1, 100))
    def commit(self, index: int, step: int) -> None:
        client = self.clients[index]
        for partition in client.owned:
            offset = self.offsets[partition] + step
            try:
                self.shard.commit(
                    offset,
                    client.member_id,
                    client.generation,
                    partition=partition,
                    instance_id=client.instance_id,
                )
            except KafkaError as error:
                self._obey(client, error.code)
                return
            self.offsets[partition] = offset

    @rule(ms=st.sampled_from([1, 1000, 5000, 11_000, 21_000, 400_000]))
    def advance(self, ms: int) -> None:
        self.shard.advance(ms)
        self._hear()

    @rule()
    def restart(self) -> None:
        for client in self.clients:
            client.join_token = client.sync_token = None
        self.shard.restart()

    # -------------------------------------------------------------------------- what clients do

    def _hear(self) -> None:
        """Every client reads the answers that have come."""
        for client in self.clients:
            if client.join_token is not None and client.join_token.answered:
                joined = reply_of(client.join_token)
                client.join_token = None
                if joined.error is ErrorCode.NONE:
                    client.member_id = joined.member_id
                    client.joined = joined
                elif joined.error is ErrorCode.MEMBER_ID_REQUIRED:
                    client.member_id = joined.member_id
                else:
                    self._obey(client, joined.error)
            if client.sync_token is not None and client.sync_token.answered:
                synced = reply_of(client.sync_token)
                client.sync_token = None
                if synced.error is ErrorCode.NONE and client.joined is not None:
                    client.generation = client.joined.generation
                    client.owned = frozenset(synced.assignment)
                else:
                    self._obey(client, synced.error)

    def _obey(self, client: Client, code: ErrorCode) -> None:
        if code in (ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS):
            # A member may go on with what it owns until it joins again.
            client.joined = None
        elif code is not ErrorCode.NONE:
            client.forget()

    # -------------------------------------------------------------------------------- promises

    def _members(self) -> list[Client]:
        """The clients that the group takes for members of its present generation."""
        found = []
        for client in self.clients:
            who = Committer(client.member_id, client.instance_id, client.generation, 8)
            try:
                self.shard.group().check_commit(who, self.shard.now_ms)
            except KafkaError:
                continue
            if client.generation >= 0:
                found.append(client)
        return found

    @invariant()
    def a_partition_has_one_owner_in_a_generation(self) -> None:
        if GROUP not in self.shard.groups.groups:
            return
        members = self._members()
        owned = [partition for client in members for partition in client.owned]
        assert len(owned) == len(set(owned)), members

    @invariant()
    def every_partition_has_an_owner_in_a_complete_generation(self) -> None:
        if GROUP not in self.shard.groups.groups:
            return
        group = self.shard.group()
        members = self._members()
        if group.state == STABLE and len(members) == len(group.roster):
            assert {part for client in members for part in client.owned} == set(range(PARTITIONS))

    @invariant()
    def a_committed_offset_never_goes_back(self) -> None:
        for partition, offset in self.offsets.items():
            assert self.shard.committed(partition) == offset

    @invariant()
    def whoever_waits_is_known(self) -> None:
        """Nobody waits for an answer that will never come."""
        group = self.shard.groups.groups.get(GROUP)
        joining = {client.join_token for client in self.clients if client.join_token}
        syncing = {client.sync_token for client in self.clients if client.sync_token}
        if group is None:
            assert not joining | syncing
            return
        members = self.shard.group().roster.members.values()
        assert joining <= {member.join_token for member in members}
        assert syncing <= {member.sync_token for member in members}


Coordination.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestCoordination = Coordination.TestCase
