"""Single values of a Protobuf schema, in the JSON mapping of Protobuf."""

from google.protobuf import json_format, message_factory

from headrace.schemas.errors import BadValue
from headrace.schemas.interface import RegisteredSchema
from headrace.schemas.protobuf.messages import (
    FIRST_MESSAGE,
    descriptor_of,
    message_at,
    message_indexes,
    message_named,
)


class ProtobufValues:
    """Writes the first message of a file; reads any of them."""

    def __init__(self, schema: RegisteredSchema) -> None:
        self._file = descriptor_of(schema)

    def encode(self, value: object) -> bytes:
        kind = message_factory.GetMessageClass(message_named(self._file, None))
        try:
            message = json_format.ParseDict(value, kind())
        except (json_format.ParseError, TypeError, AttributeError) as error:
            raise BadValue(str(error)) from None
        return FIRST_MESSAGE + bytes(message.SerializeToString())

    def decode(self, data: bytes) -> object:
        indexes, start = message_indexes(data)
        kind = message_factory.GetMessageClass(message_at(self._file, indexes))
        message = kind.FromString(data[start:])
        return json_format.MessageToDict(message, preserving_proto_field_name=True)
