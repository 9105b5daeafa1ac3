"""The first message of a TLS handshake, looked at before OpenSSL gets it.

OpenSSL reserves the memory that a ClientHello claims to need, up to 128 KB, and agrees on keys by
any group that the client offers. Finite-field groups (`ffdhe8192`) cost the broker 20 times as much
as a usual handshake and the client nothing, and Python's `ssl` module cannot switch them off. Kafka
clients send about 500 bytes in one record, and offer elliptic curves.

    record     0x16  version:2  length:2          handshake  0x01  length:3
    version:2  random:32  session id:<1>  cipher suites:<2>  compressions:<1>  extensions:<2>
    extension  type:2  data:<2>           <n>: a length of n bytes, then so many bytes
"""

import struct
from collections.abc import Iterator

_RECORD_HEAD_BYTES = 5
_HEAD = struct.Struct(">BHHBBH")
_SESSION_ID_AT = _HEAD.size + 2 + 32
_TLS_HANDSHAKE, _CLIENT_HELLO = 0x16, 0x01
_SUPPORTED_GROUPS, _KEY_SHARE = 10, 51
_ELLIPTIC = frozenset({23, 24, 25, 29, 30})
"""secp256r1, secp384r1, secp521r1, x25519, x448."""
_FINITE_FIELD = range(0x0100, 0x0200)
MOST_BYTES = 16 * 1024
"""The largest first record that is taken, with its head."""


class RefusedHello(Exception):
    """Why a client's first bytes do not begin a handshake that the broker takes part in."""


def begins_tls(data: bytes) -> bool:
    """Whether a client's first bytes are those of a TLS handshake."""
    return data[0] == _TLS_HANDSHAKE


def bytes_needed(data: bytes) -> int:
    """How many of a client's first bytes `check_client_hello` needs to see."""
    if len(data) < _HEAD.size:
        return _HEAD.size
    _, _, record, kind, high, low = _HEAD.unpack_from(data)
    message: int = high << 16 | low
    if kind != _CLIENT_HELLO:
        raise RefusedHello("does not begin its TLS handshake with a ClientHello")
    if message > MOST_BYTES - _HEAD.size:
        raise RefusedHello(f"sends a TLS ClientHello of {message} bytes")
    if record < message + _HEAD.size - _RECORD_HEAD_BYTES:
        raise RefusedHello("sends its TLS ClientHello in more than one record")
    return message + _HEAD.size


def check_client_hello(data: bytes) -> None:
    """RefusedHello if the message asks for an expensive handshake."""
    try:
        for kind, value in _extensions(data):
            if kind == _SUPPORTED_GROUPS:
                groups = {group for (group,) in struct.iter_unpack(">H", value[2:])}
                if not groups & _ELLIPTIC:
                    raise RefusedHello("offers no elliptic curve for its TLS handshake")
            elif kind == _KEY_SHARE and any(one in _FINITE_FIELD for one in _key_shares(value)):
                raise RefusedHello("wants to use a finite-field group (ffdhe) in its TLS handshake")
    except (struct.error, IndexError):
        return  # OpenSSL finds out what is wrong with it


def _extensions(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = _SESSION_ID_AT
    at += 1 + data[at]
    at += 2 + struct.unpack_from(">H", data, at)[0]
    at += 1 + data[at]
    end = at + 2 + struct.unpack_from(">H", data, at)[0]
    at += 2
    while at < end:
        kind, size = struct.unpack_from(">HH", data, at)
        yield kind, data[at + 4 : at + 4 + size]
        at += 4 + size


def _key_shares(value: bytes) -> Iterator[int]:
    at = 2
    while at < len(value):
        group, size = struct.unpack_from(">HH", value, at)
        yield group
        at += 4 + size
