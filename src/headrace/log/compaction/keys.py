"""The key map of compaction: the last offset of every key, in a table of fixed size.

The table has no keys, only a 128-bit hash with a random seed per table: a collision of two keys is
as unlikely as a disk error that passes its checksum, and clients cannot construct such keys. A slot
has three numbers of 64 bits: two halves of the hash (a first half of 0 means a free slot) and the
offset. After a collision, the next slot is tried, at a distance that depends on the hash. All keys
of a chunk are processed together in each step.
"""

import os
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

from headrace.wire.columns import Columns, Numbers

Hashes = npt.NDArray[np.uint64]
"""One row for each key, two columns: the halves of its hash."""

SLOT_BYTES = 24

# Longer keys are rare, and hashed one by one.
_WORD_BYTES = 8
_WORDS_MAX = 64
_LANES = 4

_32 = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)
# Keeps the first n bytes of a word.
_MASKS = np.array([(1 << 8 * n) - 1 for n in range(_WORD_BYTES + 1)], np.uint64)


class KeyHash:
    """A hash of 128 bits with a random seed.

    The upper halves of four sums of products with random numbers: the probability that two keys
    agree in one of them is 2^-32, independent of the others.
    """

    def __init__(self) -> None:
        self._seed = os.urandom(32)
        factors = np.frombuffer(os.urandom(8 * _LANES * (2 * _WORDS_MAX + 2)), np.uint64)
        self._factors = factors.reshape(_LANES, -1)

    def of(self, columns: Columns, chosen: Numbers) -> Hashes:
        """The hashes of the keys of the chosen records, all of which have one."""
        at, length = columns.key_at[chosen], columns.key_bytes[chosen]
        sums = [
            length.view(np.uint64) * factor[-1] + factor[-2]  # keys may end in zeros
            for factor in self._factors
        ]
        words = (length + (_WORD_BYTES - 1)) // _WORD_BYTES
        longest = int(words.max()) if len(words) else 0
        whole = int(words.min()) if len(words) else 0
        source = _words(columns.data)
        rows: Numbers | None = None
        for index in range(min(longest, _WORDS_MAX)):
            if index < whole:
                here, left = at, length
            else:
                rows = np.flatnonzero(words > index)
                here, left = at[rows], length[rows]
            word = _read(source, here + index * _WORD_BYTES)
            word &= _MASKS[np.minimum(left - index * _WORD_BYTES, _WORD_BYTES)]
            low, high = word & _LOW, word >> _32
            for lane, factor in zip(sums, self._factors, strict=True):
                product = low * factor[2 * index] + high * factor[2 * index + 1]
                if rows is None:
                    lane += product
                else:
                    lane[rows] += product
        hashes = np.empty((len(at), 2), np.uint64)
        for half in range(2):
            hashes[:, half] = (sums[2 * half] >> _32 << _32) | (sums[2 * half + 1] >> _32)
        if longest > _WORDS_MAX:
            self._hash_long(columns, at, length, hashes)
        np.maximum(hashes[:, 0], np.uint64(1), out=hashes[:, 0])
        return hashes

    def _hash_long(self, columns: Columns, at: Numbers, length: Numbers, hashes: Hashes) -> None:
        data = columns.data
        for row in np.flatnonzero(length > _WORDS_MAX * _WORD_BYTES).tolist():
            key = data[at[row] : at[row] + length[row]].tobytes()
            digest = blake2b(key, key=self._seed, digest_size=16).digest()
            hashes[row] = np.frombuffer(digest, np.uint64)


def _words(data: npt.NDArray[np.uint8]) -> Hashes:
    """Eight bytes from any position on, as one number each."""
    if len(data) < _WORD_BYTES:
        data = np.concatenate([data, np.zeros(_WORD_BYTES, np.uint8)])
    return np.ndarray((len(data) - _WORD_BYTES + 1,), "<u8", data, 0, (1,))


