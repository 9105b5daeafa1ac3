"""The sticky assignor: one owner for each task, equal shares, few moves, standbys elsewhere."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from headrace.coordination.groups.streams.task_assignor import (
    SubtopologyTasks,
    TaskRunner,
    assign_sticky,
)
from headrace.coordination.groups.streams.tasks import NO_TASKS, TaskId, TaskSets

COUNT = SubtopologyTasks(6, True)

PROCESSES = st.lists(st.integers(1, 3), min_size=1, max_size=5)
"""The number of members of each process."""
SUBTOPOLOGIES = st.dictionaries(
    st.sampled_from("012"), st.builds(SubtopologyTasks, st.integers(1, 9), st.booleans())
)


def _members(sizes: list[int], before: dict[str, TaskSets] | None = None) -> list[TaskRunner]:
    known = before or {}
    return [
        TaskRunner(name, f"process-{process}", known.get(name, NO_TASKS))
        for process, size in enumerate(sizes)
        for name in (f"member-{process}-{number}" for number in range(size))
    ]


def _check(
    members: list[TaskRunner],
    topology: dict[str, SubtopologyTasks],
    standbys: int,
    found: dict[str, TaskSets],
) -> None:
    tasks = {TaskId(name, at) for name, one in topology.items() for at in range(one.tasks)}
    process_of = {one.member_id: one.process_id for one in members}
    assert found.keys() == process_of.keys()
    active = Counter(task for target in found.values() for task in target.active)
    assert active == Counter(tasks)
    shares = [len(target.active) for target in found.values()]
    assert max(shares) - min(shares) <= 1
    places = Counter(
        (process_of[member], task)
        for member, target in found.items()
        for task in target.active | target.standby
    )
    assert all(count == 1 for count in places.values()), "a process has the same task twice"
    copies = Counter(task for target in found.values() for task in target.standby)
    most = min(standbys, len(set(process_of.values())) - 1)
    wanted = {task: most for task in tasks if topology[task.subtopology].is_stateful and most}
    assert copies == Counter(wanted)
    assert not any(target.warmup for target in found.values())


@given(PROCESSES, SUBTOPOLOGIES, st.integers(0, 3))
def test_each_task_has_one_owner_and_its_standbys_are_on_other_processes(
    sizes: list[int], topology: dict[str, SubtopologyTasks], standbys: int
) -> None:
    members = _members(sizes)
    _check(members, topology, standbys, assign_sticky(members, topology, standbys))


@given(PROCESSES, PROCESSES, SUBTOPOLOGIES, SUBTOPOLOGIES, st.integers(0, 2), st.integers(0, 2))
def test_the_same_holds_after_members_topics_and_standbys_have_changed(
    old_sizes: list[int],
    sizes: list[int],
    old: dict[str, SubtopologyTasks],
    new: dict[str, SubtopologyTasks],
    old_standbys: int,
    standbys: int,
) -> None:
    before = assign_sticky(_members(old_sizes), old, old_standbys)
    members = _members(sizes, before)
    _check(members, new, standbys, assign_sticky(members, new, standbys))


@given(PROCESSES, SUBTOPOLOGIES, st.integers(0, 2))
def test_active_tasks_stay_where_they_are_if_nothing_changes(
    sizes: list[int], topology: dict[str, SubtopologyTasks], standbys: int
) -> None:
    before = assign_sticky(_members(sizes), topology, standbys)
    after = assign_sticky(_members(sizes, before), topology, standbys)
    assert {name: one.active for name, one in after.items()} == {
        name: one.active for name, one in before.items()
    }


@given(PROCESSES, SUBTOPOLOGIES)
def test_a_new_process_takes_no_more_than_its_share(
    sizes: list[int], topology: dict[str, SubtopologyTasks]
) -> None:
    before = assign_sticky(_members(sizes), topology, 0)
    after = assign_sticky(_members([*sizes, 1], before), topology, 0)
    newcomer = f"member-{len(sizes)}-0"
    moved = [task for name, one in before.items() for task in one.active - after[name].active]
    assert sorted(moved) == sorted(after[newcomer].active)


def test_a_standby_takes_over_the_tasks_of_a_lost_process() -> None:
    before = assign_sticky(_members([1, 1]), {"0": COUNT}, 1)
    lost = before.pop("member-1-0")
    after = assign_sticky(_members([1], before), {"0": COUNT}, 1)
    assert lost.active <= before["member-0-0"].standby
    assert after["member-0-0"].active == lost.active | before["member-0-0"].active


def test_the_first_assignment_gives_ranges_of_partitions_to_processes_in_turn() -> None:
    found = assign_sticky(_members([1, 1]), {"0": SubtopologyTasks(2, False), "1": COUNT}, 0)
    assert {len(one.active) for one in found.values()} == {4}


def test_a_group_without_members_has_no_tasks() -> None:
    assert assign_sticky([], {"0": COUNT}, 1) == {}
