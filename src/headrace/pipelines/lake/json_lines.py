"""Files of JSON lines: a row is an object on a line of its own."""

import json
from typing import Self

import pyarrow as pa


class JsonLinesWriter:
    """Writes tables as JSON lines. It has the calls of Parquet's writer; the file stays open."""

    def __init__(self, out: pa.NativeFile) -> None:
        self._out = out

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """The file is closed by its owner."""

    def write_table(self, rows: pa.Table, row_group_size: int) -> None:
        lines = [json.dumps(row, default=_text) for row in rows.to_pylist()]
        self._out.write(("\n".join(lines) + "\n").encode())


def _text(value: object) -> str:
    """Bytes as Base64 and times in ISO 8601, as Kafka Connect's JsonFormat has bytes."""
    import base64
    from datetime import date, datetime, time

    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, (date, datetime, time)):
        return value.isoformat()
    return str(value)
