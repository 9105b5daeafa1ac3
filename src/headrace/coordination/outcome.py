"""The result of an operation on a coordinator: records to write, replies to send, timers to set.

An operation reads state and returns an `Outcome`; nothing here does I/O. The runtime appends the
records, replays them into the state at once, and sends the replies when they are committed.

An operation whose records cannot be written has not happened. Therefore an operation that writes
records changes no state itself: changes of state that is not persistent go into `effects`. An
operation without records cannot fail, and may change such state directly.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from headrace.errors import KafkaError

_Response = TypeVar("_Response")

Result: TypeAlias = _Response | KafkaError
"""What an operation replied, or its error."""


class Key(Hashable, Protocol):
    """The key of a coordinator record; hashable, so that a shard can count what it holds."""

    def encode(self) -> bytes:
        """The key as the log holds it: its type as an int16, then its fields."""
        ...


class Value(Protocol):
    """The value of a coordinator record."""

    def encode(self) -> bytes:
        """The value as the log holds it: its version as an int16, then its fields."""
        ...


# A record to write; a None value is a tombstone.
Record: TypeAlias = tuple[Key, Value | None]


class Token(Generic[_Response]):
    """A request that waits for a response of this type; tokens are compared by identity."""

    __slots__ = ("_receive", "answered", "response")

    response: Result[_Response]
    """Set when the request is answered."""

    def __init__(self) -> None:
        self.answered = False
        self._receive: Callable[[Result[_Response]], None] | None = None

    def when_answered(self, receive: Callable[[Result[_Response]], None]) -> None:
        """Pass the response to this function; the request is not answered yet."""
        self._receive = receive

    def answer(self, response: Result[_Response]) -> None:
        """Deliver the response; only the first one counts."""
        if not self.answered:
            self.answered, self.response = True, response
            if self._receive is not None:
                self._receive(response)


class AnyReply(Protocol):
    """A reply to a request of any type."""

    def send(self) -> None:
        """Answer the request with the response."""

    def fail(self, error: KafkaError) -> None:
        """Answer the request with an error instead."""


class Reply(NamedTuple, Generic[_Response]):
    """The reply to one waiting request; a KafkaError is raised where the request waits."""

    token: Token[_Response]
    response: Result[_Response]

    def send(self) -> None:
        """Answer the request with the response."""
        self.token.answer(self.response)

    def fail(self, error: KafkaError) -> None:
        """Answer the request with an error instead."""
        self.token.answer(error)


class Timer(NamedTuple):
    """Call `expire(key, now_ms)` at this time of a steady clock.

    A timer with the same key replaces an earlier one; None cancels it.

    `key[0]` is the type of the group ("classic", "consumer"), `key[1]` is the group id.
    """

    key: tuple[str, ...]
    at_ms: int | None


@dataclass(slots=True)
class Outcome:
    """The result of one operation; replies are sent only after the records are committed."""

    records: list[Record] = field(default_factory=list)
    replies: list[AnyReply] = field(default_factory=list)
    timers: list[Timer] = field(default_factory=list)
    """Timers to set once the records are written."""
    sessions: list[Timer] = field(default_factory=list)
    """Timers of members that this request shows to be alive, even if its records are refused."""
    effects: list[Callable[[], None]] = field(default_factory=list)
    """Changes to state that is not persistent, to be made once the records are replayed."""
    producer: tuple[int, int] | None = None
    """Producer id and epoch, if the records are part of a transaction of that producer. They take
    effect when it is committed."""
    ended: list[str] = field(default_factory=list)
    """Transactional ids whose transactions end with these records: their markers are due."""

    def merge(self, other: Outcome) -> Outcome:
        """Add the result of another step of the same operation."""
        self.records += other.records
        self.replies += other.replies
        self.timers += other.timers
        self.sessions += other.sessions
        self.effects += other.effects
        self.ended += other.ended
        return self


def answer(token: Token[_Response], response: Result[_Response]) -> Outcome:
    """An outcome that only answers."""
    return Outcome(replies=[Reply(token, response)])
