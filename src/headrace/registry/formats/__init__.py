"""The schema types. Each is a module with a function `parse`.

A module is imported with the first schema of its type, because the libraries are large.
"""

import functools
import importlib
from collections.abc import Sequence
from types import ModuleType

from headrace.registry import limits
from headrace.registry.failures import InvalidSchema, too_large
from headrace.registry.formats.parsed import Parsed, SchemaDependency

MODULES = {"AVRO": "avro", "JSON": "json_schema", "PROTOBUF": "protobuf"}
KINDS = ("JSON", "PROTOBUF", "AVRO")


def parse(kind: str, text: str, dependencies: Sequence[SchemaDependency] = ()) -> Parsed:
    """Parses a schema of this type; raises InvalidSchema if the text is invalid."""
    if kind not in MODULES:
        raise InvalidSchema(f"Invalid schema type {kind!r}; known are {', '.join(MODULES)}")
    if len(text) > limits.SCHEMA_CHARACTERS:
        raise too_large(len(text), limits.SCHEMA_CHARACTERS)
    parsed: Parsed = _module(kind).parse(text, dependencies)
    return parsed


@functools.cache
def _module(kind: str) -> ModuleType:
    return importlib.import_module(f"headrace.registry.formats.{MODULES[kind]}")
