"""`headrace produce`: writes records from standard input or a file to a topic."""

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from headrace.cli import output
from headrace.cli.failures import Failure, bad_usage
from headrace.cli.options import (
    DEFAULT_BOOTSTRAP,
    AsJson,
    Bootstrap,
    ClientConfig,
    RegistryOption,
    TopicArgument,
    examples,
    pairs,
)
from headrace.cli.schemas.registry_client import DEFAULT_REGISTRY

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message, Producer

    from headrace.admin.record_text import LineFormat, NewRecord
    from headrace.cli.client import ClusterOptions

app = typer.Typer()


class InputFormat(StrEnum):
    """The format of an input line."""

    VALUE = "value"
    KEY_VALUE = "key-value"
    JSON = "json"


class Acks(StrEnum):
    """The acknowledgements that a write waits for."""

    NONE = "0"
    LEADER = "1"
    ALL = "all"


class Compression(StrEnum):
    """Kafka's compression codecs."""

    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


FormatOption = Annotated[
    InputFormat | None,
    typer.Option("--format", "-F", help="Format of a line.", show_default="value"),
]
SeparatorOption = Annotated[
    str | None,
    typer.Option(
        "--key-separator",
        "-k",
        metavar="TEXT",
        help="Separator of key and value; implies --format key-value (default: tab).",
    ),
]
HeaderOption = Annotated[
    list[str] | None,
    typer.Option(
        "--header", "-H", metavar="NAME=VALUE", help="Header of every record; repeatable."
    ),
]
NullOption = Annotated[
    str | None,
    typer.Option("--null-marker", metavar="TEXT", help="Text that stands for a null key or value."),
]
FileOption = Annotated[
    str | None,
    typer.Option("--file", "-i", metavar="FILE", help="Read this file instead of standard input."),
]
PartitionOption = Annotated[
    int | None,
    typer.Option(
        "--partition",
        "-p",
        min=0,
        metavar="N",
        help="Partition of all records.",
        show_default="by key",
    ),
]
AcksOption = Annotated[Acks, typer.Option("--acks", "-a", help="Acknowledgements to wait for.")]
CompressionOption = Annotated[
    Compression, typer.Option("--compression", "-z", help="Compression of batches.")
]
IdempotentOption = Annotated[
    bool, typer.Option("--idempotent", help="Write each record once and in order, despite retries.")
]
SchemaOption = Annotated[
    str | None,
    typer.Option(
        "--schema",
        metavar="WHICH",
        help="Values are JSON and are written with this schema: latest, an id, or a file that is "
        "registered first.",
    ),
]
CreateOption = Annotated[
    bool, typer.Option("--create", help="Create the topic if it does not exist.")
]


@dataclass(slots=True)
class Tally:
    """The results of the records so far."""

    sent: int = 0
    delivered: int = 0
    delivered_bytes: int = 0
    failed: int = 0
    first_failure: tuple[int, str] | None = None
    last_offsets: dict[int, int] = field(default_factory=dict)

    def report(self, record: int) -> Callable[["KafkaError | None", "Message"], None]:
        """The delivery callback of a record."""

        def delivered(error: "KafkaError | None", message: "Message") -> None:
            if error is not None:
                from headrace.cli.client import plain_text

                self.failed += 1
                if self.first_failure is None or record < self.first_failure[0]:
                    self.first_failure = (record, plain_text(error))
                return
            self.delivered += 1
            self.delivered_bytes += len(message)
            # Without acknowledgements the offset is unknown.
            if (offset := message.offset()) is not None and offset >= 0:
                self.last_offsets[message.partition()] = offset

        return delivered


@app.command(
    epilog=examples(
        "echo hello | headrace produce clicks",
        "echo 'alice:hello' | headrace produce clicks --key-separator : --header source=web",
        "headrace produce clicks --file clicks.txt --compression zstd --idempotent",
        """echo '{"key": "a", "value": {"n": 1}}' | headrace produce clicks --format json""",
        "headrace consume a --json | headrace produce b --format json      copies a topic",
        """echo '{"name": "ann"}' | headrace produce users --schema user.avsc""",
    )
)
def produce(
    topic: TopicArgument,
    kind: FormatOption = None,
    separator: SeparatorOption = None,
    header: HeaderOption = None,
    null_marker: NullOption = None,
    file: FileOption = None,
    partition: PartitionOption = None,
    acks: AcksOption = Acks.ALL,
    compression: CompressionOption = Compression.NONE,
    idempotent: IdempotentOption = False,
    create: CreateOption = False,
    schema: SchemaOption = None,
    registry: RegistryOption = DEFAULT_REGISTRY,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
    client_config: ClientConfig = None,
) -> None:
    """Write records, one per line, and report their partitions and offsets.

    In JSON each line is an object with any of key, value, headers, partition and timestamp
    (milliseconds); a value that is not text is written as JSON, null is a tombstone, and
    "value_encoding": "base64" marks bytes.
    """
    from headrace.admin.record_text import LineFormat
    from headrace.cli import client

    if idempotent and acks is not Acks.ALL:
        raise bad_usage("--idempotent needs --acks all")
    form = LineFormat(
        kind=(kind or (InputFormat.KEY_VALUE if separator else InputFormat.VALUE)).value,
        separator=(separator or "\t").encode(),
        null_marker=None if null_marker is None else null_marker.encode(),
        headers=tuple((k, v.encode()) for k, v in pairs(header or [], "--header").items()),
        partition=partition,
    )
    source = _open(file)
    cluster = client.connect(bootstrap, client_config)
    _check_topic(cluster, topic, partition, create=create)
    settings: dict[str, object] = {
        "acks": acks.value,
        "compression.type": compression.value,
        "enable.idempotence": idempotent,
        "linger.ms": 5,
        "message.timeout.ms": 30_000,
        "queue.buffering.max.messages": 500_000,
    }
    sender = client.producer(cluster, settings)
    started = time.perf_counter()
    parse = _parser(form, None if schema is None else (registry, topic, schema))
    tally = _send_all(sender, topic, _lines(source), parse, _size(file))
    _report(topic, tally, time.perf_counter() - started, as_json=as_json)


