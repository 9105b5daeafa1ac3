"""The folder of each row below the root of a table of plain files.

    <root>/<topic>/<partition folders>/part-<query>-<epoch>-<number>.parquet

Partition folders are `name=value`, as Hive and Spark have them, by fields of the row or by a time.
Values in the path are not in the files. Columns that begin with `__headrace_` are of the record and
only used here.
"""

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime

import pyarrow as pa
import pyarrow.compute as pc

from headrace.pipelines.lake import time_format
from headrace.pipelines.lake.columns import ColumnsDiffer
from headrace.pipelines.lake.partitioning import FileLayout, Values, check, split
from headrace.pipelines.lake.time_format import NO_VALUE

RECORD = "__headrace_"
TOPIC, PARTITION, TIMESTAMP = f"{RECORD}topic", f"{RECORD}partition", f"{RECORD}timestamp"
_FOLDER = f"{RECORD}folder"
# What Hive and Spark escape in values of partitions.
_ESCAPED = re.compile("[\x00-\x1f\"#%'*/:=?\\\\\x7f{\\[\\]^]")


@dataclass(frozen=True, slots=True)
class FolderRule:
    """Which folders rows have. Picklable, and an option of the sink as JSON."""

    fields: tuple[str, ...] = ()
    """Columns of the row, each a folder."""
    time_format: str = ""
    """Folders by a time, as a path format."""
    timezone: str = "UTC"
    time_field: str = ""
    """The column with the time; the record's own timestamp without one."""
    wallclock: bool = False
    """The time at which the row is written."""
    duration_ms: int = 0
    """Times are rounded down to a multiple of it; 0: they are not."""
    by_partition: bool = False
    """A folder for each partition of the topic: `partition=0`."""
    by_topic: bool = False
    """A folder for each topic, above all others. Its name is the topic's."""

    @classmethod
    def from_json(cls, text: str) -> "FolderRule":
        found = json.loads(text)
        return cls(**{**found, "fields": tuple(found.get("fields", ()))})

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns that are in the path, in their order."""
        named = time_format.parse(self.time_format).keys if self.time_format else ()
        return (*(("partition",) if self.by_partition else ()), *self.fields, *named)

    def check(self, schema: pa.Schema, place: str) -> None:
        """ColumnsDiffer unless rows of `schema` can be written like this."""
        own = pa.schema([field for field in schema if not field.name.startswith(RECORD)])
        check(self.fields, own, place)
        if self.time_field and self.time_field not in own.names:
            raise ColumnsDiffer(
                f"the files in {place} have folders by the time in {self.time_field!r}, which the "
                f"rows do not have; their columns are {', '.join(own.names)}"
            )
        invented = set(self.keys) - set(self.fields)
        if self.by_partition and PARTITION in schema.names:
            # The same value is in the path.
            invented.discard("partition")
        for name in sorted(invented & set(schema.names)):
            raise ColumnsDiffer(
                f"the rows for {place} have a column {name!r}, which is also the name of a folder: "
                "rename the column or change the folders"
            )

    def of(self, batch: pa.RecordBatch) -> pa.Array:
        """The folder of each row, relative to the root."""
        parts = []
        if self.by_topic:
            parts.append(_texts(batch.column(TOPIC), _topic_folder))
        if self.by_partition:
            parts.append(_texts(batch.column(PARTITION), lambda value: f"partition={value}"))
        parts += [_texts(batch.column(name), _named(name)) for name in self.fields]
        if self.time_format:
            parts.append(self._time_folders(batch))
        if not parts:
            return pa.array([""] * batch.num_rows, pa.string())
        return pc.binary_join_element_wise(*parts, "/")

    def _time_folders(self, batch: pa.RecordBatch) -> pa.Array:
        found = time_format.parse(self.time_format)
        encoded = self._seconds(batch).dictionary_encode()
        texts = pc.strftime(encoded.dictionary, "/".join(found.segments))
        return pc.fill_null(texts.take(encoded.indices), found.absent)

    def _seconds(self, batch: pa.RecordBatch) -> pa.Array:
        """Local times without their zone, in seconds."""
        if self.wallclock:
            now_us = int(time.time() * 1_000_000)
            times = pa.repeat(pa.scalar(now_us, pa.int64()), batch.num_rows)
            times = times.cast(pa.timestamp("us", "UTC"))
        else:
            times = _as_times(batch.column(self.time_field or TIMESTAMP))
        local = pc.local_timestamp(times.cast(pa.timestamp("us", self.timezone)))
        micros = pc.fill_null(local.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
        step_ms = self.duration_ms or 1000
        seconds = micros // (step_ms * 1000) * step_ms // 1000
        absent = local.is_null().to_numpy(zero_copy_only=False)
        return pa.array(seconds, pa.int64(), mask=absent).cast(pa.timestamp("s"))


NO_FOLDERS = FolderRule()


@dataclass(frozen=True, slots=True)
class FolderLayout(FileLayout):
    """Rows in folders; the only value of a partition is its folder."""

    rule: FolderRule = NO_FOLDERS

    @property
    def file_schema(self) -> pa.Schema:
        absent = set(self.rule.keys)
        return pa.schema(
            [
                field
                for field in self.schema
                if field.name not in absent and not field.name.startswith(RECORD)
            ]
        )

    def split(self, batch: pa.RecordBatch) -> Iterator[tuple[Values, pa.RecordBatch]]:
        return split(batch.append_column(_FOLDER, self.rule.of(batch)), (_FOLDER,))


def values_of(folder: str) -> Mapping[str, str | None]:
    """The names and values of partitions in a path, unescaped; None stands for null."""
    found: dict[str, str | None] = {}
    for part in folder.split("/"):
        name, is_value, value = part.partition("=")
        if is_value:
            plain = re.sub("%([0-9A-F]{2})", lambda code: chr(int(code[1], 16)), value)
            found[name] = None if value == NO_VALUE else plain
    return found


def escaped(text: str) -> str:
    """A value of a partition as Hive and Spark write it in a path."""
    return _ESCAPED.sub(lambda found: f"%{ord(found[0]):02X}", text) or NO_VALUE


def _texts(column: pa.Array, text_of: Callable[[object], str]) -> pa.Array:
    encoded = column.dictionary_encode(null_encoding="encode")
    texts = [text_of(value) for value in encoded.dictionary.to_pylist()]
    return pa.array(texts, pa.string()).take(encoded.indices)


def _named(name: str) -> Callable[[object], str]:
    return lambda value: f"{escaped(name)}={NO_VALUE if value is None else escaped(_text(value))}"


def _topic_folder(topic: object) -> str:
    """Topics have letters, digits, `.`, `_` and `-`; readers skip names that begin with two."""
    name = str(topic)
    return f"topic{name}" if name.startswith(("_", ".")) else name


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S") + (
            f".{value.microsecond:06}".rstrip("0") if value.microsecond else ""
        )
    if isinstance(value, date):
        return value.isoformat()
    return str(value)


def _as_times(column: pa.Array) -> pa.Array:
    """Times in UTC: of timestamps, dates, whole numbers (milliseconds) and ISO 8601 texts."""
    kind = column.type
    if pa.types.is_integer(kind):
        return column.cast(pa.int64()).cast(pa.timestamp("ms", "UTC"))
    if pa.types.is_timestamp(kind) and kind.tz is None:
        return column.cast(pa.timestamp("us")).cast(pa.timestamp("us", "UTC"))
    if pa.types.is_date(kind):
        return column.cast(pa.timestamp("ms")).cast(pa.timestamp("ms", "UTC"))
    if pa.types.is_string(kind):
        encoded = column.dictionary_encode()
        times = [_time_in(text) for text in encoded.dictionary.to_pylist()]
        return pa.array(times, pa.timestamp("us", "UTC")).take(encoded.indices)
    return column.cast(pa.timestamp("us", "UTC"))


def _time_in(text: str) -> datetime | None:
    """A time in ISO 8601, in UTC if it has no zone; None for other texts."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)
