"""`headrace connect dev`: tries a connector of one's own without Spark.

A source is read, a sink gets rows. Both need no cluster; with --bootstrap a source writes its rows
to a topic, and a sink gets the records of one.
"""

import importlib.util
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli import output
from headrace.cli.failures import Failure, bad_usage
from headrace.cli.options import AsJson, ClientConfig, pairs

if TYPE_CHECKING:
    from headrace.cli.client import ClusterOptions
    from headrace.connect.plugin import Connector, Sink, Source
    from headrace.connect.trial import TriedRange

READ_WITHIN_S = 10.0

Plugin = Annotated[
    str,
    typer.Argument(metavar="FILE:CLASS", help="A class in a Python file, such as mine.py:Numbers."),
]
Options = Annotated[
    list[str] | None, typer.Option("--option", metavar="NAME=VALUE", help="An option of the class.")
]
Rows = Annotated[int, typer.Option("--rows", min=1, help="How many rows an epoch has at most.")]
Epochs = Annotated[int, typer.Option("--epochs", min=1, help="How many epochs there are.")]
Input = Annotated[
    str | None,
    typer.Option("--input", metavar="FILE", help="For a sink: values as JSON lines; - is stdin."),
]
Schema = Annotated[
    str,
    typer.Option("--schema", metavar="DDL", help="For a sink: the type of values, as DDL."),
]
Topic = Annotated[
    str, typer.Option("--topic", metavar="TOPIC", help="The topic of a source or a sink.")
]
Broker = Annotated[
    str | None,
    typer.Option(
        "--bootstrap",
        "-b",
        metavar="HOST:PORT",
        help="A broker: rows of a source are written to their topic, a sink gets those of --topic.",
    ),
]


def dev(
    plugin: Plugin, options: Options = None, rows: Rows = 10, epochs: Epochs = 1,
    values: Input = None, schema: Schema = "", topic: Topic = "trial", bootstrap: Broker = None,
    client_config: ClientConfig = None, as_json: AsJson = False,
) -> None:  # fmt: skip
    """Try a connector, and check what its interface promises.

    Every range of a source is read twice: exactly-once needs a `read` that returns the same rows
    for the same range. A sink with `once` writes every epoch twice.
    """
    from headrace.connect.plugin import OptionError, PermanentError, Sink, Source
    from headrace.connect.trial import BrokenPromise

    found = _load(plugin)
    cluster = None
    if bootstrap is not None:
        from headrace.cli import client

        cluster = client.connect(bootstrap, client_config)
    try:
        connector = found({"topic": topic, "topics": topic, **pairs(options or [], "--option")})
        connector.check()
        if isinstance(connector, Source):
            _try_source(connector, epochs, rows, cluster, as_json)
        elif isinstance(connector, Sink):
            given = _values(values, topic, rows * epochs, cluster)
            _try_sink(connector, list(given), schema, topic, epochs, as_json)
        else:
            raise bad_usage(f"{plugin} is neither a Source nor a Sink")
    except OptionError as error:
        raise bad_usage(f"{error.option}: {error}") from None
    except (BrokenPromise, PermanentError) as error:
        raise Failure(str(error)) from None


def _try_source(
    source: "Source", epochs: int, rows: int, cluster: "ClusterOptions | None", as_json: bool
) -> None:
    from headrace.connect.trial import try_source

    for each in try_source(source, epochs, rows):
        if cluster is not None:
            _send(cluster, each)
        if as_json:
            output.print_json(
                {
                    "topic": each.topic,
                    "partition": dict(each.partition),
                    "start": each.start,
                    "end": each.end,
                    "rows": each.rows,
                }
            )
            continue
        where = ", ".join(f"{name}={value}" for name, value in each.partition.items())
        output.note(f"{each.topic} {where}: {each.start} to {each.end}")
        columns = list(each.rows[0]) if each.rows else []
        output.print_table(columns, [[str(row[c]) for c in columns] for row in each.rows])


