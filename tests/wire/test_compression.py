"""Codecs: they read the output of others, and no input exceeds their limits."""

import gzip
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from typing import Protocol

import pytest
import snappy  # type: ignore[import-untyped]
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from lz4 import frame as lz4_frame

from headrace.errors import ErrorCode, KafkaError
from headrace.settings import TABLE
from headrace.wire.compression import (
    GZIP,
    LZ4,
    MAX_FRAMES,
    NONE,
    SNAPPY,
    XERIAL_HEADER,
    ZSTD,
    compress,
    decompress,
)

CAP = 1 << 20
CODECS = [NONE, GZIP, SNAPPY, LZ4, ZSTD]
PACKED = [GZIP, SNAPPY, LZ4, ZSTD]
NAMES = ["none", "gzip", "snappy", "lz4", "zstd"]
MIXED = bytes(range(256)) * 400 + b"headrace " * 9000


class Packer(Protocol):
    """A compressor that takes its input piece by piece."""

    def compress(self, data: bytes, /) -> bytes: ...
    def flush(self) -> bytes: ...


def names(codec: object) -> str:
    return NAMES[codec] if isinstance(codec, int) and codec < len(NAMES) else str(codec)


def refused(codec: int, data: bytes, cap: int = CAP) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        decompress(codec, data, cap)
    return caught.value.code


def survives(codec: int, data: bytes | bytearray) -> bool:
    """Whether broken data gives some bytes or the right error; anything else is raised."""
    try:
        return len(decompress(codec, data, CAP)) <= CAP
    except KafkaError as error:
        return error.code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.MESSAGE_TOO_LARGE)


@pytest.mark.parametrize("codec", CODECS, ids=names)
@pytest.mark.parametrize("data", [b"", b"x", MIXED, bytes(CAP)], ids=["0", "1", "mixed", "cap"])
def test_what_is_compressed_comes_back(codec: int, data: bytes) -> None:
    packed = compress(codec, data)
    assert decompress(codec, packed, CAP) == data
    assert decompress(codec, memoryview(bytearray(packed)), CAP) == data


@given(st.binary(max_size=5000), st.sampled_from(CODECS))
def test_any_bytes_come_back(data: bytes, codec: int) -> None:
    assert decompress(codec, compress(codec, data), CAP) == data


@pytest.mark.parametrize(
    ("codec", "level"), [(GZIP, 1), (GZIP, 9), (LZ4, 1), (LZ4, 17), (ZSTD, -131_072), (ZSTD, 22)]
)
def test_the_ends_of_each_range_of_levels_work(codec: int, level: int) -> None:
    assert decompress(codec, compress(codec, MIXED, level), CAP) == MIXED


READERS: list[tuple[int, Callable[[bytes], bytes]]] = [
    (GZIP, gzip.decompress),
    (LZ4, lz4_frame.decompress),
    (ZSTD, lambda data: zstandard.ZstdDecompressor().decompressobj().decompress(data)),
]


@pytest.mark.parametrize(("codec", "read"), READERS, ids=[NAMES[codec] for codec, _ in READERS])
def test_others_read_what_we_write(codec: int, read: Callable[[bytes], bytes]) -> None:
    assert read(compress(codec, MIXED)) == MIXED


