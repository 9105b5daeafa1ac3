"""JSON Web Tokens: the checks that make a token a valid login (RFC 7515, 7518, 7519, 8725).

A token is valid only if a key of the issuer's key set signed it and if it has the expected issuer,
an expected audience and an expiry time. The type of the key determines the possible algorithms;
nothing in the token's header can introduce another key. The functions are pure and without I/O:
`oauthbearer.py` calls them in a worker thread.
"""

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.security.jwks import Jwk

LARGEST_TOKEN_BYTES = 64 * 1024
LONGEST_USERNAME = 255
_LATEST_S = 253_402_300_799
"""The end of the year 9999."""
_OWN_KEYS = ("jwk", "jku", "x5u", "x5c")
"""Header fields with which a token would introduce its own key."""
_TYPES = ("jwt", "at+jwt", "application/jwt", "application/at+jwt")
UNSIGNED = "none"


class InvalidToken(Exception):
    """The token is not valid. The message is for the broker's log and has no secret part."""


@dataclass(frozen=True, slots=True)
class TokenRules:
    """The required claims of tokens."""

    issuer: str
    audiences: Sequence[str]
    user_claim: str = "sub"
    scope_claim: str = "scope"
    skew_s: int = 30
    unsigned: bool = False
    """Whether unsigned tokens are accepted; for tests only."""


@dataclass(frozen=True, slots=True)
class ParsedToken:
    """A token whose signature has not been checked."""

    algorithm: str
    key_id: str | None
    claims: Mapping[str, Any]
    signed: bytes
    signature: bytes


@dataclass(frozen=True, slots=True)
class TokenUser:
    """The user of a valid token, and its expiry."""

    username: str
    expiry_ms: int


def parse_token(token: str) -> ParsedToken:
    """The parts of a token in the compact form; InvalidToken if it is malformed."""
    if len(token) > LARGEST_TOKEN_BYTES:
        raise InvalidToken(f"it has {len(token)} bytes; at most {LARGEST_TOKEN_BYTES} are allowed")
    parts = token.split(".")
    if len(parts) != 3:
        raise InvalidToken("it is not a signed token of three parts")
    header = _object(parts[0], "header")
    algorithm, key_id = header.get("alg"), header.get("kid")
    if not isinstance(algorithm, str):
        raise InvalidToken("its header has no algorithm")
    if key_id is not None and not isinstance(key_id, str):
        raise InvalidToken("the key id in its header is not a string")
    for name in (*_OWN_KEYS, "crit"):
        if name in header:
            raise InvalidToken(f"its header has the field {name}, which is not accepted")
    kind = header.get("typ", "JWT")
    if not isinstance(kind, str) or kind.lower() not in _TYPES:
        raise InvalidToken(f"its type is {shown(kind)}, not JWT")
    claims = _object(parts[1], "claims")
    signed = f"{parts[0]}.{parts[1]}".encode()
    return ParsedToken(algorithm, key_id, claims, signed, decode_base64url(parts[2], "signature"))


def verify_token(
    token: ParsedToken, key: "Jwk | None", rules: TokenRules, now_ms: int
) -> TokenUser:
    """The user of a token; InvalidToken unless `key` signed it and its claims are valid.

    `key` is None for unsigned tokens only.
    """
    if token.algorithm == UNSIGNED:
        if not rules.unsigned:
            raise InvalidToken("it is not signed")
        if token.signature:
            raise InvalidToken("its algorithm is none, but it has a signature")
    elif key is None or not key.has_signed(token.algorithm, token.signed, token.signature):
        raise InvalidToken("its signature is invalid")
    return _check_claims(token.claims, rules, now_ms)


def _check_claims(claims: Mapping[str, Any], rules: TokenRules, now_ms: int) -> TokenUser:
    issuer, audience = claims.get("iss"), claims.get("aud")
    if issuer != rules.issuer or not isinstance(issuer, str):
        raise InvalidToken(f"its issuer is {shown(issuer)}, not {rules.issuer}")
    audiences = audience if isinstance(audience, list) else [audience]
    if not any(isinstance(one, str) and one in rules.audiences for one in audiences):
        raise InvalidToken(f"its audience is {shown(audience)}")
    now_s = now_ms / 1000
    expiry_s = _time(claims, "exp")
    for name in ("iat", "nbf"):
        if name == "iat" or name in claims:
            early_s = _time(claims, name) - now_s
            if early_s > rules.skew_s:
                raise InvalidToken(f"it becomes valid in {early_s:.0f} s ({name})")
    if expiry_s + rules.skew_s <= now_s:
        raise InvalidToken(f"it expired {now_s - expiry_s:.0f} s ago")
    scope = claims.get(rules.scope_claim, "")
    scopes = scope if isinstance(scope, list) else [scope]
    if not all(isinstance(one, str) for one in scopes):
        raise InvalidToken(
            f"its claim {rules.scope_claim} is neither a string nor a list of strings"
        )
    # A login that expires immediately would be repeated with the same token.
    ends_s = expiry_s if expiry_s > now_s else expiry_s + rules.skew_s
    return TokenUser(_username(claims, rules.user_claim), int(ends_s * 1000))


def _username(claims: Mapping[str, Any], claim: str) -> str:
    name = claims.get(claim)
    if not isinstance(name, str) or not name or name != name.strip() or not name.isprintable():
        raise InvalidToken(f"its claim {claim} is not a user name: {shown(name)}")
    if len(name) > LONGEST_USERNAME:
        raise InvalidToken(f"its claim {claim} has more than {LONGEST_USERNAME} characters")
    return name


def _time(claims: Mapping[str, Any], name: str) -> float:
    """A claim that is a time, in seconds since 1970."""
    value = claims.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidToken(f"its claim {name} is missing or not a number")
    if not 0 <= value <= _LATEST_S:
        raise InvalidToken(f"its claim {name} is not a valid time: {shown(value)}")
    return value


# -------------------------------------------------------------------------------- the encoding


def decode_base64url(text: str, what: str) -> bytes:
    """Decode base64url without padding; only the canonical encoding is accepted."""
    try:
        data = base64.b64decode(text.encode() + b"=" * (-len(text) % 4), b"-_", validate=True)
    except (ValueError, binascii.Error):
        raise InvalidToken(f"its {what} is not base64url") from None
    if base64.urlsafe_b64encode(data).rstrip(b"=") != text.encode():
        raise InvalidToken(f"its {what} is not base64url")
    return data


def parse_object(data: bytes, what: str) -> dict[str, Any]:
    """Parse a JSON object without duplicate names; InvalidToken if it is malformed."""
    try:
        value = json.loads(
            data.decode(), object_pairs_hook=_without_duplicates, parse_constant=_refuse_constant
        )
    except (ValueError, RecursionError):
        # The message of the error may quote the token.
        raise InvalidToken(f"its {what} is not valid JSON, or has a duplicate name") from None
    if not isinstance(value, dict):
        raise InvalidToken(f"its {what} is not a JSON object")
    return value


def _object(part: str, what: str) -> dict[str, Any]:
    return parse_object(decode_base64url(part, what), what)


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("duplicate name")
    return found


def _refuse_constant(word: str) -> object:
    raise ValueError(f"{word} is not a JSON value")


def shown(value: object) -> str:
    """A value from a token for the log: on one line and short."""
    text = ascii(value)
    return text if len(text) <= 100 else f"{text[:100]}..."
