"""SASL on the client's side: the messages to send, and the verification of the server.

PLAIN sends the password; SCRAM (RFC 5802) proves that both sides know it; OAUTHBEARER (RFC 7628)
sends a token from `bearer.py`; GSSAPI is in `kerberos.py`. There is no I/O here, except that GSSAPI
may request a ticket from a KDC: the connections send the messages.
"""

import base64
import hashlib
import hmac
import secrets
from collections.abc import Generator
from typing import Any, TypeAlias

from headrace.client.config import Security
from headrace.client.errors import ClientError, check
from headrace.client.kerberos import kerberos_login

Exchange: TypeAlias = tuple[object, type[Any]]
"""A request, and the class of its response."""

MIN_ITERATIONS = 4096
MAX_ITERATIONS = 1_000_000


def login_requests(
    security: Security, address: str, token: str = ""
) -> Generator[Exchange, Any, None]:
    """Yield the requests of a login, and receive each response. `token` is for OAUTHBEARER."""
    from kio.schema.sasl_authenticate.v2.request import SaslAuthenticateRequest
    from kio.schema.sasl_authenticate.v2.response import SaslAuthenticateResponse
    from kio.schema.sasl_handshake.v1.request import SaslHandshakeRequest
    from kio.schema.sasl_handshake.v1.response import SaslHandshakeResponse

    security = security.current()
    user = f" as {security.username!r}" if security.username else ""
    what = f"logging in to {address}{user}"
    hands = yield SaslHandshakeRequest(mechanism=security.mechanism), SaslHandshakeResponse
    if hands.error_code:
        offered = ", ".join(hands.mechanisms) or "none"
        raise ClientError(
            f"{what}: the broker does not enable {security.mechanism}; it has {offered}"
        )
    steps = login(security, token, address.rpartition(":")[0].strip("[]"))
    to_send = next(steps)
    while True:
        answer = yield SaslAuthenticateRequest(auth_bytes=to_send), SaslAuthenticateResponse
        check(int(answer.error_code), what, answer.error_message)
        try:
            to_send = steps.send(answer.auth_bytes)
        except StopIteration:
            return


def login(security: Security, token: str = "", host: str = "") -> Generator[bytes, bytes, None]:
    """Yield the messages to send, and receive each reply. Ends when the server is verified."""
    if security.tickets is not None:
        return kerberos_login(security.tickets, host)
    if security.mechanism == "OAUTHBEARER":
        return _bearer(token)
    if security.mechanism == "PLAIN":
        return _plain(security.username, security.password)
    return _scram(
        security.mechanism.rpartition("-")[2],
        security.username,
        security.password,
        _nonce(),
        ",tokenauth=true" if security.by_token else "",
    )


def _nonce() -> str:
    return secrets.token_urlsafe(24)


def _plain(username: str, password: str) -> Generator[bytes, bytes, None]:
    yield f"\0{username}\0{password}".encode()


def _bearer(token: str) -> Generator[bytes, bytes, None]:
    refusal = yield f"n,,\x01auth=Bearer {token}\x01\x01".encode()
    if refusal:
        yield b"\x01"  # the broker responds to this with the error
        raise ClientError(f"the broker refused the token: {refusal!r}")


def _scram(
    bits: str, username: str, password: str, nonce: str, extensions: str = ""
) -> Generator[bytes, bytes, None]:
    digest = f"sha{bits}"
    name = username.replace("=", "=3D").replace(",", "=2C")
    first = f"n={name},r={nonce}{extensions}"
    challenge = (yield f"n,,{first}".encode()).decode()
    fields = _fields(challenge)
    try:
        salt, count = base64.b64decode(fields["s"]), int(fields["i"])
    except (KeyError, ValueError) as error:
        raise ClientError(f"malformed SCRAM challenge from the broker: {error}") from error
    if not fields.get("r", "").startswith(nonce) or fields["r"] == nonce:
        raise ClientError("the nonce in the broker's SCRAM challenge does not match")
    if not MIN_ITERATIONS <= count <= MAX_ITERATIONS:
        raise ClientError(
            f"the broker requires {count} SCRAM iterations; at least {MIN_ITERATIONS}"
        )
    salted = hashlib.pbkdf2_hmac(digest, password.encode(), salt, count)
    key = hmac.digest(salted, b"Client Key", digest)
    final = f"c=biws,r={fields['r']}"
    signed = ",".join((first, challenge, final)).encode()
    signature = hmac.digest(hashlib.new(digest, key).digest(), signed, digest)
    proof = bytes(a ^ b for a, b in zip(key, signature, strict=True))
    answer = _fields((yield f"{final},p={base64.b64encode(proof).decode()}".encode()).decode())
    expected = hmac.digest(hmac.digest(salted, b"Server Key", digest), signed, digest)
    if not hmac.compare_digest(base64.b64decode(answer.get("v", "")), expected):
        raise ClientError("the broker could not prove that it knows the password (SCRAM)")


def _fields(text: str) -> dict[str, str]:
    return dict(part.split("=", 1) for part in text.split(",") if "=" in part)
