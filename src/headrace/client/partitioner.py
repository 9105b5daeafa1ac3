"""Which partition a record goes to, as Kafka's own producers decide it: murmur2 of the key."""

import random

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(key: bytes) -> int:
    """Kafka's 32-bit murmur2."""
    value = _SEED ^ len(key)
    whole = len(key) & ~3
    for at in range(0, whole, 4):
        k = int.from_bytes(key[at : at + 4], "little") * _M & _MASK
        k = (k ^ k >> 24) * _M & _MASK
        value = (value * _M & _MASK) ^ k
    if rest := key[whole:]:
        value = (value ^ int.from_bytes(rest, "little")) * _M & _MASK
    value = (value ^ value >> 13) * _M & _MASK
    return value ^ value >> 15


def partition_of(key: bytes | None, count: int) -> int:
    """The partition of a record with this key; any partition if it has none."""
    if key is None:
        return random.randrange(count)
    return (murmur2(key) & 0x7FFFFFFF) % count
