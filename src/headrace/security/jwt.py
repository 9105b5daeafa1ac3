"""JSON Web Tokens: which signatures and claims make a token a login (RFC 7515, 7518, 7519, 8725).

A token counts only if a key of the issuer's key set signed it and if it names the expected issuer,
an expected audience and a time of expiry. The key's own type decides which algorithms are possible;
nothing in the token's header can bring another key. Pure functions without I/O: `oauthbearer.py`
calls them in a worker thread.
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
"""Header fields by which a token would bring its own key."""
_TYPES = ("jwt", "at+jwt", "application/jwt", "application/at+jwt")
UNSIGNED = "none"


class InvalidToken(Exception):
    """The token is no login; the text is for the broker's log and holds no part that is secret."""


@dataclass(frozen=True, slots=True)
class TokenRules:
    """What a token must say."""

    issuer: str
    audiences: Sequence[str]
    user_claim: str = "sub"
    scope_claim: str = "scope"
    skew_s: int = 30
    unsigned: bool = False
    """Whether unsigned tokens count; for tests only."""


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
    """The user that a valid token names, and until when."""

    username: str
    expiry_ms: int


def parse_token(token: str) -> ParsedToken:
    """The parts of a token in the compact form; InvalidToken if it is malformed."""
    if len(token) > LARGEST_TOKEN_BYTES:
        raise InvalidToken(f"it has {len(token)} bytes; at most {LARGEST_TOKEN_BYTES} are read")
    parts = token.split(".")
    if len(parts) != 3:
        raise InvalidToken("it is no signed token of three parts")
    header = _object(parts[0], "header")
    algorithm, key_id = header.get("alg"), header.get("kid")
    if not isinstance(algorithm, str):
        raise InvalidToken("its header names no algorithm")
    if key_id is not None and not isinstance(key_id, str):
        raise InvalidToken("the key id in its header is no text")
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
    """The user of a token; InvalidToken unless `key` has signed it and its claims are right.

    `key` is None for unsigned tokens only.
    """
    if token.algorithm == UNSIGNED:
        if not rules.unsigned:
            raise InvalidToken("it is not signed")
        if token.signature:
            raise InvalidToken("it claims to be unsigned and has a signature")
    elif key is None or not key.has_signed(token.algorithm, token.signed, token.signature):
        raise InvalidToken("its signature is wrong")
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
        raise InvalidToken(f"its claim {rules.scope_claim} is neither a text nor a list of texts")
    # A login that ends at once would be repeated with the same token.
    ends_s = expiry_s if expiry_s > now_s else expiry_s + rules.skew_s
    return TokenUser(_username(claims, rules.user_claim), int(ends_s * 1000))


def _username(claims: Mapping[str, Any], claim: str) -> str:
    name = claims.get(claim)
    if not isinstance(name, str) or not name or name != name.strip() or not name.isprintable():
        raise InvalidToken(f"its claim {claim} is no user name: {shown(name)}")
    if len(name) > LONGEST_USERNAME:
        raise InvalidToken(f"its claim {claim} has more than {LONGEST_USERNAME} characters")
    return name


def _time(claims: Mapping[str, Any], name: str) -> float:
    """A claim that is a time, in seconds since 1970."""
    value = claims.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidToken(f"its claim {name} is missing or no number")
    if not 0 <= value <= _LATEST_S:
        raise InvalidToken(f"its claim {name} is no time: {shown(value)}")
    return value


# -------------------------------------------------------------------------------- the encoding


def decode_base64url(text: str, what: str) -> bytes:
    """The bytes of base64url without padding, in the one form that encodes them."""
    try:
        data = base64.b64decode(text.encode() + b"=" * (-len(text) % 4), b"-_", validate=True)
    except (ValueError, binascii.Error):
        raise InvalidToken(f"its {what} is no base64url") from None
    if base64.urlsafe_b64encode(data).rstrip(b"=") != text.encode():
        raise InvalidToken(f"its {what} is no base64url")
    return data


def parse_object(data: bytes, what: str) -> dict[str, Any]:
    """A JSON object, in which no name occurs twice; InvalidToken if it is none."""
    try:
        value = json.loads(
            data.decode(), object_pairs_hook=_without_duplicates, parse_constant=_refuse_constant
        )
    except (ValueError, RecursionError):
        # The text of the error may quote the token.
        raise InvalidToken(f"its {what} cannot be read: no JSON, or a name occurs twice") from None
    if not isinstance(value, dict):
        raise InvalidToken(f"its {what} is no JSON object")
    return value


def _object(part: str, what: str) -> dict[str, Any]:
    return parse_object(decode_base64url(part, what), what)


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("duplicate name")
    return found


def _refuse_constant(word: str) -> object:
    raise ValueError(f"{word} is no JSON value")


def shown(value: object) -> str:
    """A value from a token for the log: on one line and short."""
    text = ascii(value)
    return text if len(text) <= 100 else f"{text[:100]}..."
