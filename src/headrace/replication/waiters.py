"""Requests that wait until records of a partition are committed."""

import asyncio

from headrace.errors import ErrorCode, KafkaError
from headrace.types import Offset


class CommitWaiters:
    """Futures, each with the offset below which everything has to be committed."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        # None as long as nothing has waited, which saves memory with many partitions.
        self._waiting: list[tuple[Offset, asyncio.Future[None]]] | None = None

    def wait(self, offset: Offset, leads: bool) -> asyncio.Future[None]:
        """Done when everything below `offset` is committed; fails if leadership ends before.

        Only the leader can know: a follower may have other records at these offsets.
        """
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if leads:
            if self._waiting is None:
                self._waiting = []
            self._waiting.append((offset, future))
        else:
            future.set_exception(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        return future

    def reached(self, offset: Offset) -> None:
        """Everything below `offset` is committed."""
        waiting = self._waiting
        if not waiting:
            return
        self._waiting = [(wanted, future) for wanted, future in waiting if wanted > offset]
        for wanted, future in waiting:
            if wanted <= offset and not future.done():
                future.set_result(None)

    def fail(self, error: KafkaError) -> None:
        """Fail all waiting requests."""
        waiting, self._waiting = self._waiting, None
        for _, future in waiting or ():
            if not future.done():
                future.set_exception(error)
                future.exception()  # a cancelled request does not retrieve the exception
