"""Events of clients: their operations and results, as workers write and rules read them.

An operation is an `invoke` and, unless its process crashed meanwhile, a completion: `ok`, `fail`
(only if every attempt definitely failed) or `info` (a timeout, a lost connection: unknown). Sends
are in the invocation, without offsets. Polls are in the completion. A process that
crashed is restarted with a new name. Values are unique; a key is a topic and partition.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

Key: TypeAlias = str
Value: TypeAlias = str
Type: TypeAlias = Literal["invoke", "ok", "fail", "info"]
What: TypeAlias = Literal["send", "poll", "txn", "assign", "subscribe", "crash"]

FINAL = "final"
"""The process that reads everything once more when all is healed."""


@dataclass(frozen=True, slots=True)
class Send:
    """One record written, and where it went if the broker said so."""

    key: Key
    value: Value
    offset: int | None = None


@dataclass(frozen=True, slots=True)
class Poll:
    """What one call gave, in the order in which it came."""

    records: Mapping[Key, Sequence[tuple[int, Value]]]
    rebalanced: frozenset[Key] = frozenset()
    """Keys that were taken or given meanwhile: their positions may jump."""


Op: TypeAlias = Send | Poll


@dataclass(frozen=True, slots=True)
class Event:
    """One line of a history."""

    i: int
    t: int
    process: str
    type: Type
    f: What
    ops: tuple[Op, ...] = ()


@dataclass(frozen=True, slots=True)
class Operation:
    """An invocation and what came of it."""

    process: str
    f: What
    type: Type
    """ok, fail or info; info also where the process crashed before it could say."""
    sends: tuple[Send, ...]
    polls: tuple[Poll, ...]
    invoked: int
    completed: int | None
    """Places in the history; None if it never completed."""

    def __str__(self) -> str:
        return f"{self.f} of {self.process} at {self.invoked} ({self.type})"


class MalformedHistory(ValueError):
    """Events that no run can have recorded: the recorder is wrong, not the broker."""


def operations(events: Iterable[Event]) -> list[Operation]:
    """The operations of a history, in the order of their invocations; crashes are none."""
    open_now: dict[str, Event] = {}
    done: list[Operation] = []
    for event in events:
        if event.f == "crash":
            continue
        if event.type == "invoke":
            if event.process in open_now:
                raise MalformedHistory(f"{event} begins while another operation is open")
            open_now[event.process] = event
            continue
        begun = open_now.pop(event.process, None)
        if begun is None or begun.f != event.f:
            raise MalformedHistory(f"{event} completes nothing")
        done.append(_paired(begun, event))
    done += [_paired(begun, None) for begun in open_now.values()]
    return sorted(done, key=lambda one: one.invoked)


def _paired(begun: Event, ended: Event | None) -> Operation:
    told = () if ended is None else ended.ops
    wanted = [op for op in begun.ops if isinstance(op, Send)]
    sent = [op for op in told if isinstance(op, Send)]
    if sent and {(s.key, s.value) for s in sent} != {(s.key, s.value) for s in wanted}:
        raise MalformedHistory(f"{ended} sent something else than {begun}")
    return Operation(
        begun.process,
        begun.f,
        "info" if ended is None else ended.type,
        tuple(sent or wanted),
        tuple(op for op in told if isinstance(op, Poll)),
        begun.i,
        None if ended is None else ended.i,
    )


# ------------------------------------------------------------------------------------- on the disk


def to_line(t: int, process: str, kind: Type, f: What, ops: Iterable[Op] = ()) -> bytes:
    """An event as a line of JSON; its place comes when all lines are put in order."""
    told: list[object] = []
    for op in ops:
        if isinstance(op, Send):
            told.append(["send", op.key, op.value, op.offset])
        else:
            told.append(["poll", op.records])
    row = {"t": t, "process": process, "type": kind, "f": f, "ops": told}
    return json.dumps(row).encode() + b"\n"


def read_lines(paths: Iterable[Path]) -> list[Event]:
    """All events of several files in the order of their times; a torn last line is left out."""
    rows = []
    for path in paths:
        lines = path.read_bytes().splitlines(keepends=True)
        rows += [json.loads(line) for line in lines if line.endswith(b"\n")]
    rows.sort(key=lambda row: row["t"])
    return [
        Event(i, r["t"], r["process"], r["type"], r["f"], tuple(_op(told) for told in r["ops"]))
        for i, r in enumerate(rows)
    ]


def _op(told: list[object]) -> Op:
    match told:
        case ["send", str(key), str(value), (int() | None) as offset]:
            return Send(key, value, offset)
        case ["poll", dict(records)]:
            return Poll({key: [(o, v) for o, v in pairs] for key, pairs in records.items()})
    raise MalformedHistory(f"unknown operation {told}")
