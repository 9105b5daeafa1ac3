"""Rules 7 to 10: the order in which one process writes and reads."""

from collections.abc import Iterator

from tests.checker.history import Key
from tests.checker.observations import Observations, Violation


def transactions_that_read_themselves(found: Observations) -> Iterator[Violation]:
    """Rule 7."""
    for reader, key, offset, value in found.reads():
        if reader.f == "txn" and found.writer.get(key, {}).get(value) is reader:
            yield Violation(7, f"{reader} read its own {value} at {key} {offset}")


def _step(found: Observations, key: Key, before: int, after: int) -> str | None:
    """What is wrong with reading these two offsets one after the other."""
    ranks = found.rank(key, after) - found.rank(key, before)
    if ranks > 1:
        return f"went from {key} {before} to {after} and left out {ranks - 1}"
    if ranks < 1:
        return f"went back from {key} {before} to {after}"
    return None


def steps_within_an_operation(found: Observations) -> Iterator[Violation]:
    """Rule 8."""
    for operation in found.operations:
        last: dict[Key, int] = {}
        for poll in operation.polls:
            for key, records in poll.records.items():
                for offset, _ in records:
                    if key in last and key not in poll.rebalanced:
                        wrong = _step(found, key, last[key], offset)
                        if wrong is not None:
                            yield Violation(8, f"{operation} {wrong}")
                    last[key] = offset


def steps_between_operations(found: Observations) -> Iterator[Violation]:
    """Rule 9, for processes that chose their partitions themselves; each choice begins anew."""
    last: dict[str, dict[Key, int]] = {}
    for operation in found.operations:
        if operation.f == "assign":
            last[operation.process] = {}
        elif operation.f == "subscribe":
            last.pop(operation.process, None)
        positions = last.get(operation.process)
        if positions is None:
            continue
        before = dict(positions)
        for poll in operation.polls:
            for key, records in poll.records.items():
                if not records:
                    continue
                if key in before:
                    wrong = _step(found, key, before.pop(key), records[0][0])
                    if wrong is not None:
                        yield Violation(9, f"{operation} {wrong}")
                positions[key] = records[-1][0]


def sends_that_go_back(found: Observations) -> Iterator[Violation]:
    """Rule 10."""
    last: dict[tuple[str, Key], int] = {}
    for operation in found.operations:
        if operation.type != "ok":
            continue
        for send in operation.sends:
            if send.offset is None:
                continue
            who = (operation.process, send.key)
            if send.offset <= last.get(who, -1):
                yield Violation(
                    10, f"{operation} wrote {send.value} to {send.key} {send.offset}, "
                    f"after its own offset {last[who]}",
                )  # fmt: skip
            last[who] = send.offset
