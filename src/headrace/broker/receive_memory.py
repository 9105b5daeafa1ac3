"""How much memory unfinished requests may take, over all connections: `queued.max.request.bytes`.

A frame of up to `FREE_BYTES` needs no permission, so that small requests always pass. A larger one
asks before its buffer grows. If the limit is reached its connection is not read until other frames
are finished. One connection at a time may go beyond the limit, the one with the smallest frame
first: frames that have taken all memory and wait for more cannot block each other for ever. So the
memory stays below the limit and one frame of `socket.request.max.bytes`.

While connections wait, `overdue` tells which others send too slowly to keep their memory.
"""

import heapq
import time
from collections.abc import Callable
from typing import Protocol

FREE_BYTES = 64 * 1024
"""A frame of up to this size is not counted."""
STALL_S = 5.0
"""How long nothing may come of the one frame that goes beyond the limit."""
FRAME_S = 30.0
"""How long a frame may take while others wait for memory: clients give a request up by then."""


class Receiver(Protocol):
    """A connection that receives a frame."""

    @property
    def address(self) -> str: ...

    @property
    def filled_bytes(self) -> int:
        """How much of the frame has arrived."""

    def resume_receiving(self) -> None:
        """There may be memory now: read again, and ask again."""

    def close(self) -> None:
        """Give the frame up."""


class ReceiveMemory:
    """Counts the memory of unfinished frames, and says who has to wait."""

    def __init__(self, limit_bytes: int, now: Callable[[], float] = time.monotonic) -> None:
        """A limit of 0 or less stands for none."""
        self._limit = limit_bytes if limit_bytes > 0 else 1 << 62
        self._now = now
        self._lent: dict[Receiver, tuple[int, float]] = {}
        """The memory of each frame, and when it began."""
        self._waiting: dict[Receiver, int] = {}
        """Who waits, and for a buffer of which size."""
        self._queue: list[tuple[int, int, Receiver]] = []
        """Those that wait, the smallest frame first; some have gone meanwhile."""
        self._arrivals = 0
        self._beyond: Receiver | None = None
        """The one that may go beyond the limit."""
        self._progress = (-1, 0.0)
        """How much of its frame had arrived, and when that was seen first."""
        self.held_bytes = 0

    @property
    def waiting(self) -> int:
        """How many connections wait for memory."""
        return len(self._waiting)

    def grant(self, receiver: Receiver, size: int, frame_bytes: int) -> bool:
        """Whether the buffer of a frame of `frame_bytes` may have this size from now on.

        If not, `resume_receiving` is called when there is memory.
        """
        if size > FREE_BYTES:
            if receiver in self._waiting:
                return False
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
        if size <= FREE_BYTES:
            return
        before = self._lent.get(receiver)
        if before is None:
            self._lent[receiver] = (size, self._now())
            self.held_bytes += size
        else:
            self._lent[receiver] = (size, before[1])
            self.held_bytes += size - before[0]

    def release(self, receiver: Receiver) -> None:
        """The frame is finished, or its connection is closed."""
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
        """Whose memory others wait for in vain; call it about once a second.

        That is a frame which has taken longer than it may, and the one beyond the limit if nothing
        of it comes any more.
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
        """Let those read on for whom there is memory, small frames first."""
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
