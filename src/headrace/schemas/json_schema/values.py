"""Single values of a JSON Schema: JSON documents, validated before they are written."""

import json

from headrace.schemas.errors import BadValue
from headrace.schemas.interface import RegisteredSchema
from headrace.schemas.json_schema.parsing import parse


class JsonValues:
    """Validates and writes documents; reads them without validation."""

    def __init__(self, schema: RegisteredSchema) -> None:
        self._validator = parse(schema.text, schema.dependencies).node.validator()

    def encode(self, value: object) -> bytes:
        for problem in self._validator.iter_errors(value):
            place = ".".join(map(str, problem.absolute_path))
            where = f"field '{place}': " if place else ""
            raise BadValue(f"{where}{problem.message[:300]}")
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()

    def decode(self, data: bytes) -> object:
        found: object = json.loads(data)
        return found
