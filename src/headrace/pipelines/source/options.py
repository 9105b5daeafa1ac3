"""The options of the source: those of Spark's Kafka source, and a few more.

Names are those of Spark's source and are not case-sensitive, so that a query is migrated by
changing its format. Unknown or conflicting options fail with an error that explains the problem.
"""

import difflib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from headrace.client.config import READ_HERE, ClientConfig
from headrace.client.errors import ClientError
from headrace.client.offsets import COMMITTED, EARLIEST, LATEST, UNCOMMITTED
from headrace.pipelines.cluster_client import cluster_client
from headrace.pipelines.replay_bounds import ProgramVersion, present_version, versioned
from headrace.pipelines.source.consumer_properties import REFUSED, WITHOUT_EFFECT
from headrace.pipelines.source.held_streams import HOLD_VARIABLE
from headrace.pipelines.source.ranges import INITIAL, TOPIC_ID
from headrace.pipelines.typed.options import QUARANTINE, TypedOptionError, TypedOptions, parse_typed
from headrace.pipelines.typed.options import SOURCE_NAMES as TYPED
from headrace.types import TopicPartition

COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
DEFAULT_FETCH_BYTES = 8 << 20

SELECTING = ("subscribe", "subscribePattern", "assign")
STARTING = ("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets")
ENDING = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
OTHERS = (
    "columns",
    "failOnDataLoss",
    "group.id",
    "includeHeaders",
    "kafkaConsumer.pollTimeoutMs",
    "maxOffsetsPerTrigger",
    "maxRecordsPerPartition",
    "maxTriggerDelay",
    "minOffsetsPerTrigger",
    "minPartitions",
    "startingOffsetsByTimestampStrategy",
    "tracing",
)
SPARK_ONLY = ("fetchOffset.numRetries", "fetchOffset.retryIntervalMs", "groupIdPrefix")
"""Options of Spark's source without an effect here; accepted so that queries can migrate."""
STREAM_ONLY = ("maxOffsetsPerTrigger", "maxTriggerDelay", "minOffsetsPerTrigger")

