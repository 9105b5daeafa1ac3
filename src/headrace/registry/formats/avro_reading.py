"""Whether data of one Avro schema can be read with another: "Schema Resolution" of Avro 1.12.

Apache's own checker gives the same verdicts, and a test holds this one against it; but it loses the
place of a problem inside a union and does not resolve an alias against its namespace, and a user
has to be told which field it is.
"""

from avro.schema import (
    ArraySchema,
    EnumSchema,
    Field,
    FixedSchema,
    MapSchema,
    NamedSchema,
    RecordSchema,
    Schema,
    UnionSchema,
)

from headrace.registry.formats.parsed import Budget, Sides

# What a reader of the type on the left may be given.
PROMOTIONS = {
    "long": {"int"},
    "float": {"int", "long"},
    "double": {"int", "long", "float"},
    "bytes": {"string"},
    "string": {"bytes"},
}


class Reading:
    """One comparison of two schemas."""

    def __init__(self, sides: Sides) -> None:
        self._sides = sides
        self._budget = Budget()
        # A pair under way counts as readable: a recursive type is readable if the rest of it is.
        self._verdicts: dict[tuple[int, int], list[str]] = {}

    def problems(self, reader: Schema, writer: Schema, path: str = "") -> list[str]:
        """Why what `writer` writes cannot be read as `reader`, each with its field."""
        pair = (id(reader), id(writer))
        if pair not in self._verdicts:
            self._budget.spend()
            self._verdicts[pair] = []
            self._verdicts[pair] = self._compare(reader, writer, path)
        return self._verdicts[pair]

    def _compare(self, reader: Schema, writer: Schema, path: str) -> list[str]:
        if isinstance(writer, UnionSchema):
            return [
                problem
                for branch in writer.schemas
                for problem in self.problems(reader, branch, path)
            ]
        if isinstance(reader, UnionSchema):
            return self._into_union(reader, writer, path)
        if isinstance(reader, RecordSchema) and isinstance(writer, RecordSchema):
            return self._named(reader, writer, path) or self._record(reader, writer, path)
        if isinstance(reader, EnumSchema) and isinstance(writer, EnumSchema):
            return self._named(reader, writer, path) or self._enum(reader, writer, path)
        if isinstance(reader, FixedSchema) and isinstance(writer, FixedSchema):
            return self._named(reader, writer, path) or self._fixed(reader, writer, path)
        if isinstance(reader, ArraySchema) and isinstance(writer, ArraySchema):
            return self.problems(reader.items, writer.items, f"{path}[]")
        if isinstance(reader, MapSchema) and isinstance(writer, MapSchema):
            return self.problems(reader.values, writer.values, f"{path}{{}}")
        if reader.type == writer.type or writer.type in PROMOTIONS.get(reader.type, ()):
            return []
        return [
            (
                f"{_where(path)}: type {_named_type(reader)} of {self._sides.reader} cannot read "
                f"type {_named_type(writer)} of {self._sides.writer}"
            )
        ]

    def _into_union(self, reader: UnionSchema, writer: Schema, path: str) -> list[str]:
        nearest: list[str] = []
        for branch in reader.schemas:
            found = self.problems(branch, writer, path)
            if not found:
                return []
            if branch.type == writer.type and not _differs(branch, writer):
                nearest = found
        if nearest:
            return nearest
        members = ", ".join(_named_type(each) for each in reader.schemas)
        return [
            (
                f"{_where(path)}: the union [{members}] of {self._sides.reader} has no member for "
                f"type {_named_type(writer)} of {self._sides.writer}"
            )
        ]

    def _record(self, reader: RecordSchema, writer: RecordSchema, path: str) -> list[str]:
        found: list[str] = []
        written = writer.fields_dict
        for field in reader.fields:
            source = _source(field, written)
            place = f"{path}.{field.name}" if path else str(field.name)
            if source is not None:
                found += self.problems(field.type, source.type, place)
            elif not field.has_default:
                found.append(
                    f"{_where(place)}: {self._sides.reader} has it without a default, and "
                    f"{self._sides.writer} does not have it"
                )
        return found

    def _enum(self, reader: EnumSchema, writer: EnumSchema, path: str) -> list[str]:
        missing = [each for each in writer.symbols if each not in reader.symbols]
        default = reader.props.get("default")
        if not missing or default in reader.symbols:
            return []
        return [
            (
                f"{_where(path)}: enum {reader.fullname} of {self._sides.reader} has neither "
                f"{', '.join(map(str, missing))} of {self._sides.writer} nor a default"
            )
        ]

    def _fixed(self, reader: FixedSchema, writer: FixedSchema, path: str) -> list[str]:
        if reader.size == writer.size:
            return []
        return [
            (
                f"{_where(path)}: fixed {reader.fullname} has {reader.size} bytes in "
                f"{self._sides.reader} and {writer.size} in {self._sides.writer}"
            )
        ]

    def _named(self, reader: NamedSchema, writer: NamedSchema, path: str) -> list[str]:
        if not _differs(reader, writer):
            return []
        return [
            (
                f"{_where(path)}: {reader.type} {reader.fullname} of {self._sides.reader} is not "
                f"{writer.type} {writer.fullname} of {self._sides.writer}, and has no such alias"
            )
        ]


def _differs(reader: Schema, writer: Schema) -> bool:
    """Named types are matched by the last part of their name, or by an alias of the reader's."""
    if not isinstance(reader, NamedSchema) or not isinstance(writer, NamedSchema):
        return False
    if reader.name == writer.name:
        return False
    space = str(reader.fullname).rpartition(".")[0]
    return writer.fullname not in {
        each if "." in each or not space else f"{space}.{each}" for each in _aliases(reader)
    }


def _aliases(named: NamedSchema | Field) -> list[str]:
    found = named.props.get("aliases")
    return [str(each) for each in found] if isinstance(found, list) else []


def _source(field: Field, written: "dict[str, Field]") -> Field | None:
    for name in (field.name, *_aliases(field)):
        if (found := written.get(name)) is not None:
            return found
    return None


def _where(path: str) -> str:
    return f"field '{path}'" if path else "the schema itself"


def _named_type(schema: Schema) -> str:
    if isinstance(schema, NamedSchema):
        return str(schema.fullname)
    return str(schema.type)
