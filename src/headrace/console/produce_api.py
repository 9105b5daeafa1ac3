"""Writes records: text, JSON, bytes, or JSON that a schema of the registry encodes."""

import asyncio
import base64
import binascii
import time
from collections.abc import Mapping
from typing import Literal

from headrace.admin.record_text import BadLine
from headrace.admin.typed_values import ValueEncoder
from headrace.bounded_json import BadJson, parse_json
from headrace.client.cluster import Cluster
from headrace.client.errors import ClientError
from headrace.client.partitioner import partition_of
from headrace.client.producing import produce
from headrace.console.console_request import ConsoleRequest, whole_number
from headrace.console.masks import MASKED_BYTES
from headrace.console.records_api import one_record
from headrace.service.errors import HttpError
from headrace.types import TopicPartition
from headrace.wire.records import Record, encode_batch

MOST_HEADERS = 1000


async def produce_record(request: ConsoleRequest) -> object:
    """Writes one record; returns where it is.

    `key` and `value` are null or objects: `format` is text, json, hex, base64 or schema, with
    `text`, and with `subject` and `version` for a schema. With `like`, the partition and offset of
    another record of the topic, the format `same` copies the bytes of that record, and headers
    that are left out are copied too.
    """
    body, topic = request.fields(), request.path["topic"]
    like = await _like(request, body.get("like"))
    key = await _part(request, "key", body.get("key"), like)
    value = await _part(request, "value", body.get("value"), like)
    partition = body.get("partition")
    timestamp = body.get("timestamp")
    record = Record(
        0,
        time.time_ns() // 1_000_000 if timestamp is None else whole_number("timestamp", timestamp),
        key,
        value,
        like.headers
        if like is not None and "headers" not in body
        else _headers(body.get("headers", [])),
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


async def _like(request: ConsoleRequest, given: object) -> Record | None:
    """The record of which the new one is a copy."""
    if given is None:
        return None
    if not isinstance(given, Mapping):
        raise HttpError(400, "The field like must have a partition and an offset")
    partition = whole_number("partition", given.get("partition"), 0, 2**31 - 1)
    place = TopicPartition(request.path["topic"], partition)
    offset = whole_number("offset", given.get("offset"))
    return (await request.console.cluster.run(one_record, place, offset))[0]


async def _part(
    request: ConsoleRequest, name: Literal["key", "value"], field: object, like: Record | None
) -> bytes | None:
    """The bytes of a key or value; those of `like` stay as they are, fields that are masked too."""
    is_same = isinstance(field, Mapping) and field.get("format") == "same"
    if like is None:
        if is_same:
            raise HttpError(400, f"The format same of the {name} needs the field like")
        return await _encoded(request, name, field)
    original: bytes | None = getattr(like, name)
    if is_same:
        return original
    encoded = await _encoded(request, name, field)
    if encoded is not None and MASKED_BYTES in encoded:
        decoder = request.console.decoder
        hidden = await asyncio.to_thread(decoder.masked, request.path["topic"], like)
        if getattr(hidden, name) != original:
            raise HttpError(
                422,
                f"The {name} has masked fields; it can be copied as it is or replaced, but not "
                "edited",
            )
    return encoded


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
