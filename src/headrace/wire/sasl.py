"""The messages of a login: SaslHandshake (17) v0-1 and SaslAuthenticate (36) v0-2.

Encoded by hand, because every new connection exchanges three of them, and because a broker whose
clients send only these and hot requests never imports the message classes.

    SaslHandshake     request   mechanism string
                      response  error_code int16, mechanisms array of string
    SaslAuthenticate  request   auth_bytes bytes
                      response  error_code int16, error_message nullable string, auth_bytes bytes,
                                from v1 session_lifetime_ms int64; v2 is flexible
"""

import struct
from collections.abc import Sequence

from headrace.errors import ErrorCode, MalformedRequest
from headrace.wire.varint import read_uvarint, skip_tagged_fields, uvarint

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_CODE_AND_COUNT = struct.Struct(">hi")
_LIFETIME_FROM, _FLEXIBLE_FROM = 1, 2


def read_handshake(body: bytes) -> str:
    """The mechanism that a SaslHandshake asks for."""
    return _taken(body, _INT16.size, _INT16.unpack_from(body)[0]).decode()


def handshake_body(error: ErrorCode, mechanisms: Sequence[str]) -> bytes:
    """The body of a SaslHandshake response."""
    names = (mechanism.encode() for mechanism in mechanisms)
    return _CODE_AND_COUNT.pack(error, len(mechanisms)) + b"".join(
        _INT16.pack(len(name)) + name for name in names
    )


def read_authenticate(body: bytes, version: int) -> bytes:
    """The mechanism's message in a SaslAuthenticate."""
    if version < _FLEXIBLE_FROM:
        return _taken(body, _INT32.size, _INT32.unpack_from(body)[0])
    size, start = read_uvarint(body, 0)
    token = _taken(body, start, size - 1)
    skip_tagged_fields(body, start + len(token))
    return token


def authenticate_body(
    version: int, error: ErrorCode, message: str | None, token: bytes, lifetime_ms: int
) -> bytes:
    """The body of a SaslAuthenticate response."""
    code = _INT16.pack(error)
    text = None if message is None else message.encode()
    if version >= _FLEXIBLE_FROM:
        code += uvarint(0) if text is None else uvarint(len(text) + 1) + text
        return code + uvarint(len(token) + 1) + token + _INT64.pack(lifetime_ms) + uvarint(0)
    code += _INT16.pack(-1) if text is None else _INT16.pack(len(text)) + text
    body = code + _INT32.pack(len(token)) + token
    return body + _INT64.pack(lifetime_ms) if version >= _LIFETIME_FROM else body


def _taken(body: bytes, start: int, size: int) -> bytes:
    if size < 0 or start + size > len(body):
        raise MalformedRequest(f"a field of {size} bytes reaches past the end of the request")
    return body[start : start + size]