def _read(words: Hashes, at: Numbers) -> Hashes:
    """The words at these positions; zeros after the end of the buffer."""
    last = len(words) - 1
    if int(at.max()) <= last:
        return words[at]
    inside = np.minimum(at, last)
    return words[inside] >> (8 * (at - inside)).astype(np.uint64)


class KeyMap:
    """Keys and the last offset of each."""

    def __init__(self, max_bytes: int, load_factor: float, expected_keys: int) -> None:
        """Uses at most `max_bytes`, and less if `expected_keys` would fill less than half of it."""
        slots = min(max_bytes // SLOT_BYTES, 2 * expected_keys + 16)
        self._slots = _prime_at_most(max(slots, 3))
        self._table = np.zeros((self._slots, 3), np.uint64)
        self._hash = KeyHash()
        self.capacity = max(int(self._slots * load_factor), 1)
        self.count = 0

    @property
    def room(self) -> int:
        """The number of keys that certainly fit."""
        return self.capacity - self.count

    def hashes(self, columns: Columns, chosen: Numbers) -> Hashes:
        """What `put` and `get` need of the keys of these records."""
        return self._hash.of(columns, chosen)

    def put(self, hashes: Hashes, offsets: Numbers) -> None:
        """Record the offsets of these keys; offsets increase, also from call to call.

        No more keys at once than there is room for.
        """
        assert len(hashes) <= self.room, "the table must keep free slots"
        table = self._table
        slots, steps = self._begin(hashes)
        offsets_unsigned = offsets.view(np.uint64)
        while len(slots):
            found = table.take(slots, axis=0)
            free = np.flatnonzero(found[:, 0] == 0)
            if free.size:
                # If several keys want one slot, the last one gets it, in all its columns.
                wanted = slots[free]
                table[wanted, :2] = hashes[free]
                self.count += np.unique(wanted).size
                found[free] = table.take(wanted, axis=0)
            same = (found[:, 0] == hashes[:, 0]) & (found[:, 1] == hashes[:, 1])
            mine = np.flatnonzero(same)
            table[slots[mine], 2] = offsets_unsigned[mine]
            rest = np.flatnonzero(~same)
            if not rest.size:
                return
            hashes, offsets_unsigned = hashes[rest], offsets_unsigned[rest]
            slots, steps = self._next(slots[rest], steps[rest])

    def get(self, hashes: Hashes) -> Numbers:
        """The last offset of each key; -1 for an unknown key."""
        table = self._table
        result = np.full(len(hashes), -1, np.int64)
        rows = np.arange(len(hashes))
        slots, steps = self._begin(hashes)
        while len(slots):
            found = table.take(slots, axis=0)
            same = (found[:, 0] == hashes[:, 0]) & (found[:, 1] == hashes[:, 1])
            result[rows[same]] = found[same, 2].view(np.int64)
            rest = np.flatnonzero(~same & (found[:, 0] != 0))
            if not rest.size:
                break
            rows, hashes = rows[rest], hashes[rest]
            slots, steps = self._next(slots[rest], steps[rest])
        return result

    def _begin(self, hashes: Hashes) -> tuple[Numbers, Numbers]:
        """The first slot of each key, and the distance to its next one."""
        slots = ((hashes[:, 0] >> _32) * np.uint64(self._slots)) >> _32
        steps = ((hashes[:, 1] >> _32) * np.uint64(self._slots - 1)) >> _32
        return slots.view(np.int64), steps.view(np.int64) + 1

    def _next(self, slots: Numbers, steps: Numbers) -> tuple[Numbers, Numbers]:
        slots = slots + steps
        slots[slots >= self._slots] -= self._slots
        return slots, steps


def _prime_at_most(number: int) -> int:
    """The largest prime up to that size, so that any distance visits all slots."""
    while any(number % divisor == 0 for divisor in range(2, int(number**0.5) + 1)):
        number -= 1
    return number
