"""Counts the error codes in a response of kio's classes, wherever they stand in it."""

from collections.abc import Iterable
from functools import cache

from headrace.apis.request_errors import RequestErrors
from headrace.wire.codec import response_class
from headrace.wire.codec_fields import Class, fields
from headrace.wire.steps import Steps

_STRIDE = 256
"""Elements between two yields."""


def count_error_codes(api_key: int, response: object, errors: RequestErrors) -> Steps[None]:
    """Add all codes in the response other than NONE."""
    seen = 0
    left: list[tuple[Class, Iterable[object]]] = [(response_class(api_key), (response,))]
    while left:
        shape, messages = left.pop()
        codes, nested = _places(shape)
        for message in messages:
            for name in codes:
                code = getattr(message, name)
                if code:
                    errors.add(api_key, code)
            for name, entity, is_array in nested:
                value = getattr(message, name)
                if value:
                    left.append((entity, value if is_array else (value,)))
            seen += 1
            if not seen % _STRIDE:
                yield


@cache
def _places(shape: Class) -> tuple[tuple[str, ...], tuple[tuple[str, Class, bool], ...]]:
    """The fields with an error code, and the nested messages that have some, in arrays or not."""
    every = fields(shape)
    return (
        tuple(one.name for one in every if one.kind == "error_code" and not one.array),
        tuple(
            (one.name, one.entity, one.array)
            for one in every
            if one.entity is not None and any(_places(one.entity))
        ),
    )
