"""Kafka's four codecs, with a limit for the decompressed size.

A batch of a megabyte can decompress to ten gigabytes; above `max_bytes`, decompression fails. gzip
and lz4 are decompressed in pieces. For snappy and zstd the size is known or bounded before, so a
buffer of that size is allocated.

The native modules are imported when first needed: most brokers never decompress a batch.
"""

import struct
import time
import zlib
from typing import Literal, NamedTuple, TypeAlias

from headrace.errors import ErrorCode, KafkaError

Buffer: TypeAlias = bytes | bytearray | memoryview

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
CODECS = {"uncompressed": NONE, "gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD}

PIECE_BYTES = 1 << 20
INPUT_BYTES = 1 << 16

# Each gzip member or lz4 frame needs a decoder. Producers write one; a batch of thousands is an
# attack.
MAX_FRAMES = 1024

# xerial's framing, which Java's snappy streams write: this header, then blocks, each after its
# length. Other clients write one bare block.
XERIAL_MAGIC = b"\x82SNAPPY\x00"
XERIAL_HEADER = XERIAL_MAGIC + struct.pack(">ii", 1, 1)
XERIAL_BLOCK_BYTES = 32 * 1024
# Snappy's densest element is a copy of 64 bytes in 3.
SNAPPY_MAX_RATIO = 22

ZSTD_MAGIC = 0xFD2FB528
ZSTD_SKIPPABLE_MAGIC = 0x184D2A50
ZSTD_BLOCK_BYTES = 128 * 1024
# The window of levels up to 19. Levels 20 to 22 use up to 128 MiB for content of that size.
ZSTD_USUAL_WINDOW_BYTES = 8 << 20
ZSTD_RAW, ZSTD_RUN_LENGTH, ZSTD_COMPRESSED = range(3)

_int32 = struct.Struct(">i")
_little_uint32 = struct.Struct("<I")


def decompress(codec: int, data: Buffer, max_bytes: int) -> bytes | bytearray:
    """Decompress `data`; MESSAGE_TOO_LARGE above `max_bytes`, CORRUPT_MESSAGE if malformed."""
    match codec:
        case 0:
            if len(data) > max_bytes:
                raise _too_large(max_bytes)
            return bytes(data)
        case 1:
            return _gunzip(memoryview(data), max_bytes)
        case 2:
            return _unsnappy(memoryview(data), max_bytes)
        case 3:
            return _unlz4(memoryview(data), max_bytes)
        case 4:
            return _unzstd(memoryview(data), max_bytes)
    raise _unknown(codec)


def compress(codec: int, data: Buffer, level: int | None = None) -> bytes:
    """`data` in the form that Kafka's Java clients write; `level` None is Kafka's default."""
    match codec:
        case 0:
            return bytes(data)
        case 1:
            packer = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, 31)
            return packer.compress(data) + packer.flush()
        case 2:
            return _snappy(memoryview(data))
        case 3:
            from lz4.frame import BLOCKSIZE_MAX64KB
            from lz4.frame import compress as lz4_compress

            packed: bytes = lz4_compress(
                data,
                compression_level=9 if level is None else level,
                block_size=BLOCKSIZE_MAX64KB,
                block_linked=False,
                store_size=False,
            )
            return packed
        case 4:
            from cramjam import zstd

            return bytes(zstd.compress(data, 3 if level is None else level))
    raise _unknown(codec)


def _too_large(max_bytes: int) -> KafkaError:
    return KafkaError(
        ErrorCode.MESSAGE_TOO_LARGE,
        f"the batch decompresses to more than headrace.max.decompressed.bytes={max_bytes}; "
        "send smaller batches or raise the setting",
    )


def _corrupt(codec: Literal["gzip", "snappy", "lz4", "zstd"], why: object) -> KafkaError:
    return KafkaError(
        ErrorCode.CORRUPT_MESSAGE, f"the batch's records cannot be read as {codec}: {why}"
    )


def _room(size: int) -> bytearray:
    """A buffer of this size, made in pieces.

    The kernel clears every page, and other threads would wait for that if it were one call.
    """
    if size <= PIECE_BYTES:
        return bytearray(size)
    out, piece = bytearray(), bytes(PIECE_BYTES)
    while len(out) + PIECE_BYTES < size:
        out += piece
        time.sleep(0)  # lets other threads run
    out += bytes(size - len(out))
    return out


