"""The parts of a .proto file as they are written, without comments.

`source.py` reads them from text, `descriptor.py` from a descriptor, `text.py` prints them
and `normal.py` normalizes them. Names of types are those of the text.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

HIGHEST_FIELD = 536_870_911
HIGHEST_ENUM = 2**31 - 1
SPECIAL_ORDER = {"default": 1, "json_name": 2}
"""Parts of a field that are written like options, and printed after the options."""


@dataclass(frozen=True, slots=True)
class ProtoWord:
    """A value of an option without quotes: a number, a boolean, the name of an enum value."""

    text: str


Value: TypeAlias = "ProtoWord | str | Sequence[Value] | Mapping[str, Value]"
"""A string is text; bytes that are not UTF-8 become surrogates (PEP 383)."""


@dataclass(frozen=True, slots=True)
class ProtoOption:
    """An option. Its name has parts: `(shop.owner).name` is ("(shop.owner)", "name")."""

    path: tuple[str, ...]
    value: Value


@dataclass(frozen=True, slots=True)
class ProtoRange:
    """Numbers from the first to the last, both included."""

    first: int
    last: int


@dataclass(frozen=True, slots=True)
class ProtoNumbers:
    """One `reserved` or `extensions` statement: numbers, ranges and names."""

    values: tuple[int | ProtoRange | str, ...]
    options: tuple[ProtoOption, ...] = ()


@dataclass(frozen=True, slots=True)
class ProtoField:
    label: str
    """`required`, `optional`, `repeated`, or empty."""
    type: str
    name: str
    number: int
    options: tuple[ProtoOption, ...] = ()
    """With those of SPECIAL_ORDER at the end."""


@dataclass(frozen=True, slots=True)
class ProtoGroup:
    label: str
    number: int
    options: tuple[ProtoOption, ...]
    body: "ProtoMessage"


@dataclass(frozen=True, slots=True)
class ProtoOneOf:
    name: str
    options: tuple[ProtoOption, ...] = ()
    fields: tuple[ProtoField, ...] = ()
    groups: tuple[ProtoGroup, ...] = ()


@dataclass(frozen=True, slots=True)
class ProtoEnumValue:
    name: str
    number: int
    options: tuple[ProtoOption, ...] = ()


@dataclass(frozen=True, slots=True)
class ProtoEnum:
    name: str
    options: tuple[ProtoOption, ...] = ()
    reserved: tuple[ProtoNumbers, ...] = ()
    values: tuple[ProtoEnumValue, ...] = ()


@dataclass(frozen=True, slots=True)
class ProtoExtend:
    """Extensions of one message."""

    type: str
    fields: tuple[ProtoField, ...] = ()
    groups: tuple[ProtoGroup, ...] = ()


@dataclass(frozen=True, slots=True)
class ProtoMessage:
    name: str
    reserved: tuple[ProtoNumbers, ...] = ()
    options: tuple[ProtoOption, ...] = ()
    fields: tuple[ProtoField, ...] = ()
    oneofs: tuple[ProtoOneOf, ...] = ()
    groups: tuple[ProtoGroup, ...] = ()
    extensions: tuple[ProtoNumbers, ...] = ()
    extends: tuple[ProtoExtend, ...] = ()
    messages: tuple["ProtoMessage", ...] = ()
    enums: tuple[ProtoEnum, ...] = ()


@dataclass(frozen=True, slots=True)
class ProtoMethod:
    name: str
    input: str
    """The type, with the prefix `stream ` for a stream."""
    output: str
    options: tuple[ProtoOption, ...] = ()


@dataclass(frozen=True, slots=True)
class ProtoService:
    name: str
    options: tuple[ProtoOption, ...] = ()
    methods: tuple[ProtoMethod, ...] = ()


@dataclass(frozen=True, slots=True)
class ProtoFile:
    syntax: str = ""
    """The first statement without the semicolon: `syntax = "proto3"`. It may be empty."""
    package: str = ""
    imports: tuple[str, ...] = ()
    public_imports: tuple[str, ...] = ()
    weak_imports: tuple[str, ...] = ()
    options: tuple[ProtoOption, ...] = ()
    messages: tuple[ProtoMessage, ...] = ()
    enums: tuple[ProtoEnum, ...] = ()
    extends: tuple[ProtoExtend, ...] = ()
    services: tuple[ProtoService, ...] = ()
