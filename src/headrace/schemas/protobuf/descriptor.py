"""Converts a file descriptor to the parts of a .proto file.

Some clients send a descriptor instead of text. Names of types are full names with a leading dot, as
in a descriptor. Of custom options only Confluent's are supported.
"""

from collections.abc import Iterable, Iterator

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    ServiceDescriptorProto,
)

from headrace.schemas.protobuf import elements
from headrace.schemas.protobuf.elements import (
    ProtoNumbers,
    ProtoOption,
    ProtoRange,
    ProtoWord,
    Value,
)
from headrace.schemas.protobuf.source import unescaped

Field = FieldDescriptorProto
SCALARS = {
    Field.TYPE_DOUBLE: "double", Field.TYPE_FLOAT: "float", Field.TYPE_INT64: "int64",
    Field.TYPE_UINT64: "uint64", Field.TYPE_INT32: "int32", Field.TYPE_FIXED64: "fixed64",
    Field.TYPE_FIXED32: "fixed32", Field.TYPE_BOOL: "bool", Field.TYPE_STRING: "string",
    Field.TYPE_BYTES: "bytes", Field.TYPE_UINT32: "uint32", Field.TYPE_SFIXED32: "sfixed32",
    Field.TYPE_SFIXED64: "sfixed64", Field.TYPE_SINT32: "sint32", Field.TYPE_SINT64: "sint64",
}  # fmt: skip
# Options that existing registries print before others; the rest follows by number.
FIRST_OPTIONS = (
    "java_package", "java_outer_classname", "java_multiple_files", "java_generate_equals_and_hash",
    "java_string_check_utf8", "optimize_for", "ctype", "packed", "jstype", "deprecated",
)  # fmt: skip


def elements_of(file: FileDescriptorProto) -> elements.ProtoFile:
    """The parts of the whole file."""
    proto3 = file.syntax == "proto3"
    special = {*file.public_dependency, *file.weak_dependency}
    groups = _group_names(file.extension)
    return elements.ProtoFile(
        syntax=f'syntax = "{file.syntax}"' if file.syntax else "",
        package=file.package,
        imports=tuple(n for i, n in enumerate(file.dependency) if i not in special),
        public_imports=tuple(file.dependency[i] for i in file.public_dependency),
        weak_imports=tuple(file.dependency[i] for i in file.weak_dependency),
        options=_options(file.options),
        messages=tuple(
            _message(each, proto3) for each in file.message_type if each.name not in groups
        ),
        enums=tuple(_enum(each) for each in file.enum_type),
        extends=_extends(file.extension, proto3, {each.name: each for each in file.message_type}),
        services=tuple(_service(each) for each in file.service),
    )


def _options(options: object) -> tuple[ProtoOption, ...]:
    """Options with a known name, in the order of existing registries."""
    found: list[tuple[int, ProtoOption]] = []
    for field, value in options.ListFields():  # type: ignore[attr-defined]
        if field.name == "map_entry" or (field.message_type and not field.is_extension):
            continue
        name = f"({field.full_name})" if field.is_extension else field.name
        first = name in FIRST_OPTIONS
        place = FIRST_OPTIONS.index(name) if first else len(FIRST_OPTIONS) + field.number
        values = value if field.is_repeated else [value]
        found += [(place, ProtoOption((name,), _value(field, each))) for each in values]
    return tuple(option for _, option in sorted(found, key=lambda each: each[0]))


def _value(field: object, value: object) -> Value:
    enum = field.enum_type  # type: ignore[attr-defined]
    if enum is not None:
        return ProtoWord(str(enum.values_by_number[value].name))
    if field.message_type is not None:  # type: ignore[attr-defined]
        return _literal(value)
    if isinstance(value, bool):
        return ProtoWord("true" if value else "false")
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")
    return value if isinstance(value, str) else ProtoWord(str(value))


def _literal(message: object) -> dict[str, Value]:
    """A message as the value of an option."""
    found: dict[str, Value] = {}
    for field, value in message.ListFields():  # type: ignore[attr-defined]
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            found[field.name] = [{"key": str(k), "value": str(value[k])} for k in sorted(value)]
        elif field.is_repeated:
            found[field.name] = [_value(field, each) for each in value]
        else:
            found[field.name] = _value(field, value)
    return found


def _message(message: DescriptorProto, proto3: bool) -> elements.ProtoMessage:
    maps = {each.name: each for each in message.nested_type if each.options.map_entry}
    bodies = {each.name: each for each in message.nested_type}
    groups = _group_names((*message.field, *message.extension))
    plain = [each for each in message.field if _oneof(each) is None]
    return elements.ProtoMessage(
        name=message.name,
        reserved=(
            *_ranges(message.reserved_range, beyond=1),
            *(ProtoNumbers((name,)) for name in message.reserved_name),
        ),
        options=_options(message.options),
        fields=tuple(
            _field(each, _label(each, proto3), maps, message)
            for each in plain
            if each.type != Field.TYPE_GROUP
        ),
        oneofs=tuple(_oneofs(message, maps, bodies)),
        groups=tuple(
            _group(each, _label(each, proto3), bodies)
            for each in plain
            if each.type == Field.TYPE_GROUP
        ),
        extensions=tuple(_ranges(message.extension_range, beyond=1)),
        extends=_extends(message.extension, proto3, bodies),
        messages=tuple(
            _message(each, proto3)
            for each in message.nested_type
            if each.name not in maps and each.name not in groups
        ),
        enums=tuple(_enum(each) for each in message.enum_type),
    )


