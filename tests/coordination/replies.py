"""Helpers to receive replies of coordinators."""

from collections.abc import Callable
from typing import TypeVar

from headrace.coordination.outcome import Token
from headrace.errors import KafkaError

T = TypeVar("T")


def reply_of(token: Token[T]) -> T:
    """The reply to an operation that was answered, and not refused."""
    assert token.answered
    assert not isinstance(token.response, KafkaError)
    return token.response


def itself(kind: type[T]) -> Callable[[T], T]:
    """For `Runtime.run`: the reply itself, which has this type."""

    def check(reply: T) -> T:
        assert isinstance(reply, kind)
        return reply

    return check