def _unknown(codec: int) -> KafkaError:
    return KafkaError(
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        f"codec {codec} is unknown; known are 0 to 4: none, gzip, snappy, lz4, zstd",
    )


def _gunzip(data: memoryview, max_bytes: int) -> bytes | bytearray:
    """All gzip members, one after the other."""
    out = bytearray()
    pos = 0
    for _ in range(MAX_FRAMES):
        member = zlib.decompressobj(31)
        while not member.eof:
            # Small slices of the input, because zlib copies the unused rest.
            given = data[pos : pos + INPUT_BYTES]
            try:
                piece = member.decompress(given, PIECE_BYTES)
            except zlib.error as error:
                raise _corrupt("gzip", error) from error
            taken = len(given) - len(member.unconsumed_tail) - len(member.unused_data)
            if not taken and not piece and not member.eof:
                raise _corrupt("gzip", "it ends in the middle")
            pos += taken
            if len(out) + len(piece) > max_bytes:
                raise _too_large(max_bytes)
            out += piece
        if pos == len(data):
            return out
    raise _corrupt("gzip", f"it has more than {MAX_FRAMES} members")


def _unlz4(data: memoryview, max_bytes: int) -> bytes | bytearray:
    """All lz4 frames, one after the other."""
    from lz4.frame import create_decompression_context, decompress_chunk

    out = bytearray()
    pos = 0
    for _ in range(MAX_FRAMES):
        frame = create_decompression_context()
        done = False
        while not done:
            try:
                piece, taken, done = decompress_chunk(frame, data[pos:], max_length=PIECE_BYTES)
            except RuntimeError as error:
                raise _corrupt("lz4", error) from error
            if not taken and not piece and not done:
                raise _corrupt("lz4", "it ends in the middle")
            pos += taken
            if len(out) + len(piece) > max_bytes:
                raise _too_large(max_bytes)
            out += piece
        if pos == len(data):
            return out
    raise _corrupt("lz4", f"it has more than {MAX_FRAMES} frames")


def _snappy(data: memoryview) -> bytes:
    from cramjam import snappy

    parts: list[bytes] = [XERIAL_HEADER]
    for start in range(0, len(data), XERIAL_BLOCK_BYTES):
        block = bytes(snappy.compress_raw(data[start : start + XERIAL_BLOCK_BYTES]))
        parts.append(_int32.pack(len(block)))
        parts.append(block)
    return b"".join(parts)


def _unsnappy(data: memoryview, max_bytes: int) -> bytes | bytearray:
    """xerial's blocks, or one bare block."""
    from cramjam import DecompressionError, snappy

    blocks = _xerial_blocks(data) if data[:8] == XERIAL_MAGIC else [data]
    sizes = [_snappy_size(block) for block in blocks]
    total = sum(sizes)
    if total > max_bytes:
        raise _too_large(max_bytes)
    out = _room(total)
    target = memoryview(out)
    pos = 0
    for block, size in zip(blocks, sizes, strict=True):
        try:
            written = snappy.decompress_raw_into(block, target[pos : pos + size]) if size else 0
        except DecompressionError as error:
            raise _corrupt("snappy", error) from error
        if written != size:
            raise _corrupt("snappy", f"a block has {written} bytes instead of {size}")
        pos += size
    target.release()
    return out


def _xerial_blocks(data: memoryview) -> list[memoryview]:
    blocks: list[memoryview] = []
    pos, end = len(XERIAL_HEADER), len(data)
    if end < pos:
        raise _corrupt("snappy", "it ends in its header")
    while pos < end:
        if data[pos : pos + 8] == XERIAL_MAGIC:
            # Several streams in sequence: each begins with the header.
            pos += len(XERIAL_HEADER)
            continue
        if end - pos < 4:
            raise _corrupt("snappy", "it ends in a block's length")
        (length,) = _int32.unpack_from(data, pos)
        pos += 4
        if length <= 0 or length > end - pos:
            raise _corrupt("snappy", f"a block of {length} bytes does not fit")
        blocks.append(data[pos : pos + length])
        pos += length
    return blocks


