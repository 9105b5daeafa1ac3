"""The bytes before a value that has a schema.

0x00 | schema id, 4 bytes | the value in the schema's format
"""

import struct

MAGIC = 0
HEADER = struct.Struct(">bI")


def header(schema_id: int) -> bytes:
    """The first bytes of a value of this schema."""
    return HEADER.pack(MAGIC, schema_id)


def schema_id_of(value: bytes) -> int | None:
    """The schema id that a value begins with; None if it does not begin with one."""
    if len(value) < HEADER.size or value[0] != MAGIC:
        return None
    found: int = HEADER.unpack_from(value)[1]
    return found
