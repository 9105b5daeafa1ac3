"""JSON lines as Arrow batches with the columns of a schema."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa


def json_batches(lines: bytes, schema: "pa.Schema") -> "Iterator[pa.RecordBatch]":
    """The rows; fields that the schema does not have are left out, missing ones are null.

    ValueError or TypeError, which Arrow's errors are, if a value does not fit.
    """
    import pyarrow as pa
    from pyarrow import json

    if not lines.strip():
        return
    # A line can be as long as the block.
    reading = json.ReadOptions(block_size=len(lines) + 1)
    parsing = json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    yield from json.read_json(pa.BufferReader(lines), reading, parsing).to_batches()
