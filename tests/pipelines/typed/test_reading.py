"""Topics that confluent-kafka's serializers wrote, as columns; and what happens to bad records."""

import datetime
import json
import struct
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from confluent_kafka.schema_registry import (
    ConfigCompatibilityLevel,
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    ServerConfig,
)
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer

from headrace.client.errors import ClientError
from headrace.pipelines.source.options import SourceOptionError
from headrace.schemas.columns.cursors import Reasons, Values
from headrace.schemas.interface import RegisteredSchema
from headrace.schemas.json_schema.column_reader import JsonColumnReader
from tests.pipelines.typed.conftest import Topic
from tests.support.counting_proxy import CountingProxy

UTC = datetime.UTC
PRICE = {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}
FLAT: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "customer", "type": "string"},
        {"name": "price", "type": PRICE},
        {"name": "paid", "type": "boolean"},
        {"name": "weight", "type": ["null", "double"], "default": None},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "SENT"]}},
    ],
}  # fmt: skip
ORDER = {
    "id": 7,
    "customer": "Ärger & Söhne",
    "price": Decimal("12.34"),
    "paid": True,
    "weight": None,
    "at": datetime.datetime(2024, 5, 6, 7, 8, 9, 123000, UTC),
    "day": datetime.date(2024, 5, 6),
    "state": "SENT",
}


def avro_versions(count: int) -> list[dict[str, Any]]:
    """Each adds a field, and the last ones also widen one and rename one."""
    made = []
    for version in range(count):
        fields: list[dict[str, Any]] = [
            {"name": "id", "type": "int" if version < 2 else "long"},
            {"name": "name" if version < 3 else "label", "type": "string", "aliases": ["name"]},
        ]
        fields += [{"name": f"f{n}", "type": "int", "default": -n} for n in range(version)]
        made.append({"type": "record", "name": "Thing", "fields": fields})
    return made


def test_a_flat_avro_record_is_a_struct_of_sparks_types(
    topic: Topic, client: SchemaRegistryClient
) -> None:
    serializer = AvroSerializer(client, json.dumps(FLAT))
    other = ORDER | {"id": -(1 << 63), "weight": 0.5, "price": Decimal("-1.00"), "state": "NEW"}
    topic.produce(serializer(ORDER, topic.context), serializer(other, topic.context))
    assert topic.values(value__format="avro") == [ORDER, other]


def test_a_tombstone_is_null_and_no_error(topic: Topic, client: SchemaRegistryClient) -> None:
    serializer = AvroSerializer(client, json.dumps(FLAT))
    topic.produce(None, serializer(ORDER, topic.context), None)
    assert topic.values(value__format="avro") == [None, ORDER, None]


def test_nested_avro_is_of_sparks_types(topic: Topic, client: SchemaRegistryClient) -> None:
    schema = {
        "type": "record",
        "name": "Nested",
        "fields": [
            {"name": "order", "type": FLAT},
            {"name": "more", "type": {"type": "array", "items": ["null", "shop.Order"]}},
            {"name": "tags", "type": {"type": "map", "values": "long"}},
            {"name": "either", "type": ["null", "string", "long", "shop.State"]},
        ],
    }
    serializer = AvroSerializer(client, json.dumps(schema))
    things: list[Any] = [
        {"order": ORDER, "more": [None, ORDER], "tags": {"a": 1}, "either": "x"},
        {"order": ORDER, "more": [], "tags": {}, "either": 5},
        {"order": ORDER, "more": [], "tags": {}, "either": None},
    ]
    topic.produce(*(serializer(thing, topic.context) for thing in things))
    found = topic.values(value__format="avro")
    members = [
        {"member0": "x", "member1": None, "member2": None},
        {"member0": None, "member1": 5, "member2": None},
        None,
    ]
    assert found == [
        {**thing, "tags": list(thing["tags"].items()), "either": member}
        for thing, member in zip(things, members, strict=True)
    ]