def _send(cluster: "ClusterOptions", tried: "TriedRange") -> None:
    """Write rows as JSON; values that JSON does not have are texts."""
    from headrace.cli import client

    producer = client.producer(cluster, {"message.timeout.ms": 30_000})
    for row in tried.rows:
        producer.produce(tried.topic, json.dumps(row, default=str).encode())
    if left := producer.flush(30):
        raise Failure(f"{output.records(left)} could not be written to topic {tried.topic}")
    output.note(f"wrote {output.records(len(tried.rows))} to topic {tried.topic}")


def _try_sink(
    sink: "Sink",
    values: list[Mapping[str, Any]],
    schema: str,
    topic: str,
    epochs: int,
    as_json: bool,
) -> None:
    from headrace.connect.trial import try_sink

    for each in try_sink(sink, values, schema, topic=topic, epochs=epochs):
        refused = {str(row): why for row, why in each.refused.items()}
        if as_json:
            output.print_json(
                {"epoch": each.task.epoch, "records": each.records, "refused": refused}
            )
            continue
        written = each.records - len(refused)
        output.note(f"epoch {each.task.epoch}: wrote {output.records(written)}")
        if refused:
            output.print_table(("record", "refused because"), list(refused.items()))


def _values(
    source: str | None, topic: str, limit: int, cluster: "ClusterOptions | None"
) -> Iterator[Mapping[str, Any]]:
    """The values for a sink: of a file, or of a topic."""
    if source is None and cluster is None:
        raise bad_usage("a sink needs values: --input FILE, or --bootstrap and --topic")
    if source is None:
        assert cluster is not None
        lines = _topic_values(cluster, topic, limit)
    elif source == "-":
        lines = (line.encode() for line in sys.stdin)
    else:
        try:
            lines = iter(Path(source).read_bytes().splitlines())
        except OSError as error:
            raise bad_usage(f"--input {source} cannot be read: {error.strerror}") from None
    for line in lines:
        try:
            value = json.loads(line)
        except ValueError as error:
            raise bad_usage(f"not a JSON value: {line[:80]!r}: {error}") from None
        if not isinstance(value, dict):
            raise bad_usage(f"not a JSON object: {line[:80]!r}")
        yield value


def _topic_values(cluster: "ClusterOptions", topic: str, limit: int) -> Iterator[bytes]:
    """The first values of a topic, up to its end."""
    from confluent_kafka import OFFSET_BEGINNING, TopicPartition

    from headrace.cli import client

    consumer = client.library_consumer(cluster, {"isolation.level": "read_committed"})
    try:
        known = consumer.list_topics(topic, READ_WITHIN_S).topics[topic]
        if known.error is not None:
            raise Failure(f"topic {topic}: {known.error.str()}")
        left = set(known.partitions)
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in left])
        while left and limit:
            message = consumer.poll(READ_WITHIN_S)
            if message is None:
                raise Failure(f"topic {topic} could not be read within {READ_WITHIN_S:.0f} s")
            if message.error():
                left.discard(message.partition())
            elif message.value() is not None:
                limit -= 1
                yield message.value()
    finally:
        consumer.close()


def _load(plugin: str) -> "type[Connector]":
    from headrace.connect.plugin import Connector

    file, _, name = plugin.rpartition(":")
    path = Path(file)
    if not file or not path.is_file():
        raise bad_usage(f"{plugin}: expected FILE:CLASS, and there is no file {file!r}")
    # A file may have the name of a module of the standard library, such as numbers.py.
    sys.path.append(str(path.resolve().parent))
    described = importlib.util.spec_from_file_location("connector_on_trial", path)
    assert described is not None
    assert described.loader is not None
    module = importlib.util.module_from_spec(described)
    sys.modules[module.__name__] = module
    described.loader.exec_module(module)
    found = getattr(module, name, None)
    if not isinstance(found, type) or not issubclass(found, Connector):
        raise bad_usage(f"{file} has no connector class {name}")
    return found
