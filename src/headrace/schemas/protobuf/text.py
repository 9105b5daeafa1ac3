"""The text of a .proto file in the layout of Confluent's registry.

Registries store this text and compare schemas by it, so every blank line counts. Sections have one
order: of a file syntax and package, imports, options, messages and enums, extensions, services; of
a message reserved numbers, options, fields, oneofs, groups, extension ranges, extensions, nested
messages and enums. There is a blank line before every section but the first; in a nested message
it is indented as the message is.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from headrace.schemas.protobuf.elements import (
    HIGHEST_ENUM,
    HIGHEST_FIELD,
    ProtoEnum,
    ProtoExtend,
    ProtoField,
    ProtoFile,
    ProtoGroup,
    ProtoMessage,
    ProtoMethod,
    ProtoNumbers,
    ProtoOneOf,
    ProtoOption,
    ProtoRange,
    ProtoService,
    ProtoWord,
    Value,
)

T = TypeVar("T")
INDENT = "  "
_ESCAPES = {
    "\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v",
    "\\": "\\\\", "'": "\\'", '"': '\\"', "\0": "\\000",
    # Bytes that are not UTF-8.
    **{chr(0xDC00 + byte): f"\\{byte:03o}" for byte in range(0x80, 0x100)},
}  # fmt: skip
_ESCAPING = str.maketrans(_ESCAPES)


def proto_text(file: ProtoFile) -> str:
    """The whole file."""
    head = [f"{file.syntax};"] if file.syntax else []
    if file.package:
        head.append(f"package {file.package};")
    sections = [
        [
            *(f'import "{name}";' for name in file.imports),
            *(f'import public "{name}";' for name in file.public_imports),
            *(f'import weak "{name}";' for name in file.weak_imports),
        ],
        _option_lines(file.options),
        [*_each(_message, file.messages), *_each(_enum, file.enums)],
        _each(_extend, file.extends),
        _each(_service, file.services),
    ]
    lines = list(head)
    for section in sections:
        if section:
            lines += ["", *section]
    return "".join(f"{line}\n" for line in lines)


def _each(lines_of: Callable[[T], list[str]], parts: Iterable[T]) -> list[str]:
    return [line for part in parts for line in lines_of(part)]


def _indented(lines: Iterable[str]) -> list[str]:
    return [INDENT + line for line in lines]


def _block(head: str, *sections: Sequence[str]) -> list[str]:
    """A block in braces."""
    lines: list[str] = []
    for section in sections:
        if section:
            lines += ["", *_indented(section)] if lines else _indented(section)
    return [f"{head} {{", *lines, "}"] if lines else [f"{head} {{}}"]


def _message(message: ProtoMessage) -> list[str]:
    return _block(f"message {message.name}", *_body(message))


def _body(message: ProtoMessage) -> list[list[str]]:
    return [
        [f"reserved {_numbers(each, HIGHEST_FIELD)};" for each in message.reserved],
        _option_lines(message.options),
        _each(_field, message.fields),
        _each(_oneof, message.oneofs),
        _each(_group, message.groups),
        _each(_extensions, message.extensions),
        _each(_extend, message.extends),
        [*_each(_message, message.messages), *_each(_enum, message.enums)],
    ]


def _field(field: ProtoField) -> list[str]:
    label = f"{field.label} " if field.label else ""
    head = f"{label}{field.type} {field.name} = {field.number}"
    return _with_options(head, field.options)


def _group(group: ProtoGroup) -> list[str]:
    label = f"{group.label} " if group.label else ""
    *before, head = _with_options(
        f"{label}group {group.body.name} = {group.number}", group.options, end=""
    )
    return [*before, *_block(head, *_body(group.body))]


def _oneof(oneof: ProtoOneOf) -> list[str]:
    return _block(
        f"oneof {oneof.name}",
        _option_lines(oneof.options),
        _each(_field, oneof.fields),
        _each(_group, oneof.groups),
    )


def _extend(extend: ProtoExtend) -> list[str]:
    return _block(
        f"extend {extend.type}", [*_each(_field, extend.fields), *_each(_group, extend.groups)]
    )


def _extensions(numbers: ProtoNumbers) -> list[str]:
    return _with_options(f"extensions {_numbers(numbers, HIGHEST_FIELD)}", numbers.options)


def _enum(enum: ProtoEnum) -> list[str]:
    lines = [f"reserved {_numbers(each, HIGHEST_ENUM)};" for each in enum.reserved]
    lines += _option_lines(enum.options)
    for value in enum.values:
        lines += _with_options(f"{value.name} = {value.number}", value.options)
    return _block(f"enum {enum.name}", lines)


def _service(service: ProtoService) -> list[str]:
    return _block(
        f"service {service.name}",
        _option_lines(service.options),
        _each(_method, service.methods),
    )


def _method(method: ProtoMethod) -> list[str]:
    head = f"rpc {method.name} ({method.input}) returns ({method.output})"
    if not method.options:
        return [f"{head};"]
    return [f"{head} {{", *_indented(_option_lines(method.options)), "};"]


def _numbers(numbers: ProtoNumbers, highest: int) -> str:
    return ", ".join(_number(each, highest) for each in numbers.values)


def _number(value: int | ProtoRange | str, highest: int) -> str:
    if isinstance(value, ProtoRange):
        return f"{value.first} to {'max' if value.last >= highest else value.last}"
    return f'"{value}"' if isinstance(value, str) else str(value)


# ------------------------------------------------------------------------------------ options


def _option_lines(options: Iterable[ProtoOption]) -> list[str]:
    """Options as statements."""
    lines: list[str] = []
    for option in options:
        first, *more = _option(option)
        lines += [f"option {first}", *more]
        lines[-1] += ";"
    return lines


def _with_options(head: str, options: Sequence[ProtoOption], end: str = ";") -> list[str]:
    """A statement followed by options in brackets."""
    if not options:
        return [head + end]
    if len(options) == 1:
        lines = _option(options[0])
        lines[0] = f"{head} [{lines[0]}"
        lines[-1] += f"]{end}"
        return lines
    return [f"{head} [", *_indented(_listed(map(_option, options))), f"]{end}"]


def _option(option: ProtoOption) -> list[str]:
    lines = _value(option.value)
    return [f"{'.'.join(option.path)} = {lines[0]}", *lines[1:]]


def _value(value: Value) -> list[str]:
    if isinstance(value, ProtoWord):
        return [value.text]
    if isinstance(value, str):
        return [f'"{value.translate(_ESCAPING)}"']
    if isinstance(value, Mapping):
        parts = [(name, _value(inner)) for name, inner in value.items()]
        entries = [[f"{name}: {lines[0]}", *lines[1:]] for name, lines in parts]
        return ["{", *_indented(_listed(entries)), "}"]
    return ["[", *_indented(_listed(map(_value, value))), "]"]


def _listed(entries: Iterable[list[str]]) -> list[str]:
    """Entries separated by commas."""
    lines: list[str] = []
    for entry in entries:
        if lines:
            lines[-1] += ","
        lines += entry
    return lines
