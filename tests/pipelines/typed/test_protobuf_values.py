"""Protobuf topics that confluent-kafka's serializer wrote, as columns."""

import base64
import datetime
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    message_factory,
    timestamp_pb2,
    wrappers_pb2,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.client.errors import ClientError
from headrace.schemas import formats
from headrace.schemas.columns.cursors import Values
from headrace.schemas.interface import RegisteredSchema
from headrace.schemas.protobuf.column_reader import ProtobufColumnReader
from headrace.schemas.protobuf.column_types import spark_type
from headrace.schemas.protobuf.messages import descriptor_of, message_named
from tests.pipelines.typed.conftest import Topic
from tests.support.counting_proxy import CountingProxy

UTC = datetime.UTC
F = descriptor_pb2.FieldDescriptorProto
SCALARS = {
    "i32": F.TYPE_INT32, "i64": F.TYPE_INT64, "u32": F.TYPE_UINT32, "u64": F.TYPE_UINT64,
    "s32": F.TYPE_SINT32, "s64": F.TYPE_SINT64, "x32": F.TYPE_FIXED32, "x64": F.TYPE_FIXED64,
    "y32": F.TYPE_SFIXED32, "y64": F.TYPE_SFIXED64, "f": F.TYPE_FLOAT, "d": F.TYPE_DOUBLE,
    "b": F.TYPE_BOOL, "t": F.TYPE_STRING, "r": F.TYPE_BYTES,
}  # fmt: skip


