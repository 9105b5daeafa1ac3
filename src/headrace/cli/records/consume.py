"""`headrace consume`: records of a topic, from any position, to standard output.

No consumer group is joined and no offset is committed, unless records are taken from a share
group (`share_consume.py`).
"""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli import output
from headrace.cli.failures import bad_usage
from headrace.cli.options import (
    DEFAULT_BOOTSTRAP,
    AsJson,
    Bootstrap,
    ClientConfig,
    RegistryOption,
    TopicArgument,
    examples,
)
from headrace.cli.schemas.registry_client import DEFAULT_REGISTRY

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Message

    from headrace.cli.client import ClusterOptions

app = typer.Typer()

POLL_S = 0.25
SILENCE_S = 15.0
BATCH_RECORDS = 5000


class OutputFormat(StrEnum):
    """The output format of records."""

    VALUE = "value"
    KEY_VALUE = "key-value"
    JSON = "json"
    RAW = "raw"
    TABLE = "table"


class Isolation(StrEnum):
    """Whether records of open and aborted transactions are shown."""

    UNCOMMITTED = "uncommitted"
    COMMITTED = "committed"


class Acknowledge(StrEnum):
    """What happens to the records of a share group that are shown."""

    ACCEPT = "accept"
    RELEASE = "release"
    REJECT = "reject"
    ASK = "ask"


@dataclass(slots=True)
class Reading:
    """The end of each partition, and the remaining work."""

    ends: dict[int, int]
    follow: bool
    limit: int | None
    shown: int = 0
    open_partitions: set[int] = field(default_factory=set)

    def wants(self, partition: int, offset: int) -> bool:
        """Whether this record is in the requested range."""
        return self.follow or offset < self.ends[partition]

    def passed(self, partition: int, next_offset: int) -> None:
        """Record that everything below `next_offset` has been read."""
        if not self.follow and next_offset >= self.ends[partition]:
            self.open_partitions.discard(partition)

    def done(self) -> bool:
        """Whether the requested range is complete."""
        if self.limit is not None and self.shown >= self.limit:
            return True
        return not self.follow and not self.open_partitions


StartOption = Annotated[
    str,
    typer.Option(
        "--from",
        "-o",
        metavar="WHERE",
        help="beginning, end, an offset, -N (the last N of each partition), -15m (a duration "
        "before now; s, m, h, d), or a time (ISO, or milliseconds).",
    ),
]
PartitionsOption = Annotated[
    list[int] | None,
    typer.Option("--partition", "-p", metavar="N", help="Only this partition; repeatable."),
]
CountOption = Annotated[
    int | None, typer.Option("--count", "-n", min=1, metavar="N", help="Stop after N records.")
]
FollowOption = Annotated[
    bool,
    typer.Option(
        "--follow/--until-end",
        "-f",
        help="Continue with new records, or stop at the end that the topic had at the start.",
    ),
]
FormatOption = Annotated[
    OutputFormat,
    typer.Option(
        "--format",
        "-F",
        metavar="FORMAT",
        help="value, key-value, json, table, or raw (values without line ends).",
    ),
]
SeparatorOption = Annotated[
    str,
    typer.Option(
        "--key-separator", "-k", metavar="TEXT", help="Separator for key-value.", show_default="tab"
    ),
]
HeadersOption = Annotated[
    bool, typer.Option("--show-headers", help="Show headers before each value, or in the table.")
]
NullOption = Annotated[
    str, typer.Option("--null-marker", metavar="TEXT", help="Text for a null key or value.")
]
IsolationOption = Annotated[
    Isolation,
    typer.Option(
        "--isolation",
        metavar="LEVEL",
        help="committed, or uncommitted to include open and aborted transactions.",
    ),
]

ShareOption = Annotated[
    str | None,
    typer.Option("--share", metavar="GROUP", help="Take records from this share group."),
]
AckOption = Annotated[
    Acknowledge,
    typer.Option(
        "--ack",
        metavar="HOW",
        help="With --share: accept, release, reject, or ask for each record.",
    ),
]
SchemaOption = Annotated[
    bool,
    typer.Option("--schema", help="Decode keys and values that begin with a schema id, as JSON."),
]


