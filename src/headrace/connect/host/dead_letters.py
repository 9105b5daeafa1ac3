"""Dead letters: records that could not be converted, transformed or written, with the reason.

Key and value are the original bytes. The headers are those of Kafka Connect, and two more: `id`,
which stays the same however often the record fails, and `attempt`, which counts its failures.
"""

from collections.abc import Iterator, Mapping, Sequence
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

from headrace.connect.error_handling import ErrorHandling
from headrace.connect.host.work import ConnectorWork
from headrace.connect.transforms.options import steps
from headrace.pipelines.sink import epoch as epochs
from headrace.pipelines.sink.epoch import Epoch
from headrace.pipelines.sink.options import parse_options
from headrace.pipelines.sink.sink import TaskDone, TopicSink

PREFIX = "__connect.errors."
TASK_PUT, TRANSFORMATION = "TASK_PUT", "TRANSFORMATION"
KEY_CONVERTER, VALUE_CONVERTER = "KEY_CONVERTER", "VALUE_CONVERTER"
REFUSED = "headrace.connect.plugin.RecordError"
NOT_CONVERTED = "org.apache.kafka.connect.errors.DataException"
"""The exception that Kafka Connect has for records that cannot be converted or transformed."""
WRITERS = "connect-dead-letters"
"""The beginning of the transactional ids of replays, and of the groups of their ledgers."""
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
    failures: int = 0
    """How often it has failed before."""
    letter_id: str | None = None
    """The id of the dead letter that failed again."""


def exception_of(stage: str) -> str:
    """The class of the exception, for tools that group dead letters by it."""
    return REFUSED if stage == TASK_PUT else NOT_CONVERTED


def class_of(stage: str, config: Mapping[str, str]) -> str:
    """The class that failed: a converter, the connector, or the transforms."""
    if stage == TRANSFORMATION:
        return ",".join(step.transform.class_name for step in steps(config))
    option = {KEY_CONVERTER: "key.converter", VALUE_CONVERTER: "value.converter"}.get(stage)
    return config.get(option or "connector.class", "")


def context(letter: RefusedRecord, work: ConnectorWork, task: int) -> dict[str, str]:
    """The headers of a dead letter, without their prefix."""
    exception = exception_of(letter.stage)
    return {
        "topic": letter.topic,
        "partition": str(letter.partition),
        "offset": str(letter.offset),
        "connector.name": work.name,
        "task.id": str(task),
        "stage": letter.stage,
        "class.name": class_of(letter.stage, work.config),
        "exception.class.name": exception,
        "exception.message": letter.error,
        "exception.stacktrace": f"{exception}: {letter.error}",
        "id": letter.letter_id or f"{letter.topic}-{letter.partition}-{letter.offset}",
        "attempt": str(letter.failures + 1),
    }


@dataclass(frozen=True, slots=True)
class ReplayEpoch:
    """The part of a replay that is written: its dead letters are in the topic exactly once."""

    run: str
    number: int


class DeadLetterTopic:
    """The topic of the dead letters of one connector, for a task."""

    def __init__(
        self,
        work: ConnectorWork,
        task: int,
        kafka: Mapping[str, str],
        epoch: ReplayEpoch | None = None,
    ) -> None:
        self._work = work
        self._task = task
        handling = ErrorHandling.of(work.config)
        assert handling.topic is not None, "the connector has a topic for dead letters"
        self._has_headers = handling.has_headers
        self._epoch = epoch
        self._sink = letter_sink(handling.topic, kafka, once=epoch is not None)

    def write(self, letters: Sequence[RefusedRecord]) -> TaskDone | None:
        """When it returns, they are in the topic, at least once.

        In a replay they are in an open transaction, which the driver commits.
        """
        rows = [
            {"key": each.key, "value": each.value, "headers": self._headers(each)}
            for each in letters
        ]
        batch = pa.RecordBatch.from_pylist(rows, schema=_ARROW)
        batches: Iterator[pa.RecordBatch] = iter([batch] if rows else [])
        if self._epoch is None:
            self._sink.write(epochs.batch_job(), self._task, batches, ledger=False)
            return None
        epoch = Epoch(self._epoch.run, self._epoch.number)
        return self._sink.write(epoch, self._task, batches, ledger=True)

    def _headers(self, letter: RefusedRecord) -> list[dict[str, Any]]:
        kept = [
            {"key": each["key"], "value": each["value"]}
            for each in letter.headers
            if not each["key"].startswith(PREFIX)
        ]
        if not self._has_headers:
            return kept
        own = context(letter, self._work, self._task)
        return kept + [
            {"key": f"{PREFIX}{name}", "value": text.encode()} for name, text in own.items()
        ]


def letter_sink(topic: str, kafka: Mapping[str, str], *, once: bool) -> TopicSink:
    """The sink of a topic with dead letters; `once` with a ledger of its own for each replay."""
    options = {**kafka, "topic": topic}
    if once:
        options |= {
            "delivery": "exactly-once",
            "ledger": "new",
            "transactionalIdPrefix": WRITERS,
        }
    return TopicSink(parse_options(options), LETTERS)
