"""A file descriptor as .proto text: one spelling for each file, whatever its author wrote."""

from collections.abc import Iterable, Iterator

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    ServiceDescriptorProto,
)

Field = FieldDescriptorProto
INDENT = "  "
SCALARS = {
    Field.TYPE_DOUBLE: "double", Field.TYPE_FLOAT: "float", Field.TYPE_INT64: "int64",
    Field.TYPE_UINT64: "uint64", Field.TYPE_INT32: "int32", Field.TYPE_FIXED64: "fixed64",
    Field.TYPE_FIXED32: "fixed32", Field.TYPE_BOOL: "bool", Field.TYPE_STRING: "string",
    Field.TYPE_BYTES: "bytes", Field.TYPE_UINT32: "uint32", Field.TYPE_SFIXED32: "sfixed32",
    Field.TYPE_SFIXED64: "sfixed64", Field.TYPE_SINT32: "sint32", Field.TYPE_SINT64: "sint64",
}  # fmt: skip
HIGHEST_FIELD = 536_870_912
HIGHEST_ENUM = 2**31 - 1


def proto_text(file: FileDescriptorProto) -> str:
    """The whole file."""
    proto3 = file.syntax == "proto3"
    blocks = [[f'syntax = "{file.syntax or "proto2"}";']]
    if file.package:
        blocks.append([f"package {file.package};"])
    imports = [
        f'import {_import_kind(file, index)}"{name}";' for index, name in enumerate(file.dependency)
    ]
    blocks.append(imports)
    blocks.append([f"option {each};" for each in _options(file.options)])
    blocks += [list(_message(each, proto3)) for each in file.message_type]
    blocks += [list(_enum(each)) for each in file.enum_type]
    blocks += [list(_extend(file.extension, proto3))]
    blocks += [list(_service(each)) for each in file.service]
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def _import_kind(file: FileDescriptorProto, index: int) -> str:
    if index in file.public_dependency:
        return "public "
    return "weak " if index in file.weak_dependency else ""


def _options(options: object) -> list[str]:
    """Options that protobuf itself knows, as `name = value`."""
    found = []
    for field, value in options.ListFields():  # type: ignore[attr-defined]
        if field.is_extension or field.message_type is not None or field.name == "map_entry":
            continue
        values = value if field.is_repeated else [value]
        found += [f"{field.name} = {_value(field, each)}" for each in values]
    return found


def _value(field: object, value: object) -> str:
    enum = field.enum_type  # type: ignore[attr-defined]
    if enum is not None:
        return str(enum.values_by_number[value].name)
    if isinstance(value, bool):
        return "true" if value else "false"
    return _quoted(value) if isinstance(value, str) else str(value)


def _quoted(text: str) -> str:
    plain = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + plain.replace("\n", "\\n").replace("\r", "\\r") + '"'


def _indented(lines: Iterable[str]) -> Iterator[str]:
    return (INDENT + line for line in lines)


def _message(message: DescriptorProto, proto3: bool) -> Iterator[str]:
    yield f"message {message.name} {{"
    yield from _indented(_body(message, proto3))
    yield "}"


def _body(message: DescriptorProto, proto3: bool) -> Iterator[str]:
    yield from (f"option {each};" for each in _options(message.options))
    yield from _reserved(message.reserved_range, message.reserved_name, HIGHEST_FIELD, 1)
    for each in message.extension_range:
        yield f"extensions {_range(each.start, each.end - 1, HIGHEST_FIELD - 1)};"
    maps = {each.name: each for each in message.nested_type if each.options.map_entry}
    groups = {
        each.type_name.rpartition(".")[2]
        for each in (*message.field, *message.extension)
        if each.type == Field.TYPE_GROUP
    }
    begun: set[int] = set()
    for field in message.field:
        if not field.HasField("oneof_index") or field.proto3_optional:
            yield from _field(field, maps, message, proto3)
        elif field.oneof_index not in begun:
            begun.add(field.oneof_index)
            yield f"oneof {message.oneof_decl[field.oneof_index].name} {{"
            for member in message.field:
                same = member.HasField("oneof_index") and member.oneof_index == field.oneof_index
                if same and not member.proto3_optional:
                    yield from _indented(_field(member, maps, message, proto3, bare=True))
            yield "}"
    for inner in message.nested_type:
        if inner.name not in maps and inner.name not in groups:
            yield from _message(inner, proto3)
    for enum in message.enum_type:
        yield from _enum(enum)
    yield from _extend(message.extension, proto3)