def test_five_versions_in_one_batch_are_read_as_the_newest_with_one_request_each(
    topic: Topic, client: SchemaRegistryClient, proxy: CountingProxy
) -> None:
    things: list[bytes] = []
    for version, schema in enumerate(avro_versions(5)):
        name = "name" if version < 3 else "label"
        thing = {"id": version, name: f"v{version}", **{f"f{n}": n + 10 for n in range(version)}}
        things.append(AvroSerializer(client, json.dumps(schema))(thing, topic.context))
    topic.produce(*(things * 20))
    found = topic.values(value__format="avro")
    expected = [
        {
            "id": version,
            "label": f"v{version}",
            **{f"f{n}": n + 10 if n < version else -n for n in range(4)},
        }
        for version in range(5)
    ]
    assert found == expected * 20
    # The newest is asked for as the reader's schema, and not once more by its id.
    assert sorted(proxy.requests) == [
        *sorted(f"GET /schemas/ids/{struct.unpack('>xI', each[:5])[0]}" for each in things[:4]),
        f"GET /subjects/{topic.subject}/versions/latest",
    ]


def test_the_readers_version_may_be_an_old_one(topic: Topic, client: SchemaRegistryClient) -> None:
    versions = avro_versions(2)
    for version, schema in enumerate(versions):
        thing = {"id": 1, "name": "a"} | ({"f0": 5} if version else {})
        topic.produce(AvroSerializer(client, json.dumps(schema))(thing, topic.context))
    expected = [{"id": 1, "name": "a"}] * 2
    assert topic.values(value__format="avro", value__subject__version="1") == expected


def test_a_schema_is_not_asked_for_again_in_the_next_epoch(
    topic: Topic, client: SchemaRegistryClient, proxy: CountingProxy
) -> None:
    old, new = avro_versions(2)
    topic.produce(AvroSerializer(client, json.dumps(old))({"id": 1, "name": "a"}, topic.context))
    AvroSerializer(client, json.dumps(new))({"id": 1, "name": "a", "f0": 0}, topic.context)
    source = topic.source(value__format="avro")
    reader = source.reader(source.schema())
    for _ in range(3):
        for partition in reader.partitions():
            assert sum(batch.num_rows for batch in reader.read(partition)) == 1
    assert len([each for each in proxy.requests if "/schemas/ids/" in each]) == 1


def test_a_version_that_is_newer_than_the_query_is_read_as_the_older_one(
    topic: Topic, client: SchemaRegistryClient
) -> None:
    old, new = avro_versions(2)
    write_old = AvroSerializer(client, json.dumps(old))
    topic.produce(write_old({"id": 1, "name": "a"}, topic.context))
    source = topic.source(value__format="avro")
    schema = source.schema()
    reader = source.reader(schema)
    write_new = AvroSerializer(client, json.dumps(new))
    topic.produce(write_new({"id": 2, "name": "b", "f0": 3}, topic.context))
    (partition,) = reader.partitions()
    found = [row for batch in reader.read(partition) for row in batch.column("value").to_pylist()]
    assert found == [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]


def test_bad_records_are_put_aside_with_their_reason_and_bytes(
    topic: Topic, client: SchemaRegistryClient, proxy: CountingProxy
) -> None:
    serializer = AvroSerializer(client, json.dumps(FLAT))
    good = serializer(ORDER, topic.context)
    wrong = client.register_schema(f"{topic.name}-json", Schema('{"type":"object"}', "JSON"))
    other = client.register_schema(f"{topic.name}-other", Schema('"string"', "AVRO"))
    bad = [
        b"",
        b"\x00\x00",
        b'{"id": 7}',
        b"\x00" + struct.pack(">I", 99_999_999) + good[5:],
        b"\x00" + struct.pack(">I", wrong) + b"{}",
        b"\x00" + struct.pack(">I", other) + b"\x02a",
        good[:-1],
        good + b"\x00",
        good[:5] + good[5:].replace("Ä".encode(), b"\xff\xff"),
    ]
    topic.produce(good, *bad, good, *bad, key=b"k")
    found = topic.read(value__format="avro")
    reasons = found.column("_error").to_pylist()
    assert reasons[0] is None
    assert reasons[len(bad) + 1] is None
    assert reasons[1 : len(bad) + 1] == reasons[len(bad) + 2 :]
    assert [reason.removesuffix(f" (schema {struct.unpack('>xI', good[:5])[0]})")
            for reason in reasons[1 : len(bad) + 1]] == [
        "value: 0 bytes are too few for a schema id",
        "value: 2 bytes are too few for a schema id",
        "value: begins with 0x7b, not with 0x00 and a schema id",
        "value: the registry has no schema with id 99999999",
        f"value: schema {wrong} is of type JSON, not AVRO",
        f"value: the value: string cannot be read as shop.Order (schema {other})",
        "value: field 'state' reaches past the end of the value",
        "value: the value has bytes behind its last field",
        "value: field 'customer' is not UTF-8",
    ]  # fmt: skip
    values = found.column("value").to_pylist()
    assert [row for row, value in enumerate(values) if value] == [0, len(bad) + 1]
    raw = found.column("_raw").to_pylist()
    assert raw[0] is None
    assert raw[1 : len(bad) + 1] == [{"key": b"k", "value": each} for each in bad]
    asked = [each for each in proxy.requests if "/schemas/ids/" in each]
    assert len(asked) == len(set(asked)) == 3


