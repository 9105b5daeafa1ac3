"""Buffers for partial frames: reused if possible, and bounded by the bytes received."""

from headrace.broker.buffers import SHARED_BYTES, Buffers
from headrace.broker.receive_memory import ReceiveMemory

MEGABYTE = 1_000_116


def test_frames_of_one_size_are_received_into_the_same_memory_again() -> None:
    buffers = Buffers(ReceiveMemory(-1))
    first = buffers.take(MEGABYTE, SHARED_BYTES)
    assert len(first) >= MEGABYTE
    buffers.give_back(first)
    assert buffers.take(MEGABYTE, 1) is first
    buffers.give_back(first)
    assert buffers.take_pooled(MEGABYTE) is first


def test_small_buffers_do_not_keep_large_ones_out() -> None:
    buffers = Buffers(ReceiveMemory(-1))
    for _ in range(100):
        buffers.give_back(bytearray(20_000))
    large = bytearray(MEGABYTE)
    buffers.give_back(large)
    assert buffers.take_pooled(MEGABYTE) is large


def test_a_buffer_has_at_most_four_times_the_received_bytes() -> None:
    buffers = Buffers(ReceiveMemory(-1))
    assert len(buffers.take(100_000_000, 100_000)) == 400_000
    assert len(buffers.take(100_000_000, 4)) == 4096
    assert len(buffers.take(300, 100)) == 300


def test_what_is_kept_stays_within_bounds() -> None:
    buffers = Buffers(ReceiveMemory(-1))
    given = [bytearray(1_000_000) for _ in range(100)]
    for buffer in given:
        buffers.give_back(buffer)
    buffers.give_back(bytearray(50_000_000))
    kept = 0
    while buffers.take_pooled(1) is not None:
        kept += 1
    assert kept == 16
