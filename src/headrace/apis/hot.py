"""The interface of hot handlers: those of the APIs that clients call most, decoded by hand.

A hot handler is an object that is created once. It is called with positions in the receive buffer,
so that the usual requests need no copy and no allocation, and it returns a whole frame.
"""

from collections.abc import Callable, Coroutine, Generator
from typing import Protocol, TypeAlias

from headrace.apis.context import Caller
from headrace.apis.records.waiting_fetches import WaitingFetch
from headrace.apis.slices import Slices
from headrace.wire.fast import Chunk

Answer: TypeAlias = bytes | list[Chunk] | None
"""A response as a frame; None if the client expects no response."""


class LongProduce:
    """A Produce that takes long. Its connection may not be read until it is answered."""

    __slots__ = ("appended",)

    def __init__(
        self, appended: Coroutine[None, None, bytes | Coroutine[None, None, bytes | None] | None]
    ) -> None:
        self.appended = appended
        """Appends all batches; the response, or a coroutine that waits for the commit."""

    def __await__(self) -> Generator[None, None, bytes | None]:
        answer = yield from self.appended.__await__()
        if isinstance(answer, Coroutine):
            answer = yield from answer.__await__()
        return answer


Later: TypeAlias = Coroutine[None, None, Answer] | LongProduce | WaitingFetch
"""An awaitable that returns the response."""


class HotHandler(Protocol):
    """Answers the requests of one API."""

    @property
    def versions(self) -> range:
        """The versions that it can decode. A row of the route table may list only these."""

    def __call__(
        self,
        caller: Caller,
        buf: bytearray,
        view: memoryview,
        pos: int,
        end: int,
        version: int,
        correlation_id: int,
    ) -> Answer | Later:
        """The response to the request whose body is in [pos, end), or an awaitable of it.

        The buffer is reused after the return. Raises LongRequest if the request is large.
        """


LongWork: TypeAlias = Callable[
    [Slices, Caller, bytearray, int, int], Answer | Coroutine[None, None, Answer]
]
"""Takes slices of the event loop, the client, a copy of the body, version and correlation id."""


class LongRequest(Exception):
    """Raised for a hot request that is handled in slices, while its connection is not read."""

    def __init__(self, work: LongWork, *, waits: bool = False) -> None:
        super().__init__("this request takes long")
        self.work = work
        self.waits = waits
        """Whether the response may wait for records, as the client asked."""


class CloseConnection(Exception):
    """The request cannot be answered and its connection is closed. The message is logged."""
