"""Indexes of a history for all rules: writers of values, and values by position."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tests.checker.history import (
    FINAL,
    Event,
    Key,
    MalformedHistory,
    Operation,
    Value,
    operations,
)


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule of the checker that a history breaks."""

    rule: int
    what: str

    def __str__(self) -> str:
        return f"rule {self.rule}: {self.what}"


class Observations:
    """The indexes that the rules look into."""

    def __init__(self, events: Sequence[Event]) -> None:
        self.operations = operations(events)
        self.writer: dict[Key, dict[Value, Operation]] = {}
        self.log: dict[Key, dict[int, set[Value]]] = {}
        """By offset, from all polls and from committed sends."""
        self.seen: dict[Key, set[Value]] = {}
        """Values of ok polls."""
        self.shown: dict[Key, set[Value]] = {}
        """Values of the final polls."""
        for operation in self.operations:
            self._note_sends(operation)
            self._note_polls(operation)
        self._ranks = {
            key: {offset: rank for rank, offset in enumerate(sorted(offsets))}
            for key, offsets in self.log.items()
        }

    def rank(self, key: Key, offset: int) -> int:
        """The place of an offset among those that hold a value: markers and aborts take none."""
        return self._ranks[key][offset]

    def reads(self) -> Iterator[tuple[Operation, Key, int, Value]]:
        """Every record that any poll gave."""
        for operation in self.operations:
            for poll in operation.polls:
                for key, records in poll.records.items():
                    for offset, value in records:
                        yield operation, key, offset, value

    def _note_sends(self, operation: Operation) -> None:
        for send in operation.sends:
            writers = self.writer.setdefault(send.key, {})
            if send.value in writers:
                raise MalformedHistory(f"{send.value} is written twice to {send.key}")
            writers[send.value] = operation
            if operation.type == "ok":
                if send.offset is None:
                    raise MalformedHistory(f"{operation} does not say where {send.value} went")
                self._place(send.key, send.offset, send.value)

    def _note_polls(self, operation: Operation) -> None:
        for poll in operation.polls:
            for key, records in poll.records.items():
                for offset, value in records:
                    self._place(key, offset, value)
                    if operation.type == "ok":
                        self.seen.setdefault(key, set()).add(value)
                        if operation.process == FINAL:
                            self.shown.setdefault(key, set()).add(value)

    def _place(self, key: Key, offset: int, value: Value) -> None:
        self.log.setdefault(key, {}).setdefault(offset, set()).add(value)
