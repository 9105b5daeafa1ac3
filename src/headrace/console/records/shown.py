"""Keys, values and headers as browsers show them: text, and how it was made from the bytes.

Numbers of records never pass through JavaScript's JSON parser: a value is sent as a text, whether
it is JSON, decoded with a schema, or hexadecimal digits.
"""

import json
from dataclasses import dataclass

from headrace.admin.errors import AdminError
from headrace.admin.typed_values import ValueDecoder
from headrace.bounded_json import BadJson, parse_json
from headrace.client.errors import ClientError
from headrace.console.masks import NO_MASKS, Masks
from headrace.schemas.client import SchemaClient
from headrace.schemas.framing import schema_id_of
from headrace.types import TopicPartition
from headrace.wire.records import Record

PREVIEW_CHARACTERS = 2_000
"""Of a key or value in a list of records."""
WHOLE_CHARACTERS = 1_000_000
"""Of a key or value on the page of one record. The rest can be downloaded."""
JSON_BYTES = 1_000_000
"""Longer texts are not checked for being JSON."""
PREVIEWED_HEADERS = 50


@dataclass(frozen=True, slots=True)
class Decoder:
    """Decodes values with the schemas of a registry; each schema is fetched once."""

    values: ValueDecoder | None
    masks: Masks = NO_MASKS

    @staticmethod
    def of(registry: SchemaClient | None, masks: Masks) -> "Decoder":
        values = None if registry is None else ValueDecoder(registry.by_id)
        return Decoder(values, masks)

    def masked(self, topic: str, record: Record) -> Record:
        """The record without the fields that nobody may see."""
        if not self.masks.masks:
            return record
        masks = self.masks.of(topic)
        if masks is None:
            return record
        decoded: dict[str, bytes | None] = {}
        for root, data in (("key", record.key), ("value", record.value)):
            if data is not None and masks.hides(root) and schema_id_of(data) is not None:
                decoded[root] = self.text(data)[0]
        return masks.apply(record, decoded)

    def text(self, data: bytes) -> tuple[bytes | None, str]:
        """The JSON text of a value that begins with a schema id, or why there is none."""
        if self.values is None:
            return None, ""
        try:
            return self.values.text(data), ""
        except (AdminError, ClientError, ValueError, TypeError) as error:
            return None, str(error)


def shown(data: bytes | None, decoder: Decoder, most: int = PREVIEW_CHARACTERS) -> object:
    """A key, a value or a header's value for a browser."""
    if data is None:
        return None
    schema_id = schema_id_of(data)
    problem = ""
    if schema_id is not None:
        decoded, problem = decoder.text(data)
        if decoded is not None:
            cut = _cut(decoded.decode(), most)
            return {"format": "schema", "schema_id": schema_id, "bytes": len(data), **cut}
    field: dict[str, object] = {"bytes": len(data)}
    if problem:
        field |= {"schema_id": schema_id, "problem": problem}
    try:
        text = data.decode() if len(data) <= JSON_BYTES else _decode_start(data, most)
    except UnicodeDecodeError:
        text = None
    if text is None or "\0" in text[:most]:
        limit = most // 2
        return field | {"format": "hex", "text": data[:limit].hex(), "cut": len(data) > limit}
    kind = "json" if _is_json(text, len(data)) else "text"
    return field | {
        "format": kind,
        **_cut(text, most),
        "cut": len(text) > most or len(data) > JSON_BYTES,
    }


def shown_record(
    record: Record, place: TopicPartition, append_time: bool, decoder: Decoder, most: int
) -> dict[str, object]:
    """A record for a browser, without masked fields. Its 64-bit numbers are texts."""
    original, record = record, decoder.masked(place.topic, record)
    return {
        "partition": place.partition,
        "offset": str(record.offset),
        "timestamp": str(record.timestamp),
        "append_time": append_time,
        "key": shown(record.key, decoder, most),
        "value": shown(record.value, decoder, most),
        "headers": [
            {"name": name[:most], "value": shown(value, decoder, most)}
            for name, value in record.headers[:PREVIEWED_HEADERS]
        ],
        "header_count": len(record.headers),
        "masked": [
            name
            for name in ("key", "value", "headers")
            if getattr(record, name) != getattr(original, name)
        ],
    }


def _cut(text: str, most: int) -> dict[str, object]:
    return {"text": text[:most], "cut": len(text) > most}


def _decode_start(data: bytes, most: int) -> str:
    return data[: most * 4].decode(errors="ignore") if data[:64].isascii() else data.decode()


def _is_json(text: str, size: int) -> bool:
    start = text[:50].lstrip()[:1]
    if not start or start not in '{["-0123456789tfn':
        return False
    if size > JSON_BYTES:
        return start in "{["
    try:
        parse_json(text)
    except (BadJson, json.JSONDecodeError):
        return False
    return True
