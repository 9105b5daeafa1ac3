"""A crash at every step of every operation: killed, power loss, disk errors.

Each operation is run once to record its steps, and then repeatedly from the same state,
with the fault at one step after the other.
"""

import errno
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

import pytest

from headrace.cli.broker.verification import Verification
from headrace.disk.failpoints import ANY, Fault, Killed
from headrace.disk.memory import MemoryDisk
from headrace.errors import ErrorCode, KafkaError
from headrace.log.directory import LogDirectory
from headrace.log.log import Log
from headrace.wire.batch import TRANSACTIONAL
from headrace.wire.markers import encode_marker
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

Contents = list[tuple[int, bytes]]


class World(NamedTuple):
    """A log with a history: sealed segments, a producer, an aborted transaction, a flush."""

    disk: MemoryDisk
    directory: LogDirectory
    log: Log
    flushed: Contents
    written: Contents


def build(seed: int = 0) -> World:
    disk = MemoryDisk(seed)
    directory = open_directory(disk)
    log = directory.create(ORDERS, ORDERS_ID, SMALL)
    append(log, batch(2, producer_id=7, epoch=0, sequence=0, attributes=TRANSACTIONAL))
    append(log, encode_marker(7, 0, False, 0, NOW))
    for n in range(8):
        append(log, batch(2, producer_id=9, epoch=0, sequence=2 * n, value=b"%03d" % n))
    log.flush()
    directory.checkpoint()
    flushed = contents(log)
    for n in range(8, 11):
        append(log, batch(2, producer_id=9, epoch=0, sequence=2 * n, value=b"%03d" % n))
    return World(disk, directory, log, flushed, contents(log))


def append_one(world: World) -> None:
    append(world.log, batch(2, producer_id=9, epoch=0, sequence=22, value=b"new"))


def roll(world: World) -> None:
    world.log.roll(NOW)


def append_that_rolls(world: World) -> None:
    append(world.log, batch(2, producer_id=9, epoch=0, sequence=22, value=b"n" * 120))


def flush(world: World) -> None:
    world.log.flush()


def checkpoint(world: World) -> None:
    world.directory.checkpoint()


def stop(world: World) -> None:
    world.directory.close()


def delete_segments(world: World) -> None:
    world.log.delete_records_before(16)
    remove_dropped(world.log)
    world.directory.checkpoint()


def truncate(world: World) -> None:
    world.log.truncate_to(6)


def recover(world: World) -> None:
    world.disk.kill()
    open_directory(world.disk).recover(lambda _: SMALL)


OPERATIONS = (
    append_one, append_that_rolls, roll, flush, checkpoint, stop, delete_segments, truncate,
    recover,
)  # fmt: skip
NEEDED = {
    "append_one": ["pwrite .log"],
    "roll": ["open .log", "pwrite .index", "pwrite .timeindex", "pwrite .snapshot"],
    "flush": ["fdatasync .log", "fdatasync .snapshot", "sync_folder partition"],
    "checkpoint": [
        "pwrite recovery-point-offset-checkpoint.tmp",
        "fdatasync recovery-point-offset-checkpoint.tmp",
        "rename recovery-point-offset-checkpoint",
        "sync_folder root",
    ],
    "stop": ["pwrite .snapshot", "rename .kafka_cleanshutdown"],
    "delete_segments": ["rename .log.deleted", "rename log-start-offset-checkpoint"],
    "truncate": ["remove .log", "ftruncate .log", "rename leader-epoch-checkpoint"],
    "recover": ["fdatasync .log", "pread .log"],
}


def steps(operation: Callable[[World], None]) -> list[str]:
    """The points that the operation passes."""
    world = build()
    world.disk.failpoints.trace = []
    operation(world)
    return world.disk.failpoints.trace


@pytest.mark.parametrize("name", NEEDED)
def test_the_steps_of_an_operation_have_names(name: str) -> None:
    operation = next(each for each in OPERATIONS if each.__name__ == name)
    assert set(NEEDED[name]) <= set(steps(operation))


def reopened(disk: MemoryDisk) -> Log:
    directory = open_directory(disk)
    if not directory.folder.stopped_cleanly:
        directory.recover(lambda _: SMALL)
    return directory.get(ORDERS, SMALL)


