"""What is refused before OpenSSL sees it, and what is not."""

import contextlib
import struct

import pytest

from headrace.broker.setup.client_hello import (
    MOST_BYTES,
    RefusedHello,
    begins_tls,
    bytes_needed,
    check_client_hello,
)
from tests.security.hostile import client_hello, huge_hello, large_hello


def hello(*extensions: tuple[int, bytes]) -> bytes:
    """A ClientHello with these extensions, in one record."""
    joined = b"".join(struct.pack(">HH", kind, len(data)) + data for kind, data in extensions)
    body = b"\x03\x03" + bytes(32) + b"\x20" + bytes(32) + b"\0\x02\x13\x01" + b"\x01\0"
    body += struct.pack(">H", len(joined)) + joined
    message = b"\x01" + len(body).to_bytes(3, "big") + body
    return b"\x16\x03\x01" + struct.pack(">H", len(message)) + message


def groups(*numbers: int) -> tuple[int, bytes]:
    return 10, struct.pack(f">H{len(numbers)}H", 2 * len(numbers), *numbers)


def key_shares(*numbers: int) -> tuple[int, bytes]:
    shares = b"".join(struct.pack(">HH", number, 32) + bytes(32) for number in numbers)
    return 51, struct.pack(">H", len(shares)) + shares


def test_the_hello_of_openssl_is_taken() -> None:
    data = client_hello()
    assert begins_tls(data)
    assert bytes_needed(data) == len(data) < MOST_BYTES
    check_client_hello(data)


def test_a_hello_is_looked_at_when_all_of_it_has_arrived() -> None:
    data = client_hello()
    assert bytes_needed(data[:1]) == bytes_needed(data[:8]) == 9
    assert bytes_needed(data[:9]) == bytes_needed(data[:100]) == len(data)


@pytest.mark.parametrize("data", [huge_hello(), large_hello()], ids=["huge", "large"])
def test_a_hello_that_claims_much_memory_is_refused(data: bytes) -> None:
    with pytest.raises(RefusedHello, match="ClientHello of"):
        bytes_needed(data)


def test_a_hello_in_several_records_is_refused() -> None:
    data = bytearray(client_hello())
    data[3:5] = struct.pack(">H", 20)
    with pytest.raises(RefusedHello, match="more than one record"):
        bytes_needed(bytes(data))


def test_another_message_than_a_hello_is_refused() -> None:
    with pytest.raises(RefusedHello, match="does not begin"):
        bytes_needed(b"\x16\x03\x01\0\x10\x14" + bytes(20))


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (hello(groups(29, 0x0104), key_shares(0x0104)), "finite-field"),
        (hello(groups(29, 0x0100), key_shares(29, 0x0100)), "finite-field"),
        (hello(groups(0x0100, 0x0104)), "no elliptic curve"),
    ],
)
def test_finite_field_groups_are_refused(data: bytes, why: str) -> None:
    with pytest.raises(RefusedHello, match=why):
        check_client_hello(data)


@pytest.mark.parametrize(
    "data",
    [
        hello(),
        hello((0, b"\0\x0c\0\0\x09localhost")),
        hello(groups(0x0A0A, 29, 23, 0x0104), key_shares(0x0A0A, 29)),
        hello(groups(24), key_shares()),
    ],
)
def test_elliptic_curves_are_taken(data: bytes) -> None:
    check_client_hello(data)


def test_a_torn_hello_is_refused_or_left_to_openssl() -> None:
    data = hello(groups(29), key_shares(29))
    for end in range(9, len(data)):
        for torn in (data[:end], data[:end] + b"\xff" * (len(data) - end)):
            with contextlib.suppress(RefusedHello):
                check_client_hello(torn)