def test_our_snappy_is_xerials_framing_with_blocks_that_others_read() -> None:
    packed = compress(SNAPPY, MIXED)
    assert packed.startswith(b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01")
    pos, out = 16, b""
    while pos < len(packed):
        (length,) = struct.unpack_from(">i", packed, pos)
        out += snappy.uncompress(packed[pos + 4 : pos + 4 + length])
        pos += 4 + length
    assert out == MIXED


WRITERS = {
    "gzip": (GZIP, gzip.compress),
    "bare snappy": (SNAPPY, snappy.compress),
    "lz4, linked blocks of 4 MB with checksums and size": (
        LZ4,
        lambda data: lz4_frame.compress(
            data,
            block_linked=True,
            block_size=lz4_frame.BLOCKSIZE_MAX4MB,
            content_checksum=True,
            block_checksum=True,
            store_size=True,
        ),
    ),
    "zstd with its size": (ZSTD, zstandard.ZstdCompressor().compress),
    "zstd stream with a checksum, without its size": (
        ZSTD,
        lambda data: (
            (stream := zstandard.ZstdCompressor(write_checksum=True).compressobj()).compress(data)
            + stream.flush()
        ),
    ),
    "zstd with a wide window": (
        ZSTD,
        lambda data: (
            (stream := zstandard.ZstdCompressor(level=22).compressobj()).compress(data)
            + stream.flush()
        ),
    ),
}


@pytest.mark.parametrize("writer", WRITERS)
def test_we_read_what_others_write(writer: str) -> None:
    codec, write = WRITERS[writer]
    assert decompress(codec, write(MIXED), CAP) == MIXED


@pytest.mark.parametrize("codec", [GZIP, LZ4, ZSTD, SNAPPY], ids=names)
def test_several_frames_are_read_as_one(codec: int) -> None:
    packed = compress(codec, b"one ") + compress(codec, b"two ") + compress(codec, MIXED)
    assert decompress(codec, packed, CAP) == b"one two " + MIXED


def test_a_skippable_zstd_frame_is_skipped() -> None:
    skippable = struct.pack("<II", 0x184D2A53, 5) + b"12345"
    packed = skippable + compress(ZSTD, b"abc") + skippable
    assert decompress(ZSTD, packed, CAP) == b"abc"


@pytest.mark.parametrize("codec", [GZIP, LZ4], ids=names)
def test_thousands_of_empty_frames_are_refused(codec: int) -> None:
    assert refused(codec, compress(codec, b"") * (MAX_FRAMES + 1)) is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("codec", CODECS, ids=names)
def test_the_cap_is_exact(codec: int) -> None:
    data = b"ab" * 50_000
    packed = compress(codec, data)
    assert decompress(codec, packed, len(data)) == data
    assert refused(codec, packed, len(data) - 1) is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("codec", PACKED, ids=names)
def test_every_truncation_is_an_error(codec: int) -> None:
    packed = compress(codec, b"hello, hello, hello " * 20)
    for length in range(len(packed)):
        if codec == SNAPPY and length == len(XERIAL_HEADER):
            continue  # A stream without blocks is an empty one.
        assert refused(codec, packed[:length]) is ErrorCode.CORRUPT_MESSAGE, length


@pytest.mark.parametrize("codec", PACKED, ids=names)
def test_trailing_bytes_are_an_error(codec: int) -> None:
    packed = compress(codec, MIXED)
    assert refused(codec, packed + b"\xff\xff\xff\xff\xff") is ErrorCode.CORRUPT_MESSAGE


@given(
    st.sampled_from(PACKED),
    st.binary(min_size=1, max_size=300),
    st.integers(min_value=0),
    st.integers(1, 255),
)
def test_a_changed_byte_gives_bytes_or_a_kafka_error_and_nothing_else(
    codec: int, data: bytes, where: int, change: int
) -> None:
    packed = bytearray(compress(codec, data))
    packed[where % len(packed)] ^= change
    assert survives(codec, packed)


@given(st.sampled_from(PACKED), st.binary(max_size=200))
def test_noise_is_an_error(codec: int, noise: bytes) -> None:
    for data in (noise, compress(codec, b"abc")[:6] + noise):
        assert survives(codec, data)


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_an_unknown_codec_is_refused_by_its_number(codec: int) -> None:
    assert refused(codec, b"") is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    with pytest.raises(KafkaError):
        compress(codec, b"")


def test_a_snappy_block_that_promises_the_impossible_is_refused_unread() -> None:
    assert refused(SNAPPY, b"\xff\xff\xff\x7f" + b"x" * 20, 1 << 30) is ErrorCode.CORRUPT_MESSAGE


MIB = 1 << 20


def streamed(packer: Packer, piece: bytes, begin: bytes = b"") -> bytes:
    """Hundreds of megabytes, packed piece by piece."""
    return begin + b"".join(packer.compress(piece) for _ in range(200)) + packer.flush()


def gzip_bomb() -> bytes:
    return streamed(zlib.compressobj(9, zlib.DEFLATED, 31), bytes(MIB))


def lz4_bomb() -> bytes:
    packer = lz4_frame.LZ4FrameCompressor()
    begin = packer.begin()
    return streamed(packer, bytes(MIB), begin)


def snappy_bomb() -> bytes:
    block = snappy.compress(bytes(MIB))
    return XERIAL_HEADER + (struct.pack(">i", len(block)) + block) * 200


def zstd_bomb_of_runs() -> bytes:
    return streamed(zstandard.ZstdCompressor().compressobj(), bytes(MIB))


def zstd_bomb_of_patterns() -> bytes:
    return streamed(zstandard.ZstdCompressor().compressobj(), b"ab" * (MIB // 2))


def zstd_bomb_with_a_wide_window() -> bytes:
    parameters = zstandard.ZstdCompressionParameters.from_level(1, window_log=27)
    packer = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    return streamed(packer, b"ab" * (MIB // 2))


BOMBS: list[tuple[int, Callable[[], bytes]]] = [
    (GZIP, gzip_bomb),
    (LZ4, lz4_bomb),
    (SNAPPY, snappy_bomb),
    (ZSTD, zstd_bomb_of_runs),
    (ZSTD, zstd_bomb_of_patterns),
    (ZSTD, zstd_bomb_with_a_wide_window),
]

# Each bomb goes through a process of its own, so that its peak of memory is its own.
EXPLODE = """
import resource, sys
from headrace.errors import ErrorCode, KafkaError
from headrace.wire.compression import compress, decompress

codec, cap, packed = int(sys.argv[1]), int(sys.argv[2]), sys.stdin.buffer.read()
decompress(codec, compress(codec, b"x"), cap)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    decompress(codec, packed, cap)
except KafkaError as error:
    assert error.code is ErrorCode.MESSAGE_TOO_LARGE, error
else:
    raise SystemExit("the bomb went off")
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.parametrize(("codec", "make"), BOMBS, ids=lambda x: getattr(x, "__name__", ""))
def test_a_bomb_is_refused_within_64_mb_of_memory(codec: int, make: Callable[[], bytes]) -> None:
    cap = TABLE["headrace.max.decompressed.bytes"].default
    run = subprocess.run(
        [sys.executable, "-c", EXPLODE, str(codec), str(cap)],
        input=make(),
        capture_output=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr.decode()
    assert int(run.stdout) * 1024 <= 64_000_000
