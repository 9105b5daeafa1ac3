"""The guarantees hold for any sequence of joins, leaves, timeouts, lost responses and restarts.

A partition never has two owners at once, epochs and committed rights never go back,
and after a few heartbeats of all members, every subscribed partition has an owner.
"""

from contextlib import suppress

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headrace.coordination.groups.consumer_member import size
from headrace.errors import ErrorCode, KafkaError
from tests.coordination.groups.consumer_shard import GROUP, Client, Shard, owners, settle, topic_id

SESSION_MS = 45_000
NAMES = st.sampled_from("abcdef")
TOPICS = ("orders", "returns", "oranges")
SUBSCRIPTIONS = st.sampled_from(
    [(("orders",), None), (("orders", "returns"), None), (None, "or.*"), (("none",), "ret.*")]
)
FATAL = (
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.FENCED_INSTANCE_ID,
)


class ConsumerGroups(RuleBasedStateMachine):
    """Real clients' behaviour, in any order."""

    @initialize(assignor=st.sampled_from(["uniform", "range"]))
    def start(self, assignor: str) -> None:
        self.shard = Shard({"group.consumer.assignors": assignor}, orders=4, returns=2)
        self.clients: dict[str, Client] = {}
        self.serial = 0
        self.epoch = 0

    @rule(name=NAMES, subscription=SUBSCRIPTIONS, static=st.booleans())
    def join(
        self, name: str, subscription: tuple[tuple[str, ...] | None, str | None], static: bool
    ) -> None:
        if name in self.clients:
            return
        self.serial += 1
        topics, expression = subscription
        instance_id = f"instance-{name}" if static else None
        client = Client(self.shard, f"{name}-{self.serial}", topics, expression, instance_id)
        with suppress(KafkaError):  # its instance may not have been released yet
            client.join()
            self.clients[name] = client

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def act(self, data: st.DataObject) -> None:
        """Somebody sends its next heartbeat."""
        self._attempt(data.draw(st.sampled_from(sorted(self.clients))))

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def lose_an_answer(self, data: st.DataObject) -> None:
        """A heartbeat arrives, its answer does not; the next one says everything again."""
        client = self.clients[data.draw(st.sampled_from(sorted(self.clients)))]
        client.missed = True
        with suppress(KafkaError):
            self.shard.beat(client.request(owned=client.owned))

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), subscription=SUBSCRIPTIONS)
    def subscribe(
        self, data: st.DataObject, subscription: tuple[tuple[str, ...] | None, str | None]
    ) -> None:
        name = data.draw(st.sampled_from(sorted(self.clients)))
        client = self.clients[name]
        topics, expression = subscription
        try:
            client.topics, client.expression = topics, expression
            client.beat(topics=topics or (), expression=expression or "", owned=client.owned)
        except KafkaError as error:
            self._failed(name, error)

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), for_now=st.booleans())
    def leave(self, data: st.DataObject, for_now: bool) -> None:
        client = self.clients.pop(data.draw(st.sampled_from(sorted(self.clients))))
        with suppress(KafkaError):
            client.leave(-2 if for_now and client.instance_id else -1)

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def vanish(self, data: st.DataObject) -> None:
        """A client dies; its session ends before anybody else's."""
        client = self.clients.pop(data.draw(st.sampled_from(sorted(self.clients))))
        for _ in range(10):
            self.shard.advance(5000)
            for name in list(self.clients):
                self._attempt(name)
        group = self.shard.groups.groups.get(GROUP)
        assert group is None or client.id not in self.shard.group.persistent.members

    @rule(name=st.sampled_from(TOPICS), count=st.integers(1, 6))
    def grow(self, name: str, count: int) -> None:
        known = self.shard.image.topics.get(name)
        if known is None or len(known.partitions) < count:
            self.shard.change_topics((), **{name: count})

    @rule()
    def restart(self) -> None:
        self.shard.restart()

    @rule(ms=st.integers(1, 20_000))
    def wait(self, ms: int) -> None:
        self.shard.advance(ms)

    @precondition(lambda self: self.clients)
    @rule()
    def come_to_rest(self) -> None:
        """After enough heartbeats everything that is read has its owner, and nobody has more."""
        for _ in range(4):
            for name in list(self.clients):
                self._attempt(name)
        for client in self.clients.values():
            if client.id not in self.shard.group.persistent.members:
                client.join()
        settle(*self.clients.values())
        state = self.shard.group.persistent
        away = {one.id for one in state.members.values()} - {
            one.id for one in self.clients.values()
        }
        wanted = {
            (topic_id(name), number)
            for name in state.subscriptions.names()
            if name in self.shard.image.topics
            for number in range(len(self.shard.image.topics[name].partitions))
        }
        kept_by_absent = {
            (topic, number)
            for one in away
            for held in (state.target_of(one), state.members[one].current.assigned)
            for topic, numbers in held.items()
            for number in numbers
        }
        assert wanted - kept_by_absent <= owners(list(self.clients.values())).keys()
        for client in self.clients.values():
            assert client.owned == state.members[client.id].current.assigned

    def _attempt(self, name: str) -> None:
        try:
            self.clients[name].settle()
        except KafkaError as error:
            self._failed(name, error)

    def _failed(self, name: str, error: KafkaError) -> None:
        """As real clients do: let go of everything and join anew, with a new id if need be."""
        assert error.code in FATAL, error
        client = self.clients[name]
        client.owned = {}
        if error.code is ErrorCode.FENCED_MEMBER_EPOCH:
            self.shard.advance(46_000)
        with suppress(KafkaError):
            client.join()
            return
        del self.clients[name]

    @invariant()
    def no_partition_has_two_owners(self) -> None:
        if hasattr(self, "clients"):
            end = self.shard.now_ms - SESSION_MS
            owners([one for one in self.clients.values() if one.heard_ms > end])

    @invariant()
    def epochs_never_go_back(self) -> None:
        if hasattr(self, "shard") and GROUP in self.shard.groups.groups:
            state = self.shard.group.persistent
            assert state.epoch >= self.epoch
            self.epoch = state.epoch
            assert state.target_epoch <= state.epoch
            assert all(one.epoch <= state.target_epoch for one in state.members.values())
            held = sum(
                size(one.current.assigned) + size(one.current.revoking)
                for one in state.members.values()
            )
            assert held == len(state._holders), "somebody's partition is somebody else's too"


TestConsumerGroups = ConsumerGroups.TestCase
TestConsumerGroups.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
