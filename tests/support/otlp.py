"""Writes OpenTelemetry's MetricsData as clients push it; fields by number, as in `wire/otlp.py`."""

import struct
from collections.abc import Mapping

DELTA, CUMULATIVE = 1, 2


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def field(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def number_field(number: int, value: int) -> bytes:
    return varint(number << 3) + varint(value)


def fixed64(number: int, value: float) -> bytes:
    packed = struct.pack("<q" if isinstance(value, int) else "<d", value)
    return varint(number << 3 | 1) + packed


def attribute(key: str, value: bytes) -> bytes:
    return field(1, key.encode()) + field(2, value)


def point(value: float, attributes: Mapping[str, str] | None = None) -> bytes:
    texts = [
        field(7, attribute(key, field(1, text.encode())))
        for key, text in (attributes or {}).items()
    ]
    return fixed64(6 if isinstance(value, int) else 4, value) + b"".join(texts)


def gauge(name: str, *points: bytes) -> bytes:
    return field(1, name.encode()) + field(5, b"".join(field(1, one) for one in points))


def counter(name: str, *points: bytes, temporality: int = DELTA) -> bytes:
    content = b"".join(field(1, one) for one in points)
    content += number_field(2, temporality) + number_field(3, 1)
    return field(1, name.encode()) + field(7, content)


def metrics_data(*metrics: bytes, resource: Mapping[str, str] | None = None) -> bytes:
    attributes = [
        field(1, attribute(key, field(1, text.encode()))) for key, text in (resource or {}).items()
    ]
    scope = field(2, b"".join(field(2, one) for one in metrics))
    return field(1, field(1, b"".join(attributes)) + scope)
