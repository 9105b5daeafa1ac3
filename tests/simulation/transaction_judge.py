"""What transactions promise, judged by what producers were told and readers saw.

- A transaction is visible to readers of committed records as a whole or not at all, together with
  the offsets that it committed; as its producer was told, if it was told.
- A producer that was fenced appends nothing more.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count


@dataclass(eq=False, slots=True)
class Attempt:
    """One transaction of a producer."""

    name: str
    """The transactional id."""
    number: int
    values: set[bytes] = field(default_factory=set)
    """Records that were acknowledged."""
    has_offsets: bool = False
    """Whether the transaction commits its number as the offset of its group."""
    asked_to_commit: bool = False
    committed: bool | None = None
    """How it ended, if the producer was told."""


class TransactionJudge:
    """Hears from all producers, and from a reader of committed records."""

    def __init__(self, broken: Callable[[str], Exception]) -> None:
        self._broken = broken
        self._numbers = count(1)
        self._epochs: dict[str, int] = {}
        self.fenced: dict[bytes, str] = {}
        """Records that were sent by producers after they were fenced."""
        self._seen: dict[tuple[int, int], bytes] = {}
        self._places: dict[bytes, tuple[int, int]] = {}
        self.attempts: list[Attempt] = []

    # ----------------------------------------------------------------------------- producers

    def initialized(self, name: str, epoch: int) -> None:
        """A producer got this epoch: all older ones are fenced."""
        self._epochs[name] = max(epoch, self._epochs.get(name, -1))

    def begin(self, name: str) -> Attempt:
        """A producer begins a transaction."""
        attempt = Attempt(name, next(self._numbers))
        self.attempts.append(attempt)
        return attempt

    def sends(self, name: str, epoch: int, value: bytes) -> None:
        """A producer sends a record for the first time."""
        if epoch < self._epochs[name]:
            self.fenced[value] = f"{name} in epoch {epoch}, fenced by {self._epochs[name]}"

    # -------------------------------------------------------------------------------- readers

    def read(self, partition: int, offset: int, value: bytes) -> None:
        """A reader of committed records saw this."""
        place = (partition, offset)
        if self._seen.setdefault(place, value) != value:
            raise self._broken(f"{place} was {self._seen[place]!r} and is {value!r}")
        if self._places.setdefault(value, place) != place:
            raise self._broken(f"{value!r} is at {self._places[value]} and at {place}")

    # ------------------------------------------------------------------------------- the end

    def check_written(self, values: set[bytes]) -> None:
        """`values` are all records in the logs, whatever became of their transactions."""
        for value in values & self.fenced.keys():
            raise self._broken(f"{value!r} was appended by a producer: {self.fenced[value]}")

    def check_ends(self) -> None:
        """Every transaction is visible as a whole or not at all, and as its producer was told."""
        for one in self.attempts:
            visible = one.values & self._places.keys()
            if visible and visible != one.values:
                raise self._broken(
                    f"of transaction {one.number} of {one.name} only {sorted(visible)} of "
                    f"{sorted(one.values)} are visible"
                )
            if visible and (one.committed is False or not one.asked_to_commit):
                raise self._broken(f"transaction {one.number} of {one.name} was never committed")
            if one.committed and not visible:
                raise self._broken(f"transaction {one.number} of {one.name} is lost")

    def last_offset(self, name: str) -> int:
        """What the group of this transactional id has committed."""
        return max(
            (
                one.number
                for one in self.attempts
                if one.name == name and one.has_offsets and one.values & self._places.keys()
            ),
            default=-1,
        )
