"""A shard without a log or a clock, and members of consumer groups that behave like real ones."""

import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from headrace.cluster.image import Image, PartitionState, Topic
from headrace.coordination import consumer_records, records
from headrace.coordination.consumer_records import Assignment
from headrace.coordination.groups import consumer
from headrace.coordination.groups.consumer import (
    ConsumerGroup,
    ConsumerHeartbeat,
    ConsumerHeartbeatReply,
)
from headrace.coordination.groups.consumer_member import difference, union
from headrace.coordination.groups.group import Join, Joined, Leaver, Left
from headrace.coordination.groups.registry import Groups
from headrace.coordination.outcome import Outcome, Token
from headrace.settings import Settings
from tests.coordination.replies import reply_of

T = TypeVar("T")
GROUP = "billing"
_STATE = PartitionState(1, 0, (1,), (1,))


def topic(name: str, partitions: int) -> Topic:
    """A topic whose id follows from its name."""
    return Topic(name, topic_id(name), (_STATE,) * partitions, {})


def topic_id(name: str) -> uuid.UUID:
    return uuid.uuid5(uuid.NAMESPACE_OID, name)


def partitions(**wanted: int | set[int]) -> Assignment:
    """An assignment by topic names: a number stands for all from 0 on."""
    return {
        topic_id(name): frozenset(range(which) if isinstance(which, int) else which)
        for name, which in wanted.items()
    }


class Shard:
    """Runs operations as the runtime does: append, replay, then answer; timers by hand."""

    def __init__(self, settings: Mapping[str, str] | None = None, **topics: int) -> None:
        self.settings = Settings.parse(settings or {})
        self.image = Image().with_topics(topic(name, count) for name, count in topics.items())
        self.groups = Groups(self.settings, self.image)
        self.log: dict[bytes, bytes | None] = {}
        self.timers: dict[tuple[str, ...], int] = {}
        self.now_ms = 1000

    @property
    def group(self) -> ConsumerGroup:
        found = self.groups.groups[GROUP]
        assert isinstance(found, ConsumerGroup)
        return found

    def run(self, outcome: Outcome) -> None:
        """Write, replay and answer what an operation leads to."""
        for key, value in outcome.records:
            raw = key.encode()
            self.log.pop(raw, None)
            self.log[raw] = None if value is None else value.encode()
            self.groups.replay(key, value)
        for effect in outcome.effects:
            effect()
        for name, at_ms in outcome.sessions + outcome.timers:
            if at_ms is None:
                self.timers.pop(name, None)
            else:
                self.timers[name] = at_ms
        for reply in outcome.replies:
            reply.send()

    def ask(self, operation: Callable[[Token[T], int], Outcome]) -> T:
        """The reply to an operation that is answered at once."""
        token: Token[T] = Token()
        self.run(operation(token, self.now_ms))
        return reply_of(token)

    def beat(self, beat: ConsumerHeartbeat) -> ConsumerHeartbeatReply:
        return self.ask(partial(consumer.heartbeat, self.groups, beat))

    def join(self, request: Join, new_id: str) -> Joined:
        return self.ask(lambda token, now: self.groups.join(request, token, new_id, now))

    def leave(self, *leavers: Leaver) -> tuple[Left, ...]:
        return self.ask(partial(self.groups.leave, GROUP, leavers))

    def advance(self, ms: int) -> None:
        """Let time pass, and every timer fire that is due."""
        self.now_ms += ms
        while due := [key for key, at_ms in self.timers.items() if at_ms <= self.now_ms]:
            for key in due:
                del self.timers[key]
                self.run(self.groups.expire(key, self.now_ms))

    def change_topics(self, removed: tuple[str, ...] = (), **changed: int) -> None:
        """Topics come, grow and go."""
        gone = [self.image.topics[name] for name in removed]
        new = [topic(name, count) for name, count in changed.items()]
        self.image = self.image.with_topics(new, gone)
        names = frozenset({*removed, *changed})
        self.run(self.groups.topics_changed(self.image, names, frozenset(removed), self.now_ms))

    def configure(self, **configs: str) -> None:
        """The group has these configs, and no others."""
        given = {name.replace("_", "."): value for name, value in configs.items()}
        self.image = self.image.with_group_configs(GROUP, given)
        self.run(self.groups.topics_changed(self.image, frozenset(), frozenset(), self.now_ms))

    def restart(self) -> None:
        """Forget everything, and read the log as a start does."""
        self.groups = Groups(self.settings, self.image)
        self.timers.clear()
        for key, value in self.log.items():
            if value is not None:
                read = consumer_records if key[1] in consumer_records.KEY_TYPES else records
                self.groups.replay(*read.decode(key, value))
        self.run(self.groups.loaded(self.now_ms))