def _field(
    field: FieldDescriptorProto,
    maps: dict[str, DescriptorProto],
    message: DescriptorProto,
    proto3: bool,
    *,
    bare: bool = False,
) -> Iterator[str]:
    last = field.type_name.rpartition(".")[2]
    options = _field_options(field)
    shown = f" [{', '.join(options)}]" if options else ""
    if field.type == Field.TYPE_MESSAGE and last in maps and _is_own(field, message):
        key, value = maps[last].field
        yield f"map<{_type(key)}, {_type(value)}> {field.name} = {field.number}{shown};"
        return
    label = "" if bare else _label(field, proto3)
    if field.type == Field.TYPE_GROUP:
        group = next((each for each in message.nested_type if each.name == last), None)
        yield f"{label}group {last} = {field.number}{shown} {{"
        if group is not None:
            yield from _indented(_body(group, proto3))
        yield "}"
        return
    yield f"{label}{_type(field)} {field.name} = {field.number}{shown};"


def _is_own(field: FieldDescriptorProto, message: DescriptorProto) -> bool:
    return str(field.type_name).split(".")[-2] == str(message.name)


def _type(field: FieldDescriptorProto) -> str:
    return SCALARS.get(field.type) or str(field.type_name)


def _label(field: FieldDescriptorProto, proto3: bool) -> str:
    if field.label == Field.LABEL_REPEATED:
        return "repeated "
    if field.label == Field.LABEL_REQUIRED:
        return "required "
    return "optional " if not proto3 or field.proto3_optional else ""


def _field_options(field: FieldDescriptorProto) -> list[str]:
    found = []
    if field.HasField("default_value"):
        quoted = field.type in (Field.TYPE_STRING, Field.TYPE_BYTES)
        text = str(field.default_value)
        if field.type == Field.TYPE_BYTES:
            # A descriptor has bytes already escaped.
            text = f'"{text}"'
        elif quoted:
            text = _quoted(text)
        found.append(f"default = {text}")
    if field.json_name and field.json_name != _json_name(field.name):
        found.append(f"json_name = {_quoted(field.json_name)}")
    return found + _options(field.options)


def _json_name(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in rest)


def _reserved(
    ranges: Iterable[object], names: Iterable[str], highest: int, beyond: int
) -> Iterator[str]:
    numbers = [
        _range(each.start, each.end - beyond, highest - beyond)  # type: ignore[attr-defined]
        for each in ranges
    ]
    if numbers:
        yield f"reserved {', '.join(numbers)};"
    quoted = [_quoted(name) for name in names]
    if quoted:
        yield f"reserved {', '.join(quoted)};"


def _range(start: int, last: int, highest: int) -> str:
    if start == last:
        return str(start)
    return f"{start} to {'max' if last >= highest else last}"


def _enum(enum: EnumDescriptorProto) -> Iterator[str]:
    yield f"enum {enum.name} {{"
    lines = [f"option {each};" for each in _options(enum.options)]
    lines += _reserved(enum.reserved_range, enum.reserved_name, HIGHEST_ENUM, 0)
    for value in enum.value:
        options = _options(value.options)
        shown = f" [{', '.join(options)}]" if options else ""
        lines.append(f"{value.name} = {value.number}{shown};")
    yield from _indented(lines)
    yield "}"


def _extend(extensions: Iterable[FieldDescriptorProto], proto3: bool) -> Iterator[str]:
    for each in extensions:
        yield f"extend {each.extendee} {{"
        yield from _indented(_field(each, {}, DescriptorProto(), proto3))
        yield "}"


def _service(service: ServiceDescriptorProto) -> Iterator[str]:
    yield f"service {service.name} {{"
    yield from (f"{INDENT}option {each};" for each in _options(service.options))
    for method in service.method:
        sent = "stream " if method.client_streaming else ""
        received = "stream " if method.server_streaming else ""
        line = (
            f"rpc {method.name} ({sent}{method.input_type}) "
            f"returns ({received}{method.output_type})"
        )
        options = [f"{INDENT}option {each};" for each in _options(method.options)]
        if options:
            yield from _indented([f"{line} {{", *options, "}"])
        else:
            yield f"{INDENT}{line};"
    yield "}"
