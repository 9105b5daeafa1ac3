"""The Datagen source: random records for demonstrations and load tests."""

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.connect.connectors.quickstarts import QUICKSTARTS
from headrace.connect.plugin import (
    Option,
    OptionError,
    Source,
    SourceOffset,
    SourcePartition,
    SourceStream,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.connect.connectors.generated import Generator

BATCH_ROWS = 16384
DEFAULT_INTERVAL_MS = 500
TASK, ITERATION = "task.id", "current.iteration"


class Datagen(Source):
    """Generates random records of a quickstart or of an Avro schema, exactly once.

    A record is a function of its number, its task and the seed. Every task generates records of its
    own.
    """

    aliases = ("io.confluent.kafka.connect.datagen.DatagenConnector",)
    ignored = ("generate.timeout",)
    options = (
        Option("kafka.topic", str, doc="The topic.", importance="high"),
        Option("quickstart", str, "", f"One of {', '.join(QUICKSTARTS)}.", importance="high"),
        Option(
            "schema.string",
            str,
            "",
            "An Avro record as JSON, instead of a quickstart. The attribute arg.properties of its "
            "types chooses the values.",
            importance="high",
        ),
        Option("schema.filename", str, "", "A file with the schema.", importance="high"),
        Option("schema.keyfield", str, "", "The field that is the key.", importance="high"),
        Option(
            "max.interval",
            int,
            DEFAULT_INTERVAL_MS,
            "The longest time between two records of a task, in milliseconds. The mean is half of "
            "it; 0 generates as fast as possible.",
            importance="high",
        ),
        Option(
            "iterations",
            int,
            -1,
            "The number of records of each task; the connector ends after them. Without limit "
            "below 1.",
            importance="high",
        ),
        Option("random.seed", int, 0, "Another seed generates other records.", importance="low"),
    )

    kafka_topic: str
    quickstart: str
    schema_string: str
    schema_filename: str
    schema_keyfield: str
    max_interval: int
    iterations: int
    random_seed: int

    def __init__(self, config: Mapping[str, str]) -> None:
        super().__init__(config)
        named = [
            option
            for option in ("quickstart", "schema.string", "schema.filename")
            if config.get(option)
        ]
        if len(named) != 1:
            raise OptionError(
                named[1] if named else "quickstart",
                "Set exactly one of quickstart, schema.string and schema.filename.",
            )
        if self.quickstart and self.quickstart.lower() not in QUICKSTARTS:
            raise OptionError(
                "quickstart",
                f"Unknown quickstart {self.quickstart}: expected one of {', '.join(QUICKSTARTS)}",
            )
        self._paced: dict[int, float] = {}

    def check(self) -> None:
        from headrace.connect.connectors.generated import BadSchema

        option = "schema.filename" if self.schema_filename else "schema.string"
        try:
            generator = self._generator(0)
        except (BadSchema, OSError) as error:
            raise OptionError(option, f"No records can be generated: {error}") from None
        names = generator.arrow_schema.names
        if self._key() and self._key() not in names:
            raise OptionError(
                "schema.keyfield",
                f"The schema has no field {self._key()}, only {', '.join(names)}.",
            )

    def streams(self) -> Sequence[SourceStream]:
        from headrace.connect.connectors.ddl import ddl

        key = [self._key()] if self._key() else []
        schema = ddl(self._generator(0).arrow_schema)
        tasks = int(self.config.get("tasks.max", "1"))
        partitions = [{TASK: number} for number in range(tasks)]
        return [SourceStream(self.kafka_topic, schema, partitions, key)]

    def latest(
        self, partition: SourcePartition, start: SourceOffset | None, limit: int
    ) -> SourceOffset | None:
        done = _number(start)
        count = min(limit, self._due(_task(partition)))
        if self.iterations > 0:
            count = min(count, self.iterations - done)
        return {ITERATION: done + count} if count > 0 or start else None

    def read(
        self, partition: SourcePartition, start: SourceOffset | None, end: SourceOffset
    ) -> "Iterator[pa.RecordBatch]":
        generator = self._generator(_task(partition))
        stop = _number(end)
        for first in range(_number(start), stop, BATCH_ROWS):
            yield generator.batch(first, min(BATCH_ROWS, stop - first))

    def is_finished(self, partition: SourcePartition, start: SourceOffset | None) -> bool:
        return 0 < self.iterations <= _number(start)

    def _key(self) -> str:
        if self.quickstart and not self.schema_keyfield:
            return QUICKSTARTS[self.quickstart.lower()].key
        return self.schema_keyfield

    def _generator(self, task: int) -> "Generator":
        from headrace.connect.connectors.generated import Generator

        if self.quickstart:
            schema = QUICKSTARTS[self.quickstart.lower()].schema
        elif self.schema_filename:
            schema = Path(self.schema_filename).read_text()
        else:
            schema = self.schema_string
        return Generator(schema, self.random_seed * 2**16 + task)

    def _due(self, task: int) -> int:
        """How many records are due by the clock; at first one, so that something is to be seen."""
        now = time.monotonic()
        if self.max_interval == 0:
            return 2**62
        mean = (self.max_interval if self.max_interval > 0 else DEFAULT_INTERVAL_MS) / 2000
        before = self._paced.get(task, now - mean)
        count = int((now - before) / mean)
        self._paced[task] = before + count * mean
        return count


def _task(partition: SourcePartition) -> int:
    return int(str(partition[TASK]))


def _number(offset: SourceOffset | None) -> int:
    """How many records come before this offset."""
    return int(str(offset[ITERATION])) if offset else 0