def _snappy_size(block: memoryview) -> int:
    """The decompressed size in a bare block; an impossible size is refused."""
    size = 0
    for shift, byte in enumerate(block[:5]):
        size |= (byte & 0x7F) << (7 * shift)
        if byte < 0x80:
            if size > SNAPPY_MAX_RATIO * len(block):
                raise _corrupt("snappy", f"{len(block)} bytes cannot hold {size}")
            return size
    raise _corrupt("snappy", "it does not begin with its size")


def _unzstd(data: memoryview, max_bytes: int) -> bytes | bytearray:
    """All zstd frames, one after the other."""
    from cramjam import DecompressionError, zstd

    least, most, window = _zstd_bounds(data)
    allowed = max_bytes
    if window > ZSTD_USUAL_WINDOW_BYTES:
        # The decoder has its own window in addition to our output: both together have the limit.
        allowed = max(max_bytes - window, max_bytes // 2)
    if least > allowed:
        raise _too_large(max_bytes)
    out = _room(min(most, allowed))
    try:
        written = zstd.decompress_into(data, out) if out else 0
    except (DecompressionError, OSError) as error:
        if most > allowed:
            raise _too_large(max_bytes) from error
        raise _corrupt("zstd", error) from error
    del out[written:]
    return out


class _ZstdFrame(NamedTuple):
    """The header of a zstd frame; `content` is -1 if it has no content size."""

    blocks_at: int
    window: int
    content: int
    trailer: int


def _zstd_bounds(data: memoryview) -> tuple[int, int, int]:
    """The smallest and largest decompressed size, and the largest window, from headers only.

    Raw and run-length blocks have their size; a compressed block has at most 128 KiB.
    """
    least = most = widest = pos = 0
    end = len(data)
    try:
        while pos < end:
            (magic,) = _little_uint32.unpack_from(data, pos)
            if magic & ~0xF == ZSTD_SKIPPABLE_MAGIC:
                pos += 8 + _little_uint32.unpack_from(data, pos + 4)[0]
                continue
            if magic != ZSTD_MAGIC:
                raise _corrupt("zstd", "a frame does not begin with zstd's magic number")
            frame = _zstd_frame(data, pos + 4)
            pos, low, high = _zstd_blocks(data, frame)
            pos += frame.trailer
            least += low
            most += high if frame.content < 0 else min(high, frame.content)
            widest = max(widest, min(frame.window, high))
    except (IndexError, struct.error) as error:
        raise _corrupt("zstd", "it ends in the middle") from error
    if pos != end or not end:
        raise _corrupt("zstd", "it ends in the middle")
    return least, most, widest


def _zstd_frame(data: memoryview, pos: int) -> _ZstdFrame:
    descriptor = data[pos]
    pos += 1
    single_segment = descriptor & 0x20
    window = 0
    if not single_segment:
        power = 1 << (10 + (data[pos] >> 3))
        window = power + (power >> 3) * (data[pos] & 7)
        pos += 1
    pos += (0, 1, 2, 4)[descriptor & 3]
    content = -1
    content_bytes = (1 if single_segment else 0, 2, 4, 8)[descriptor >> 6]
    if content_bytes:
        content = int.from_bytes(data[pos : pos + content_bytes], "little")
        content += 256 if content_bytes == 2 else 0
        pos += content_bytes
    if single_segment:
        window = content
    return _ZstdFrame(pos, window, content, 4 if descriptor & 4 else 0)


def _zstd_blocks(data: memoryview, frame: _ZstdFrame) -> tuple[int, int, int]:
    """The end of the frame's blocks, and their smallest and largest decompressed size."""
    pos = frame.blocks_at
    least = most = last = 0
    while not last:
        header = data[pos] | data[pos + 1] << 8 | data[pos + 2] << 16
        last, kind, size = header & 1, header >> 1 & 3, header >> 3
        pos += 3
        if kind == ZSTD_RUN_LENGTH:
            pos += 1
            least += size
            most += size
        elif kind == ZSTD_COMPRESSED:
            pos += size
            most += ZSTD_BLOCK_BYTES
        elif kind == ZSTD_RAW:
            pos += size
            least += size
            most += size
        else:
            raise _corrupt("zstd", "a block has an unknown type")
    return pos, least, most
