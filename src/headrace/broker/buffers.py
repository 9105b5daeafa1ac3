"""Receive memory: one shared buffer for small frames, and a few large ones for connections with
an incomplete frame.

Memory that has been used is warm. A new megabyte for each frame of a megabyte costs as much as
receiving it: the kernel clears every page before it is written for the first time.
"""

from headrace.broker.receive_memory import ReceiveMemory

SHARED_BYTES = 256 * 1024
_FIRST_BYTES = 4096
_SMALLEST_KEPT_BYTES = 16 * 1024
LARGEST_KEPT_BYTES = 4 * 1024 * 1024
_KEPT = 16
_GRAIN_BYTES = 64 * 1024
"""Large buffers are multiples of this, so that frames of about one size can use the same."""


class Buffers:
    """Receive memory that connections share."""

    def __init__(self, memory: ReceiveMemory) -> None:
        self.memory = memory
        self.shared = bytearray(SHARED_BYTES)
        self.view = memoryview(self.shared)
        self._kept: list[bytearray] = []

    def kept(self, wanted: int) -> bytearray | None:
        """A buffer that has room for `wanted` bytes and was used before, if there is one."""
        kept = self._kept
        for place in range(len(kept) - 1, -1, -1):
            if len(kept[place]) >= wanted:
                return kept.pop(place)
        return None

    def take(self, wanted: int, filled: int) -> bytearray:
        """Room for `wanted` bytes if a kept buffer has it, else some more than `filled`.

        Of what a client claims to send, no more is allocated than four times what it has sent.
        """
        kept = self.kept(wanted)
        if kept is not None:
            return kept
        if wanted > _GRAIN_BYTES:
            wanted += -wanted % _GRAIN_BYTES
        return bytearray(min(wanted, max(_FIRST_BYTES, 4 * filled)))

    def give_back(self, buffer: bytearray) -> None:
        """Keep a buffer for the next partial frame, if it is of a useful size.

        Where enough are kept, a larger one takes the place of the smallest.
        """
        if not _SMALLEST_KEPT_BYTES <= len(buffer) <= LARGEST_KEPT_BYTES:
            return
        kept = self._kept
        if len(kept) >= _KEPT:
            smallest = min(range(len(kept)), key=lambda place: len(kept[place]))
            if len(kept[smallest]) >= len(buffer):
                return
            del kept[smallest]
        kept.append(buffer)
