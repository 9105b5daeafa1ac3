"""`headrace bench`: writes records, reads them back, and reports throughput and latency.

It measures the cluster through librdkafka from one Python process, including callbacks. Use it to
compare two settings or two machines, not to find the limit of a cluster. With a login that
librdkafka does not have, it measures `own_client.py`.
"""

import os
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli import output
from headrace.cli.failures import Failure
from headrace.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, ClientConfig, examples
from headrace.cli.records.produce import Acks, AcksOption, Compression, CompressionOption

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

    from headrace.cli.client import ClusterOptions

app = typer.Typer()

MEGABYTE = 1_000_000
SHOW_EVERY_S = 0.15
SILENCE_S = 30.0


@dataclass(frozen=True, slots=True)
class Load:
    """The parameters of a measurement."""

    topic: str
    records: int
    record_bytes: int
    acks: str
    compression: str
    linger_ms: float


@dataclass(frozen=True, slots=True)
class Speed:
    """The throughput of writing or reading."""

    records: int
    seconds: float
    records_per_second: float
    megabytes_per_second: float


@dataclass(frozen=True, slots=True)
class Latency:
    """Milliseconds from passing a record to the producer to its acknowledgement."""

    p50: float
    p90: float
    p99: float
    p999: float
    max: float


@app.command(
    epilog=examples(
        "headrace bench",
        "headrace bench --records 1000000 --size 1000 --partitions 6 --compression lz4",
        "headrace bench --acks 1 --linger-ms 0 --json",
    )
)
def bench(
    records: Annotated[
        int, typer.Option("--records", "-n", min=1, metavar="N", help="Number of records.")
    ] = 200_000,
    size: Annotated[
        int, typer.Option("--size", "-s", min=0, metavar="BYTES", help="Size of each value.")
    ] = 100,
    partitions: Annotated[
        int,
        typer.Option(
            "--partitions", "-p", min=1, metavar="N", help="Number of partitions of the topic."
        ),
    ] = 1,
    replication_factor: Annotated[
        int,
        typer.Option(
            "--replication-factor", "-r", metavar="N", help="Replication factor of the topic."
        ),
    ] = 1,
    acks: AcksOption = Acks.ALL,
    compression: CompressionOption = Compression.NONE,
    linger_ms: Annotated[
        float,
        typer.Option("--linger-ms", min=0, metavar="MS", help="How long to wait for a full batch."),
    ] = 5.0,
    keep: Annotated[bool, typer.Option("--keep", help="Do not delete the topic.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
    client_config: ClientConfig = None,
) -> None:
    """Measure throughput and latency of a cluster, with a temporary topic."""
    from headrace.admin.topics import create_topic, settle_topics
    from headrace.cli import client
    from headrace.client.topics import delete_topics

    cluster = client.connect(bootstrap, client_config)
    topic = f"headrace-bench-{os.urandom(4).hex()}"
    load = Load(topic, records, size, acks.value, compression.value, linger_ms)
    with client.admin(cluster) as connected:
        create_topic(connected, topic, partitions=partitions, replication_factor=replication_factor)
    try:
        written, latency = _write(cluster, load)
        read = _read(cluster, load, partitions)
    finally:
        if not keep:
            with client.admin(cluster) as connected:
                for error in delete_topics(connected, [topic]).values():
                    raise error
                settle_topics(connected, [topic], present=False)
    if as_json:
        output.print_json(
            {
                **asdict(load),
                "partitions": partitions,
                "produce": asdict(written),
                "produce_latency_ms": asdict(latency),
                "consume": asdict(read),
            }
        )
    else:
        _show(load, partitions, written, latency, read)


def _write(cluster: "ClusterOptions", load: Load) -> tuple[Speed, Latency]:
    from headrace.cli import client

    sender = client.producer(
        cluster,
        {
            "acks": load.acks,
            "compression.type": load.compression,
            "linger.ms": load.linger_ms,
            "queue.buffering.max.messages": 200_000,
            "message.timeout.ms": 60_000,
        },
    )
    latencies: list[float] = []
    errors: list[KafkaError] = []

    def delivered(error: "KafkaError | None", message: "Message") -> None:
        if error is None:
            latencies.append(message.latency())
        else:
            errors.append(error)

    # Random bytes, so that the payload cannot be compressed; several values, so that a batch does
    # not repeat one value.
    values = [
        os.urandom((load.record_bytes + 1) // 2).hex()[: load.record_bytes] for _ in range(64)
    ]
    payloads = [value.encode() for value in values]
    started = shown_at = time.perf_counter()
    with output.progress() as bar:
        task = bar.add_task("produce", total=load.records, state="")
        sent = 0
        while sent < load.records and not errors:
            try:
                sender.produce(load.topic, payloads[sent & 63], on_delivery=delivered)
                sent += 1
            except BufferError:
                sender.poll(0.01)
            if sent & 1023 == 0:
                sender.poll(0)
                now = time.perf_counter()
                if now - shown_at > SHOW_EVERY_S:
                    shown_at = now
                    rate = output.number(len(latencies) / (now - started))
                    bar.update(task, completed=len(latencies), state=f"{rate} rec/s")
        while sender.flush(SHOW_EVERY_S):
            bar.update(task, completed=len(latencies))
    if errors:
        raise client.failure(cluster, errors[0], f"{len(errors)} records were not written")
    seconds = time.perf_counter() - started
    return _speed(len(latencies), load, seconds), _percentiles(latencies)


def _read(cluster: "ClusterOptions", load: Load, partitions: int) -> Speed:
    from confluent_kafka import TopicPartition

    from headrace.admin import positions
    from headrace.cli import client
    from headrace.types import TopicPartition as PartitionOf

    reader = client.consumer(cluster, {"fetch.min.bytes": 1, "queued.min.messages": 1_000_000})
    with client.admin(cluster) as connected:
        places = [PartitionOf(load.topic, index) for index in range(partitions)]
        limits = positions.bounds(connected, places)
    # With acks=0 records may be lost; only those in the log can be read.
    total = sum(each.end - each.begin for each in limits.values())
    started = shown_at = last_heard = time.perf_counter()
    received = 0
    reader.assign([TopicPartition(load.topic, index, 0) for index in range(partitions)])
    with output.progress() as bar:
        task = bar.add_task("consume", total=total, state="")
        while received < total:
            batch = reader.consume(10_000, timeout=0.1)
            received += sum(message.error() is None for message in batch)
            now = time.perf_counter()
            if batch:
                last_heard = now
            elif now - last_heard > SILENCE_S:
                raise Failure(f"only {received:,} of {total:,} records were read", code="LOST")
            if now - shown_at > SHOW_EVERY_S:
                shown_at = now
                rate = output.number(received / (now - started))
                bar.update(task, completed=received, state=f"{rate} rec/s")
    seconds = time.perf_counter() - started
    reader.close()
    return _speed(received, load, seconds)


def _speed(records: int, load: Load, seconds: float) -> Speed:
    per_second = records / seconds if seconds else 0.0
    return Speed(
        records=records,
        seconds=round(seconds, 3),
        records_per_second=round(per_second, 1),
        megabytes_per_second=round(per_second * load.record_bytes / MEGABYTE, 2),
    )


def _percentiles(seconds: list[float]) -> Latency:
    ordered = sorted(seconds) or [0.0]

    def at(share: float) -> float:
        return round(ordered[min(int(len(ordered) * share), len(ordered) - 1)] * 1000, 2)

    return Latency(p50=at(0.5), p90=at(0.9), p99=at(0.99), p999=at(0.999), max=at(1.0))


def _show(load: Load, partitions: int, written: Speed, latency: Latency, read: Speed) -> None:
    noun = "partition" if partitions == 1 else "partitions"
    print(
        f"{load.record_bytes}-byte values, {partitions} {noun}, acks={load.acks}, "
        f"compression {load.compression}, linger {load.linger_ms:g} ms\n"
    )
    output.print_table(
        ("", "Records", "Seconds", "Rec/s", "MB/s"),
        [
            (
                f"[bold]{name}[/]",
                f"{each.records:,}",
                f"{each.seconds:.2f}",
                f"{each.records_per_second:,.0f}",
                f"{each.megabytes_per_second:,.1f}",
            )
            for name, each in (("produce", written), ("consume", read))
        ],
        numbers=("Records", "Seconds", "Rec/s", "MB/s"),
    )
    print(
        f"\nproduce latency, ms   p50 {latency.p50:g}   p90 {latency.p90:g}   "
        f"p99 {latency.p99:g}   p99.9 {latency.p999:g}   max {latency.max:g}"
    )
