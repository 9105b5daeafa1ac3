"""The verdict on a run: broken rules, and whether the run has enough events."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tests.checker.cycles import cycles
from tests.checker.history import FINAL, Event, Key
from tests.checker.observations import Observations, Violation
from tests.checker.order import (
    sends_that_go_back,
    steps_between_operations,
    steps_within_an_operation,
    transactions_that_read_themselves,
)
from tests.checker.values import (
    lost_writes,
    one_value_at_two_offsets,
    read_of_what_failed,
    read_of_what_nobody_wrote,
    torn_transactions,
    two_values_at_one_offset,
    unseen_writes,
)

RULES = (
    two_values_at_one_offset,
    one_value_at_two_offsets,
    read_of_what_nobody_wrote,
    read_of_what_failed,
    lost_writes,
    unseen_writes,
    transactions_that_read_themselves,
    steps_within_an_operation,
    steps_between_operations,
    sends_that_go_back,
    cycles,
    torn_transactions,
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is wrong with a broker, and what is wrong with the run that judged it."""

    violations: tuple[Violation, ...]
    says_nothing: tuple[str, ...]
    """Why the run does not count; empty if it does."""

    @property
    def rules(self) -> set[int]:
        """The numbers of the broken rules."""
        return {violation.rule for violation in self.violations}

    @property
    def clean(self) -> bool:
        """Whether the run counts and breaks no rule."""
        return not self.violations and not self.says_nothing

    def __str__(self) -> str:
        first = [str(violation) for violation in self.violations[:20]]
        more = len(self.violations) - len(first)
        return "\n".join(
            [*self.says_nothing, *first, *([f"and {more} more"] if more else [])] or ["clean"]
        )


def judge(events: Sequence[Event], faults: Iterable[str] = ()) -> Verdict:
    """Judge a history during which each of `faults` was to strike (see `_landed`)."""
    found = Observations(events)
    violations = tuple(violation for rule in RULES for violation in rule(found))
    return Verdict(violations, (*_mostly_failed(found), *_landed(events, found, faults),
                                *_unread(found)))  # fmt: skip


def _mostly_failed(found: Observations) -> Iterator[str]:
    """A broker that does nothing breaks no rule. Polls that gave nothing prove nothing."""
    counted = [
        operation
        for operation in found.operations
        if operation.process != FINAL
        and (operation.sends or any(any(p.records.values()) for p in operation.polls))
    ]
    ok = sum(operation.type == "ok" for operation in counted)
    if 2 * ok <= len(counted):
        yield f"only {ok} of {len(counted)} operations were ok"


def _landed(events: Sequence[Event], found: Observations, faults: Iterable[str]) -> Iterator[str]:
    """A fault is a crash event of the process that it struck, such as "broker".

    It is `info` where the runner has proof that it struck, and counts only if somebody was at work.
    """
    struck = [event for event in events if event.f == "crash"]
    for event in struck:
        if event.type != "info":
            yield f"the fault at {event.i} missed {event.process}"
    for fault in faults:
        mine = [event.i for event in struck if event.process.startswith(fault)]
        if not mine:
            yield f"nothing struck {fault}"
        elif not any(
            operation.invoked < place and (operation.completed or len(events)) > place
            for place in mine
            for operation in found.operations
        ):
            yield f"nobody was at work when {fault} was struck"


def _unread(found: Observations) -> Iterator[str]:
    """Every key that was written to must have been read to its end by the final process."""
    final = [one for one in found.operations if one.process == FINAL and one.f == "poll"]
    read: set[Key] = {
        key for one in final if one.type == "ok" for poll in one.polls for key in poll.records
    }
    for key in sorted(set(found.writer) - read):
        yield f"the final read of {key} did not finish"
