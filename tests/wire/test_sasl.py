"""The messages of a login have the same bytes as their message classes."""

from datetime import timedelta

import pytest
from kio.schema.sasl_authenticate.v2.request import SaslAuthenticateRequest
from kio.schema.sasl_authenticate.v2.response import SaslAuthenticateResponse
from kio.schema.sasl_handshake.v1.request import SaslHandshakeRequest
from kio.schema.sasl_handshake.v1.response import SaslHandshakeResponse

from headrace.errors import ErrorCode, MalformedRequest
from headrace.wire import codec
from headrace.wire.primitives import error
from headrace.wire.sasl import (
    authenticate_body,
    handshake_body,
    read_authenticate,
    read_handshake,
)

HANDSHAKE, AUTHENTICATE = 17, 36
TOKENS = (b"", b"n,,n=alice,r=abc", b"\x00\xff" * 500)


@pytest.mark.parametrize("version", [0, 1])
def test_a_handshake_is_read_and_answered_as_its_classes_are(version: int) -> None:
    request = SaslHandshakeRequest(mechanism="SCRAM-SHA-256")
    assert read_handshake(codec.encode_request(version, request)) == "SCRAM-SHA-256"
    for code in (ErrorCode.NONE, ErrorCode.UNSUPPORTED_SASL_MECHANISM):
        response = SaslHandshakeResponse(error_code=error(code), mechanisms=("PLAIN", "GSSAPI"))
        expected = codec.encode(HANDSHAKE, version, response)
        assert handshake_body(code, ["PLAIN", "GSSAPI"]) == expected


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("token", TOKENS)
def test_a_token_is_read_and_answered_as_its_classes_are(version: int, token: bytes) -> None:
    request = SaslAuthenticateRequest(auth_bytes=token)
    assert read_authenticate(codec.encode_request(version, request), version) == token
    for code, message in (
        (ErrorCode.NONE, None),
        (ErrorCode.SASL_AUTHENTICATION_FAILED, "authentication failed: é"),
    ):
        response = SaslAuthenticateResponse(
            error_code=error(code),
            error_message=message,
            auth_bytes=token,
            session_lifetime=timedelta(milliseconds=86_400_123),  # type: ignore[arg-type]
        )
        expected = codec.encode(AUTHENTICATE, version, response)
        assert authenticate_body(version, code, message, token, 86_400_123) == expected


@pytest.mark.parametrize(
    ("version", "body"),
    [
        (1, b"\xff\xff\xff\xff"),
        (1, b"\x00\x00\x00\x05abcd"),
        (1, b"\x7f\xff\xff\xff"),
        (2, b"\x00\x00"),
        (2, b"\x06abcd"),
        (2, b"\x03ab\x01\x00\x09x"),
    ],
)
def test_a_malformed_token_is_refused(version: int, body: bytes) -> None:
    with pytest.raises(MalformedRequest):
        read_authenticate(body, version)


@pytest.mark.parametrize("body", [b"\xff\xff", b"\x00\x06PLAIN"])
def test_a_malformed_handshake_is_refused(body: bytes) -> None:
    with pytest.raises(MalformedRequest):
        read_handshake(body)
