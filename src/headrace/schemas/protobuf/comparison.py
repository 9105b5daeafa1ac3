"""Whether messages of one Protobuf file can be read with another: "Updating A Message Type".

Fields are identified by their numbers. Names, packages, enum values and order do not matter on the
wire; types, numbers and the members of a oneof do.
"""

from collections.abc import Iterable

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)

from headrace.schemas.comparison import Budget, Sides
from headrace.schemas.protobuf.descriptor import SCALARS

Field = FieldDescriptorProto
# Types that can be read as each other.
FAMILIES = (
    {Field.TYPE_INT32, Field.TYPE_UINT32, Field.TYPE_INT64, Field.TYPE_UINT64, Field.TYPE_BOOL,
     Field.TYPE_ENUM},
    {Field.TYPE_SINT32, Field.TYPE_SINT64},
    {Field.TYPE_FIXED32, Field.TYPE_SFIXED32},
    {Field.TYPE_FIXED64, Field.TYPE_SFIXED64},
    {Field.TYPE_STRING, Field.TYPE_BYTES},
)  # fmt: skip
FAMILY = {kind: number for number, family in enumerate(FAMILIES) for kind in family}
# Of these, a reader of a single value takes the last; numbers may be packed together.
LENGTH_DELIMITED = {Field.TYPE_STRING, Field.TYPE_BYTES, Field.TYPE_MESSAGE}


class Types:
    """The types that a file can use, by full name with the leading dot."""

    def __init__(self, file: FileDescriptorProto, imported: Iterable[FileDescriptorProto]) -> None:
        self.messages: dict[str, DescriptorProto] = {}
        self.enums: set[str] = set()
        self.extensions: dict[str, FieldDescriptorProto] = {}
        for each in (*imported, file):
            prefix = f".{each.package}" if each.package else ""
            self._add(prefix, each.message_type)
            self._add_others(prefix, each.enum_type, each.extension)

    def _add(self, prefix: str, messages: Iterable[DescriptorProto]) -> None:
        for message in messages:
            name = f"{prefix}.{message.name}"
            self.messages[name] = message
            self._add(name, message.nested_type)
            self._add_others(name, message.enum_type, message.extension)

    def _add_others(
        self,
        prefix: str,
        enums: Iterable[EnumDescriptorProto],
        extensions: Iterable[FieldDescriptorProto],
    ) -> None:
        self.enums.update(f"{prefix}.{each.name}" for each in enums)
        self.extensions.update((f"{prefix}.{each.name}", each) for each in extensions)


class ProtobufComparison:
    """One comparison of two files."""

    def __init__(self, sides: Sides, reader_types: Types, writer_types: Types) -> None:
        self._sides = sides
        self._reader_types = reader_types
        self._writer_types = writer_types
        self._budget = Budget(sides.pairs)
        self._seen: set[tuple[int, int]] = set()

    def problems(self, reader: FileDescriptorProto, writer: FileDescriptorProto) -> list[str]:
        """Why data of `writer` cannot be read with `reader`, each with its field."""
        found: list[str] = []
        mine = {message.name: message for message in reader.message_type}
        for message in writer.message_type:
            other = mine.get(message.name)
            if other is None:
                found.append(
                    f"message '{message.name}': {self._sides.writer} has it, and "
                    f"{self._sides.reader} does not"
                )
            else:
                found += self._message(other, message, message.name)
        return found

    def _message(self, reader: DescriptorProto, writer: DescriptorProto, path: str) -> list[str]:
        pair = (id(reader), id(writer))
        if pair in self._seen:
            return []
        self._seen.add(pair)
        self._budget.spend()
        theirs = {field.number: field for field in writer.field}
        mine = {field.number: field for field in reader.field}
        found: list[str] = []
        for number, field in mine.items():
            place = f"field '{path}.{field.name}' ({number})"
            source = theirs.get(number)
            if source is not None:
                found += self._field(field, source, place, f"{path}.{field.name}")
            elif field.label == Field.LABEL_REQUIRED:
                found.append(
                    f"{place}: {self._sides.reader} requires it, and {self._sides.writer} does "
                    "not have it"
                )
        found += self._oneofs(reader, writer, mine, theirs, path)
        return found + self._nested(reader, writer, path)

    def _nested(self, reader: DescriptorProto, writer: DescriptorProto, path: str) -> list[str]:
        """Nested messages; a record may be of one of them."""
        mine = {message.name: message for message in reader.nested_type}
        found: list[str] = []
        for message in writer.nested_type:
            if message.name in mine and not message.options.map_entry:
                found += self._message(mine[message.name], message, f"{path}.{message.name}")
        return found

    def _field(
        self,
        reader: FieldDescriptorProto,
        writer: FieldDescriptorProto,
        place: str,
        path: str,
    ) -> list[str]:
        self._budget.spend()
        if reader.type != writer.type and (
            FAMILY.get(reader.type, -1) != FAMILY.get(writer.type, -2)
        ):
            return [
                (
                    f"{place}: type {_named(reader)} of {self._sides.reader} cannot read type "
                    f"{_named(writer)} of {self._sides.writer}"
                )
            ]
        found: list[str] = []
        repeats = reader.label == Field.LABEL_REPEATED
        if repeats != (writer.label == Field.LABEL_REPEATED) and not (
            reader.type in LENGTH_DELIMITED and writer.type in LENGTH_DELIMITED
        ):
            said = "is repeated" if repeats else "is not repeated"
            found.append(f"{place}: it {said} in {self._sides.reader} only")
        if reader.label == Field.LABEL_REQUIRED and writer.label != Field.LABEL_REQUIRED:
            found.append(f"{place}: {self._sides.reader} requires it, {self._sides.writer} not")
        if reader.type in (Field.TYPE_MESSAGE, Field.TYPE_GROUP):
            mine = self._reader_types.messages.get(reader.type_name)
            theirs = self._writer_types.messages.get(writer.type_name)
            if mine is not None and theirs is not None:
                found += self._message(mine, theirs, path)
        return found

    def _oneofs(
        self,
        reader: DescriptorProto,
        writer: DescriptorProto,
        mine: dict[int, FieldDescriptorProto],
        theirs: dict[int, FieldDescriptorProto],
        path: str,
    ) -> list[str]:
        found: list[str] = []
        for index, oneof in enumerate(reader.oneof_decl):
            before = [
                theirs[number]
                for number, field in mine.items()
                if _oneof(field) == index and number in theirs
            ]
            if len(before) > 1 and (
                len({_oneof(each) for each in before}) > 1 or _oneof(before[0]) is None
            ):
                names = ", ".join(each.name for each in before)
                found.append(
                    f"oneof '{path}.{oneof.name}': {self._sides.reader} has {names} in it, which "
                    f"{self._sides.writer} may write together"
                )
        for number, field in theirs.items():
            member = _oneof(field)
            if member is not None and number not in mine:
                name = writer.oneof_decl[member].name
                found.append(
                    f"field '{path}.{field.name}' ({number}): it is one of '{name}' in "
                    f"{self._sides.writer}, and {self._sides.reader} does not have it"
                )
        return found


def _oneof(field: FieldDescriptorProto) -> int | None:
    if field.proto3_optional or not field.HasField("oneof_index"):
        return None
    return int(field.oneof_index)


def _named(field: FieldDescriptorProto) -> str:
    return SCALARS.get(field.type) or str(field.type_name).lstrip(".")
