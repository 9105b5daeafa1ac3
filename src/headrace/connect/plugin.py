"""The interface of connectors: what a plug-in is written against.

A connector declares its options and reads ranges of an external system (`Source`), receives
messages of one that cannot be read again (`PushSource`), or writes batches into one (`Sink`).
Everything else is the host's work: Spark, offsets, transforms, converters, restarts and dead
letters.

Instances are created in several processes from the same configuration, so they hold no open
connection between calls, except a sink between `open` and `close`, and a push source in `receive`.
"""

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias

if TYPE_CHECKING:
    import pyarrow as pa

Scalar: TypeAlias = str | int | float | bool | None
SourcePartition: TypeAlias = Mapping[str, Scalar]
"""Which part of the external system: a file, a table, a lane."""
SourceOffset: TypeAlias = Mapping[str, Scalar]
"""How far it was read."""


class Password(str):
    """The type of options whose value is a secret."""

    __slots__ = ()


class _Required:
    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED: Final = _Required()
HEADERS_TYPE = "array<struct<key:string,value:binary>>"
"""The type of records' headers, as DDL."""
DEAD_LETTERS = "errors.deadletterqueue.topic.name"
"""The option with the topic for records that fail."""

OptionType: TypeAlias = type[str] | type[int] | type[float] | type[bool] | type[list[str]]


@dataclass(frozen=True, slots=True)
class Option:
    """An option of a connector, a transform or a converter."""

    name: str
    type: OptionType = str
    default: object = REQUIRED
    doc: str = ""
    choices: tuple[str, ...] = ()
    """The allowed values, if they are few."""
    importance: str = "medium"
    """`high`, `medium` or `low`."""
    group: str = ""

    @property
    def required(self) -> bool:
        return self.default is REQUIRED

    @property
    def attribute(self) -> str:
        """The name of the connector's attribute with the value: `insert.mode` is insert_mode."""
        return self.name.replace(".", "_").replace("-", "_")


class OptionError(Exception):
    """An option with a value that cannot work; the message says what is expected."""

    def __init__(self, option: str, message: str) -> None:
        super().__init__(message)
        self.option = option


class PermanentError(Exception):
    """An error that does not go away by itself, such as a missing table or a refused login.

    The connector is FAILED with this sentence. All other errors count as passing.
    """


class RecordError(Exception):
    """Records of a batch that the target refuses, by their row; the others were not written."""

    def __init__(self, rows: Mapping[int, str]) -> None:
        super().__init__("; ".join(f"row {row}: {why}" for row, why in rows.items()))
        self.rows = rows


class Connector:
    """The common part of sources and sinks."""

    options: ClassVar[Sequence[Option]] = ()
    aliases: ClassVar[Sequence[str]] = ()
    """Names of classes of Kafka Connect whose configuration this one accepts."""
    ignored: ClassVar[Sequence[str]] = ()
    """Options of these classes that are accepted and have no effect here."""
    version: ClassVar[str] = ""
    """The version of the plug-in; by default that of its distribution."""
    interval_ms: ClassVar[int] = 200
    """The time between two epochs, unless `poll.interval.ms` says otherwise."""

    def __init__(self, config: Mapping[str, str]) -> None:
        """Sets an attribute for every option; OptionError for the first invalid value."""
        self.config = config
        for option in self.options:
            setattr(self, option.attribute, parse(option, config.get(option.name)))

    def check(self) -> None:
        """Tries what the connector needs: connect, log in, look up the table and its columns.

        Raises OptionError for an option that cannot work. Called when a configuration is
        validated.
        """


@dataclass(frozen=True, slots=True)
class SourceStream:
    """Rows of one schema for one topic. Most sources have one; a source of tables one each."""

    topic: str
    schema: str
    """As DDL, such as `lane int, n bigint`."""
    partitions: Sequence[SourcePartition]
    key: Sequence[str] = ()
    """The columns that become the record's key; one is a scalar, several a struct. A transform
    such as ValueToKey overrides it."""
    value: str = ""
    """The column that is the record's value, as a scalar; by default the value is a struct of all
    columns."""
    headers: str = ""
    """The column that is the record's headers, of the type HEADERS_TYPE; by default it has none."""


class Source(Connector):
    """Reads ranges of an external system.

    `read` must return the same rows for the same range: this is what makes exactly-once possible.
    """

    schema: str
    """As DDL; override `streams` for several topics."""
    once: bool = True
    """Whether each row is in the topic once. False for a source that may repeat rows, with its
    configuration: exactly.once.support=required is then refused."""
    on_driver: ClassVar[bool] = False
    """Whether tasks read files of the driver's machine, and must run there."""
    folder: str = ""
    """A folder for files of the source, beside the checkpoint; empty if no host runs it."""

    def streams(self) -> Sequence[SourceStream]:
        return [SourceStream(self.config["topic"], self.schema, self.partitions())]

    def partitions(self) -> Sequence[SourcePartition]:
        return [{}]

    def latest(
        self, partition: SourcePartition, start: SourceOffset | None, limit: int
    ) -> SourceOffset | None:
        """The end of the next range, with about `limit` rows at most; `start` if nothing is new.

        None as long as the partition has nothing at all.
        """
        raise NotImplementedError

    def read(
        self, partition: SourcePartition, start: SourceOffset | None, end: SourceOffset
    ) -> "Iterable[Mapping[str, object] | pa.RecordBatch]":
        """The rows after `start` up to `end`, as dictionaries or as Arrow batches."""
        raise NotImplementedError

    def commit(self, partition: SourcePartition, end: SourceOffset) -> None:
        """Everything up to `end` is in the topic: the external system may forget it."""

    def is_finished(self, partition: SourcePartition, start: SourceOffset | None) -> bool:
        """Whether nothing will ever follow; the partition is then no longer looked at."""
        return False


