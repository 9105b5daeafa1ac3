"""A shard without a log or a clock, and members of streams groups that behave like real ones."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from headrace.coordination import streams_records
from headrace.coordination.groups.registry import Groups
from headrace.coordination.groups.streams import streams_group
from headrace.coordination.groups.streams.streams_group import (
    StreamsGroup,
    StreamsHeartbeat,
    StreamsHeartbeatReply,
)
from headrace.coordination.groups.streams.tasks import NO_TASKS, TaskId, TaskSets
from headrace.coordination.groups.streams.topology import (
    InternalTopicSpec,
    StreamsTopology,
    Subtopology,
)
from headrace.coordination.streams_records import UserEndpoint
from tests.coordination.groups.consumer_shard import GROUP, Shard

COUNTING = StreamsTopology(
    0, (Subtopology("0", ("words",), changelog_topics=(InternalTopicSpec("counts"),)),)
)
"""One stateful subtopology."""

AT_ONCE = {
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.streams.assignment.interval.ms": "0",
}
"""Settings with which no assignment waits."""


class StreamsTestShard(Shard):
    """Runs operations on streams groups."""

    def __init__(self, settings: Mapping[str, str] | None = None, **topics: int) -> None:
        super().__init__(AT_ONCE if settings is None else settings, **topics)
        self._set_wall()

    @property
    def streams(self) -> StreamsGroup:
        found = self.groups.groups[GROUP]
        assert isinstance(found, StreamsGroup)
        return found

    def streams_beat(self, beat: StreamsHeartbeat) -> StreamsHeartbeatReply:
        return self.ask(partial(streams_group.heartbeat, self.groups, beat))

    def advance(self, ms: int) -> None:
        super().advance(ms)
        self._set_wall()

    def restart(self) -> None:
        """Forget everything, and read the log as a start does, in any order."""
        self.groups = Groups(self.settings, self.image)
        self._set_wall()
        self.timers.clear()
        for key, value in sorted(self.log.items(), reverse=True):
            if value is not None:
                self.groups.replay(*streams_records.decode(key, value))
        self.run(self.groups.loaded(self.now_ms))

    def _set_wall(self) -> None:
        self.groups.wall.ms = 1_000_000 + self.now_ms


@dataclass
class Thread:
    """A member: does what it is told, one step with each heartbeat."""

    shard: StreamsTestShard
    id: str
    process: str = ""
    topology: StreamsTopology = COUNTING
    endpoint: UserEndpoint | None = None
    epoch: int = 0
    endpoint_epoch: int = 0
    owned: TaskSets = NO_TASKS
    assigned: TaskSets = NO_TASKS

    def join(self) -> StreamsHeartbeatReply:
        self.epoch, self.owned, self.assigned = 0, NO_TASKS, NO_TASKS
        return self.beat(
            rebalance_timeout_ms=60_000,
            topology=self.topology,
            owned=NO_TASKS,
            process_id=self.process or self.id,
            endpoint=self.endpoint,
            tags=(),
        )

    def beat(self, **fields: object) -> StreamsHeartbeatReply:
        reply = self.shard.streams_beat(self.request(**fields))
        self.epoch, self.endpoint_epoch = reply.epoch, reply.endpoint_epoch
        if reply.tasks is not None:
            self.assigned = reply.tasks
        return reply

    def request(self, **fields: object) -> StreamsHeartbeat:
        values: dict[str, object] = {
            "group_id": GROUP,
            "member_id": self.id,
            "epoch": self.epoch,
            "endpoint_epoch": self.endpoint_epoch,
            "rack_id": None,
            "rebalance_timeout_ms": -1,
            "topology": None,
            "owned": None,
            "process_id": None,
            "endpoint": None,
            "tags": None,
            "shutdown": False,
            "client_id": "app",
            "client_host": "/127.0.0.1",
        }
        return StreamsHeartbeat(**{**values, **fields})  # type: ignore[arg-type]

    def settle(self) -> bool:
        """Do what it was told, in the order of a real client; whether anything was to be done."""
        if self.owned - self.assigned:
            self.owned = self.owned & self.assigned
            self.beat(owned=self.owned)
            return True
        if self.assigned - self.owned:
            self.owned = self.assigned
            self.beat(owned=self.owned)
            return True
        epoch = self.epoch
        reply = self.beat()
        return reply.tasks is not None or reply.epoch != epoch

    def leave(self, **fields: object) -> StreamsHeartbeatReply:
        self.owned = self.assigned = NO_TASKS
        return self.shard.streams_beat(self.request(epoch=-1, **fields))


def settle(*threads: Thread) -> None:
    """Let heartbeats go round until nothing changes any more."""
    for _ in range(50):
        threads[0].shard.advance(500)
        moved = [thread.settle() for thread in threads]
        if not any(moved):
            return
    raise AssertionError("the group does not come to rest")


def tasks(*partitions: int) -> frozenset[TaskId]:
    return frozenset(TaskId("0", partition) for partition in partitions)