def test_a_schema_that_the_reader_cannot_read_puts_its_records_aside(
    topic: Topic, client: SchemaRegistryClient
) -> None:
    nothing_is_checked = ServerConfig(compatibility=ConfigCompatibilityLevel.NONE)
    client.set_config(topic.subject, config=nothing_is_checked)
    strange = {**FLAT, "fields": [{"name": "id", "type": "string"}, *FLAT["fields"][1:]]}
    topic.produce(
        AvroSerializer(client, json.dumps(strange))(ORDER | {"id": "7"}, topic.context),
        AvroSerializer(client, json.dumps(FLAT))(ORDER, topic.context),
    )
    found = topic.read(value__format="avro")
    assert found.column("value").to_pylist() == [None, ORDER]
    assert "field 'id': string cannot be read as long" in found.column("_error")[0].as_py()


def test_keys_are_typed_as_values_are(topic: Topic, client: SchemaRegistryClient) -> None:
    key = AvroSerializer(client, '"string"')("ann", topic.key_context)
    topic.produce(AvroSerializer(client, json.dumps(FLAT))(ORDER, topic.context), key=key)
    topic.produce(b"oops", key=b"no")
    found = topic.read(key__format="avro", value__format="avro", columns="value,key,_error,_raw")
    assert found.column("key").to_pylist() == ["ann", None]
    assert found.column("value").to_pylist() == [ORDER, None]
    assert found.column("_error").to_pylist()[1] == (
        "key: 2 bytes are too few for a schema id; value: 4 bytes are too few for a schema id"
    )
    assert found.column("_raw").to_pylist()[1] == {"key": b"no", "value": b"oops"}


def test_references_between_avro_schemas_are_followed(
    topic: Topic, client: SchemaRegistryClient
) -> None:
    client.register_schema(f"{topic.name}-part", Schema(json.dumps(FLAT), "AVRO"))
    text = '{"type":"record","name":"Box","fields":[{"name":"order","type":"shop.Order"}]}'
    reference = SchemaReference("shop.Order", f"{topic.name}-part", 1)
    serializer = AvroSerializer(client, Schema(text, "AVRO", [reference]))
    topic.produce(serializer({"order": ORDER}, topic.context))
    assert topic.values(value__format="avro") == [{"order": ORDER}]


def json_schema(fields: int) -> str:
    properties = {f"f{n}": {"type": "integer"} for n in range(fields)}
    return json.dumps(
        {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "title": "Thing",
            "type": "object",
            "properties": {
                "name": {"type": "string"},
                "size": {"oneOf": [{"type": "null"}, {"type": "number"}]},
                "tags": {"type": "array", "items": {"$ref": "#/definitions/tag"}},
                **properties,
            },
            "definitions": {"tag": {"type": "object", "properties": {"t": {"type": "string"}}}},
            "required": ["name"],
            "additionalProperties": False,
        }
    )


def test_json_of_five_versions_is_read_as_the_newest(
    topic: Topic, client: SchemaRegistryClient, proxy: CountingProxy
) -> None:
    expected, written = [], []
    for count in range(5):
        thing = {"name": f"v{count}", "size": count / 2, "tags": [{"t": "x"}]}
        thing |= {f"f{n}": n for n in range(count)}
        written.append(JSONSerializer(json_schema(count), client)(thing, topic.context))
        expected.append(thing | {f"f{n}": None for n in range(count, 4)})
    bare = JSONSerializer(json_schema(4), client)({"name": "bare", "size": None}, topic.context)
    topic.produce(*written, bare, None)
    nothing = dict.fromkeys(("size", "tags", "f0", "f1", "f2", "f3"))
    found = topic.values(value__format="json")
    assert found == [*expected, {"name": "bare", **nothing}, None]
    assert len([each for each in proxy.requests if "/schemas/ids/" in each]) == 4


