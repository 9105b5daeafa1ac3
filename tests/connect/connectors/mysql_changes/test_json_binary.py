"""MariaDB has no binary JSON, so these documents are put together by hand."""

import json
import struct

import pytest

from headrace.connect.connectors.mysql_changes.json_binary import json_text

ARRAY = struct.pack("<HHBHBHBH", 3, 15, 4, 1, 4, 0, 12, 13) + b"\x01x"
OBJECT = struct.pack("<HHHHHHBHBH", 2, 35, 18, 1, 19, 1, 5, 1, 2, 20) + b"ab" + ARRAY
LARGE = struct.pack("<IIBiBI", 2, 26, 7, -70000, 11, 18) + struct.pack("<d", 0.5)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "null"),
        (b"\x04\x02", "false"),
        (b"\x00" + OBJECT, '{"a": 1, "b": [true, null, "x"]}'),
        (b"\x03" + LARGE, "[-70000, 0.5]"),
        (b"\x09" + struct.pack("<q", -(2**63)), str(-(2**63))),
        (b"\x0a" + struct.pack("<Q", 2**64 - 1), str(2**64 - 1)),
        (b"\x0c\x03\xc3\xa9x", '"éx"'),
        (b"\x0c\xac\x02" + b"y" * 300, '"' + "y" * 300 + '"'),
        (b"\x0f\xf6\x04\x03\x01\x81\x05", "1.5"),  # DECIMAL(3,1)
    ],
)
def test_documents_are_as_select_has_them(data: bytes, text: str) -> None:
    assert json_text(data) == text
    json.loads(text)


def test_times_within_documents_are_texts() -> None:
    packed = ((2026 * 13 + 2) << 22 | 3 << 17 | 4 << 12 | 5 << 6 | 6) << 24 | 7
    assert json_text(b"\x0f\x0c\x08" + struct.pack("<q", packed)) == '"2026-02-03 04:05:06.000007"'
    assert json_text(b"\x0f\x0a\x08" + struct.pack("<q", packed)) == '"2026-02-03"'
    time = -((1 << 12 | 2 << 6 | 3) << 24 | 4)
    assert json_text(b"\x0f\x0b\x08" + struct.pack("<q", time)) == '"-01:02:03.000004"'
