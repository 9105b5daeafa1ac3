"""The normalized form of a .proto file.

Names of types become full names, fields, reserved numbers and options are sorted, and options that
were set in parts become one message. The order of messages is kept, because records identify their
message by its index.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from decimal import Decimal, InvalidOperation

from google.protobuf.descriptor_pb2 import FieldDescriptorProto

from headrace.schemas.protobuf.comparison import Types
from headrace.schemas.protobuf.descriptor import SCALARS
from headrace.schemas.protobuf.elements import (
    HIGHEST_ENUM,
    SPECIAL_ORDER,
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

SCALAR_NAMES = frozenset(SCALARS.values())
_MAP = re.compile(r"map<(\w+), (.+)>\Z")
_INTEGER = re.compile(r"-?(?:0[xX][0-9a-fA-F]+|\d+)\Z")
_FLOAT = re.compile(r"-?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?[fF]?\Z")


def normalized(file: ProtoFile, types: Types) -> ProtoFile:
    """The normalized file."""
    return _Order(types, proto3='"proto3"' in file.syntax).file(file)


class _Path(dict[str, Value]):
    """A message whose fields are set by separate options: `(o).a = 1` and `(o).b = 2`."""


class _Order:
    """Arranges the parts of one file. `scope` is the full name of the enclosing element."""

    def __init__(self, types: Types, *, proto3: bool) -> None:
        self._types = types
        self._proto3 = proto3

    def file(self, file: ProtoFile) -> ProtoFile:
        scope = f".{file.package}" if file.package else ""
        return replace(
            file,
            syntax="" if file.syntax == 'syntax = "proto2"' else file.syntax,
            imports=tuple(sorted(set(file.imports))),
            public_imports=tuple(sorted(set(file.public_imports))),
            options=self._options(file.options, scope),
            messages=tuple(self._message(each, scope) for each in file.messages),
            enums=tuple(self._enum(each, scope) for each in file.enums),
            extends=self._extends(file.extends, scope),
            services=tuple(self._service(each, scope) for each in file.services),
        )

    def _message(self, message: ProtoMessage, outer: str) -> ProtoMessage:
        scope = f"{outer}.{message.name}"
        oneofs = [self._oneof(each, scope) for each in message.oneofs]
        return replace(
            message,
            reserved=_sorted_numbers(message.reserved),
            options=self._options(message.options, scope),
            fields=self._fields(message.fields, scope),
            oneofs=tuple(sorted(oneofs, key=_first_number)),
            groups=self._groups(message.groups, scope),
            extensions=_sorted_numbers(message.extensions),
            extends=self._extends(message.extends, scope),
            messages=tuple(self._message(each, scope) for each in message.messages),
            enums=tuple(self._enum(each, scope) for each in message.enums),
        )

    def _fields(self, fields: Iterable[ProtoField], scope: str) -> tuple[ProtoField, ...]:
        made = (
            replace(
                field,
                type=self._type(field.type, scope),
                options=self._options(field.options, scope),
            )
            for field in fields
        )
        return tuple(sorted(made, key=lambda each: each.number))

    def _groups(self, groups: Iterable[ProtoGroup], scope: str) -> tuple[ProtoGroup, ...]:
        made = (
            replace(
                group,
                options=self._options(group.options, scope),
                body=self._message(group.body, scope),
            )
            for group in groups
        )
        return tuple(sorted(made, key=lambda each: each.number))

    def _oneof(self, oneof: ProtoOneOf, scope: str) -> ProtoOneOf:
        return replace(
            oneof,
            options=self._options(oneof.options, scope),
            fields=self._fields(oneof.fields, scope),
            groups=self._groups(oneof.groups, scope),
        )

    def _extends(self, extends: Iterable[ProtoExtend], scope: str) -> tuple[ProtoExtend, ...]:
        """Combine all extensions of one message."""
        found: dict[str, ProtoExtend] = {}
        for each in extends:
            name = self._type(each.type, scope)
            before = found.get(name, ProtoExtend(name))
            found[name] = ProtoExtend(
                name,
                self._fields((*before.fields, *each.fields), scope),
                self._groups((*before.groups, *each.groups), scope),
            )
        return tuple(found.values())

    def _enum(self, enum: ProtoEnum, scope: str) -> ProtoEnum:
        values = (replace(each, options=self._options(each.options, scope)) for each in enum.values)
        return replace(
            enum,
            options=self._options(enum.options, scope),
            reserved=_sorted_numbers(enum.reserved),
            # An enum of proto3 has to begin with zero.
            values=tuple(
                sorted(values, key=lambda v: (self._proto3 and v.number < 0, v.number, v.name))
            ),
        )

    def _service(self, service: ProtoService, scope: str) -> ProtoService:
        return replace(
            service,
            options=self._options(service.options, scope),
            methods=tuple(self._method(each, scope) for each in service.methods),
        )

    def _method(self, method: ProtoMethod, scope: str) -> ProtoMethod:
        return replace(
            method,
            input=self._streamed(method.input, scope),
            output=self._streamed(method.output, scope),
            options=self._options(method.options, scope),
        )

    def _streamed(self, text: str, scope: str) -> str:
        name = text.removeprefix("stream ")
        return text.removesuffix(name) + self._type(name, scope)

    # --------------------------------------------------------------------------------- names

    def _type(self, name: str, scope: str) -> str:
        if found := _MAP.match(name):
            return f"map<{found[1]}, {self._type(found[2], scope)}>"
        if name in SCALAR_NAMES:
            return name
        return _resolved(name, scope, self._types.messages.keys() | self._types.enums)

    def _option_name(self, name: str, scope: str) -> str:
        """The full name of a custom option, without the dot before it."""
        return _resolved(name, scope, self._types.extensions.keys()).removeprefix(".")

    # ------------------------------------------------------------------------------- options

    def _options(self, options: Iterable[ProtoOption], scope: str) -> tuple[ProtoOption, ...]:
        found: dict[str, list[Value]] = {}
        for option in options:
            first, *parts = option.path
            value = self._value(option.value, scope)
            if not first.startswith("("):
                found.setdefault(".".join(option.path), []).append(value)
                continue
            name = self._option_name(first[1:-1], scope)
            for part in reversed(parts):
                value = _Path({self._key(part, scope): value})
            self._put(found.setdefault(f"({name})", []), name, value)
        return tuple(
            ProtoOption((name,), self._value(value, scope))
            for name in sorted(found, key=_option_place)
            for value in found[name]
        )

    def _put(self, values: list[Value], name: str, value: Value) -> None:
        """Add a value; a custom option has one value unless it is repeated."""
        extension = self._types.extensions.get(f".{name}")
        repeated = extension is not None and (
            extension.label == FieldDescriptorProto.LABEL_REPEATED
        )
        if values and not repeated:
            values[0] = _merged(values[0], value)
        else:
            values.append(value)

    def _key(self, part: str, scope: str) -> str:
        return f"[{self._option_name(part[1:-1], scope)}]" if part[0] in "([" else part

    def _value(self, value: Value, scope: str) -> Value:
        if isinstance(value, ProtoWord):
            return ProtoWord(_number(value.text))
        if isinstance(value, str):
            return value
        if isinstance(value, Mapping):
            parts = {
                self._key(name, scope): self._value(inner, scope)
                for name, inner in value.items()
                if inner != []
            }
            kind = _Path if isinstance(value, _Path) else dict
            return kind(sorted(parts.items()))
        if len(value) == 1:
            return self._value(value[0], scope)
        return [self._value(each, scope) for each in value]


def _option_place(name: str) -> tuple[int, str]:
    """Sort by name; `default` and `json_name`, which are not options, come last."""
    return SPECIAL_ORDER.get(name, 0), name.strip("()")


def _merged(one: Value, other: Value) -> Value:
    """Two values of one field: parts of a message, or values of a repeated field."""
    if isinstance(one, Mapping) and isinstance(other, _Path):
        made = _Path(one)
        for name, value in other.items():
            made[name] = _merged(made[name], value) if name in made else value
        return made
    if isinstance(one, _Path) and isinstance(other, Mapping):
        return _merged(other, one)
    return [*_as_list(one), *_as_list(other)]


def _as_list(value: Value) -> list[Value]:
    return value if isinstance(value, list) else [value]


def _resolved(name: str, scope: str, known: Iterable[str]) -> str:
    """The full name, searched from the innermost scope outwards."""
    if name.startswith("."):
        return name
    while True:
        full = f"{scope}.{name}"
        if full in known:
            return full
        if not scope:
            return name
        scope = scope.rpartition(".")[0]


def _first_number(oneof: ProtoOneOf) -> int:
    numbers = [each.number for each in oneof.fields] + [each.number for each in oneof.groups]
    return min(numbers)


def _sorted_numbers(numbers: Iterable[ProtoNumbers]) -> tuple[ProtoNumbers, ...]:
    """Each number, range and name as a separate statement."""
    single = [
        ProtoNumbers((_plain(value),), each.options) for each in numbers for value in each.values
    ]
    return tuple(sorted(single, key=lambda each: _place(each.values[0])))


def _plain(value: int | ProtoRange | str) -> int | ProtoRange | str:
    if isinstance(value, ProtoRange) and value.first == value.last:
        return value.first
    return value


def _place(value: int | ProtoRange | str) -> tuple[int, str]:
    if isinstance(value, str):
        return HIGHEST_ENUM, value
    if isinstance(value, ProtoRange):
        return value.first, f"{value.first}..{value.last}"
    return value, str(value)


def _number(text: str) -> str:
    """A number in its usual form: 16 for 0x10, 2 for 2.0f. Other words do not change."""
    if _INTEGER.match(text):
        digits = text.lstrip("-")
        octal = len(digits) > 1 and digits.isdigit() and digits[0] == "0"
        return str(int(text, 8 if octal else 16 if "x" in digits.lower() else 10))
    if not _FLOAT.match(text):
        return text
    try:
        exact = Decimal(text.rstrip("fF"))
        rounded = exact.quantize(Decimal("0.001"))
    except InvalidOperation:
        return text
    # Existing registries print at most three decimals; numbers with more do not change.
    return format(rounded.normalize(), "f") if rounded == exact else text
