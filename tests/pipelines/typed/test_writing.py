"""What the typed sink writes, confluent-kafka's deserializers read; and what it refuses."""

import datetime
import json
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
from google.protobuf import message_factory
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from headrace.client.errors import ClientError
from headrace.pipelines.sink.epoch import Epoch
from headrace.pipelines.sink.sink import TopicSink, make_sink
from headrace.schemas.avro.column_writer import encoded
from headrace.schemas.avro.tree import parse
from headrace.schemas.client import SchemaClient
from headrace.schemas.protobuf.messages import descriptor_of
from tests.pipelines.typed.conftest import Topic
from tests.schemas.test_avro_columns import flat_topic, registered, written
from tests.support.committed import committed_values
from tests.support.counting_proxy import CountingProxy

UTC = datetime.UTC
INNER = StructType([StructField("x", IntegerType(), False), StructField("y", StringType())])
THING = StructType(
    [
        StructField("id", LongType(), False),
        StructField("n", IntegerType()),
        StructField("name", StringType()),
        StructField("f", FloatType()),
        StructField("d", DoubleType()),
        StructField("ok", BooleanType()),
        StructField("raw", BinaryType()),
        StructField("at", TimestampType()),
        StructField("inner", INNER),
        StructField("many", ArrayType(INNER, False)),
        StructField("words", ArrayType(StringType(), False)),
        StructField("counts", MapType(StringType(), LongType(), False)),
    ]
)
MOMENT = datetime.datetime(2024, 5, 6, 7, 8, 9, 123456, UTC)
FULL: dict[str, Any] = {
    "id": -7, "n": 300, "name": "ä", "f": 0.5, "d": 1e300, "ok": True, "raw": b"\xff\x00",
    "at": MOMENT, "inner": {"x": 1, "y": None}, "many": [{"x": 2, "y": "b"}, {"x": 3, "y": None}],
    "words": ["a", ""], "counts": {"k": 1 << 40},
}  # fmt: skip
BARE = dict.fromkeys(FULL) | {"id": 1, "many": [], "words": [], "counts": {}}
ROWS = [FULL, None, BARE]


def sink(topic: Topic, kind: Any, **more: str) -> TopicSink:
    given = {
        "kafka.bootstrap.servers": topic.bootstrap,
        "topic": topic.name,
        "schema.registry.url": topic.registry_url,
        **{name.replace("__", "."): value for name, value in more.items()},
    }
    return make_sink(given, frame_type(kind), overwrite=False)


def frame_type(kind: Any) -> StructType:
    return StructType([StructField("key", StringType()), StructField("value", kind)])


def write(topic: Topic, kind: Any, rows: Sequence[Any], **more: str) -> None:
    schema = to_arrow_schema(frame_type(kind), timezone="UTC")
    keys = pa.array([f"k{number}" for number in range(len(rows))], pa.string())
    values = pa.array(
        [{**row, "counts": list(row["counts"].items())} if counted(row) else row for row in rows],
        schema.field("value").type,
    )
    batch = pa.RecordBatch.from_arrays([keys, values], schema=schema)
    # In two pieces, the second with an offset into the first one's buffers.
    pieces = iter([batch.slice(0, 1), batch.slice(1)])
    sink(topic, kind, **more).write(Epoch("q", 0), 0, pieces, ledger=False)


def counted(row: Any) -> bool:
    return isinstance(row, dict) and isinstance(row.get("counts"), dict)


def read_back(topic: Topic) -> list[Any]:
    return committed_values(topic.bootstrap, topic.name)


def test_avro_that_the_sink_wrote_is_read_by_others_and_by_the_source(
    topic: Topic, client: SchemaRegistryClient, proxy: CountingProxy
) -> None:
    write(topic, THING, ROWS, value__format="avro")
    assert proxy.requests == [f"POST /subjects/{topic.subject}/versions"]
    deserializer = AvroDeserializer(client)
    assert [deserializer(each, topic.context) for each in read_back(topic)] == ROWS
    shown = [row and {**row, "counts": dict(row["counts"])} for row in values_of(topic, "avro")]
    assert shown == ROWS


def values_of(topic: Topic, form: str) -> list[Any]:
    return list(topic.values(value__format=form))