_NAMES = {
    name.lower(): name
    for name in (*SELECTING, *STARTING, *ENDING, *OTHERS, *SPARK_ONLY, *TYPED, *COLUMNS)
}
_READ_FROM_KAFKA = frozenset(
    {
        "check.crcs",
        "fetch.max.bytes",
        "fetch.max.wait.ms",
        "fetch.min.bytes",
        "group.id",
        "group.instance.id",
        "heartbeat.interval.ms",
        "isolation.level",
        "max.partition.fetch.bytes",
        "session.timeout.ms",
    }
)
_UNITS_S = {"ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}


class SourceOptionError(ClientError):
    """An invalid option. The message has its name and what is expected."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The partitions: of named topics, of topics that match an expression, or a list."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True, slots=True)
class Position:
    """The start or the end: a bound, a time for all, or an offset or a time for each."""

    kind: Literal["earliest", "latest", "offsets", "time", "times"]
    option: str
    """The name of the option, for errors."""
    time_ms: int = 0
    each: Mapping[TopicPartition, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GroupOptions:
    """The consumer group that shows the query."""

    name: str
    instance_id: str
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The options of the source; picklable for executors."""

    client: ClientConfig
    selection: Selection
    starting: Position
    ending: Position
    columns: tuple[str, ...]
    isolation: int = UNCOMMITTED
    time_not_found: Literal["error", "latest"] = "error"
    fail_on_data_loss: bool = True
    max_offsets_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_s: float = 900.0
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    group: GroupOptions | None = None
    fetch_bytes: int = DEFAULT_FETCH_BYTES
    fetch_wait_ms: int = 500
    fetch_min_bytes: int = 1
    check_crcs: bool = True
    typed: TypedOptions | None = None
    tracing: bool = False
    hold: str | None = None
    """The file that holds the stream (`held_streams.py`)."""


def parse_options(given: Mapping[str, str], *, streaming: bool) -> SourceOptions:
    """Parse the options, or raise SourceOptionError."""
    options = _parsed(given, streaming)
    if not streaming:
        return options
    options = replace(options, hold=os.environ.get(HOLD_VARIABLE))
    version = present_version()
    return options if version is None else _replayed(options, version)


def _replayed(options: SourceOptions, version: ProgramVersion) -> SourceOptions:
    """The options of a replay of the program: its start, and a group of its own."""
    starting = Position("earliest", "--from")
    if version.start == "latest":
        starting = Position("latest", "--from")
    elif version.start != "earliest":
        starting = Position("time", "--from", time_ms=int(version.start))
    group = options.group
    if group is not None:
        group = replace(
            group,
            name=versioned(group.name, version.name),
            instance_id=versioned(group.instance_id, version.name),
        )
    return replace(options, starting=starting, time_not_found="latest", group=group)


def _parsed(given: Mapping[str, str], streaming: bool) -> SourceOptions:
    said = _Said(given)
    properties = said.kafka_properties()
    try:
        client = cluster_client(properties)
    except ClientError as error:
        raise SourceOptionError(str(error)) from error
    if (poll_ms := said.number("kafkaConsumer.pollTimeoutMs", 1)) is not None:
        client = replace(client, total_timeout_s=poll_ms / 1000)
    strategy = said.choice("startingOffsetsByTimestampStrategy", ("error", "latest"), "error")
    selection = _selection(said)
    options = SourceOptions(
        client=client,
        selection=selection,
        starting=_position(said, STARTING, "latest" if streaming else "earliest"),
        ending=_position(said, ENDING, "latest"),
        columns=_columns(said),
        typed=said.typed(selection),
        tracing=said.flag("tracing", False),
        isolation=said.isolation(properties),
        time_not_found="latest" if strategy == "latest" else "error",
        fail_on_data_loss=said.flag("failOnDataLoss", True),
        max_offsets_per_trigger=said.number("maxOffsetsPerTrigger", 1),
        min_offsets_per_trigger=said.number("minOffsetsPerTrigger", 1),
        max_trigger_delay_s=said.duration_s("maxTriggerDelay", 900.0),
        min_partitions=said.number("minPartitions", 1),
        max_records_per_partition=said.number("maxRecordsPerPartition", 1),
        group=said.group(properties),
        fetch_bytes=said.fetch_bytes(properties),
        fetch_wait_ms=said.kafka_number(properties, "fetch.max.wait.ms", 500),
        fetch_min_bytes=said.kafka_number(properties, "fetch.min.bytes", 1),
        check_crcs=properties.get("check.crcs", "true").lower() != "false",
    )
    _check_together(options, said, streaming)
    return options


def parse_columns(given: Mapping[str, str]) -> tuple[str, ...]:
    """Parse only the columns in the options."""
    return _columns(_Said(given))


def parse_types(given: Mapping[str, str]) -> TypedOptions | None:
    """Parse only the options of typed columns."""
    said = _Said(given)
    return said.typed(_selection(said)) if said.is_typed() else None


class _Said:
    """The given options, with typed access."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._values: dict[str, str] = {}
        for name, value in given.items():
            known = _NAMES.get(name.lower())
            if name.lower().startswith("kafka."):
                self._values[name.lower()] = str(value)
            elif known is not None and known not in COLUMNS:
                self._values[known] = str(value)
            else:
                raise SourceOptionError(
                    _unknown(name, [*_NAMES.values(), "kafka.bootstrap.servers"])
                )

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def text(self, name: str) -> str | None:
        value = self._values.get(name)
        return None if value is None else value.strip()

    def choice(self, name: str, allowed: tuple[str, ...], default: str) -> str:
        value = (self.text(name) or default).lower()
        if value not in allowed:
            raise SourceOptionError(f"{name}={value}: expected one of {', '.join(allowed)}")
        return value

    def flag(self, name: str, default: bool) -> bool:
        return self.choice(name, ("true", "false"), str(default).lower()) == "true"

    def number(self, name: str, least: int) -> int | None:
        value = self.text(name)
        if value is None:
            return None
        if not re.fullmatch(r"\d{1,18}", value) or int(value) < least:
            raise SourceOptionError(f"{name}={value}: expected a whole number of at least {least}")
        return int(value)

    def duration_s(self, name: str, default_s: float) -> float:
        value = self.text(name)
        if value is None:
            return default_s
        match = re.fullmatch(r"(\d+)\s*([a-z]+)", value.lower())
        if match is None or match[2] not in _UNITS_S:
            raise SourceOptionError(f"{name}={value}: expected a time such as 500ms, 30s or 15m")
        return int(match[1]) * _UNITS_S[match[2]]

    def kafka_properties(self) -> dict[str, str]:
        """The kafka.* options without that prefix; unsupported ones are refused."""
        found = {
            name.removeprefix("kafka."): value.strip()
            for name, value in self._values.items()
            if name.startswith("kafka.")
        }
        known = READ_HERE | _READ_FROM_KAFKA | WITHOUT_EFFECT
        for name in found:
            if name in REFUSED:
                raise SourceOptionError(f"kafka.{name} is not supported: {REFUSED[name]}")
            if name not in known and not name.startswith(("sasl.", "ssl.")):
                raise SourceOptionError(
                    _unknown(f"kafka.{name}", [f"kafka.{each}" for each in known])
                )
        return found

    def kafka_number(self, properties: Mapping[str, str], name: str, default: int) -> int:
        value = properties.get(name, str(default))
        if not re.fullmatch(r"\d{1,9}", value):
            raise SourceOptionError(f"kafka.{name}={value}: expected a whole number")
        return int(value)

    def fetch_bytes(self, properties: Mapping[str, str]) -> int:
        """The limit of one Fetch: a task reads one partition, so the lower limit applies."""
        names = ("max.partition.fetch.bytes", "fetch.max.bytes")
        limits = [self.kafka_number(properties, n, 0) for n in names if n in properties]
        return max(min(limits, default=DEFAULT_FETCH_BYTES), 1)

    def isolation(self, properties: Mapping[str, str]) -> int:
        value = properties.get("isolation.level", "read_uncommitted").lower()
        if value not in ("read_uncommitted", "read_committed"):
            raise SourceOptionError(
                f"kafka.isolation.level={value}: expected read_uncommitted or read_committed"
            )
        return COMMITTED if value == "read_committed" else UNCOMMITTED

    def group(self, properties: Mapping[str, str]) -> GroupOptions | None:
        names = {self.text("group.id"), properties.get("group.id")} - {None, ""}
        if len(names) > 1:
            raise SourceOptionError(
                "group.id and kafka.group.id have different values; set only one"
            )
        if not names:
            return None
        name = str(names.pop())
        return GroupOptions(
            name=name,
            instance_id=properties.get("group.instance.id", f"spark-{name}"),
            session_timeout_ms=self.kafka_number(properties, "session.timeout.ms", 45_000),
            heartbeat_interval_ms=self.kafka_number(properties, "heartbeat.interval.ms", 3_000),
        )

    def is_typed(self) -> bool:
        return "key.format" in self or "value.format" in self

    def typed(self, selection: Selection) -> TypedOptions | None:
        topics = set(selection.topics) | {each.topic for each in selection.partitions}
        values = {name: self._values[name].strip() for name in TYPED if name in self}
        try:
            return parse_typed(values, topics.pop() if len(topics) == 1 else None)
        except TypedOptionError as error:
            raise SourceOptionError(str(error)) from error


def _unknown(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name.lower(), [each.lower() for each in known], 1, 0.75)
    proper = {each.lower(): each for each in known}
    hint = f"; did you mean {proper[near[0]]}?" if near else ""
    return f"the headrace source has no option {name}{hint}"


def _selection(said: _Said) -> Selection:
    given = [name for name in SELECTING if name in said]
    if len(given) != 1:
        what = "none" if not given else " and ".join(given)
        raise SourceOptionError(f"set exactly one of {', '.join(SELECTING)}; {what} is set")
    text = said.text(given[0]) or ""
    if given[0] == "subscribe":
        topics = tuple(dict.fromkeys(filter(None, (part.strip() for part in text.split(",")))))
        if not topics:
            raise SourceOptionError("subscribe is empty; expected topic[,topic...]")
        return Selection(topics=topics)
    if given[0] == "subscribePattern":
        try:
            re.compile(text)
        except re.error as error:
            raise SourceOptionError(
                f"subscribePattern={text}: not a regular expression: {error}"
            ) from error
        if not text:
            raise SourceOptionError("subscribePattern is empty")
        return Selection(pattern=text)
    return Selection(partitions=_assigned(text))


def _assigned(text: str) -> tuple[TopicPartition, ...]:
    expected = 'assign: expected JSON such as {"orders":[0,1],"clicks":[2]}'
    value = _json(text, expected)
    found = [
        TopicPartition(topic, number)
        for topic, numbers in value.items()
        if isinstance(numbers, list)
        for number in numbers
        if isinstance(number, int) and number >= 0
    ]
    if not found or len(found) != sum(
        len(numbers) if isinstance(numbers, list) else 1 for numbers in value.values()
    ):
        raise SourceOptionError(expected)
    return tuple(dict.fromkeys(found))


def _json(text: str, expected: str) -> dict[str, object]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise SourceOptionError(f"{expected}; not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise SourceOptionError(expected)
    return value


def _each(name: str, text: str, what: str) -> dict[TopicPartition, int]:
    expected = f'{name}: expected {what} such as {{"orders":{{"0":23,"1":42}}}}'
    found: dict[TopicPartition, int] = {}
    for topic, numbers in _json(text, expected).items():
        if not isinstance(numbers, dict):
            raise SourceOptionError(expected)
        for number, value in numbers.items():
            if number in (TOPIC_ID, INITIAL):
                continue  # copied from a checkpoint or from a query's progress
            if not str(number).isdigit() or not isinstance(value, int) or isinstance(value, bool):
                raise SourceOptionError(expected)
            found[TopicPartition(topic, int(number))] = value
    if not found:
        raise SourceOptionError(expected)
    return found


def _position(said: _Said, names: tuple[str, str, str], default: str) -> Position:
    """The first of the three that is set, as in Spark: a time overrides offsets."""
    by_time, by_times, by_offsets = names
    if by_time in said:
        return Position("time", by_time, time_ms=said.number(by_time, 0) or 0)
    if by_times in said:
        times = _each(by_times, said.text(by_times) or "", "JSON of milliseconds")
        return Position("times", by_times, each=times)
    text = said.text(by_offsets) or default
    if text.lower() == "earliest":
        return Position("earliest", by_offsets)
    if text.lower() == "latest":
        return Position("latest", by_offsets)
    offsets = _each(by_offsets, text, "earliest, latest, or JSON")
    if any(value < EARLIEST for value in offsets.values()):
        raise SourceOptionError(
            f"{by_offsets}: an offset is a number of at least 0, -1 (latest) or -2"
        )
    return Position("offsets", by_offsets, each=offsets)


def _columns(said: _Said) -> tuple[str, ...]:
    with_headers = said.flag("includeHeaders", False)
    text = said.text("columns")
    extra = QUARANTINE if said.is_typed() else ()
    if text is None:
        return (*(COLUMNS if with_headers else COLUMNS[:-1]), *extra)
    known = (*COLUMNS, *extra)
    proper = {name.lower(): name for name in known}
    chosen: list[str] = []
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        if part.lower() not in proper:
            raise SourceOptionError(f"columns: unknown column {part}; known are {', '.join(known)}")
        chosen.append(proper[part.lower()])
    if not chosen or len(set(chosen)) != len(chosen):
        raise SourceOptionError("columns: list each column once, as in columns=key,value")
    if with_headers and "headers" not in chosen:
        raise SourceOptionError(
            "includeHeaders=true, but columns does not contain headers; remove one of them"
        )
    return tuple(chosen)


def _check_together(options: SourceOptions, said: _Said, streaming: bool) -> None:
    """Check combinations of options."""
    if streaming:
        for name in ENDING[:2]:
            if name in said:
                raise SourceOptionError(
                    f"{name} is for batch queries; a stream has endingOffsets only"
                )
        if "endingOffsets" in said and (
            options.ending.kind != "offsets" or min(options.ending.each.values()) < 0
        ):
            raise SourceOptionError(
                "endingOffsets of a stream are numbers for each partition, as in "
                '{"orders":{"0":23,"1":42}}: it reads up to there, and waits'
            )
    else:
        for name in STREAM_ONLY:
            if name in said:
                raise SourceOptionError(f"{name} is for streams; this is a batch query")
        if options.starting.kind == "latest":
            raise SourceOptionError("startingOffsets=latest: a batch query would read nothing")
        if LATEST in options.starting.each.values() and options.starting.kind == "offsets":
            raise SourceOptionError("startingOffsets: -1 (latest) is for streams")
        if options.ending.kind == "earliest" or (
            options.ending.kind == "offsets" and EARLIEST in options.ending.each.values()
        ):
            raise SourceOptionError("endingOffsets: earliest (-2) would read nothing")
        if "group.id" in said:
            raise SourceOptionError("group.id is for streams: a batch query commits no offsets")
    least, most = options.min_offsets_per_trigger, options.max_offsets_per_trigger
    if least is not None and most is not None and least > most:
        raise SourceOptionError("minOffsetsPerTrigger is more than maxOffsetsPerTrigger")
