"""Values with schemas: Avro, Protobuf and JSON Schema, with references and in contexts."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from headrace.testing.running import RunningBroker
from tests.console.test_records_api import create, page, produce, search
from tests.support.headrace_console import HeadraceConsole
from tests.support.headrace_registry import HeadraceRegistry

LONGEST = 2**63 - 1
MONEY = {
    "AVRO": json.dumps(
        {"type": "record", "name": "Money", "fields": [{"name": "cents", "type": "long"}]}
    ),
    "PROTOBUF": 'syntax = "proto3"; message Money { int64 cents = 1; }',
    "JSON": json.dumps({"type": "object", "properties": {"cents": {"type": "integer"}}}),
}
ORDER = {
    "AVRO": json.dumps(
        {"type": "record", "name": "Order", "fields": [{"name": "price", "type": "Money"}]}
    ),
    "PROTOBUF": 'syntax = "proto3"; import "money.proto"; message Order { Money price = 1; }',
    "JSON": json.dumps({"type": "object", "properties": {"price": {"$ref": "money.json"}}}),
}
REFERENCE = {"AVRO": "Money", "PROTOBUF": "money.proto", "JSON": "money.json"}
"""How a schema of this type names the other one."""


@pytest.fixture(scope="module")
def with_registry(
    headrace: RunningBroker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[HeadraceConsole, HeadraceRegistry]]:
    folder = tmp_path_factory.mktemp("decoding")
    bootstrap = headrace.bootstrap_servers
    with (
        HeadraceRegistry(bootstrap, folder, topic=f"{folder.name}-schemas") as registry,
        HeadraceConsole(bootstrap, folder, "--registry", registry.url) as console,
    ):
        yield console, registry


def register(console: HeadraceConsole, subject: str, **body: Any) -> int:
    answer = console.http.post(f"/schemas/{subject}", json=body)
    assert answer.status_code == 200, answer.text
    return int(answer.json()["id"])


def value(console: HeadraceConsole, topic: str) -> dict[str, Any]:
    (record,) = page(console, topic)["records"]
    found: dict[str, Any] = record["value"]
    return found


@pytest.mark.parametrize("kind", list(ORDER))
def test_a_value_whose_schema_refers_to_another_is_written_and_read(
    with_registry: tuple[HeadraceConsole, HeadraceRegistry], topic: str, kind: str
) -> None:
    console, _ = with_registry
    register(console, f"{topic}-money", schema=MONEY[kind], type=kind)
    reference = {"name": REFERENCE[kind], "subject": f"{topic}-money", "version": 1}
    number = register(
        console, f"{topic}-value", schema=ORDER[kind], type=kind, references=[reference]
    )
    create(console, topic)
    cents: object = str(LONGEST) if kind == "PROTOBUF" else LONGEST
    written = {"format": "schema", "text": json.dumps({"price": {"cents": cents}})}
    answer = console.http.post(f"/topics/{topic}/records", json={"value": written})
    assert answer.status_code == 200, answer.text
    found = value(console, topic)
    assert (found["format"], found["schema_id"]) == ("schema", number)
    assert str(LONGEST) in found["text"]
    assert int(json.loads(found["text"])["price"]["cents"]) == LONGEST
    assert len(search(console, topic, q=str(LONGEST))[0]) == 1


def test_a_value_that_its_schema_refuses_is_not_written(
    with_registry: tuple[HeadraceConsole, HeadraceRegistry], topic: str
) -> None:
    console, _ = with_registry
    register(console, f"{topic}-value", schema=MONEY["AVRO"], type="AVRO")
    create(console, topic)
    for text in ('{"cents": "many"}', "{}", "{"):
        written = {"format": "schema", "text": text}
        answer = console.http.post(f"/topics/{topic}/records", json={"value": written})
        assert answer.status_code == 400, answer.text
    assert page(console, topic)["records"] == []


def test_a_schema_of_a_context_is_shown_and_its_values_say_why_they_are_bytes(
    with_registry: tuple[HeadraceConsole, HeadraceRegistry], topic: str
) -> None:
    """An id counts within its context, and a record does not tell in which one it was written."""
    console, _ = with_registry
    subject = f":.shop:{topic}-value"
    # Far more ids than the default context has.
    numbers = [
        register(console, f":.shop:{topic}-{n}", schema=json.dumps(f"{kind}"), type="AVRO")
        for n, kind in enumerate(("int", "long", "string", "bytes", "double", "float", "boolean"))
    ]
    number = max(numbers) + 1
    assert register(console, subject, schema=MONEY["AVRO"], type="AVRO") == number
    shown = console.http.get(f"/schemas/{subject}").json()
    assert [each["version"] for each in shown["versions"]] == [1]
    create(console, topic)
    produce(console, topic, [{"value": b"\0" + (10_000).to_bytes(4, "big") + b"\2"}])
    found = value(console, topic)
    assert (found["format"], found["schema_id"]) == ("hex", 10_000)
    assert "10000" in found["problem"]


def test_an_equal_protobuf_schema_in_another_layout_is_the_same_version(
    with_registry: tuple[HeadraceConsole, HeadraceRegistry], topic: str
) -> None:
    console, _ = with_registry
    first = register(console, f"{topic}-value", schema=MONEY["PROTOBUF"], type="PROTOBUF")
    spread = MONEY["PROTOBUF"].replace("; ", ";\n\n").replace("{", "{\n")
    assert register(console, f"{topic}-value", schema=spread, type="PROTOBUF") == first
    assert len(console.http.get(f"/schemas/{topic}-value").json()["versions"]) == 1
