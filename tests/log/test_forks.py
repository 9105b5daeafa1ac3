"""Forks of a partition: links, copies, transactions, crashes, and independence of the parent."""

import errno
import uuid
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.clock import ManualClock
from headrace.disk import Disk, RealDisk
from headrace.disk.failpoints import ANY, Fault, Killed
from headrace.disk.memory import MemoryDisk
from headrace.errors import KafkaError
from headrace.log.directory import LogDirectory
from headrace.log.forks.build import BuiltFork, ParentChanged, build_fork
from headrace.log.forks.plan import plan_fork
from headrace.log.log import Log
from headrace.settings import LogSettings
from headrace.types import TopicPartition
from headrace.wire.batch import TRANSACTIONAL
from headrace.wire.markers import encode_marker
from tests.log.compacting import COMPACT, compacted, put, seal
from tests.log.samples import (
    NOW,
    ORDERS,
    ORDERS_ID,
    ROOT,
    SMALL,
    append,
    batch,
    contents,
    open_directory,
    remove_dropped,
)

FORK = TopicPartition("orders.test", 0)
FORK_ID = uuid.UUID(int=77)


def fork_settings(cut: int, settings: LogSettings = SMALL) -> LogSettings:
    return replace(settings, fork_of="orders", fork_offsets=str(cut))


def directory_of(log: Log) -> LogDirectory:
    assert isinstance(log.owner, LogDirectory)
    return log.owner


def fork(parent: Log, cut: int) -> Log:
    plan = plan_fork(parent, cut)
    assert plan is not None
    built = build_fork(plan, directory_of(parent), FORK, FORK_ID, fork_settings(cut))
    return adopted(built, FORK)


def adopted(built: BuiltFork, partition: TopicPartition) -> Log:
    """As `LogDirectories.adopt_fork` does."""
    built.directory.adopt(partition, built.folder, built.log)
    built.log.folder = f"{built.directory.path}/{partition}"
    built.log.durability.folder_renamed(built.log.folder, built.log.segments)
    return built.log