@app.command(
    epilog=examples(
        "headrace consume clicks                                 all records, then stop",
        "headrace consume clicks --from -10                      the last ten of each partition",
        "headrace consume clicks --from end --follow             only new records, until Ctrl-C",
        "headrace consume clicks --from 2026-01-31T12:00 -n 100 --format table",
        "headrace consume clicks --from -15m --json | jq -r .value",
        "headrace consume users --schema                         typed values as JSON",
        "headrace consume jobs --share workers --follow          as a member of a share group",
        "headrace consume jobs --share workers --ack ask -n 1    decide about one record",
        "headrace consume clicks --partition 0 --from 4711 -n 1 --format raw > value.bin",
    )
)
def consume(
    topic: TopicArgument,
    start: StartOption = "beginning",
    partition: PartitionsOption = None,
    count: CountOption = None,
    follow: FollowOption = False,
    form: FormatOption = OutputFormat.VALUE,
    separator: SeparatorOption = "\t",
    show_headers: HeadersOption = False,
    null_marker: NullOption = "",
    isolation: IsolationOption = Isolation.COMMITTED,
    share: ShareOption = None,
    ack: AckOption = Acknowledge.ACCEPT,
    schema: SchemaOption = False,
    registry: RegistryOption = DEFAULT_REGISTRY,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
    client_config: ClientConfig = None,
) -> None:
    """Read records, from any offset or time.

    With --json there is one object per line with topic, partition, offset, timestamp, key, value
    and headers. Bytes that are not UTF-8 become base64, marked with "value_encoding": "base64".
    """
    from headrace.admin import positions
    from headrace.admin.topics import existing_topics
    from headrace.cli import client
    from headrace.cli.records import record_lines, share_consume
    from headrace.types import TopicPartition

    where = positions.parse_start(start)
    if as_json:
        form = OutputFormat.JSON
    style = record_lines.Style(separator, null_marker, show_headers, sys.stdout.isatty())
    write = _writer(record_lines.writer(form.value, style), registry if schema else None)
    if share is not None:
        share_consume.check_options(start, partition)
        cluster = client.connect(bootstrap, client_config)
        with client.admin(cluster) as connected:
            existing_topics(connected, [topic])
        _note(share_consume.read_queue(cluster, topic, share, ack, count, follow, write), as_json)
        return
    if isinstance(where, positions.End) and not follow:
        raise bad_usage("--from end shows nothing without --follow", "Add --follow (-f).")
    cluster = client.connect(bootstrap, client_config)
    with client.admin(cluster) as connected:
        existing = len(existing_topics(connected, [topic])[0].partitions)
        chosen = positions.chosen_partitions(topic, existing, partition)
        committed = isolation is Isolation.COMMITTED
        places = [TopicPartition(topic, index) for index in chosen]
        limits = positions.bounds(connected, places, committed=committed)
        found = positions.starts(connected, where, limits)
    starts = {at.partition: offset for at, offset in found.items()}
    reading = Reading({at.partition: each.end for at, each in limits.items()}, follow, count)
    reading.open_partitions = {i for i in chosen if follow or starts[i] < reading.ends[i]}
    reader = client.consumer(cluster, {"isolation.level": f"read_{isolation.value}"})
    wanted = {index: starts[index] for index in reading.open_partitions}
    try:
        _read(cluster, reader, topic, wanted, reading, write)
    except KeyboardInterrupt:
        # With --follow this is the normal end.
        if not follow:
            raise
    finally:
        reader.close()
    _note(reading.shown, as_json)


def _note(shown: int, as_json: bool) -> None:
    if sys.stderr.isatty() and not as_json:
        output.note(output.records(shown))


def _writer(
    write: Callable[["Message"], bytes], registry: str | None
) -> Callable[["Message"], bytes]:
    """The writer, which decodes values first if a registry is given."""
    if registry is None:
        return write
    from headrace.cli.records.typed_values import TypedMessage, value_decoder

    decoder = value_decoder(registry)
    return lambda message: write(TypedMessage(message, decoder))


def _read(
    cluster: "ClusterOptions",
    reader: "Consumer",
    topic: str,
    starts: dict[int, int],
    reading: Reading,
    write: Callable[["Message"], bytes],
) -> None:
    from confluent_kafka import TopicPartition

    reader.assign([TopicPartition(topic, index, at) for index, at in starts.items()])
    out = sys.stdout.buffer
    last_heard = time.monotonic()
    while not reading.done():
        first = reader.poll(POLL_S)
        if first is None:
            _check_alive(cluster, reading, last_heard)
            continue
        last_heard = time.monotonic()
        for message in (first, *reader.consume(BATCH_RECORDS, timeout=0)):
            if (problem := message.error()) is not None:
                _judge(cluster, problem, message, reading)
                continue
            index, offset = message.partition(), message.offset()
            if reading.wants(index, offset):
                out.write(write(message))
                reading.shown += 1
            reading.passed(index, offset + 1)
            if reading.done():
                break
        out.flush()


def _judge(
    cluster: "ClusterOptions", problem: "KafkaError", message: "Message", reading: Reading
) -> None:
    """Record the end of a partition, ignore errors that librdkafka retries, raise the rest."""
    from confluent_kafka import KafkaError

    from headrace.cli import client

    code = problem.code()
    if code == KafkaError._PARTITION_EOF:
        # The last offsets may be transaction markers or compacted, without a record.
        reading.passed(message.partition(), message.offset())
    elif message.topic() is not None and code != KafkaError._ALL_BROKERS_DOWN:
        what = f"{message.topic()} partition {message.partition()}"
        raise client.failure(cluster, problem, what)


def _check_alive(cluster: "ClusterOptions", reading: Reading, last_heard: float) -> None:
    """A Failure if no records arrive before the end; with --follow that is normal."""
    from headrace.cli import client

    if not reading.follow and time.monotonic() - last_heard > SILENCE_S:
        missing = ", ".join(map(str, sorted(reading.open_partitions)))
        raise client.unreachable(
            cluster, f"no records for {SILENCE_S:.0f} s; partitions not at their end: {missing}"
        )
