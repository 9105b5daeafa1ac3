"""The sticky assignor of streams groups: which member runs which task.

Active tasks are spread evenly over members, and stay with the member that has them; a task that has
to move goes to a member with a standby task for it, if there is room. Standby tasks run on other
processes than their active task. As in Kafka 4.3, there are no warm-up tasks.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from headrace.coordination.groups.streams.tasks import TaskId, TaskSets

logger = logging.getLogger(__name__)


class TaskRunner(NamedTuple):
    """A member, with the tasks of its last target."""

    member_id: str
    process_id: str
    """Members with the same process id share a disk, and fail together."""
    before: TaskSets


class SubtopologyTasks(NamedTuple):
    """The tasks of a subtopology: partition numbers from 0 on."""

    tasks: int
    is_stateful: bool


def assign_sticky(
    members: Sequence[TaskRunner], subtopologies: Mapping[str, SubtopologyTasks], standbys: int
) -> dict[str, TaskSets]:
    """The target of every member, with `standbys` standby tasks for each stateful task."""
    if not members:
        return {}
    tasks = [TaskId(name, at) for name, one in subtopologies.items() for at in range(one.tasks)]
    stateful = [task for task in tasks if subtopologies[task.subtopology].is_stateful]
    total = len(tasks) + standbys * len(stateful)
    assignment = _Assignment(members, len(tasks), total)
    assignment.place_active(tasks)
    if standbys:
        assignment.place_standbys(stateful, standbys)
    return assignment.result()


class _Quota:
    """How many tasks one more member may have, so that all have equal shares in the end."""

    def __init__(self, tasks: int, members: int) -> None:
        self._tasks, self._members = tasks, members
        self.limit = -(-tasks // members)

    def taken(self, count: int) -> None:
        """A member has this many tasks now. If its share is full, the others divide the rest."""
        if count == self.limit:
            self._tasks -= count
            self._members -= 1
            self.limit = -(-self._tasks // self._members) if self._members else 0


@dataclass(slots=True)
class _Process:
    """The members of one process, and the tasks that run in it in any role."""

    id: str
    members: list[_Member] = field(default_factory=list)
    tasks: set[TaskId] = field(default_factory=set)

    def load(self) -> float:
        return len(self.tasks) / len(self.members)


@dataclass(slots=True, eq=False)
class _Member:
    id: str
    process: _Process
    active: set[TaskId] = field(default_factory=set)
    standby: set[TaskId] = field(default_factory=set)

    def count(self) -> int:
        return len(self.active) + len(self.standby)


class _Assignment:
    """The state of one computation."""

    def __init__(self, members: Sequence[TaskRunner], active: int, total: int) -> None:
        self._active_quota = _Quota(active, len(members))
        self._total_quota = _Quota(total, len(members))
        self._processes: dict[str, _Process] = {}
        self._members: list[_Member] = []
        self._last_active: dict[TaskId, _Member] = {}
        self._last_standby: dict[TaskId, list[_Member]] = {}
        # In order of ids: the result must not depend on the order of heartbeats.
        for one in sorted(members):
            process = self._processes.setdefault(one.process_id, _Process(one.process_id))
            member = _Member(one.member_id, process)
            process.members.append(member)
            self._members.append(member)
            self._last_active.update(dict.fromkeys(one.before.active, member))
            for task in one.before.standby:
                self._last_standby.setdefault(task, []).append(member)

    def result(self) -> dict[str, TaskSets]:
        return {
            one.id: TaskSets(frozenset(one.active), frozenset(one.standby)) for one in self._members
        }

    # --------------------------------------------------------------------------------- active

    def place_active(self, tasks: Iterable[TaskId]) -> None:
        """Tasks stay where they are, then go to their standbys, then where there is room."""
        # Tasks of the same partition number are together: they often read copartitioned topics.
        left = sorted(tasks, key=lambda task: (task.partition, task.subtopology))
        left = [task for task in left if not self._stay(task)]
        left = [task for task in left if not self._promote(task)]
        queue = self._by_process_load()
        for task in sorted(left):
            process, member = self._roomiest(queue)
            self._add_active(member, task)
            heappush(queue, (process.load(), process.id))

    def _stay(self, task: TaskId) -> bool:
        last = self._last_active.get(task)
        if last is None or last.count() >= self._active_quota.limit:
            return False
        self._add_active(last, task)
        return True

    def _promote(self, task: TaskId) -> bool:
        able = [
            one
            for one in self._last_standby.get(task, ())
            if one.count() < self._active_quota.limit
        ]
        if not able:
            return False
        self._add_active(min(able, key=_by_load), task)
        return True

    def _by_process_load(self) -> list[tuple[float, str]]:
        """A heap of processes: with many tasks and members, a search for each task takes long."""
        queue = [(process.load(), process.id) for process in self._processes.values()]
        heapify(queue)
        return queue

    def _roomiest(self, queue: list[tuple[float, str]]) -> tuple[_Process, _Member]:
        """The member with room in the process with the least load, which leaves the queue."""
        while True:
            process = self._processes[heappop(queue)[1]]
            member = min(process.members, key=_Member.count)
            # The limit never rises again, so a process without room needs no second look.
            if member.count() < self._active_quota.limit:
                return process, member

    def _add_active(self, member: _Member, task: TaskId) -> None:
        member.active.add(task)
        member.process.tasks.add(task)
        self._active_quota.taken(member.count())
        self._total_quota.taken(member.count())

    # -------------------------------------------------------------------------------- standby

    def place_standbys(self, tasks: Iterable[TaskId], wanted: int) -> None:
        """Standbys stay where the state is, then go where there is the least load."""
        left: list[tuple[TaskId, int]] = []
        for task in sorted(tasks, key=lambda task: (task.partition, task.subtopology)):
            missing = wanted
            while missing and (holder := self._holder_of_state(task)) is not None:
                self._add_standby(holder, task)
                missing -= 1
            if missing:
                left.append((task, missing))
        queue, short = self._by_process_load(), 0
        for task, missing in sorted(left, reverse=True):
            for done in range(missing):
                process = self._least_loaded_without(task, queue)
                if process is None:
                    short += missing - done
                    break
                self._add_standby(min(process.members, key=_Member.count), task)
                heappush(queue, (process.load(), process.id))
        if short:
            logger.info("%d standby tasks need more processes; they are not assigned", short)

    def _least_loaded_without(
        self, task: TaskId, queue: list[tuple[float, str]]
    ) -> _Process | None:
        """The process with the least load that does not have the task; it leaves the queue."""
        passed: list[tuple[float, str]] = []
        found = None
        while queue and found is None:
            entry = heappop(queue)
            process = self._processes[entry[1]]
            if task in process.tasks:
                passed.append(entry)
            else:
                found = process
        for entry in passed:
            heappush(queue, entry)
        return found

    def _holder_of_state(self, task: TaskId) -> _Member | None:
        """A member on another process that has the state of the task, and room."""
        last = self._last_active.get(task)
        holders = self._last_standby.get(task, [])
        if last is not None:
            holders = [last, *holders]
        able = [
            one
            for one in holders
            if task not in one.process.tasks and one.count() < self._total_quota.limit
        ]
        if last in able:
            return last
        return min(able, key=_by_load, default=None)

    def _add_standby(self, member: _Member, task: TaskId) -> None:
        member.standby.add(task)
        member.process.tasks.add(task)
        self._total_quota.taken(member.count())


def _by_load(member: _Member) -> tuple[float, int, str, str]:
    return member.process.load(), member.count(), member.process.id, member.id
