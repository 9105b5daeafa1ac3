"""The scalar types in which kio's message classes are declared.

kio has a type for every wire type (`i32`, `TopicName`, ...). The type checker uses these types, so
that a handler cannot put an int16 where an int64 belongs. At run time they are plain numbers and
strings: kio's constructors check each value, which the codec does again when it encodes.
"""

from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from headrace.errors import ErrorCode

_Response = TypeVar("_Response")

if TYPE_CHECKING:
    from kio.schema.errors import ErrorCode as WireError
    from kio.schema.types import BrokerId, GroupId, ProducerId, TopicName, TransactionalId
    from kio.static.primitive import Records, f64, i8, i16, i32, i32Timedelta, i64, u16

    def error(code: ErrorCode) -> WireError:
        """Our error code, with the type of kio's."""

    def milliseconds(value: int) -> i32Timedelta:
        """A duration as kio's type."""

    def records(data: bytes) -> Records:
        """Batches as kio's type."""
else:

    def _plain(value):
        return value

    f64 = i8 = i16 = i32 = i64 = u16 = error = records = _plain
    BrokerId = GroupId = ProducerId = TopicName = TransactionalId = _plain

    def milliseconds(value):
        return timedelta(milliseconds=value)


def to_milliseconds(duration: timedelta) -> int:
    """A duration of kio's type in milliseconds."""
    return duration // _MILLISECOND


_MILLISECOND = timedelta(milliseconds=1)
NO_ERROR = error(ErrorCode.NONE)


def respond(response: "partial[_Response]") -> _Response:
    """A response without its throttle time, which is filled in where responses are encoded.

    It is given as a partial of kio's class, so that the type checker knows its fields.
    """
    return response(throttle_time=_NO_THROTTLE)


_NO_THROTTLE = timedelta(0)

__all__ = [
    "NO_ERROR",
    "BrokerId",
    "GroupId",
    "ProducerId",
    "TopicName",
    "TransactionalId",
    "error",
    "f64",
    "i8",
    "i16",
    "i32",
    "i64",
    "milliseconds",
    "records",
    "respond",
    "to_milliseconds",
    "u16",
]
