"""Rules 1 to 6 and 12: existence, position and visibility of values."""

from collections.abc import Iterator

from tests.checker.history import Key, Value
from tests.checker.observations import Observations, Violation


def two_values_at_one_offset(found: Observations) -> Iterator[Violation]:
    """Rule 1."""
    for key, offsets in found.log.items():
        for offset, values in offsets.items():
            if len(values) > 1:
                yield Violation(1, f"{key} has {sorted(values)} at offset {offset}")


def one_value_at_two_offsets(found: Observations) -> Iterator[Violation]:
    """Rule 2."""
    for key, offsets in found.log.items():
        places: dict[Value, list[int]] = {}
        for offset, values in offsets.items():
            for value in values:
                places.setdefault(value, []).append(offset)
        for value, where in places.items():
            if len(where) > 1:
                yield Violation(2, f"{key} has {value} at offsets {sorted(where)}")


def read_of_what_nobody_wrote(found: Observations) -> Iterator[Violation]:
    """Rule 3."""
    for reader, key, offset, value in found.reads():
        if value not in found.writer.get(key, {}):
            yield Violation(3, f"{reader} read {value} at {key} {offset}: nobody wrote it")


def read_of_what_failed(found: Observations) -> Iterator[Violation]:
    """Rule 4, G1a."""
    for reader, key, offset, value in found.reads():
        writer = found.writer.get(key, {}).get(value)
        if writer is not None and writer.type == "fail":
            yield Violation(4, f"{reader} read {value} at {key} {offset}: {writer}")


def _lost(found: Observations) -> set[tuple[Key, Value]]:
    highest: dict[Key, int] = {}
    for reader, key, offset, _ in found.reads():
        if reader.type == "ok":
            highest[key] = max(highest.get(key, -1), found.rank(key, offset))
    return {
        (send.key, send.value)
        for operation in found.operations
        if operation.type == "ok"
        for send in operation.sends
        if send.offset is not None
        and send.value not in found.seen.get(send.key, ())
        and found.rank(send.key, send.offset) <= highest.get(send.key, -1)
    }


def lost_writes(found: Observations) -> Iterator[Violation]:
    """Rule 5: somebody read further, and nobody has ever read this."""
    for key, value in sorted(_lost(found)):
        yield Violation(5, f"{key} lost {value}, written by {found.writer[key][value]}")


def unseen_writes(found: Observations) -> Iterator[Violation]:
    """Rule 6: not there at the end, at the tail or after having been read before."""
    lost = _lost(found)
    for operation in found.operations:
        for send in operation.sends:
            if (
                operation.type == "ok"
                and send.value not in found.shown.get(send.key, ())
                and (send.key, send.value) not in lost
            ):
                yield Violation(6, f"{send.key} does not show {send.value}, written by {operation}")


def torn_transactions(found: Observations) -> Iterator[Violation]:
    """Rule 12. Who has seen one value of a transaction knows that it was committed."""
    for operation in found.operations:
        if operation.f != "txn" or operation.type == "fail":
            continue
        hidden = [s.value for s in operation.sends if s.value not in found.shown.get(s.key, ())]
        if hidden and len(hidden) < len(operation.sends):
            yield Violation(12, f"{operation} is torn: {hidden} are not shown, the others are")
