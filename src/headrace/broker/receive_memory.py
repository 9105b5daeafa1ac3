"""The limit of memory for unfinished requests of all connections: `queued.max.request.bytes`.

A small frame (`free_bytes`) is not counted, so that small requests always pass. A larger one needs
a grant before its buffer grows. If the limit is reached its connection is not read until other
frames are finished. One connection at a time may exceed the limit, the one with the smallest frame
first, so that frames that have taken all memory and wait for more cannot block each other forever.
So the memory stays below the limit and one frame of `socket.request.max.bytes`.

While connections wait, `overdue` lists the others that send too slowly.

Clients that have not logged in share another one, which is much smaller (`setup/logins.py`).
"""

import heapq
import time
from collections.abc import Callable
from typing import Protocol

FREE_BYTES = 64 * 1024
"""A frame of up to this size is not counted."""
STALL_S = 5.0
"""How long the frame that exceeds the limit may make no progress."""
FRAME_S = 30.0
"""How long a frame may take while others wait for memory; clients time out by then."""


class Receiver(Protocol):
    """A connection that receives a frame."""

    @property
    def address(self) -> str: ...

    @property
    def filled_bytes(self) -> int:
        """How much of the frame has arrived."""

    def resume_receiving(self) -> None:
        """Read again and request a grant again, because there may be memory now."""

    def close(self) -> None:
        """Drop the frame and close the connection."""


class ReceiveMemory:
    """Counts the memory of unfinished frames, and decides which connections wait."""

    def __init__(
        self,
        limit_bytes: int,
        now: Callable[[], float] = time.monotonic,
        free_bytes: int = FREE_BYTES,
    ) -> None:
        """A limit of 0 or less means no limit."""
        self._limit = limit_bytes if limit_bytes > 0 else 1 << 62
        self._free_bytes = free_bytes
        self._now = now
        self._lent: dict[Receiver, tuple[int, float]] = {}
        """The memory of each frame, and the time of its start."""
        self._waiting: dict[Receiver, int] = {}
        """The connections that wait, with the requested size of their buffer."""
        self._queue: list[tuple[int, int, Receiver]] = []
        """A heap of the waiting connections by frame size; it may contain closed ones."""
        self._arrivals = 0
        self._beyond: Receiver | None = None
        """The connection that may exceed the limit."""
        self._progress = (-1, 0.0)
        """How much of its frame has arrived, and the time when that was first observed."""
        self.held_bytes = 0

    @property
    def waiting(self) -> int:
        """How many connections wait for memory."""
        return len(self._waiting)

    def is_waiting(self, receiver: Receiver) -> bool:
        """Whether the connection waits for memory."""
        return receiver in self._waiting

    def grant(self, receiver: Receiver, size: int, frame_bytes: int) -> bool:
        """Whether the buffer of a frame of `frame_bytes` may grow to this size.

        If not, `resume_receiving` is called when there is memory.
        """
        if size > self._free_bytes:
            before = self._lent.get(receiver)
            more = size - before[0] if before is not None else size
            if self.held_bytes + more > self._limit and self._beyond is not receiver:
                if self._beyond is not None:
                    self._arrivals += 1
                    self._waiting[receiver] = size
                    heapq.heappush(self._queue, (frame_bytes, self._arrivals, receiver))
                    return False
                self._go_beyond(receiver)
            self.lend(receiver, size)
        return True

    def lend(self, receiver: Receiver, size: int) -> None:
        """Count the memory of a frame that has arrived already."""
        if size <= self._free_bytes:
            return
        before = self._lent.get(receiver)
        if before is None:
            self._lent[receiver] = (size, self._now())
            self.held_bytes += size
        else:
            self._lent[receiver] = (size, before[1])
            self.held_bytes += size - before[0]

    def release(self, receiver: Receiver) -> None:
        """Release the memory of a finished frame or a closed connection."""
        lent = self._lent.pop(receiver, None)
        if lent is not None:
            self.held_bytes -= lent[0]
        if self._beyond is receiver:
            self._beyond = None
        if self._queue:
            self._waiting.pop(receiver, None)
            self._wake()
            if not self._waiting:
                self._queue.clear()

    def overdue(self) -> list[Receiver]:
        """The connections whose memory others wait for too long; call it about once a second.

        These are the frames that have taken longer than `FRAME_S`, and the one that exceeds the
        limit if it makes no progress.
        """
        if not self._waiting:
            return []
        now = self._now()
        latest = now - FRAME_S
        found = {receiver for receiver, (_, began) in self._lent.items() if began < latest}
        if self._beyond is not None:
            filled, since = self._progress
            if filled != self._beyond.filled_bytes:
                self._progress = (self._beyond.filled_bytes, now)
            elif now - since > STALL_S:
                found.add(self._beyond)
        return list(found)

    def _go_beyond(self, receiver: Receiver) -> None:
        self._beyond = receiver
        self._progress = (-1, 0.0)

    def _wake(self) -> None:
        """Resume the connections for which there is memory, small frames first."""
        planned = self.held_bytes
        while self._queue:
            _, _, receiver = self._queue[0]
            size = self._waiting.get(receiver)
            if size is not None:
                lent = self._lent.get(receiver)
                more = size - lent[0] if lent is not None else size
                if planned + more > self._limit:
                    if self._beyond is not None:
                        return
                    self._go_beyond(receiver)
                planned += more
                del self._waiting[receiver]
                receiver.resume_receiving()
            heapq.heappop(self._queue)
