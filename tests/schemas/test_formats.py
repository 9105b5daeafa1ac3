"""The table of formats: what every format does, and that none is imported before it is needed."""

import json
import subprocess
import sys

import pytest

from headrace.schemas.errors import BadValue, InvalidSchema
from headrace.schemas.formats import FORMATS, format_named
from headrace.schemas.framing import HEADER, header, schema_id_of
from headrace.schemas.interface import RegisteredSchema, SchemaDependency

ADDRESS_AVRO = '{"type": "record", "name": "a.Address", "fields": [{"name": "zip", "type": "int"}]}'
TEXTS = {
    "AVRO": (
        json.dumps(
            {
                "type": "record",
                "name": "User",
                "fields": [{"name": "name", "type": "string"}, {"name": "at", "type": "a.Address"}],
            }
        ),
        SchemaDependency("a.Address", ADDRESS_AVRO),
    ),
    "JSON": (
        json.dumps(
            {
                "type": "object",
                "properties": {"name": {"type": "string"}, "at": {"$ref": "address.json"}},
            }
        ),
        SchemaDependency(
            "address.json",
            json.dumps({"type": "object", "properties": {"zip": {"type": "integer"}}}),
        ),
    ),
    "PROTOBUF": (
        """syntax = "proto3"; import "address.proto";
        message User { string name = 1; Address at = 2; }""",
        SchemaDependency("address.proto", 'syntax = "proto3"; message Address { int32 zip = 1; }'),
    ),
}


def registered(kind: str) -> RegisteredSchema:
    """The schema in the form in which a registry gives it to those who read values."""
    found = FORMATS[kind]
    text, needs = TEXTS[kind]
    if found.readable_form:
        part = found.parse(needs.text, ()).formatted(found.readable_form)
        text = found.parse(text, [needs]).formatted(found.readable_form)
        needs = SchemaDependency(needs.name, part)
    return RegisteredSchema(kind, text, (needs,), 1)


@pytest.mark.parametrize("kind", TEXTS)
def test_values_are_encoded_and_decoded_with_a_schema_and_its_references(kind: str) -> None:
    codec = FORMATS[kind].values(registered(kind))
    value = {"name": "ann", "at": {"zip": 7}}
    assert codec.decode(codec.encode(value)) == value


@pytest.mark.parametrize("kind", TEXTS)
def test_a_value_that_does_not_match_is_refused_with_its_field(kind: str) -> None:
    codec = FORMATS[kind].values(registered(kind))
    with pytest.raises(BadValue, match="zip"):
        codec.encode({"name": "ann", "at": {"zip": "x"}})


@pytest.mark.parametrize("kind", TEXTS)
def test_a_text_that_is_not_a_schema_has_no_values(kind: str) -> None:
    with pytest.raises(InvalidSchema):
        FORMATS[kind].values(RegisteredSchema(kind, '"nonsense', (), 1))


def test_every_format_is_in_the_table() -> None:
    assert set(FORMATS) == set(TEXTS)
    with pytest.raises(InvalidSchema, match="known are AVRO, JSON, PROTOBUF"):
        format_named("XML")


def test_a_value_begins_with_its_schema_id() -> None:
    assert header(0x01020304) == b"\0\1\2\3\4"
    assert schema_id_of(header(7) + b"x") == 7
    assert schema_id_of(b"\0\0\0") is None
    assert schema_id_of(b"\1" + bytes(HEADER.size)) is None


@pytest.mark.parametrize(
    ("module", "libraries"),
    [
        ("headrace.schemas.client", "avro fastavro jsonschema google.protobuf pyarrow pyspark"),
        ("headrace.registry.http_service", "avro fastavro jsonschema pyarrow pyspark numpy"),
        ("headrace.cli.schemas.schemas", "avro fastavro jsonschema pyarrow confluent_kafka"),
        ("headrace.schemas.avro.parsing", "fastavro pyarrow pyspark numpy"),
        ("headrace.schemas.json_schema.values", "pyarrow pyspark numpy"),
        ("headrace.schemas.protobuf.parsing", "pyarrow pyspark numpy"),
    ],
)
def test_libraries_are_imported_when_they_are_needed(module: str, libraries: str) -> None:
    code = f"import sys, {module}; print(*(sys.modules.keys() & {set(libraries.split())}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