def test_bad_json_is_put_aside_and_odd_json_is_not(
    topic: Topic, client: SchemaRegistryClient
) -> None:
    good = JSONSerializer(json_schema(1), client)({"name": "a"}, topic.context)
    documents = [
        b'{"name": "b",\n "f0": 2.0, "unknown": {"x": 1}}',
        b'{"name": "c", "name": "d"}',
        b'{"name": 5}',
        b'{"f0": 1.5}',
        b'{"f0": 9223372036854775808}',
        b'{"name": "e"}{"name": "f"}',
        b"",
        b"[1]",
        b'{"size": NaN}',
        b'{"name": "\xff"}',
        b'{"tags": [{"t": 1}]}',
    ]
    topic.produce(good, *(good[:5] + each for each in documents))
    found = topic.read(value__format="json")
    names = [value and (value["name"], value["f0"]) for value in found.column("value").to_pylist()]
    assert names == [("a", None), ("b", 2), ("d", None), *[None] * 9]
    reasons = [each and each.split(" (")[0] for each in found.column("_error").to_pylist()]
    assert reasons[:3] == [None] * 3
    assert reasons[3] == "value: field 'name' is not of type string"
    assert reasons[4] == reasons[5] == "value: field 'f0' is not of type integer"
    assert all(reason.startswith("value: not JSON: ") for reason in reasons[6:8])
    assert reasons[8] == "value: the value is not of type object"
    assert all(reason.startswith("value: not JSON: ") for reason in reasons[9:11])
    assert reasons[11] == "value: field 'tags[].t' is not of type string"


def test_odd_documents_stay_at_their_rows_among_many() -> None:
    reader = RegisteredSchema("JSON", json_schema(1), (), 1)
    pieces = [b'{"f0": %d}' % number for number in range(5000)]
    pieces[7], pieces[4242], pieces[4999] = b"nonsense", b'{"f0":\n 4242.0}', b'{"f0": "x"}'
    lengths = np.array([len(each) for each in pieces], np.int64)
    octets = np.frombuffer(b"".join(pieces), np.uint8)
    values = Values(octets, np.cumsum(lengths) - lengths, lengths)
    found = JsonColumnReader(reader).decode(values, reader)
    assert sorted(found.bad) == [7, 4999]
    numbers = [each and each["f0"] for each in found.array.to_pylist()]
    assert numbers == [None if row in found.bad else row for row in range(5000)]


def test_any_number_of_reasons_has_room() -> None:
    reader = RegisteredSchema("JSON", json_schema(1), (), 1)
    pieces = [b" " * (number % 300) + b"%d nonsense" % number for number in range(40_000)]
    lengths = np.array([len(each) for each in pieces], np.int64)
    octets = np.frombuffer(b"".join(pieces), np.uint8)
    values = Values(octets, np.cumsum(lengths) - lengths, lengths)
    found = JsonColumnReader(reader).decode(values, reader)
    assert found.array.null_count == len(found.bad) == len(pieces)
    many = Reasons(100_000)
    for row in range(100_000):
        many.add(np.array([row]), f"reason {row}")
    assert many.found()[99_999] == "reason 99999"


def test_what_a_json_schema_leaves_open_is_text(topic: Topic, client: SchemaRegistryClient) -> None:
    schema = {
        "type": "object",
        "properties": {
            "any": {},
            "either": {"type": ["string", "integer"]},
            "counts": {"type": "object", "additionalProperties": {"type": "integer"}},
            "small": {"type": "integer", "connect.type": "int16"},
            "word": {"enum": ["a", "b"]},
        },
    }
    serializer = JSONSerializer(json.dumps(schema), client)
    thing = {"any": {"x": [1]}, "either": 5, "counts": {"a": 1}, "small": 3, "word": "a"}
    topic.produce(serializer(thing, topic.context), serializer({}, topic.context))
    found = topic.values(value__format="json")
    expected = {"any": '{"x":[1]}', "either": "5", "counts": [("a", 1)], "small": 3, "word": "a"}
    assert found == [expected, dict.fromkeys(expected)]


