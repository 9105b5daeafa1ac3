"""Writes records: text, JSON, bytes, or JSON that a schema of the registry encodes."""

import asyncio
import base64
import binascii
import time
from collections.abc import Mapping

from headrace.admin.record_text import BadLine
from headrace.admin.typed_values import ValueEncoder
from headrace.bounded_json import BadJson, parse_json
from headrace.client.cluster import Cluster
from headrace.client.errors import ClientError
from headrace.client.partitioner import partition_of
from headrace.client.producing import produce
from headrace.console.console_request import ConsoleRequest, whole_number
from headrace.service.errors import HttpError
from headrace.types import TopicPartition
from headrace.wire.records import Record, encode_batch

MOST_HEADERS = 1000


async def produce_record(request: ConsoleRequest) -> object:
    """Writes one record; returns where it is.

    `key` and `value` are null or objects: `format` is text, json, hex, base64 or schema, with
    `text`, and with `subject` and `version` for a schema.
    """
    body, topic = request.fields(), request.path["topic"]
    key = await _encoded(request, "key", body.get("key"))
    value = await _encoded(request, "value", body.get("value"))
    partition = body.get("partition")
    timestamp = body.get("timestamp")
    record = Record(
        0,
        time.time_ns() // 1_000_000 if timestamp is None else whole_number("timestamp", timestamp),
        key,
        value,
        _headers(body.get("headers", [])),
    )
    chosen = None if partition is None else whole_number("partition", partition, 0, 2**31 - 1)
    place, offset = await request.console.cluster.run(_produce, topic, chosen, record)
    return {"partition": place.partition, "offset": str(offset)}


def _produce(
    cluster: Cluster, topic: str, partition: int | None, record: Record
) -> tuple[TopicPartition, int]:
    count = len(cluster.existing_topics([topic])[topic].leaders)
    if partition is None:
        partition = partition_of(record.key, count)
    elif partition >= count:
        raise HttpError(400, f"Topic {topic} has the partitions 0 to {count - 1}")
    place = TopicPartition(topic, partition)
    return place, produce(cluster, {place: encode_batch([record])})[place]


async def _encoded(request: ConsoleRequest, name: str, field: object) -> bytes | None:
    if field is None:
        return None
    if not isinstance(field, Mapping) or not isinstance(field.get("text"), str):
        raise HttpError(400, f"The field {name} must be null or have a text")
    text: str = field["text"]
    kind = field.get("format", "text")
    try:
        if kind == "text":
            return text.encode()
        if kind == "json":
            parse_json(text)
            return text.encode()
        if kind == "hex":
            return bytes.fromhex(text)
        if kind == "base64":
            return base64.b64decode(text, validate=True)
        if kind == "schema":
            return await asyncio.to_thread(_typed, request, name, field, text)
    except UnicodeEncodeError:
        raise HttpError(400, f"The {name} is not a valid text") from None
    except (BadJson, BadLine) as error:
        raise HttpError(400, f"The {name} is not valid: {error}") from None
    except (ValueError, binascii.Error) as error:
        raise HttpError(400, f"The {name} is not {kind}: {error}") from None
    raise HttpError(400, f"The format of {name} must be text, json, hex, base64 or schema")


def _typed(request: ConsoleRequest, name: str, field: Mapping[str, object], text: str) -> bytes:
    registry = request.console.registry
    if registry is None:
        raise HttpError(501, "the console was started without --registry")
    subject = str(field.get("subject") or f"{request.path['topic']}-{name}")
    try:
        schema = registry.by_version(subject, str(field.get("version") or "latest"))
    except ClientError as error:
        raise HttpError(422, str(error)) from None
    encoded = ValueEncoder(schema).encode(text.encode())
    assert encoded is not None
    return encoded


def _headers(given: object) -> tuple[tuple[str, bytes | None], ...]:
    if not isinstance(given, list) or len(given) > MOST_HEADERS:
        raise HttpError(400, f"The field headers must be a list of at most {MOST_HEADERS}")
    found: list[tuple[str, bytes | None]] = []
    for each in given:
        if not isinstance(each, dict) or not isinstance(each.get("name"), str):
            raise HttpError(400, "A header has the fields name and value")
        found.append((each["name"], _header_value(each.get("value"))))
    return tuple(found)


def _header_value(value: object) -> bytes | None:
    """A text, null, or an object with `format` (text, json or hex) and `text`."""
    if value is None:
        return None
    kind, text = (
        (value.get("format"), value.get("text")) if isinstance(value, dict) else ("", value)
    )
    if not isinstance(text, str):
        raise HttpError(400, "The value of a header must be null, a text or an object with a text")
    try:
        return bytes.fromhex(text) if kind == "hex" else text.encode()
    except ValueError as error:
        raise HttpError(400, f"The value of a header is not valid: {error}") from None
