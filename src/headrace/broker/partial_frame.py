"""The received part of a request that is not whole: a private buffer of one connection.

The buffer grows with the bytes that have arrived, and `receive_memory.py` bounds the total of all
such buffers. A connection whose last frame was too large for the shared buffer gets a private one
from the start.
"""

from headrace.broker.buffers import SHARED_BYTES, Buffers
from headrace.broker.receive_memory import Receiver
from headrace.wire.framing import SIZE_BYTES, frame_size


class PartialFrame:
    """The buffer of one connection, if it has one, and how much of it is filled."""

    __slots__ = ("_buffers", "_memory", "_needed", "_receiver", "buffer", "filled", "large")

    def __init__(self, receiver: Receiver, buffers: Buffers) -> None:
        self._receiver = receiver
        self._buffers = buffers
        self._memory = buffers.memory
        self.buffer: bytearray | None = None
        self.filled = 0
        self._needed = 0
        """The size of the frame with its size field; 0 until that has arrived."""
        self.large = 0
        """The size of the last frame, if it was too large for the shared buffer."""

    @property
    def is_whole(self) -> bool:
        """Whether there is a frame, or its size, that can be looked at."""
        return self.buffer is not None and self.filled >= (self._needed or SIZE_BYTES)

    def keep(self, rest: memoryview) -> None:
        """Copy the unprocessed rest of a read."""
        left = len(rest)
        needed = frame_size(rest, 0)[0] + SIZE_BYTES if left >= SIZE_BYTES else 0
        buffer = self._buffers.take(max(needed, left), left)
        self._memory.lend(self._receiver, len(buffer))
        buffer[:left] = rest
        self.buffer, self.filled, self._needed = buffer, left, needed

    def begin_large(self) -> bool:
        """Begin with a pooled buffer for a frame as large as the last; False if there is none."""
        buffer = self._buffers.take_pooled(self.large)
        if buffer is None:
            return False
        self.buffer, self.filled, self._needed = buffer, 0, 0
        self._memory.lend(self._receiver, len(buffer))
        return True

    def room(self) -> memoryview | None:
        """Where the rest of the frame goes, and nothing beyond it; None while it waits for memory.

        `resume_receiving` of the connection is called when there is memory.
        """
        buffer, filled = self.buffer, self.filled
        assert buffer is not None, "a partial frame has a buffer"
        if filled == len(buffer):
            if self._memory.is_waiting(self._receiver):
                return None
            larger = self._buffers.take(max(self._needed, filled + 1), filled)
            if not self._memory.grant(self._receiver, len(larger), self._needed):
                self._buffers.give_back(larger)
                return None
            larger[:filled] = buffer
            self._buffers.give_back(buffer)
            buffer = self.buffer = larger
        limit = min(self._needed, len(buffer)) if self._needed else len(buffer)
        return memoryview(buffer)[filled:limit]

    def received(self, count: int, most_bytes: int) -> bool:
        """Count bytes that have arrived; whether the frame is whole, or larger than it may be."""
        self.filled += count
        if self.filled < SIZE_BYTES:
            return False
        if not self._needed:
            assert self.buffer is not None, "a partial frame has a buffer"
            self._needed = frame_size(self.buffer, 0)[0] + SIZE_BYTES
        return not self.filled < self._needed <= most_bytes + SIZE_BYTES

    def end(self) -> None:
        """The frames in the buffer were handled; the connection returns it."""
        self.buffer = None
        self.large = self._needed if self._needed > SHARED_BYTES else 0

    def drop_empty(self) -> None:
        """Return the buffer if nothing has arrived."""
        if not self.filled and self.buffer is not None:
            self._buffers.give_back(self.buffer)
            self.buffer = None
            self._memory.release(self._receiver)

    def release(self) -> None:
        """Stop counting the memory of a frame that was handled."""
        self._memory.release(self._receiver)

    def move_to(self, buffers: Buffers) -> None:
        """Use other buffers from now on; their memory counts the present one."""
        self._memory.release(self._receiver)
        self._buffers, self._memory = buffers, buffers.memory
        if self.buffer is not None:
            self._memory.lend(self._receiver, len(self.buffer))