@dataclass(frozen=True, slots=True)
class Received:
    """A message of a push source."""

    row: Mapping[str, object]
    receipt: object
    """What `acknowledge` gets when this message and all before it are in the topic."""
    redelivered: bool = False
    """Whether the external system may have delivered the message before. A message that is still in
    the spool is then not stored again."""


class PushSource(Source):
    """Receives messages of a system that pushes them and cannot be asked for a range again.

    The host appends the messages to a spool beside the checkpoint, from which epochs are read, so
    that `latest`, `read` and `commit` are not the plug-in's. A message is acknowledged when it is
    in the topic: it is there at least once, and once unless the connector ends between the two.
    """

    once = False
    on_driver = True

    def partitions(self) -> Sequence[SourcePartition]:
        return [{"spool": "messages"}]

    def receive(self) -> Generator[Received | None, None, None]:
        """Connect, and yield messages in the order of their arrival until the generator is closed.

        Yields None about once a second while none arrive. Any error ends it, a lost connection as
        well; the host then starts the connector again.
        """
        raise NotImplementedError

    def acknowledge(self, upto: object) -> None:
        """The message with this receipt is in the topic, and so are all that were yielded before.

        Called from another thread than `receive`.
        """
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class SinkTask:
    """Which part of an epoch a sink writes."""

    connector: str
    number: int
    epoch: int
    generation: int
    part: int = 0
    """Records with other schemas are written one after the other, as parts of the epoch."""


class Sink(Connector):
    """Writes batches into an external system."""

    once: ClassVar[bool] = False
    """Whether the same batches written twice are there once."""

    def columns(self, topic: str) -> str | None:
        """The columns of the target as DDL, for JSON without a schema; None if unknown."""
        return None

    def open(self, task: SinkTask) -> None:
        """Connect. Called in the process that writes."""

    def write(self, batch: "pa.RecordBatch") -> None:
        """Write the records: columns topic, partition, offset, timestamp, key, value, headers.

        When it returns, they are stored, or they are after `close`. RecordError tells which
        records are refused, with nothing written; for other errors the host finds the record by
        writing smaller batches.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Store what is not stored yet, and disconnect."""

    def abandon(self) -> None:
        """Disconnect without storing more, after an error."""


class TableSink(Sink):
    """Writes records as rows of a table with a streaming sink of Spark, which is exactly once.

    The columns are the fields of the value, and topic, partition and offset of the record.
    """

    once = True
    interval_ms = 5000
    spark_format: ClassVar[str]
    """The name of Spark's sink."""
    origin: ClassVar[Mapping[str, str]] = {name: name for name in ("topic", "partition", "offset")}
    """Columns with the record's topic, partition, offset or timestamp, unless the value has a field
    with this name."""

    def check(self) -> None:
        self.table_options()

    def table_options(self) -> Mapping[str, str]:
        """The options of Spark's sink."""
        raise NotImplementedError

    def table_schema(self) -> "pa.Schema | None":
        """The columns that the table has; None if that is not known, or if it does not exist."""
        return None

    def begin(self, spark: Any, schema: Any) -> None:
        """Called in the driver before the first epoch, with Spark's session and the row's type."""

    def committed(self, spark: Any, epoch: Any) -> None:
        """Called in the driver when an epoch (`pipelines.sink.epoch.Epoch`) is in the table.

        It is called again for a replayed epoch.
        """


def parse(option: Option, text: str | None) -> object:
    """The value of an option; OptionError if it is missing or invalid."""
    if text is None:
        if option.required:
            raise OptionError(
                option.name,
                f'Missing required configuration "{option.name}" which has no default value.',
            )
        return option.default
    text = text.strip() if option.type is not Password else text
    try:
        value = _parsed(option.type, text)
    except ValueError:
        expected = {int: "a whole number", float: "a number", bool: "true or false"}
        raise OptionError(
            option.name,
            f"Invalid value {text} for configuration {option.name}: "
            f"expected {expected.get(option.type, 'another value')}",
        ) from None
    if option.choices and text not in option.choices:
        raise OptionError(
            option.name,
            f"Invalid value {text} for configuration {option.name}: "
            f"expected one of {', '.join(option.choices)}",
        )
    return value


def _parsed(kind: OptionType, text: str) -> object:
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise ValueError(text)
        return text.lower() == "true"
    if kind is int or kind is float or kind is Password:
        return kind(text)
    if kind is str:
        return text
    return [word.strip() for word in text.split(",") if word.strip()]