def check_history(world: World, log: Log, operation: Callable[[World], None], kept: int) -> None:
    """What is there is the history, at least `kept` batches of it, with what was added at most."""
    found = contents(log)
    history = world.written
    if operation is truncate:
        kept = min(kept, len([base for base, _ in history if base < 5]))
    if operation is delete_segments and log.start_offset:
        found = [*[each for each in history if each[0] < found[0][0]], *found]
    added = found[len(history) :]
    assert found[: len(history)] == history[: len(found)], "a prefix, and nothing else"
    assert len(found) >= kept
    if added:
        assert operation in (append_one, append_that_rolls)
        assert len(added) == 1
        assert added[0][0] == history[-1][0] + 2


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_kill_at_any_step_loses_nothing(operation: Callable[[World], None], after: bool) -> None:
    for number, point in enumerate(steps(operation)):
        world = build()
        if operation is recover:
            world.disk.kill()
        world.disk.failpoints.arm(ANY, Fault(kill=True, after=after), skip=number)
        with suppress(Killed):  # behind a call that fails, such as one for a missing file, none is
            (again if operation is recover else operation)(world)
        world.disk.kill()
        log = reopened(world.disk)
        try:
            check_history(world, log, operation, len(world.written))
            check_goes_on(world.disk, log)
        except AssertionError as error:
            raise AssertionError(f"killed at step {number}, {point}: {error}") from error


def again(world: World) -> None:
    open_directory(world.disk).recover(lambda _: SMALL)


def check_goes_on(disk: MemoryDisk, log: Log) -> None:
    """The log takes records, keeps them over a clean stop, and everything on the disk is whole."""
    before = contents(log)
    end = log.end_offset
    assert append(log, batch(3)) == end
    owner = log.owner
    assert isinstance(owner, LogDirectory)
    owner.close()
    log = reopened(disk)
    assert contents(log)[:-1] == before
    assert log.end_offset == end + 3
    verification = Verification(disk)
    verification.folder(ROOT)
    assert verification.findings == []


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_power_cut_at_any_step_keeps_what_was_flushed(
    operation: Callable[[World], None],
) -> None:
    for number, point in enumerate(steps(operation)):
        for seed in range(3):
            world = build(seed)
            if operation is recover:
                world.disk.kill()
            world.disk.failpoints.arm(ANY, Fault(kill=True, after=seed == 1), skip=number)
            with suppress(Killed):
                (again if operation is recover else operation)(world)
            world.disk.crash()
            log = reopened(world.disk)
            try:
                check_history(world, log, operation, len(world.flushed))
                check_goes_on(world.disk, log)
            except AssertionError as error:
                raise AssertionError(f"cut at step {number}, {point}: {error}") from error


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EINTR])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_disk_that_refuses_any_step_spoils_nothing(
    operation: Callable[[World], None], code: int
) -> None:
    refusals: list[tuple[str, Exception]] = []
    for number, point in enumerate(steps(operation)):
        world = build()
        if operation is recover:
            world.disk.kill()
        world.disk.failpoints.arm(ANY, Fault(code), skip=number)
        try:
            (again if operation is recover else operation)(world)
        except (KafkaError, OSError) as error:
            refusals.append((point, error))
        world.disk.failpoints.clear()
        if world.directory.offline is None and operation not in (recover, stop):
            check_history(world, world.log, operation, len(world.written))
            append(world.log, batch(2, value=b"later"))
        world.disk.kill()
        log = reopened(world.disk)
        if operation is not truncate and operation is not delete_segments:
            found = contents(log)[: len(world.written)]
            assert found == world.written, f"step {number}, {point}"
        check_goes_on(world.disk, log)
    for point, refusal in refusals:
        # A broker that cannot even open its folder does not start; clients see error codes only.
        if isinstance(refusal, KafkaError):
            assert refusal.code == ErrorCode.KAFKA_STORAGE_ERROR, point
        else:
            assert operation is recover, f"{point}: {refusal}"


@pytest.mark.parametrize(
    "operation", [append_one, append_that_rolls, roll, flush, checkpoint, stop]
)
def test_a_short_write_at_any_step_is_continued(operation: Callable[[World], None]) -> None:
    for number, point in enumerate(steps(operation)):
        if not point.startswith("pwrite"):
            continue
        for length in (1, 7, 60):
            world = build()
            world.disk.failpoints.arm(ANY, Fault(written=length), skip=number)
            operation(world)
            world.disk.kill()
            log = reopened(world.disk)
            check_history(world, log, operation, len(world.written))
            check_goes_on(world.disk, log)
