"""The types of schemas. Each is a module with `parse`.

A module is imported when the first schema of its type comes: the libraries behind them are large.
"""

import importlib
from collections.abc import Sequence

from headrace.registry import limits
from headrace.registry.failures import InvalidSchema, too_large
from headrace.registry.formats.parsed import Dependency, Parsed

MODULES = {"AVRO": "avro", "JSON": "json_schema", "PROTOBUF": "protobuf"}
KINDS = ("JSON", "PROTOBUF", "AVRO")


def parse(kind: str, text: str, dependencies: Sequence[Dependency] = ()) -> Parsed:
    """The schema of this type that the text is; InvalidSchema where it is none."""
    if kind not in MODULES:
        raise InvalidSchema(f"Invalid schema type {kind!r}; known are {', '.join(MODULES)}")
    if len(text) > limits.SCHEMA_CHARACTERS:
        raise too_large(len(text), limits.SCHEMA_CHARACTERS)
    module = importlib.import_module(f"headrace.registry.formats.{MODULES[kind]}")
    parsed: Parsed = module.parse(text, dependencies)
    return parsed