def test_json_that_the_sink_wrote_is_read_by_others_and_by_the_source(
    topic: Topic, client: SchemaRegistryClient
) -> None:
    write(topic, THING, ROWS, value__format="json")
    latest = client.get_latest_version(topic.subject).schema
    deserializer = JSONDeserializer(latest.schema_str, schema_registry_client=client)
    found = [deserializer(each, topic.context) for each in read_back(topic)]
    text = FULL | {"raw": "/wA=", "at": MOMENT.isoformat(), "inner": {"x": 1}}
    text["many"] = [{"x": 2, "y": "b"}, {"x": 3}]
    assert found == [text, None, {"id": 1, "many": [], "words": [], "counts": {}}]
    shown = [row and {**row, "counts": dict(row["counts"])} for row in values_of(topic, "json")]
    assert shown == [FULL | {"raw": "/wA=", "at": MOMENT.isoformat()}, None, BARE]


def test_protobuf_that_the_sink_wrote_is_read_by_others_and_by_the_source(
    topic: Topic, client: SchemaRegistryClient
) -> None:
    write(topic, THING, ROWS, value__format="protobuf")
    file = descriptor_of(
        SchemaClient((topic.registry_url,)).by_version(topic.subject, "latest", "PROTOBUF")
    )
    kind = message_factory.GetMessageClass(next(iter(file.message_types_by_name.values())))
    deserializer = ProtobufDeserializer(kind, {}, client)
    full, nothing, bare = (deserializer(each, topic.context) for each in read_back(topic))
    assert nothing is None
    assert (full.id, full.n, full.name, full.raw) == (-7, 300, "ä", b"\xff\x00")
    assert full.at.ToDatetime(UTC) == MOMENT
    assert [each.x for each in full.many] == [2, 3]
    assert dict(full.counts) == {"k": 1 << 40}
    assert not bare.HasField("n")
    shown = [row and {**row, "counts": dict(row["counts"])} for row in values_of(topic, "protobuf")]
    assert shown == ROWS


def test_types_that_only_avro_has_go_there_and_back(
    topic: Topic, client: SchemaRegistryClient
) -> None:
    kind = StructType([StructField("d", DateType()), StructField("m", DecimalType(30, 4))])
    rows = [
        {"d": datetime.date(1969, 1, 2), "m": Decimal(number).scaleb(-4)}
        for number in (0, 1, -1, 127, 128, -128, -129, 10**29, -(10**29))
    ]
    write(topic, kind, rows, value__format="avro")
    deserializer = AvroDeserializer(client)
    assert [deserializer(each, topic.context) for each in read_back(topic)] == rows
    assert topic.values(value__format="avro") == rows


def test_a_new_column_is_a_new_version(topic: Topic, client: SchemaRegistryClient) -> None:
    # That Spark knows of no null does not make the field one that others must have.
    more = StructType([StructField("new", StringType(), False), *THING.fields])
    row = {**FULL, "counts": dict(FULL["counts"]), "new": "x"}
    for form in ("avro", "json", "protobuf"):
        subject = {"value__subject": f"{topic.name}-{form}", "value__format": form}
        write(topic, THING, [FULL], **subject)
        write(topic, more, [row], **subject)
        assert client.get_versions(f"{topic.name}-{form}") == [1, 2]
    found = topic.read(value__format="protobuf", value__subject=f"{topic.name}-protobuf")
    written_so = [each for each in found.column("value").to_pylist() if each]
    assert [(each["new"], each["id"]) for each in written_so] == [(None, -7), ("x", -7)]


def test_an_incompatible_column_is_refused_before_a_row_is_written(
    topic: Topic, client: SchemaRegistryClient
) -> None:
    write(topic, THING, [FULL], value__format="avro")
    other = StructType([StructField("id", StringType(), False), *THING.fields[1:]])
    with pytest.raises(ClientError, match=f"subject '{topic.subject}'.*field 'id'"):
        write(topic, other, [], value__format="avro")
    assert len(read_back(topic)) == 1