def test_a_registry_that_stumbles_is_asked_again(
    topic: Topic, client: SchemaRegistryClient, proxy: CountingProxy
) -> None:
    topic.produce(AvroSerializer(client, json.dumps(FLAT))(ORDER, topic.context))
    proxy.failures_left = 2
    assert topic.values(value__format="avro") == [ORDER]


def test_the_next_address_is_tried_if_one_does_not_respond(
    topic: Topic, client: SchemaRegistryClient, proxy: CountingProxy
) -> None:
    topic.produce(AvroSerializer(client, json.dumps(FLAT))(ORDER, topic.context))
    addresses = {"schema__registry__url": f"http://127.0.0.1:9, {proxy.url}"}
    assert topic.values(value__format="avro", **addresses) == [ORDER]


def test_a_registry_that_is_down_fails_the_task_and_blames_no_record(
    topic: Topic, client: SchemaRegistryClient, proxy: CountingProxy
) -> None:
    old, new = (AvroSerializer(client, json.dumps(each)) for each in avro_versions(2))
    topic.produce(old({"id": 1, "name": "a"}, topic.context))
    new({"id": 1, "name": "a", "f0": 0}, topic.context)
    source = topic.source(value__format="avro")
    reader = source.reader(source.schema())
    (partition,) = reader.partitions()
    proxy.failures_left = 1000
    with pytest.raises(ClientError, match=f"the schema registry at {proxy.url} returned 503"):
        list(reader.read(partition))
    proxy.failures_left = 0
    assert [batch.num_rows for batch in reader.read(partition)] == [1]


def test_a_login_goes_with_every_request(
    topic: Topic, client: SchemaRegistryClient, proxy: CountingProxy
) -> None:
    topic.produce(AvroSerializer(client, json.dumps(FLAT))(ORDER, topic.context))
    login = {"schema__registry__basic__auth__user__info": "ann:secret"}
    assert topic.values(value__format="avro", **login) == [ORDER]
    assert set(proxy.logins) == {"Basic YW5uOnNlY3JldA=="}


def test_what_cannot_be_typed_is_refused_when_the_query_starts(
    topic: Topic, client: SchemaRegistryClient
) -> None:
    with pytest.raises(ClientError, match=f"no subject '{topic.subject}', version latest"):
        topic.source(value__format="avro").schema()
    client.register_schema(topic.subject, Schema('{"type":"object"}', "JSON"))
    for form in ("avro", "protobuf"):
        with pytest.raises(ClientError, match=f"value.format={form}, but subject"):
            topic.source(value__format=form).schema()
    recursive = {
        "type": "record",
        "name": "Tree",
        "fields": [{"name": "left", "type": ["null", "Tree"]}],
    }
    client.register_schema(f"{topic.name}-tree", Schema(json.dumps(recursive), "AVRO"))
    with pytest.raises(ClientError, match="'left' is Tree, a recursive type"):
        topic.source(value__format="avro", value__subject=f"{topic.name}-tree").schema()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"value.format": "xml"}, "value.format=xml: expected one of avro, json, protobuf"),
        ({"value.format": "avro", "schema.registry.url": ""}, "a format needs schema.registry.url"),
        ({"value.format": "avro", "schema.registry.url": "here"}, "is not a URL"),
        ({"value.format": "avro", "subscribe": "a,b"}, "several topics needs value.subject"),
        ({"value.format": "avro", "value.subject.version": "0"}, "expected latest or a version"),
        ({"value.format": "avro", "value.message": "M"}, "is for value.format=protobuf"),
        ({"key.subject": "s", "value.format": "avro"}, "key.subject needs key.format"),
        ({"value.fromat": "avro"}, "did you mean value.format?"),
        ({"columns": "_error"}, "columns: unknown column _error"),
    ],
)
def test_options_that_make_no_sense_say_so(given: dict[str, str], said: str) -> None:
    from headrace.pipelines.source.options import parse_options

    usual = {
        "kafka.bootstrap.servers": "a:1",
        "subscribe": "t",
        "schema.registry.url": "http://localhost:8081",
    }
    if "columns" in given:
        del usual["schema.registry.url"]
    with pytest.raises(SourceOptionError, match=said.replace("?", r"\?")):
        parse_options(usual | given, streaming=False)
