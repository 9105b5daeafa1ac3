"""Prebuilt requests, byte by byte, so that no client library is part of what is measured.

Produce v9 (flexible) and Fetch v11, which Headrace and Apache Kafka both serve.
"""

import os
import struct
import time

from crc32c import crc32c

CLIENT = b"blaster"
BATCH_OVERHEAD_BYTES = 61


def varint(number: int) -> bytes:
    """An unsigned variable-length integer."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def zigzag(number: int) -> bytes:
    """A signed variable-length integer, as records use it."""
    return varint(number * 2 if number >= 0 else -number * 2 - 1)


def record(offset_delta: int, value: bytes) -> bytes:
    """One record without key and headers."""
    body = b"\0" + zigzag(0) + zigzag(offset_delta) + zigzag(-1) + zigzag(len(value)) + value
    body += zigzag(0)
    return zigzag(len(body)) + body


def batch(records: int, value_bytes: int) -> bytes:
    """A record batch of magic 2, uncompressed, of a producer without an identity."""
    value = os.urandom(value_bytes)
    body = b"".join(record(delta, value) for delta in range(records))
    now_ms = int(time.time() * 1000)
    tail = struct.pack(">hiqqqhii", 0, records - 1, now_ms, now_ms, -1, -1, -1, records) + body
    return struct.pack(">qiiBI", 0, len(tail) + 9, -1, 2, crc32c(tail)) + tail


def batch_of_size(size: int, value_bytes: int = 1024) -> bytes:
    """A batch of about `size` bytes made of values of `value_bytes`."""
    return batch(max(1, (size - BATCH_OVERHEAD_BYTES) // (value_bytes + 9)), value_bytes)


def produce(topic: str, partition: int, records: bytes, acks: int = 1) -> bytes:
    """A framed Produce v9 request for one partition."""
    name = topic.encode()
    body = struct.pack(">hhih", 0, 9, 0, len(CLIENT)) + CLIENT + b"\0"
    body += b"\0" + struct.pack(">hi", acks, 30_000)
    body += varint(2) + varint(len(name) + 1) + name
    body += varint(2) + struct.pack(">i", partition) + varint(len(records) + 1) + records
    body += b"\0\0\0"
    return struct.pack(">i", len(body)) + body


def produce_error_at(topic: str) -> int:
    """Where in the answer to `produce` the partition's error code stands."""
    correlation_and_tags, topics, partitions, index = 5, 1, 1, 4
    return correlation_and_tags + topics + 1 + len(topic) + partitions + index


def fetch(topic: str, partition: int, offset: int, max_bytes: int, max_wait_ms: int = 500) -> bytes:
    """A framed Fetch v11 request for one partition, without a session."""
    name = topic.encode()
    body = struct.pack(">hhih", 1, 11, 0, len(CLIENT)) + CLIENT
    body += struct.pack(">iiiibii", -1, max_wait_ms, 1, max_bytes, 0, 0, -1)
    body += struct.pack(">ih", 1, len(name)) + name + struct.pack(">i", 1)
    body += struct.pack(">iiqqi", partition, -1, offset, -1, max_bytes)
    body += struct.pack(">ih", 0, 0)
    return struct.pack(">i", len(body)) + body


def fetch_error_at(topic: str) -> int:
    """Where in the answer to `fetch` the partition's error code stands."""
    correlation, throttle, error, session, topics = 4, 4, 2, 4, 4
    partitions, index = 4, 4
    return correlation + throttle + error + session + topics + 2 + len(topic) + partitions + index


def metadata_of_all_topics() -> bytes:
    """A framed Metadata v9 request for every topic."""
    body = struct.pack(">hhih", 3, 9, 0, len(CLIENT)) + CLIENT + b"\0"
    body += b"\0" + b"\0\0\0" + b"\0"
    return struct.pack(">i", len(body)) + body
