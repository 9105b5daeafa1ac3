"""Whether data of one Avro schema can be read with another: "Schema Resolution" of Avro 1.12.

Apache's Python checker gives the same results, which a test verifies, but it loses the path of a
problem inside a union and does not resolve aliases against a namespace. Messages include the field.
"""

from typing import cast

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

from headrace.schemas.comparison import Budget, Sides

# The types that a reader of the type on the left can read.
PROMOTIONS = {
    "long": {"int"},
    "float": {"int", "long"},
    "double": {"int", "long", "float"},
    "bytes": {"string"},
    "string": {"bytes"},
}
PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
NAMED = frozenset({"record", "error", "enum", "fixed"})
RECORDS = frozenset({"record", "error"})


class AvroComparison:
    """One comparison of two schemas."""

    def __init__(self, sides: Sides) -> None:
        self._sides = sides
        self._budget = Budget(sides.pairs)
        # A pair in progress counts as readable, because a recursive type is if its rest is.
        self._results: dict[tuple[int, int], list[str]] = {}

    def problems(self, reader: Schema, writer: Schema, path: str = "") -> list[str]:
        """Why data of `writer` cannot be read with `reader`, each with its field."""
        if reader is writer:
            return []
        if reader.type in PRIMITIVES or writer.type in PRIMITIVES:
            # Fields share primitive types, so a result for one path must not be reused for another.
            return self._compare(reader, writer, path)
        pair = (id(reader), id(writer))
        found = self._results.get(pair)
        if found is None:
            self._results[pair] = []
            found = self._results[pair] = self._compare(reader, writer, path)
        return found

    def _compare(self, reader: Schema, writer: Schema, path: str) -> list[str]:
        self._budget.spend()
        # By the name of the type: isinstance is slow with the library's abstract classes.
        if writer.type == "union":
            return self._from_union(reader, cast(UnionSchema, writer), path)
        if reader.type == "union":
            return self._into_union(cast(UnionSchema, reader), writer, path)
        if reader.type in RECORDS and writer.type in RECORDS:
            return self._record(cast(RecordSchema, reader), cast(RecordSchema, writer), path)
        match reader.type if reader.type == writer.type else None:
            case "enum":
                return self._enum(cast(EnumSchema, reader), cast(EnumSchema, writer), path)
            case "fixed":
                return self._fixed(cast(FixedSchema, reader), cast(FixedSchema, writer), path)
            case "array":
                items = cast(ArraySchema, reader).items, cast(ArraySchema, writer).items
                return self.problems(*items, f"{path}[]")
            case "map":
                values = cast(MapSchema, reader).values, cast(MapSchema, writer).values
                return self.problems(*values, f"{path}{{}}")
        if _takes(reader.type, writer.type):
            return []
        return [
            (
                f"{_where(path)}: type {_named_type(reader)} of {self._sides.reader} cannot read "
                f"type {_named_type(writer)} of {self._sides.writer}"
            )
        ]

    def _from_union(self, reader: Schema, writer: UnionSchema, path: str) -> list[str]:
        shared: set[int] = set()
        if reader.type == "union":
            shared = {id(member) for member in cast(UnionSchema, reader).schemas}
        return [
            problem
            for branch in writer.schemas
            if id(branch) not in shared
            for problem in self.problems(reader, branch, path)
        ]

    def _into_union(self, reader: UnionSchema, writer: Schema, path: str) -> list[str]:
        if writer.type in PRIMITIVES:
            if any(_takes(branch.type, writer.type) for branch in reader.schemas):
                return []
        elif (found := self._nearest(reader, writer, path)) is not None:
            return found
        members = ", ".join(_named_type(each) for each in reader.schemas)
        return [
            (
                f"{_where(path)}: the union [{members}] of {self._sides.reader} has no member for "
                f"type {_named_type(writer)} of {self._sides.writer}"
            )
        ]

    def _nearest(self, reader: UnionSchema, writer: Schema, path: str) -> list[str] | None:
        """The problems of the member with the same name; None if any member can read it."""
        nearest: list[str] | None = None
        for branch in reader.schemas:
            found = self.problems(branch, writer, path)
            if not found:
                return found
            if branch.type == writer.type and not (
                branch.type in NAMED and _differs(branch, cast(NamedSchema, writer))
            ):
                nearest = found
        return nearest

    def _record(self, reader: RecordSchema, writer: RecordSchema, path: str) -> list[str]:
        if _differs(reader, writer):
            return self._other_name(reader, writer, path)
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
        if _differs(reader, writer):
            return self._other_name(reader, writer, path)
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
        if _differs(reader, writer):
            return self._other_name(reader, writer, path)
        if reader.size == writer.size:
            return []
        return [
            (
                f"{_where(path)}: fixed {reader.fullname} has {reader.size} bytes in "
                f"{self._sides.reader} and {writer.size} in {self._sides.writer}"
            )
        ]

    def _other_name(self, reader: NamedSchema, writer: NamedSchema, path: str) -> list[str]:
        return [
            (
                f"{_where(path)}: {reader.type} {reader.fullname} of {self._sides.reader} is not "
                f"{writer.type} {writer.fullname} of {self._sides.writer}, and has no such alias"
            )
        ]


def _takes(reader: str, writer: str) -> bool:
    """Whether a primitive type can be read as another."""
    return reader == writer or writer in PROMOTIONS.get(reader, ())


def _differs(reader: NamedSchema, writer: NamedSchema) -> bool:
    """Named types are matched by the last part of their name, or by an alias of the reader's."""
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
    found = written.get(field.name)
    if found is None:
        for name in _aliases(field):
            if (found := written.get(name)) is not None:
                break
    return found


def _where(path: str) -> str:
    return f"field '{path}'" if path else "the schema itself"


def _named_type(schema: Schema) -> str:
    if schema.type in NAMED:
        return str(cast(NamedSchema, schema).fullname)
    return str(schema.type)
