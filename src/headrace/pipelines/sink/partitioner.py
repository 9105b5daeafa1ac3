"""The default partitioner of Kafka's producers: murmur2 of the key."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

SEED = np.uint32(0x9747B28C)
MULTIPLIER = np.uint32(0x5BD1E995)


def murmur2(keys: pa.BinaryArray) -> npt.NDArray[np.uint32]:
    """Kafka's 32-bit murmur2 of every key; null has the hash of an empty key."""
    offsets, data = parts_of(keys)
    starts, lengths = offsets[:-1], np.diff(offsets)
    hashes = SEED ^ lengths.astype(np.uint32)
    # Keys are sorted by length, longest first: those with an n-th word are a prefix.
    order = np.argsort(-lengths, kind="stable")
    starts, sorted_lengths, hashes = starts[order], lengths[order], hashes[order]
    padded = np.concatenate((data, np.zeros(4, np.uint8)))
    words, tails = sorted_lengths >> 2, sorted_lengths & 3
    for index in range(int(words[0]) if len(words) else 0):
        count = int(np.searchsorted(-words, -index, side="left"))
        at = starts[:count] + 4 * index
        hashes[:count] = _mixed(hashes[:count], _word(padded, at))
    at = starts + (words << 2)
    for missing, shift in ((3, 16), (2, 8), (1, 0)):
        has = tails >= missing
        byte = padded[at[has] + (missing - 1)].astype(np.uint32)
        hashes[has] ^= byte << np.uint32(shift)
    hashes[tails > 0] *= MULTIPLIER
    hashes ^= hashes >> np.uint32(13)
    hashes *= MULTIPLIER
    hashes ^= hashes >> np.uint32(15)
    result = np.empty_like(hashes)
    result[order] = hashes
    return result


def by_key(keys: pa.BinaryArray, partitions: int) -> npt.NDArray[np.int32]:
    """The partition of each key."""
    positive = (murmur2(keys) & np.uint32(0x7FFFFFFF)).astype(np.int32)
    return positive % np.int32(partitions)


def parts_of(
    array: pa.BinaryArray,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    """Offsets (one more than there are values) and bytes of a binary array."""
    _, offsets, data = array.buffers()
    kind = np.int64 if pa.types.is_large_binary(array.type) else np.int32
    found = np.frombuffer(offsets, kind)[array.offset : array.offset + len(array) + 1]
    raw = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    return found.astype(np.int64), raw


def _word(data: npt.NDArray[np.uint8], at: npt.NDArray[np.int64]) -> npt.NDArray[np.uint32]:
    word = data[at].astype(np.uint32)
    for byte in (1, 2, 3):
        word |= data[at + byte].astype(np.uint32) << np.uint32(8 * byte)
    return word


def _mixed(hashes: npt.NDArray[np.uint32], word: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    word = word * MULTIPLIER
    word ^= word >> np.uint32(24)
    word *= MULTIPLIER
    return (hashes * MULTIPLIER) ^ word