def _oneofs(
    message: DescriptorProto,
    maps: dict[str, DescriptorProto],
    bodies: dict[str, DescriptorProto],
) -> Iterator[elements.ProtoOneOf]:
    for index, oneof in enumerate(message.oneof_decl):
        members = [each for each in message.field if _oneof(each) == index]
        if not members:
            continue
        yield elements.ProtoOneOf(
            oneof.name,
            _options(oneof.options),
            tuple(
                _field(each, "", maps, message) for each in members if each.type != Field.TYPE_GROUP
            ),
            tuple(_group(each, "", bodies) for each in members if each.type == Field.TYPE_GROUP),
        )


def _oneof(field: FieldDescriptorProto) -> int | None:
    """The index of the field's oneof."""
    if field.proto3_optional or not field.HasField("oneof_index"):
        return None
    return int(field.oneof_index)


def _field(
    field: FieldDescriptorProto,
    label: str,
    maps: dict[str, DescriptorProto],
    message: DescriptorProto,
) -> elements.ProtoField:
    kind = _type(field)
    last = _last(field.type_name)
    if field.type == Field.TYPE_MESSAGE and last in maps and _is_own(field, message):
        key, value = maps[last].field
        kind, label = f"map<{_type(key)}, {_type(value)}>", ""
    return elements.ProtoField(label, kind, field.name, field.number, _field_options(field))


def _group(
    field: FieldDescriptorProto, label: str, bodies: dict[str, DescriptorProto]
) -> elements.ProtoGroup:
    # Groups exist in proto2 only.
    body = _message(bodies[_last(field.type_name)], proto3=False)
    return elements.ProtoGroup(label, field.number, _field_options(field), body)


def _group_names(fields: Iterable[FieldDescriptorProto]) -> set[str]:
    """The nested types that are bodies of groups."""
    return {_last(each.type_name) for each in fields if each.type == Field.TYPE_GROUP}


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _is_own(field: FieldDescriptorProto, message: DescriptorProto) -> bool:
    return str(field.type_name).split(".")[-2:-1] == [str(message.name)]


def _type(field: FieldDescriptorProto) -> str:
    return SCALARS.get(field.type) or str(field.type_name)


def _label(field: FieldDescriptorProto, proto3: bool) -> str:
    if field.label == Field.LABEL_REPEATED:
        return "repeated"
    if field.label == Field.LABEL_REQUIRED:
        return "required"
    return "optional" if not proto3 or field.proto3_optional else ""


def _field_options(field: FieldDescriptorProto) -> tuple[ProtoOption, ...]:
    found = [*_options(field.options)]
    if field.HasField("default_value"):
        found.append(ProtoOption(("default",), _default(field)))
    if field.json_name and field.json_name != _json_name(field.name):
        found.append(ProtoOption(("json_name",), field.json_name))
    return tuple(found)


def _default(field: FieldDescriptorProto) -> Value:
    text = str(field.default_value)
    if field.type == Field.TYPE_BYTES:
        # In a descriptor, bytes are already escaped.
        return unescaped(text).decode("utf-8", "surrogateescape")
    return text if field.type == Field.TYPE_STRING else ProtoWord(text)


def _json_name(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in rest)


def _ranges(ranges: Iterable[object], *, beyond: int) -> Iterator[ProtoNumbers]:
    """Ranges; `beyond` is the distance of an end from the last number."""
    for each in ranges:
        first, last = each.start, each.end - beyond  # type: ignore[attr-defined]
        yield ProtoNumbers((first if first == last else ProtoRange(first, last),))


def _enum(enum: EnumDescriptorProto) -> elements.ProtoEnum:
    return elements.ProtoEnum(
        enum.name,
        _options(enum.options),
        (
            *_ranges(enum.reserved_range, beyond=0),
            *(ProtoNumbers((name,)) for name in enum.reserved_name),
        ),
        tuple(elements.ProtoEnumValue(e.name, e.number, _options(e.options)) for e in enum.value),
    )


def _extends(
    extensions: Iterable[FieldDescriptorProto], proto3: bool, bodies: dict[str, DescriptorProto]
) -> tuple[elements.ProtoExtend, ...]:
    by_message: dict[str, list[FieldDescriptorProto]] = {}
    for each in extensions:
        by_message.setdefault(each.extendee, []).append(each)
    return tuple(
        elements.ProtoExtend(
            name,
            tuple(
                _field(each, _label(each, proto3), {}, DescriptorProto())
                for each in fields
                if each.type != Field.TYPE_GROUP
            ),
            tuple(
                _group(each, _label(each, proto3), bodies)
                for each in fields
                if each.type == Field.TYPE_GROUP
            ),
        )
        for name, fields in by_message.items()
    )


def _service(service: ServiceDescriptorProto) -> elements.ProtoService:
    return elements.ProtoService(
        service.name,
        _options(service.options),
        tuple(
            elements.ProtoMethod(
                method.name,
                ("stream " if method.client_streaming else "") + method.input_type,
                ("stream " if method.server_streaming else "") + method.output_type,
                _options(method.options),
            )
            for method in service.method
        ),
    )
