"""The fields of kio's classes, for the codec that reads and writes them."""

import dataclasses
import datetime
import struct
import types
import typing
from functools import cache

Class: typing.TypeAlias = type


@dataclasses.dataclass(frozen=True, slots=True)
class MessageField:
    """One field of a message, as kio's class declares it."""

    name: str
    kind: str  # Kafka's type; "entity" for a nested message
    entity: Class | None
    array: bool
    nullable: bool
    tag: int | None
    default: object  # of a field that the message does not have


def fields(message: Class) -> list[MessageField]:
    """The fields of one of kio's classes, in their order on the wire."""
    assert dataclasses.is_dataclass(message), message
    return [_describe(field) for field in dataclasses.fields(message)]


def _describe(field: "dataclasses.Field[object]") -> MessageField:
    declared = field.type
    nullable = array = False
    if isinstance(declared, types.UnionType):
        nullable = True
        declared = next(a for a in typing.get_args(declared) if a is not types.NoneType)
    if typing.get_origin(declared) is tuple:
        array = True
        declared = typing.get_args(declared)[0]
    entity = declared if dataclasses.is_dataclass(declared) else None
    assert entity is None or isinstance(entity, type)
    kind = "entity" if entity is not None else str(field.metadata["kafka_type"])
    if field.default is not dataclasses.MISSING:
        default: object = field.default
    elif nullable:
        default = None
    elif array:
        default = ()
    elif entity is not None:
        default = entity(**{nested.name: nested.default for nested in fields(entity)})
    else:
        default = _ABSENT[kind]
    return MessageField(
        field.name, kind, entity, array, nullable, field.metadata.get("tag"), default
    )


EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_ABSENT: dict[str, object] = {
    "bool": False,
    "bytes": b"",
    "datetime_i64": EPOCH,
    "error_code": 0,
    "float64": 0.0,
    "int8": 0,
    "int16": 0,
    "int32": 0,
    "int64": 0,
    "records": b"",
    "string": "",
    "timedelta_i32": datetime.timedelta(0),
    "timedelta_i64": datetime.timedelta(0),
    "uint16": 0,
    "uint32": 0,
    "uuid": None,
}
NUMBERS = {
    "bool": struct.Struct(">?"),
    "error_code": struct.Struct(">h"),
    "float64": struct.Struct(">d"),
    "int8": struct.Struct(">b"),
    "int16": struct.Struct(">h"),
    "int32": struct.Struct(">i"),
    "int64": struct.Struct(">q"),
    "uint16": struct.Struct(">H"),
    "uint32": struct.Struct(">I"),
}
INT16, INT32, INT64 = NUMBERS["int16"], NUMBERS["int32"], NUMBERS["int64"]


@cache
def arrays(message: Class) -> tuple[tuple[str, bool], ...]:
    """The arrays of a class other than those of numbers, and whether their elements have some."""
    if not dataclasses.is_dataclass(message):
        return ()
    return tuple(
        (field.name, field.entity is not None and bool(arrays(field.entity)))
        for field in fields(message)
        if field.array and field.kind not in NUMBERS
    )