def everything(package: str, versions: int = 0) -> type:
    """A message class with a field of every type, as protoc would have made it."""
    file = descriptor_pb2.FileDescriptorProto(
        name=f"{package}.proto", package=package, syntax="proto3",
        dependency=["google/protobuf/timestamp.proto", "google/protobuf/wrappers.proto"],
    )  # fmt: skip
    message = file.message_type.add(name="Thing")
    for number, (name, kind) in enumerate(SCALARS.items(), 1):
        message.field.add(name=name, number=number, type=kind, label=F.LABEL_OPTIONAL)
    enum = message.enum_type.add(name="Colour")
    enum.value.add(name="RED", number=0)
    enum.value.add(name="BLUE", number=1)
    inner = message.nested_type.add(name="Inner")
    inner.field.add(name="x", number=1, type=F.TYPE_INT32, label=F.LABEL_OPTIONAL)
    own = f".{package}.Thing"
    entry = message.nested_type.add(name="CountsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=F.TYPE_STRING, label=F.LABEL_OPTIONAL)
    entry.field.add(
        name="value", number=2, type=F.TYPE_MESSAGE, label=F.LABEL_OPTIONAL,
        type_name=f"{own}.Inner",
    )  # fmt: skip
    others = [
        ("colour", F.TYPE_ENUM, f"{own}.Colour", F.LABEL_OPTIONAL),
        ("inner", F.TYPE_MESSAGE, f"{own}.Inner", F.LABEL_OPTIONAL),
        ("many", F.TYPE_MESSAGE, f"{own}.Inner", F.LABEL_REPEATED),
        ("counts", F.TYPE_MESSAGE, f"{own}.CountsEntry", F.LABEL_REPEATED),
        ("at", F.TYPE_MESSAGE, ".google.protobuf.Timestamp", F.LABEL_OPTIONAL),
        ("wrapped", F.TYPE_MESSAGE, ".google.protobuf.Int64Value", F.LABEL_OPTIONAL),
        ("words", F.TYPE_STRING, None, F.LABEL_REPEATED),
    ]
    for number, (name, kind, type_name, label) in enumerate(others, 20):
        message.field.add(name=name, number=number, type=kind, label=label, type_name=type_name)
    message.oneof_decl.add(name="_maybe")
    message.field.add(
        name="maybe", number=40, type=F.TYPE_INT32, label=1, proto3_optional=True, oneof_index=0
    )
    for n in range(versions):
        message.field.add(name=f"n{n}", number=50 + n, type=F.TYPE_INT32, label=1)
    file.message_type.add(name="Other").field.add(name="o", number=1, type=F.TYPE_INT32, label=1)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    pool.AddSerializedFile(wrappers_pb2.DESCRIPTOR.serialized_pb)
    pool.AddSerializedFile(file.SerializeToString())
    made: type = message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.Thing"))
    return made


def filled(kind: type) -> Any:
    thing = kind(
        i32=-1, i64=-(1 << 63), u32=(1 << 32) - 1, u64=(1 << 64) - 1, s32=-5, s64=-6, x32=7, x64=8,
        y32=-9, y64=-10, f=0.5, d=1.5, b=True, t="ä", r=b"\xff", colour=1, words=["a", "b"],
        maybe=0,
    )  # fmt: skip
    thing.inner.x = 3
    thing.many.add(x=4)
    thing.many.add()
    thing.counts["k"].x = 5
    thing.at.FromDatetime(datetime.datetime(2024, 1, 2, 3, 4, 5, 678900))
    thing.wrapped.value = 12
    return thing


FILLED = {
    "i32": -1, "i64": -(1 << 63), "u32": (1 << 32) - 1, "u64": Decimal((1 << 64) - 1), "s32": -5,
    "s64": -6, "x32": 7, "x64": Decimal(8), "y32": -9, "y64": -10, "f": 0.5, "d": 1.5, "b": True,
    "t": "ä", "r": b"\xff", "colour": "BLUE", "inner": {"x": 3}, "many": [{"x": 4}, {"x": 0}],
    "counts": [("k", {"x": 5})], "at": datetime.datetime(2024, 1, 2, 3, 4, 5, 678900, UTC),
    "wrapped": 12, "words": ["a", "b"], "maybe": 0,
}  # fmt: skip
EMPTY: dict[str, Any] = {
    **dict.fromkeys(SCALARS, 0), "f": 0.0, "d": 0.0, "b": False, "t": "", "r": b"",
    "colour": "RED", "inner": None, "many": [], "counts": [], "at": None, "wrapped": None,
    "words": [], "maybe": None,
}  # fmt: skip


@pytest.fixture
def package(topic: Topic) -> str:
    return topic.name.replace("-", "_")


def test_a_message_is_a_struct_of_sparks_types(
    topic: Topic, client: SchemaRegistryClient, package: str
) -> None:
    kind = everything(package)
    serializer = ProtobufSerializer(kind, client)
    topic.produce(serializer(filled(kind), topic.context), serializer(kind(), topic.context), None)
    assert topic.values(value__format="protobuf") == [FILLED, EMPTY, None]


def test_protobuf_of_five_versions_is_read_as_the_newest(
    topic: Topic, client: SchemaRegistryClient, package: str, proxy: CountingProxy
) -> None:
    for count in range(5):
        kind = everything(package, count)
        thing = kind(t=f"v{count}", **{f"n{n}": n + 1 for n in range(count)})
        topic.produce(ProtobufSerializer(kind, client)(thing, topic.context))
    found = topic.values(value__format="protobuf")
    assert found == [
        {**EMPTY, "t": f"v{count}", **{f"n{n}": n + 1 if n < count else 0 for n in range(4)}}
        for count in range(5)
    ]
    assert len([each for each in proxy.requests if "/schemas/ids/" in each]) == 4


def test_bad_messages_are_put_aside(
    topic: Topic, client: SchemaRegistryClient, package: str
) -> None:
    kind = everything(package)
    good = ProtobufSerializer(kind, client)(filled(kind), topic.context)
    avro = client.register_schema(f"{topic.name}-avro", Schema('"string"', "AVRO"))
    bad = [
        good[:5] + b"\x02\x02" + good[6:],
        good[:5] + b"\x02\x08" + good[6:],
        good[:5] + b"\x01" + good[6:],
        good[:5],
        good[:-1],
        good[:6] + b"\xff" * 20,
        b"\x00" + avro.to_bytes(4, "big") + b"\x02a",
    ]
    topic.produce(good, *bad, good)
    found = topic.read(value__format="protobuf")
    assert found.column("value").to_pylist() == [FILLED, *[None] * len(bad), FILLED]
    reasons = found.column("_error").to_pylist()
    assert reasons[0] is reasons[-1] is None
    assert f"a message {package}.Other, not {package}.Thing" in reasons[1]
    assert "the schema has no message at [4]" in reasons[2]
    assert "-1 message indexes" in reasons[3]
    assert "too short for its message indexes" in reasons[4]
    assert all("not of its schema" in reason for reason in reasons[1:7])
    assert reasons[7] == f"value: schema {avro} is not of type PROTOBUF"
    assert [row and row["value"] for row in found.column("_raw").to_pylist()][1:-1] == bad


def test_another_message_of_the_file_may_be_read(
    topic: Topic, client: SchemaRegistryClient, package: str
) -> None:
    kind = everything(package)
    ProtobufSerializer(kind, client)(kind(), topic.context)
    schema = topic.source(value__format="protobuf", value__message="Inner").schema()
    assert schema["value"].dataType.simpleString() == "struct<x:int>"
    with pytest.raises(ClientError, match="no message Nobody; it has"):
        topic.source(value__format="protobuf", value__message="Nobody").schema()


def test_imports_between_protobuf_schemas_are_followed(
    topic: Topic, client: SchemaRegistryClient
) -> None:
    part = 'syntax = "proto3"; package p; message P { int32 a = 1; }'
    client.register_schema(f"{topic.name}-part", Schema(part, "PROTOBUF"))
    whole = 'syntax = "proto3"; import "p.proto"; message W { p.P p = 1; }'
    reference = SchemaReference("p.proto", f"{topic.name}-part", 1)
    number = client.register_schema(topic.subject, Schema(whole, "PROTOBUF", [reference]))
    topic.produce(b"\x00" + number.to_bytes(4, "big") + b"\x00" + b"\x0a\x02\x08\x07")
    assert topic.values(value__format="protobuf") == [{"p": {"a": 7}}]


def test_a_message_that_contains_itself_is_refused(
    topic: Topic, client: SchemaRegistryClient
) -> None:
    tree = 'syntax = "proto3"; message Tree { Tree left = 1; }'
    client.register_schema(topic.subject, Schema(tree, "PROTOBUF"))
    with pytest.raises(ClientError, match="Tree is recursive"):
        topic.source(value__format="protobuf").schema()


# --- Flat messages, for all records at once -------------------------------------------------------

FLAT = {name: kind for name, kind in SCALARS.items() if kind not in (F.TYPE_UINT64, F.TYPE_FIXED64)}
INTS = {"i32": 31, "s32": 31, "y32": 31, "i64": 63, "s64": 63, "y64": 63}
STRATEGIES: dict[str, Any] = {
    **{name: st.integers(-(1 << bits), (1 << bits) - 1) for name, bits in INTS.items()},
    "u32": st.integers(0, (1 << 32) - 1), "x32": st.integers(0, (1 << 32) - 1),
    "f": st.floats(width=32, allow_nan=False), "d": st.floats(allow_nan=False), "b": st.booleans(),
    "t": st.text(max_size=30), "r": st.binary(max_size=30), "e": st.sampled_from([0, 5]),
}  # fmt: skip


def flat_file(fields: Mapping[str, int], optional: frozenset[str]) -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="flat.proto", syntax="proto3")
    enum = file.enum_type.add(name="E")
    enum.value.add(name="NONE", number=0)
    enum.value.add(name="FIVE", number=5)
    message = file.message_type.add(name="Flat")
    for name, number in fields.items():
        field = message.field.add(name=name, number=number, label=F.LABEL_OPTIONAL)
        field.type = FLAT.get(name, F.TYPE_ENUM)
        if name == "e":
            field.type_name = ".E"
        if name in optional:
            field.proto3_optional, field.oneof_index = True, len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{name}")
    return file


