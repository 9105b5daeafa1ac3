"""Frames of real clients, and mutations of their bytes."""

import random
import struct

from tests.support.raw import batch_of, frame, produce


def real_frames() -> list[bytes]:
    """One frame of each kind that clients send, as a start for mutations."""
    name = b"\0\x01t"
    return [
        produce("t", batch_of(b"value", b"other")),
        produce("t", batch_of(b"value" * 50, codec=4)),
        frame(3, 4, struct.pack(">i", 1) + name + b"\x01"),
        frame(3, 12, b"\0\x02" + b"\0" * 16 + b"\x02t\0\x01\0\0"),
        frame(18, 3, b"\0\x04raw\x021\0"),
        frame(2, 1, struct.pack(">ii", -1, 1) + name + struct.pack(">iiq", 1, 0, -1)),
        frame(1, 11, struct.pack(">iiiibii", -1, 0, 1, 1000, 0, 0, -1) + struct.pack(">i", 1)
              + name + struct.pack(">iiiqqi", 1, 0, -1, 0, -1, 1000) + struct.pack(">ih", 0, 0)),
        frame(19, 5, b"\0\x02\x02t" + struct.pack(">ih", 1, 1) + b"\x01\x01\0" + b"\0\0\x10\0\0\0"),
        frame(22, 4, b"\0\0" + struct.pack(">iqh", 1000, -1, -1) + b"\0"),
        frame(32, 4, b"\0\x02\x02\x02t\0\0\0\0\0"),
        frame(44, 1, b"\0\x02\x02\x02t\x02\x0dretention.ms\0\x021\0\0\0\0"),
        frame(60, 0, b"\0\0\0"),
        frame(75, 0, b"\0\x02\x02t\0\0\0\0\x10\xff\0"),
        frame(35, 2, b"\0\0\0"),
    ]  # fmt: skip


def mutated(rng: random.Random, original: bytes) -> bytes:
    """The frame with a few bytes wrong; its size still says where it ends."""
    data = bytearray(original[4:])
    for _ in range(rng.randint(1, 4)):
        match rng.randint(0, 4):
            case 0:
                data[rng.randrange(len(data))] = rng.randrange(256)
            case 1:
                del data[rng.randrange(len(data)) :]
            case 2:
                at = rng.randrange(len(data) + 1)
                data[at:at] = rng.randbytes(rng.randint(1, 8))
            case 3:
                at = rng.randrange(len(data))
                data[at : at + 4] = b"\x7f\xff\xff\xff"
            case 4:
                at = rng.randrange(len(data))
                data[at : at + 5] = b"\xff\xff\xff\xff\x0f"
        if len(data) < 8:
            data += b"\0" * 8
    return struct.pack(">i", len(data)) + bytes(data)