def test_a_registered_version_may_be_written_with(
    topic: Topic, client: SchemaRegistryClient, proxy: CountingProxy
) -> None:
    text = json.dumps(
        {
            "type": "record",
            "name": "Theirs",
            "fields": [
                {"name": "more", "type": ["string", "null"], "default": ""},
                {"name": "id", "type": "double"},
                {"name": "c", "type": {"type": "enum", "name": "C", "symbols": ["A", "B"]}},
                {"name": "t", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            ],
        }
    )
    client.register_schema(topic.subject, Schema(text, "AVRO"))
    kind = StructType(
        [
            StructField("c", StringType()),
            StructField("id", IntegerType()),
            StructField("t", TimestampType()),
        ]
    )
    rows = [{"c": "B", "id": 3, "t": MOMENT.replace(microsecond=5000)}]
    write(topic, kind, rows, value__format="avro", value__subject__version="latest")
    assert proxy.requests == [f"GET /subjects/{topic.subject}/versions/latest"]
    deserializer = AvroDeserializer(client)
    assert [deserializer(each, topic.context) for each in read_back(topic)] == [
        {"more": None, "id": 3.0, "c": "B", "t": rows[0]["t"]}
    ]
    with pytest.raises(ClientError, match=r"value\.c is 'X', which is not a symbol of the enum C"):
        write(topic, kind, [rows[0] | {"c": "X"}] * 2, value__format="avro",
              value__subject__version="1")  # fmt: skip
    with pytest.raises(ClientError, match=r"value\.id is null in a row"):
        write(topic, kind, [rows[0] | {"id": None}] * 2, value__format="avro",
              value__subject__version="1")  # fmt: skip
    with pytest.raises(ClientError, match="value has the field n, which its schema does not have"):
        write(topic, THING, [], value__format="avro", value__subject__version="1")


def test_a_schema_may_be_given(topic: Topic, client: SchemaRegistryClient) -> None:
    text = 'syntax = "proto3"; message A { int32 a = 1; } message B { uint64 id = 9; }'
    kind = StructType([StructField("id", LongType())])
    more = {"value__format": "protobuf", "value__schema": text, "value__message": "B"}
    write(topic, kind, [{"id": 5}, {"id": 6}], **more)
    assert [each[5:] for each in read_back(topic)] == [b"\x02\x02\x48\x05", b"\x02\x02\x48\x06"]
    assert topic.values(value__format="protobuf", value__message="B") == [
        {"id": Decimal(5)},
        {"id": Decimal(6)},
    ]


def test_nothing_is_registered_where_that_is_not_wished(
    topic: Topic, client: SchemaRegistryClient
) -> None:
    with pytest.raises(ClientError, match="cannot be used for subject"):
        sink(topic, THING, value__format="avro", auto__register__schemas="false")
    sink(topic, THING, value__format="avro")
    sink(topic, THING, value__format="avro", auto__register__schemas="false")
    assert client.get_versions(topic.subject) == [1]


def test_keys_are_typed_and_partitioned_by_their_bytes(
    topic: Topic, client: SchemaRegistryClient
) -> None:
    write(topic, THING, [FULL], value__format="avro", key__format="avro")
    found = topic.read(value__format="avro", key__format="avro", columns="key,_error")
    assert found.to_pylist() == [{"key": "k0", "_error": None}]


def test_columns_without_a_format_are_refused_with_a_hint(topic: Topic) -> None:
    given = {"kafka.bootstrap.servers": topic.bootstrap, "topic": topic.name}
    with pytest.raises(ClientError, match=r"value.format for a typed column"):
        make_sink(given, frame_type(THING), overwrite=False)
    intervals = StructType([StructField("m", MapType(LongType(), LongType()))])
    for form in ("avro", "json"):
        with pytest.raises(ClientError, match="m is map<bigint,bigint>, which has no"):
            sink(topic, intervals, value__format=form)
    with pytest.raises(ClientError, match="d is date, which has no Protobuf type"):
        sink(topic, StructType([StructField("d", DateType())]), value__format="protobuf")


def test_a_number_that_json_does_not_know_names_its_column(topic: Topic) -> None:
    kind = StructType([StructField("d", DoubleType())])
    with pytest.raises(ClientError, match="a row of value has a number that JSON does not have"):
        write(topic, kind, [{"d": 1.0}, {"d": float("nan")}], value__format="json")


@settings(max_examples=60, deadline=None)
@given(flat_topic(), st.integers(0, 3))
def test_encoded_avro_is_what_fastavro_writes(
    topic: tuple[dict[str, Any], list[dict[str, Any]]], start: int
) -> None:
    from headrace.schemas.avro.resolution import arrow_type

    schema, records = topic
    node = parse(registered(schema))
    array = pa.array(records, arrow_type(node)).slice(start)
    assert encoded(node, array, "value").to_pylist() == written(schema, records[start:])