def flat_class(file: Any) -> Any:
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("Flat"))


def registered(file: Any, schema_id: int) -> RegisteredSchema:
    text = base64.b64encode(file.SerializeToString()).decode()
    return RegisteredSchema("PROTOBUF", text, (), schema_id)


def values_of(pieces: list[bytes]) -> Values:
    lengths = np.array([len(piece) for piece in pieces], np.int64)
    octets = np.frombuffer(b"".join(pieces) + b"\xff", np.uint8)
    return Values(octets, np.cumsum(lengths) - lengths, lengths)


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_flat_messages_are_the_same_at_once_and_one_by_one(data: st.DataObject) -> None:
    names = data.draw(st.permutations(sorted(STRATEGIES)))
    numbers = data.draw(st.lists(st.integers(1, 3000), min_size=15, max_size=15, unique=True))
    everything = {name: number for name, number in zip(names, numbers, strict=False)
                  if not 19000 <= number <= 19999}  # fmt: skip
    optional = data.draw(st.frozensets(st.sampled_from(sorted(STRATEGIES))))
    known = data.draw(st.integers(1, len(everything)))
    writer = flat_file(everything, optional)
    reader = flat_file(dict(list(everything.items())[:known]), optional)
    kind = flat_class(writer)
    records = data.draw(
        st.lists(st.fixed_dictionaries({}, optional=STRATEGIES), min_size=1, max_size=8)
    )
    pieces = [b"\0" + kind(**record).SerializeToString() for record in records]
    form = ProtobufColumnReader(registered(reader, 1), None)
    at_once = form._decode_all(values_of(pieces), registered(writer, 2))
    assert at_once is not None, "a flat message is read with numpy"
    at_once.array.validate(full=True)
    singly = form._decode_singly(values_of(pieces), registered(writer, 2))
    assert singly.bad == {}
    assert at_once.array.to_pylist() == singly.array.to_pylist()
    if spoil := data.draw(st.binary(min_size=1, max_size=6)):
        pieces[0] = pieces[0][: data.draw(st.integers(1, len(pieces[0])))] + spoil
        found = form.decode(values_of(pieces), registered(writer, 2))
        expected = form._decode_singly(values_of(pieces), registered(writer, 2))
        assert found.bad == expected.bad
        assert repr(found.array.to_pylist()) == repr(expected.array.to_pylist())


def test_common_types_are_read_without_references() -> None:
    text = """syntax = "proto3"; import "google/type/date.proto"; import "confluent/meta.proto";
        import "confluent/type/decimal.proto";
        message M { google.type.Date day = 1;
                    confluent.type.Decimal price = 2 [(confluent.field_meta).doc = "d"]; }"""
    serialized = formats.parse("PROTOBUF", text).formatted("serialized")
    file = descriptor_of(RegisteredSchema("PROTOBUF", serialized))
    shown = spark_type(message_named(file, "M"))
    assert shown.simpleString() == (
        "struct<day:struct<year:int,month:int,day:int>,"
        "price:struct<value:binary,precision:bigint,scale:int>>"
    )
