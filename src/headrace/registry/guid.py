"""The GUID of a schema. Unlike the id, it is the same in every registry.

MD5 of the text, the references, the metadata and the rules, as Confluent's registry computes it, so
that records with the GUID in a header stay readable.
"""

import hashlib
import json
import struct
from collections.abc import Iterable, Iterator
from uuid import UUID

from headrace.registry.records import Content

_RULE_TEXTS_BEFORE = ("name", "doc", "kind", "mode", "type")
_RULE_TEXTS_AFTER = ("expr", "onSuccess", "onFailure")


def guid_of(content: Content) -> str:
    """The GUID in the notation of a UUID."""
    digest = hashlib.md5(content.text.encode("utf-8", "surrogatepass"), usedforsecurity=False)
    for reference in content.references:
        digest.update(reference.name.encode() + reference.subject.encode())
        digest.update(struct.pack(">i", reference.version))
    if content.metadata is not None:
        digest.update(b"\x01")
        for piece in _metadata_texts(json.loads(content.metadata)):
            digest.update(piece.encode())
    if content.rule_set is not None:
        digest.update(b"\x01")
        for piece in _rule_set_texts(json.loads(content.rule_set)):
            digest.update(piece.encode())
    return str(UUID(bytes=digest.digest()))


def _metadata_texts(metadata: dict[str, object]) -> Iterator[str]:
    for name, tags in _items(metadata.get("tags")):
        yield name
        yield from map(str, sorted(_list(tags), key=str))
    for name, value in _items(metadata.get("properties")):
        yield name
        yield str(value)
    yield from sorted(map(str, _list(metadata.get("sensitive"))))


def _rule_set_texts(rule_set: dict[str, object]) -> Iterator[str]:
    for kind in ("migrationRules", "domainRules", "encodingRules"):
        for rule in _list(rule_set.get(kind)):
            if isinstance(rule, dict):
                yield from _rule_texts(rule)
    if rule_set.get("enableAt") is not None:
        yield str(rule_set["enableAt"])


def _rule_texts(rule: dict[str, object]) -> Iterator[str]:
    yield from (str(rule[name]) for name in _RULE_TEXTS_BEFORE if rule.get(name) is not None)
    yield from sorted(map(str, _list(rule.get("tags"))))
    for name, value in _items(rule.get("params")):
        yield name
        yield str(value)
    yield from (str(rule[name]) for name in _RULE_TEXTS_AFTER if rule.get(name) is not None)
    if rule.get("disabled"):
        yield "\x01"


def _items(value: object) -> Iterable[tuple[str, object]]:
    return sorted(value.items()) if isinstance(value, dict) else ()


def _list(value: object) -> Iterable[object]:
    return value if isinstance(value, list) else ()