def filled(disk: Disk, batches: int = 20, count: int = 3) -> Log:
    log = open_directory(disk).create(ORDERS, ORDERS_ID, SMALL)
    for number in range(batches):
        append(log, batch(count, value=b"%03d" % number * 10), epoch=number // 8)
    return log


def names(disk: Disk, partition: TopicPartition = FORK) -> list[str]:
    return sorted(disk.list_folder(f"{ROOT}/{partition}"))


def below(log: Log, end: int) -> list[tuple[int, bytes]]:
    return [one for one in contents(log) if one[0] < end]


@pytest.mark.parametrize("cut", [0, 3, 9, 12, 30, 31, 59, 60])
def test_a_fork_has_the_records_below_the_cut_and_continues_alone(cut: int) -> None:
    disk = MemoryDisk()
    parent = filled(disk)
    whole = contents(parent)
    log = fork(parent, cut)
    end = -(-cut // 3) * 3  # a batch that contains the cut is taken as a whole
    assert (log.start_offset, log.end_offset) == (0 if cut else cut, end)
    assert contents(log) == below(parent, end)
    assert log.epochs.entries == tuple(one for one in parent.epochs.entries if one[1] < end)
    append(log, batch(2, value=b"of the fork"), epoch=3)
    append(parent, batch(1, value=b"of the parent"), epoch=2)
    assert contents(log)[:-1] == below(parent, end)
    assert contents(parent)[:-1] == whole


def test_whole_segments_are_links_and_only_the_one_with_the_cut_is_copied() -> None:
    disk = MemoryDisk()
    parent = filled(disk)
    linked = [one for one in parent.segments if one.upper is not None and one.upper <= 30]
    assert len(linked) > 2
    fork(parent, 31)
    for segment in linked:
        for suffix in (".log", ".index", ".timeindex"):
            assert disk.links(segment.files.path(suffix)) == 2
    own = [name for name in names(disk) if name.endswith(".log")]
    assert [disk.links(f"{ROOT}/{FORK}/{name}") for name in own][-2:] == [1, 1]
    assert len(own) == len(linked) + 2


def test_a_disk_without_hard_links_gets_copies() -> None:
    disk = MemoryDisk()
    parent = filled(disk)
    disk.failpoints.arm("link", Fault(errno.EPERM), count=-1)
    log = fork(parent, 45)
    assert contents(log) == below(parent, 45)
    assert {disk.links(f"{ROOT}/{FORK}/{name}") for name in names(disk)} == {1}


@pytest.mark.parametrize("clean", [True, False])
def test_a_fork_survives_a_restart(clean: bool) -> None:
    disk = MemoryDisk()
    parent = filled(disk)
    log = fork(parent, 31)
    append(log, batch(2, value=b"of the fork"), epoch=3)
    before, of_parent = contents(log), contents(parent)
    if clean:
        directory_of(log).close()
    disk.kill()
    directory = open_directory(disk)
    again = directory.get(FORK, fork_settings(31))
    assert contents(again) == before
    assert contents(directory.get(ORDERS, SMALL)) == of_parent
    assert directory.folder.topic_id(FORK) == FORK_ID


def test_the_unclean_restart_reads_only_the_forks_own_segment() -> None:
    disk = MemoryDisk()
    parent = filled(disk)
    log = fork(parent, 31)
    disk.kill()
    disk.failpoints.trace = []
    directory = open_directory(disk)
    directory.get(FORK, fork_settings(31))
    # Recovery from offset 0 would write the indexes of all segments again.
    assert "open .index" not in disk.failpoints.trace
    assert log.end_offset == 33


def transactional(log: Log, producer_id: int, sequence: int, count: int = 2) -> int:
    data = batch(
        count, producer_id=producer_id, epoch=0, sequence=sequence, attributes=TRANSACTIONAL
    )
    return append(log, data)


def end_transaction(log: Log, producer_id: int, *, commit: bool) -> int:
    return append(log, encode_marker(producer_id, 0, commit, 0, NOW))


def with_transactions(disk: Disk, batches: int = 0) -> Log:
    """Interleaved transactions: 7 is aborted and 8 committed, both after the offset 6."""
    log = filled(disk, batches)
    transactional(log, 7, 0)
    transactional(log, 8, 0)
    transactional(log, 7, 2)
    append(log, batch(2))
    end_transaction(log, 7, commit=False)
    end_transaction(log, 8, commit=True)
    transactional(log, 9, 0)
    end_transaction(log, 9, commit=False)
    for _ in range(10):
        append(log, batch(4))
    return log


def aborted(log: Log) -> list[tuple[int, int]]:
    return log.transactions.between(log.start_offset, log.end_offset)


@pytest.mark.parametrize("lost", ["nothing", "snapshots", "checkpoints"])
@pytest.mark.parametrize("cut", [2, 6, 9, 10, 13, 40])
def test_transactions_end_in_the_fork_as_they_did_in_the_parent(cut: int, lost: str) -> None:
    disk = MemoryDisk()
    parent = with_transactions(disk)
    log = fork(parent, cut)
    expected = [one for one in aborted(parent) if one[1] < cut]
    shared = below(parent, cut)

    def check(log: Log) -> None:
        assert aborted(log) == expected
        assert not log.producers.open_transactions
        assert log.last_stable_offset(log.end_offset) == log.end_offset
        assert below(log, cut) == shared

    check(log)
    before = contents(log)
    directory_of(log).checkpoint()
    disk.kill()
    for name in names(disk):
        if lost != "nothing" and name.endswith((".snapshot", ".txnindex")):
            disk.remove(f"{ROOT}/{FORK}/{name}")
    if lost == "checkpoints":
        disk.remove(f"{ROOT}/recovery-point-offset-checkpoint")
    parent_log = open_directory(disk)
    again = parent_log.get(FORK, fork_settings(cut))
    check(again)
    assert contents(again) == before


def test_a_fork_waits_for_transactions_below_its_cut_and_for_records() -> None:
    parent = filled(MemoryDisk())
    transactional(parent, 7, 0)
    assert plan_fork(parent, 60) is not None
    assert plan_fork(parent, 62) is None
    end_transaction(parent, 7, commit=True)
    assert plan_fork(parent, 62) is not None
    assert plan_fork(parent, 63) is not None
    assert plan_fork(parent, 64) is None


@pytest.mark.parametrize("scan", [False, True])
def test_producers_of_the_parent_begin_with_new_sequences(scan: bool) -> None:
    disk = MemoryDisk()
    parent = open_directory(disk).create(ORDERS, ORDERS_ID, SMALL)
    for number in range(3):
        append(parent, batch(2, producer_id=5, epoch=0, sequence=2 * number))
    log = fork(parent, 6)
    if scan:
        disk.kill()
        for name in names(disk):
            if name.endswith(".snapshot"):
                disk.remove(f"{ROOT}/{FORK}/{name}")
        disk.remove(f"{ROOT}/recovery-point-offset-checkpoint")
        log = open_directory(disk).get(FORK, fork_settings(6))
    # The parent's first batch would be a duplicate, and the fourth would follow it.
    assert append(log, batch(2, producer_id=5, epoch=0, sequence=0)) == 6
    assert append(log, batch(2, producer_id=5, epoch=0, sequence=0)) == 6
    assert append(log, batch(2, producer_id=5, epoch=0, sequence=2)) == 8


def test_a_follower_that_fetches_a_fork_knows_no_producers_of_the_parent() -> None:
    disk = MemoryDisk()
    log = open_directory(disk).create(FORK, FORK_ID, fork_settings(4))
    for offset in (0, 2, 4):
        data = batch(2, producer_id=5, epoch=0, sequence=offset, base_offset=offset)
        log.append_replica(memoryview(data), 0, len(data), NOW)
    assert [one.batches for one in log.producers.producers.values()] == [[(4, 5, 4, 5)]]


def test_deletion_of_one_does_not_change_the_other() -> None:
    disk = MemoryDisk()
    parent = filled(disk)
    log = fork(parent, 45)
    whole, of_fork = contents(parent), contents(log)
    parent.delete_records_before(20)
    remove_dropped(parent)
    assert contents(log) == of_fork
    log.delete_records_before(40)
    remove_dropped(log)
    assert contents(parent) == [one for one in whole if one[0] >= 18]
    directory_of(log).delete(FORK)()
    assert contents(parent) == [one for one in whole if one[0] >= 18]


def test_a_fork_survives_the_deletion_of_its_parent() -> None:
    disk = MemoryDisk()
    parent = filled(disk)
    log = fork(parent, 45)
    expected = contents(log)
    directory_of(log).delete(ORDERS)()
    assert contents(log) == expected
    disk.crash()
    assert contents(open_directory(disk).get(FORK, fork_settings(45))) == expected


def with_keys(disk: Disk) -> Log:
    """A log whose first segments have only old values."""
    log = open_directory(disk).create(ORDERS, ORDERS_ID, COMPACT)
    for number in range(30):
        put(log, (b"%d" % (number % 4), b"%d" % number * 20), (b"x", b"%d" % number))
    seal(log)
    return log


def fork_with(parent: Log, cut: int, settings: LogSettings) -> Log:
    plan = plan_fork(parent, cut)
    assert plan is not None
    given = fork_settings(cut, settings)
    return adopted(build_fork(plan, directory_of(parent), FORK, FORK_ID, given), FORK)


def test_compaction_of_one_does_not_change_the_other() -> None:
    for of_parent in (True, False):
        disk = MemoryDisk()
        parent = with_keys(disk)
        log = fork_with(parent, 41, COMPACT)
        log.transactions.stable_below(log.end_offset)
        changed, other = (parent, log) if of_parent else (log, parent)
        before, expected = contents(changed), contents(other)
        compacted(changed)
        remove_dropped(changed)
        assert len(contents(changed)) < len(before)
        assert contents(other) == expected


@pytest.mark.parametrize("policy", ["compact", "delete"])
@pytest.mark.parametrize("cut", [20, 31, 60])
def test_a_compacted_parent_can_be_forked(cut: int, policy: str) -> None:
    disk = MemoryDisk()
    parent = with_keys(disk)
    directory = directory_of(parent)
    directory.checkpoints.set_cleaned_to(ORDERS, compacted(parent).clean_to)
    settings = replace(COMPACT, cleanup_policy=frozenset({policy}))
    log = fork_with(parent, cut, settings)
    expected = below(parent, cut)
    assert (contents(log), log.end_offset) == (expected, cut)
    assert append(log, batch(1)) == cut
    log.flush()
    directory.checkpoint()
    disk.kill()
    # Without this file the whole log is scanned; the gaps are not damage.
    disk.remove(f"{ROOT}/{FORK}/leader-epoch-checkpoint")
    again = open_directory(disk).get(FORK, fork_settings(cut, settings))
    assert again.holes == []
    assert contents(again)[:-1] == expected


def test_a_plan_is_useless_after_a_compaction() -> None:
    disk = MemoryDisk()
    parent = with_keys(disk)
    plan = plan_fork(parent, 60)
    assert plan is not None
    compacted(parent)
    with pytest.raises(ParentChanged):
        build_fork(plan, directory_of(parent), FORK, FORK_ID, fork_settings(60))


@pytest.mark.parametrize("end", [0, 10, 20, 30, 43])
def test_truncation_into_the_shared_part_does_not_change_the_other(end: int) -> None:
    for of_parent in (True, False):
        disk = MemoryDisk()
        parent = filled(disk)
        log = fork(parent, 45)
        changed, other = (parent, log) if of_parent else (log, parent)
        expected = contents(other)
        kept = [one for one in contents(changed) if one[0] + 3 <= end]
        changed.truncate_to(end)
        append(changed, batch(1, value=b"different"), epoch=9)
        assert contents(changed)[:-1] == kept
        assert contents(other) == expected
        other.flush()
        changed.flush()
        changed.segments[-1].indexes.write(sync=True)
        disk.crash()
        directory = open_directory(disk)
        settings = {ORDERS: SMALL, FORK: fork_settings(45)}
        opened = {name: directory.get(name, settings[name]) for name in settings}
        assert contents(opened[other.partition]) == expected
        assert contents(opened[changed.partition])[:-1] == kept


def test_recovery_copies_a_shared_file_that_becomes_the_last_one() -> None:
    disk = MemoryDisk()
    parent = filled(disk)
    log = fork(parent, 45)
    of_parent = contents(parent)
    directory_of(log).close()
    disk.kill()
    # Without its own segments the fork ends with a linked one.
    linked = [one for one in names(disk) if one.endswith(".log")][:-2]
    for name in names(disk):
        if name[:20] > linked[-1][:20]:
            disk.remove(f"{ROOT}/{FORK}/{name}")
    disk.remove(f"{ROOT}/.kafka_cleanshutdown")
    disk.remove(f"{ROOT}/recovery-point-offset-checkpoint")
    shared = f"{ROOT}/{ORDERS}/{linked[-1]}"
    before = disk.content(shared)
    directory = open_directory(disk)
    # Larger segments than before: the next record goes to the last file.
    again = directory.get(FORK, fork_settings(45, replace(SMALL, segment_bytes=1 << 20)))
    append(again, batch(1, value=b"different"), epoch=9)
    assert again.segments[-1].base_offset == int(linked[-1][:20])
    assert disk.content(shared) == before
    assert contents(directory.get(ORDERS, SMALL)) == of_parent


def test_rebuilt_indexes_of_one_do_not_change_those_of_the_other() -> None:
    disk = MemoryDisk()
    parent = filled(disk)
    log = fork(parent, 45)
    index = parent.segments[0].files.path(".index")
    content = disk.content(log.segments[0].files.path(".index"))
    parent.segments[0].rebuild_indexes()
    assert disk.links(index) == 1
    assert disk.content(log.segments[0].files.path(".index")) == content


def test_a_fork_begins_where_its_parent_begins() -> None:
    disk = MemoryDisk()
    parent = filled(disk)
    parent.delete_records_before(20)
    remove_dropped(parent)
    log = fork(parent, 45)
    assert log.start_offset == 20
    disk.kill()
    again = open_directory(disk).get(FORK, fork_settings(45))
    assert (again.start_offset, again.end_offset) == (20, 45)


def test_a_fork_of_records_that_are_gone_is_empty_at_the_cut() -> None:
    disk = MemoryDisk()
    parent = filled(disk)
    parent.delete_records_before(30)
    log = fork(parent, 20)
    assert (log.start_offset, log.end_offset, contents(log)) == (20, 20, [])
    assert append(log, batch(1)) == 20


def test_a_plan_is_useless_after_a_truncation_or_a_removal() -> None:
    disk = MemoryDisk()
    parent = filled(disk)
    plan = plan_fork(parent, 45)
    assert plan is not None
    parent.truncate_to(44)
    with pytest.raises(ParentChanged):
        build_fork(plan, directory_of(parent), FORK, FORK_ID, fork_settings(45))
    plan = plan_fork(parent, 30)
    assert plan is not None
    parent.delete_records_before(20)
    remove_dropped(parent)
    with pytest.raises(ParentChanged):
        build_fork(plan, directory_of(parent), FORK, FORK_ID, fork_settings(30))
    assert not [name for name in disk.list_folder(ROOT) if "fork" in name]
    assert fork(parent, 30).end_offset == 30


def test_a_fork_of_a_fork() -> None:
    disk = MemoryDisk()
    parent = with_transactions(disk)
    first = fork(parent, 13)
    append(first, batch(3))
    plan = plan_fork(first, 16)
    assert plan is not None
    other = TopicPartition("orders.other", 0)
    built = build_fork(plan, directory_of(parent), other, uuid.UUID(int=5), fork_settings(16))
    adopted(built, other)
    assert contents(built.log) == below(first, 16)
    assert aborted(built.log) == aborted(first)


def flushed_parent(disk: Disk) -> Log:
    parent = with_transactions(disk, 8)
    parent.flush()
    directory_of(parent).checkpoint()
    contents(parent)  # indexes are mapped from now on
    return parent


def build_calls() -> list[str]:
    disk = MemoryDisk()
    parent = flushed_parent(disk)
    trace: list[str] = []
    disk.failpoints.trace = trace
    fork(parent, 31)
    return trace


@pytest.mark.parametrize("power", ["kill", "crash"])
def test_a_crash_at_any_disk_call_leaves_the_parent_and_no_half_fork(power: str) -> None:
    calls = build_calls()
    assert "link .log" in calls
    for at in range(len(calls)):
        disk = MemoryDisk(seed=at)
        parent = flushed_parent(disk)
        of_parent = contents(parent)
        # A call that finds nothing to remove has no "after".
        after = at % 2 == 0 and not calls[at].startswith("remove")
        disk.failpoints.arm(ANY, Fault(kill=True, after=after), skip=at)
        with pytest.raises(Killed):
            fork(parent, 31)
        disk.kill() if power == "kill" else disk.crash()
        directory = open_directory(disk)
        for work in directory.folder.take_leftovers():
            work()
        again = directory.get(ORDERS, SMALL)
        assert contents(again) == of_parent
        assert not [name for name in disk.list_folder(ROOT) if name.endswith("-fork")]
        log = directory.get(FORK, fork_settings(31)) if directory.has(FORK) else fork(again, 31)
        assert below(log, 31) == below(again, 31), (at, calls[at])
        assert aborted(log) == [one for one in aborted(again) if one[1] < 31]
        assert log.end_offset == 34


def test_an_error_at_any_disk_call_leaves_nothing_of_the_fork() -> None:
    for at in range(len(build_calls()) - 1):
        disk = MemoryDisk(seed=at)
        parent = flushed_parent(disk)
        expected = contents(parent)
        disk.failpoints.arm(ANY, Fault(errno.ENOSPC), skip=at)
        try:
            fork(parent, 31)
        except KafkaError:
            assert not directory_of(parent).has(FORK)
            assert not [name for name in disk.list_folder(ROOT) if "fork" in name], at
            assert fork(parent, 31).end_offset == 34
        assert contents(parent) == expected


def test_a_name_of_a_broken_fork_can_be_used_again() -> None:
    """Its offsets may be in the checkpoint file."""
    disk = MemoryDisk()
    parent = filled(disk)
    plan = plan_fork(parent, 45)
    assert plan is not None
    build_fork(plan, directory_of(parent), FORK, FORK_ID, fork_settings(45))
    disk.kill()
    directory = open_directory(disk)
    log = directory.create(FORK, FORK_ID, SMALL)
    append(log, batch(1))
    disk.kill()
    again = open_directory(disk).get(FORK, SMALL)
    assert (again.end_offset, again.holes) == (1, [])


def test_forks_on_a_real_disk_share_inodes(tmp_path: Path) -> None:
    directory = LogDirectory(str(tmp_path), RealDisk(), ManualClock(NOW))
    directory.open()
    parent = directory.create(ORDERS, ORDERS_ID, SMALL)
    for _ in range(20):
        append(parent, batch(3))
    log = fork(parent, 45)
    first = "00000000000000000000.log"
    assert (tmp_path / str(ORDERS) / first).samefile(tmp_path / str(FORK) / first)
    expected = contents(log)
    parent.truncate_to(1)
    assert contents(log) == expected
    directory.close()
