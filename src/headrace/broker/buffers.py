"""Receive memory: one shared buffer for small frames, and a few large ones for connections with
an incomplete frame.

Buffers are reused, because the kernel clears every new page before its first use: allocating a
megabyte for each frame of a megabyte costs as much as receiving it.
"""

from headrace.broker.receive_memory import ReceiveMemory

SHARED_BYTES = 256 * 1024
_FIRST_BYTES = 4096
_SMALLEST_POOLED_BYTES = 16 * 1024
LARGEST_POOLED_BYTES = 4 * 1024 * 1024
_POOLED = 16
_GRAIN_BYTES = 64 * 1024
"""Large buffers are multiples of this, so that frames of similar size can share one."""


class Buffers:
    """Receive memory that connections share."""

    def __init__(self, memory: ReceiveMemory, shared_bytes: int = SHARED_BYTES) -> None:
        self.memory = memory
        self.shared = bytearray(shared_bytes)
        self.view = memoryview(self.shared)
        self._pool: list[bytearray] = []

    def take_pooled(self, wanted: int) -> bytearray | None:
        """A pooled buffer with room for `wanted` bytes, if there is one."""
        pool = self._pool
        for place in range(len(pool) - 1, -1, -1):
            if len(pool[place]) >= wanted:
                return pool.pop(place)
        return None

    def take(self, wanted: int, filled: int) -> bytearray:
        """A pooled buffer with room for `wanted` bytes, else a new one larger than `filled`.

        A new buffer has at most four times the bytes that the client has sent, whatever it claims.
        """
        pooled = self.take_pooled(wanted)
        if pooled is not None:
            return pooled
        if wanted > _GRAIN_BYTES:
            wanted += -wanted % _GRAIN_BYTES
        return bytearray(min(wanted, max(_FIRST_BYTES, 4 * filled)))

    def give_back(self, buffer: bytearray) -> None:
        """Return a buffer to the pool, if it is of a useful size.

        If the pool is full, a larger buffer replaces the smallest one.
        """
        if not _SMALLEST_POOLED_BYTES <= len(buffer) <= LARGEST_POOLED_BYTES:
            return
        pool = self._pool
        if len(pool) >= _POOLED:
            smallest = min(range(len(pool)), key=lambda place: len(pool[place]))
            if len(pool[smallest]) >= len(buffer):
                return
            del pool[smallest]
        pool.append(buffer)
