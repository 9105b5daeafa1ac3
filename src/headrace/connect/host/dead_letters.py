"""Dead letters: records that could not be converted, transformed or written, with the reason."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    StringType,
    StructField,
    StructType,
)

from headrace.pipelines.sink import epoch as epochs
from headrace.pipelines.sink.options import parse_options
from headrace.pipelines.sink.sink import TopicSink

PREFIX = "__connect.errors."
HEADERS = ArrayType(
    StructType([StructField("key", StringType()), StructField("value", BinaryType())])
)
LETTERS = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("headers", HEADERS),
    ]
)
_ARROW = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)


@dataclass(frozen=True, slots=True)
class RefusedRecord:
    """A record that failed, with its original bytes."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[Mapping[str, Any]]
    stage: str
    error: str


class DeadLetterTopic:
    """The topic of the dead letters of one connector, for a task."""

    def __init__(self, topic: str, connector: str, task: int, kafka: Mapping[str, str]) -> None:
        self._connector = connector
        self._task = task
        self._sink = TopicSink(parse_options({**kafka, "topic": topic}), LETTERS)

    def write(self, letters: Sequence[RefusedRecord]) -> None:
        """When it returns, they are in the topic, at least once."""
        rows = [
            {"key": each.key, "value": each.value, "headers": self._headers(each)}
            for each in letters
        ]
        batch = pa.RecordBatch.from_pylist(rows, schema=_ARROW)
        self._sink.write(epochs.batch_job(), self._task, iter([batch]), ledger=False)

    def _headers(self, letter: RefusedRecord) -> list[dict[str, Any]]:
        own = {
            "topic": letter.topic,
            "partition": letter.partition,
            "offset": letter.offset,
            "connector.name": self._connector,
            "task.id": self._task,
            "stage": letter.stage,
            "exception.message": letter.error,
            "id": f"{letter.topic}-{letter.partition}-{letter.offset}",
            "attempt": _attempt(letter.headers) + 1,
        }
        kept = [
            {"key": each["key"], "value": each["value"]}
            for each in letter.headers
            if not each["key"].startswith(PREFIX)
        ]
        return kept + [
            {"key": f"{PREFIX}{name}", "value": str(value).encode()} for name, value in own.items()
        ]


def _attempt(headers: Sequence[Mapping[str, Any]]) -> int:
    """How often the record has failed before."""
    for each in headers:
        if each["key"] == f"{PREFIX}attempt" and (each["value"] or b"").isdigit():
            return int(each["value"])
    return 0