@dataclass
class Client:
    """A member: says what changed, gives up what it is told to, and remembers what it owns."""

    shard: Shard
    id: str
    topics: tuple[str, ...] | None = ("orders",)
    expression: str | None = None
    instance_id: str | None = None
    assignor: str | None = None
    epoch: int = 0
    owned: Assignment = field(default_factory=dict)
    assigned: Assignment = field(default_factory=dict)
    heard_ms: int = 0
    """When it last had an answer: after a session without one, a client knows that it is out."""

    missed: bool = False
    """Whether an answer got lost, so that the next heartbeat says everything again."""

    def join(self) -> ConsumerHeartbeatReply:
        self.epoch, self.owned, self.assigned = 0, {}, {}
        return self.beat(**self._everything())

    def _everything(self) -> dict[str, object]:
        return {
            "rebalance_timeout_ms": 60_000,
            "topics": self.topics,
            "expression": self.expression,
            "assignor": self.assignor,
            "owned": self.owned,
        }

    def beat(self, **fields: object) -> ConsumerHeartbeatReply:
        if self.missed:
            fields = {**self._everything(), **fields}
        answer = self.shard.beat(self.request(**fields))
        self.missed = False
        self.epoch = answer.epoch
        self.heard_ms = self.shard.now_ms
        if answer.assigned is not None:
            self.assigned = answer.assigned
        return answer

    def request(self, **fields: object) -> ConsumerHeartbeat:
        values: dict[str, object] = {
            "group_id": GROUP,
            "member_id": self.id,
            "epoch": self.epoch,
            "instance_id": self.instance_id,
            "rack_id": None,
            "rebalance_timeout_ms": -1,
            "topics": None,
            "expression": None,
            "assignor": None,
            "owned": None,
            "client_id": "client",
            "client_host": "/127.0.0.1",
        }
        return ConsumerHeartbeat(**{**values, **fields})  # type: ignore[arg-type]

    def settle(self) -> bool:
        """Do what it was told, in the order of a real client; whether anything was to be done."""
        if give_up := difference(self.owned, self.assigned):
            self.owned = difference(self.owned, give_up)
            self.beat(owned=self.owned)
            return True
        if difference(self.assigned, self.owned):
            self.owned = union(self.owned, self.assigned)
            self.beat(owned=self.owned)
            return True
        epoch = self.epoch
        answer = self.beat()
        return answer.assigned is not None or answer.epoch != epoch

    def leave(self, epoch: int = -1) -> ConsumerHeartbeatReply:
        self.owned, self.assigned = {}, {}
        return self.shard.beat(self.request(epoch=epoch))


def settle(*clients: Client) -> int:
    """Let heartbeats go round until nothing changes any more; how many rounds that took."""
    for count in range(50):
        # Time passes between heartbeats, but no session ends.
        clients[0].shard.advance(500)
        moved = [client.settle() for client in clients]
        if not any(moved):
            return count
    raise AssertionError("the group does not come to rest")


def owners(clients: Iterator[Client] | list[Client]) -> dict[tuple[uuid.UUID, int], str]:
    """Who owns each partition; an error if two do."""
    found: dict[tuple[uuid.UUID, int], str] = {}
    for client in clients:
        for topic, held in client.owned.items():
            for partition in held:
                other = found.setdefault((topic, partition), client.id)
                assert other == client.id, f"{partition} is owned by {other} and {client.id}"
    return found
