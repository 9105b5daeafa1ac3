"""Any order of joins, heartbeats, losses and restarts: no task ever has two owners."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headrace.coordination.groups.streams.tasks import TaskId
from tests.coordination.groups.streams.streams_shard import (
    StreamsTestShard,
    Thread,
    settle,
    tasks,
)

PARTITIONS = 5


class StreamsGroupMachine(RuleBasedStateMachine):
    """Up to four threads in two processes."""

    def __init__(self) -> None:
        super().__init__()
        self.shard = StreamsTestShard(words=PARTITIONS, counts=PARTITIONS)
        self.shard.configure(streams_num_standby_replicas="1")
        self.threads: dict[int, Thread] = {}
        self.joined = 0

    @rule(process=st.sampled_from(["p", "q"]))
    def join(self, process: str) -> None:
        if len(self.threads) < 4:
            self.joined += 1
            thread = Thread(self.shard, f"m{self.joined}", process)
            thread.join()
            self.threads[self.joined] = thread

    @precondition(lambda self: self.threads)
    @rule(data=st.data())
    def beat(self, data: st.DataObject) -> None:
        self._any(data).settle()

    @precondition(lambda self: self.threads)
    @rule(data=st.data())
    def lose_the_answer(self, data: st.DataObject) -> None:
        thread = self._any(data)
        self.shard.streams_beat(thread.request(owned=thread.owned))
        # A client that did not get the answer sends everything again.
        thread.beat(owned=thread.owned)
        thread.assigned = self.shard.streams.persistent.members[thread.id].current.assigned

    @precondition(lambda self: self.threads)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.threads)))
        self.threads.pop(key).leave()

    @precondition(lambda self: self.threads)
    @rule(data=st.data())
    def crash(self, data: st.DataObject) -> None:
        """The process is gone, so that it owns nothing; the group learns it later."""
        key = data.draw(st.sampled_from(sorted(self.threads)))
        self.threads.pop(key)
        for _ in range(6):
            self.shard.advance(10_000)
            for thread in self.threads.values():
                thread.settle()

    @rule()
    def restart(self) -> None:
        self.shard.restart()

    @rule(standbys=st.integers(0, 2))
    def configure(self, standbys: int) -> None:
        self.shard.configure(streams_num_standby_replicas=str(standbys))

    @invariant()
    def no_task_runs_twice(self) -> None:
        owners: set[TaskId] = set()
        places: set[tuple[str, TaskId]] = set()
        for thread in self.threads.values():
            for task in thread.owned.active:
                assert task not in owners, f"{task} has two owners"
                owners.add(task)
            for task in thread.owned.active | thread.owned.standby:
                assert (thread.process, task) not in places, f"{task} is twice on a process"
                places.add((thread.process, task))

    def teardown(self) -> None:
        if self.threads:
            settle(*self.threads.values())
            found = [task for one in self.threads.values() for task in one.owned.active]
            assert sorted(found) == sorted(tasks(*range(PARTITIONS)))
            assert self.shard.streams.state == "Stable"

    def _any(self, data: st.DataObject) -> Thread:
        return self.threads[data.draw(st.sampled_from(sorted(self.threads)))]


TestStreamsGroup = StreamsGroupMachine.TestCase
TestStreamsGroup.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