def _parser(
    form: "LineFormat", typed: tuple[str, str, str] | None
) -> Callable[[bytes], "NewRecord"]:
    """A function that parses a line; `typed` is the registry, the topic and the schema."""
    from headrace.admin.record_text import parse_line

    if typed is None:
        return lambda line: parse_line(line, form)
    from headrace.cli.records.typed_values import value_encoder

    encoder = value_encoder(*typed)

    def parse(line: bytes) -> "NewRecord":
        record = parse_line(line, form)
        return replace(record, value=encoder.encode(record.value))

    return parse


def _open(file: str | None) -> BinaryIO:
    if file is None or file == "-":
        if sys.stdin.isatty():
            output.note("Type records, one per line; Ctrl-D ends.")
        return sys.stdin.buffer
    try:
        return open(file, "rb", buffering=1 << 20)
    except OSError as error:
        raise bad_usage(f"cannot read {file}: {error.strerror}") from None


def _size(file: str | None) -> int | None:
    import os

    return os.stat(file).st_size if file and file != "-" else None


def _lines(source: BinaryIO) -> Iterator[bytes]:
    # readline, not iteration: a typed record must be sent at the end of its line.
    while line := source.readline():
        yield line


def _check_topic(
    cluster: "ClusterOptions", topic: str, partition: int | None, *, create: bool
) -> None:
    from headrace.admin import positions
    from headrace.admin.topics import create_topic, existing_topics
    from headrace.cli import client
    from headrace.client.topics import describe_topics

    with client.admin(cluster) as connected:
        if create and not describe_topics(connected, [topic]):
            create_topic(connected, topic)
            output.note(f"created topic {topic}")
        (found,) = existing_topics(connected, [topic])
    if partition is not None:
        positions.chosen_partitions(topic, len(found.partitions), [partition])


def _send_all(
    sender: "Producer",
    topic: str,
    lines: Iterator[bytes],
    parse: Callable[[bytes], "NewRecord"],
    size: int | None,
) -> Tally:
    from headrace.admin.record_text import BadLine

    tally = Tally()
    read_bytes = 0
    shown_at = started = time.perf_counter()
    bad_line: Failure | None = None
    with output.progress() as bar:
        task = bar.add_task(f"produce {topic}", total=size, state="")
        for line in lines:
            read_bytes += len(line)
            tally.sent += 1
            try:
                record = parse(line.rstrip(b"\r\n") if line.endswith(b"\n") else line)
                _send(sender, topic, record, tally)
            except BadLine as error:
                tally.sent -= 1
                bad_line = Failure(f"line {tally.sent + 1}: {error}", code="BAD_LINE")
                break
            if tally.failed:
                break
            if tally.sent % 256 == 0 or size is None:
                sender.poll(0)
                now = time.perf_counter()
                if now - shown_at > 0.2:
                    shown_at = now
                    rate = output.number(tally.sent / (now - started))
                    bar.update(
                        task, completed=read_bytes, state=f"{output.size(read_bytes)}, {rate} rec/s"
                    )
        while sender.flush(0.2):
            bar.update(task, completed=read_bytes, state=f"{len(sender):,} left")
    if bad_line is not None:
        bad_line.hint = f"Written before this line: {output.records(tally.delivered)}."
        raise bad_line
    return tally


def _send(sender: "Producer", topic: str, record: "NewRecord", tally: Tally) -> None:
    from confluent_kafka import KafkaException

    choices: dict[str, object] = {}
    if record.partition is not None:
        choices["partition"] = record.partition
    if record.timestamp_ms is not None:
        choices["timestamp"] = record.timestamp_ms
    if record.headers:
        choices["headers"] = list(record.headers)
    while True:
        try:
            sender.produce(
                topic,
                value=record.value,
                key=record.key,
                on_delivery=tally.report(tally.sent),
                **choices,
            )
        except BufferError:
            sender.poll(0.1)
        except KafkaException as error:
            from headrace.cli.client import plain_text

            tally.failed += 1
            tally.first_failure = tally.first_failure or (tally.sent, plain_text(error.args[0]))
            return
        else:
            return


def _report(topic: str, tally: Tally, seconds: float, *, as_json: bool) -> None:
    rate = tally.delivered / seconds if seconds else 0.0
    offsets = dict(sorted(tally.last_offsets.items()))
    if as_json:
        output.print_json(
            {
                "topic": topic,
                "records": tally.delivered,
                "failed": tally.failed,
                "bytes": tally.delivered_bytes,
                "seconds": round(seconds, 3),
                "records_per_second": round(rate, 1),
                "last_offsets": {str(index): offset for index, offset in offsets.items()},
            }
        )
    elif tally.delivered:
        where = ", ".join(f"{index} at {offset:,}" for index, offset in offsets.items())
        known = f"; last offset of partition {where}" if where else ""
        output.note(
            f"{output.records(tally.delivered)}, {output.size(tally.delivered_bytes)} to {topic} "
            f"in {seconds:.2f} s ({rate:,.0f} rec/s){known}"
        )
    if tally.first_failure is not None:
        number, reason = tally.first_failure
        raise Failure(
            f"record {number} was not written: {reason}",
            code="DELIVERY_FAILED",
            hint=f"Written: {tally.delivered:,} of {output.records(tally.sent)} sent.",
        )
