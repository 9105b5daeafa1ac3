"""Holds programs at the same offsets of their inputs, from outside of them.

The programs run under `headrace spark` on this machine, and their checkpoints are in local folders.
A hold is a file in the root of the checkpoints, which the program's streams read before each epoch.
It ends by itself if the process that made it dies, unless it is one that stays.
"""

import json
import os
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

from headrace.pipelines.running.checkpoints import InputOffsets, QueryPosition, read_position

HOLD_FILE = "headrace-hold.json"
_PAUSE_S = 0.2
QUIET_S = 5.0


class NotAligned(Exception):
    """Programs did not reach the same offsets. The message says which, and what to do."""


class HeldProgram:
    """A program under `headrace spark`, by the root of its checkpoints."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._file = root / HOLD_FILE
        self._id = ""

    def positions(self) -> list[QueryPosition]:
        """How far its queries are; NotAligned if one has not begun."""
        folders = sorted(each.parent for each in self.root.glob("*/offsets"))
        found = [read_position(each) for each in folders]
        if not found or any(each is None for each in found):
            raise NotAligned(
                f"{self.root} has no checkpoints of queries that have read something. Start the "
                "program with `headrace spark run` or `headrace spark replay run`, and do not set "
                "checkpointLocation in it"
            )
        return [each for each in found if each is not None]

    def hold(self, offsets: InputOffsets | None, until: float | None) -> None:
        """Let its streams read up to these offsets, or, with None, nothing more."""
        self._id = uuid.uuid4().hex
        temporary = self._file.with_name(f".{HOLD_FILE}")
        body = {"id": self._id, "offsets": offsets, "until": until}
        temporary.write_text(json.dumps(body))
        os.replace(temporary, self._file)

    def release(self) -> None:
        self._file.unlink(missing_ok=True)

    @property
    def is_held(self) -> bool:
        """Whether a hold is there that stays."""
        try:
            return json.loads(self._file.read_text())["until"] is None
        except (OSError, ValueError):
            return False

    def has_acknowledged(self) -> bool:
        """Whether all its streams obey the present hold."""
        wanted = sum(each.sources for each in self.positions())
        found = 0
        for each in self.root.glob(f"{HOLD_FILE}.*"):
            try:
                found += each.read_text() == self._id
            except OSError:
                continue
        return found >= wanted


def align(programs: Sequence[HeldProgram], within_s: float) -> InputOffsets:
    """The offsets of the inputs that all programs have reached, where they are held.

    NotAligned after the time, with all programs as they were before.
    """
    deadline = time.monotonic() + within_s
    # Longer than anything that follows while they are held.
    until = time.time() + 2 * within_s
    stayed = [each for each in programs if each.is_held]
    try:
        for each in programs:
            each.hold(None, until)
        for each in programs:
            _wait(each, deadline, each.has_acknowledged)
            _wait(each, deadline, lambda each=each: _all_finished(each))
        end = _furthest(programs)
        for each in programs:
            each.hold(end, until)
        for each in programs:
            _wait(each, deadline, _Arrival(each, end))
        return end
    except BaseException:
        for each in programs:
            if each in stayed:
                each.hold(None, None)
            else:
                each.release()
        raise


def _wait(program: HeldProgram, deadline: float, is_done: object) -> None:
    assert callable(is_done)
    while not is_done():
        if time.monotonic() > deadline:
            raise NotAligned(
                f"the program of {program.root} did not reach the wanted offsets in time. Is it "
                "running? `headrace spark queries` shows its lag; --within N waits longer"
            )
        time.sleep(_PAUSE_S)


def _all_finished(program: HeldProgram) -> bool:
    return all(each.is_finished for each in program.positions())


class _Arrival:
    """Whether all results of a program up to these offsets are in its topics."""

    def __init__(self, program: HeldProgram, end: InputOffsets) -> None:
        self._program, self._end = program, end
        self._seen: list[QueryPosition] = []
        self._seen_at = time.monotonic()

    def __call__(self) -> bool:
        found = self._program.positions()
        if found != self._seen:
            self._seen, self._seen_at = found, time.monotonic()
        # The next epoch of a watermark begins at once, if there is one.
        is_still = time.monotonic() - self._seen_at > QUIET_S
        return all(
            each.is_finished and (each.is_quiet or is_still) and _is_at(each.offsets, self._end)
            for each in found
        )


def _is_at(offsets: InputOffsets, end: InputOffsets) -> bool:
    return all(
        offset >= end[topic][partition]
        for topic, partitions in offsets.items()
        for partition, offset in partitions.items()
    )


def _furthest(programs: Sequence[HeldProgram]) -> dict[str, dict[str, int]]:
    """The offsets of the program that is furthest, for each partition."""
    found: dict[str, dict[str, int]] = {}
    for program in programs:
        for position in program.positions():
            for topic, partitions in position.offsets.items():
                _raise_to(found.setdefault(topic, {}), partitions)
    return found


def _raise_to(known: dict[str, int], partitions: Mapping[str, int]) -> None:
    for partition, offset in partitions.items():
        known[partition] = max(offset, known.get(partition, offset))
