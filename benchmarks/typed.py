"""Typed topics beside Spark's own: `from_avro` and `from_json` behind Spark's Kafka connector.

The rows are part of `python -m benchmarks.spark`. Both sides read the same topic into nothing, from
the bytes in the log to typed columns; Spark's functions are told the schema, and ours asks for it.
"""

import io
import json
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro
from confluent_kafka import Producer
from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from headrace.schemas.client import SchemaClient
from tests.support.headrace_registry import HeadraceRegistry
from tests.support.topics import create_topic

if TYPE_CHECKING:
    from benchmarks.spark import Bench

HEADER_BYTES = 5
PARTITIONS = 4
AVRO: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "customer", "type": "string"},
        {"name": "price", "type": "double"},
        {"name": "country", "type": ["null", "string"], "default": None},
        {"name": "pieces", "type": "int"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "paid", "type": "boolean"},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "SENT"]}},
    ],
}
NESTED: dict[str, Any] = {
    "type": "record",
    "name": "Basket",
    "fields": [*AVRO["fields"], {"name": "tags", "type": {"type": "array", "items": "string"}}],
}
JSON: dict[str, Any] = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "customer": {"type": "string"},
        "price": {"type": "number"},
        "country": {"type": "string"},
        "pieces": {"type": "integer"},
        "paid": {"type": "boolean"},
    },
    "additionalProperties": False,
}
JSON_COLUMNS = (
    "id bigint, customer string, price double, country string, pieces bigint, paid boolean"
)


def order(number: int) -> dict[str, Any]:
    return {
        "id": number * 7919,
        "customer": f"customer-{number % 10_000}",
        "price": number / 7,
        "country": None if number % 3 else "de",
        "pieces": number % 500 - 250,
        "at": 1_700_000_000_000 + number,
        "paid": number % 2 == 0,
        "state": ("NEW", "SENT")[number % 2],
        "tags": ["a", "bc"][: number % 3],
    }


def encoder(form: str, schema: dict[str, Any]) -> Callable[[int], bytes]:
    if form == "json":
        names = set(schema["properties"])
        return lambda number: json.dumps(
            {
                name: each
                for name, each in order(number).items()
                if name in names and each is not None
            }
        ).encode()
    parsed = fastavro.parse_schema(schema)

    def avro(number: int) -> bytes:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, parsed, order(number))
        return out.getvalue()

    return avro


def fill(bootstrap: str, records: int, schema_id: int, encode: Callable[[int], bytes]) -> str:
    topic = create_topic(bootstrap, f"typed-{uuid.uuid4().hex[:8]}", PARTITIONS)
    sizes = {"queue.buffering.max.messages": 2_000_000, "queue.buffering.max.kbytes": 2_000_000}
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, **sizes})
    prefix = b"\0" + schema_id.to_bytes(4, "big")
    # The records repeat, because making them takes longer than reading them.
    values = [prefix + encode(number) for number in range(min(records, 50_000))]
    for number in range(records):
        producer.produce(topic, values[number % len(values)], partition=number % PARTITIONS)
        if number % 10_000 == 0:
            producer.poll(0)
    assert producer.flush(120) == 0
    return topic


def sparks_own(frame: DataFrame, form: str, schema: dict[str, Any]) -> DataFrame:
    """What users write without us; the schema's id has to be cut off by hand."""
    body = fn.expr(f"substring(value, {HEADER_BYTES + 1}, length(value) - {HEADER_BYTES})")
    if form == "json":
        value = fn.from_json(body.cast("string"), JSON_COLUMNS)
    else:
        from pyspark.sql.avro.functions import from_avro

        value = from_avro(body, json.dumps(schema))
    return frame.withColumn("value", value)


def typed_read(
    records: int, form: str, schema: dict[str, Any]
) -> "Callable[[Bench], dict[str, list[float]]]":
    """A typed topic into nothing."""

    def measure(bench: "Bench") -> dict[str, list[float]]:
        from benchmarks.spark import WORK, in_turns

        count = int(records * bench.scale)
        with HeadraceRegistry(bench.bootstrap, Path(WORK)) as registry:
            subject = f"bench-{uuid.uuid4().hex[:8]}"
            schema_id = SchemaClient((registry.url,)).register(
                subject, form.upper(), json.dumps(schema)
            )
            topic = fill(bench.bootstrap, count, schema_id, encoder(form, schema))

            def frame(source: str) -> DataFrame:
                reader = bench.spark.read.format(source).options(
                    **{"kafka.bootstrap.servers": bench.bootstrap, "subscribe": topic}
                )
                if source != "headrace":
                    return sparks_own(reader.load(), form, schema)
                typed = {
                    "schema.registry.url": registry.url,
                    "value.format": form,
                    "value.subject": subject,
                }
                return reader.options(**typed).load()

            def once(source: str) -> float:
                began = time.monotonic()
                frame(source).write.format("noop").mode("overwrite").save()
                return count / (time.monotonic() - began)

            sums = "count(value.id) as n", "sum(value.id) as ids", "sum(value.pieces) as pieces"
            seen = {
                source: frame(source).selectExpr(*sums).first() for source in ("kafka", "headrace")
            }
            assert seen["kafka"] == seen["headrace"], seen
            assert seen["headrace"].n == count, seen
            return in_turns(once, bench.rounds, warm=2)

    return measure
