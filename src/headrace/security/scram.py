"""SCRAM (RFC 5802) on the broker's side, and its credentials.

The broker stores data that verify a password, never the password. An unknown user gets a challenge
like a known one, with the same salt on all brokers and after a restart, and is refused in the last
step.
"""

import base64
import hashlib
import hmac
import math
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from headrace.security.logins import LoginRefused
from headrace.security.state import ScramCredential

_Option = TypeVar("_Option")

MIN_ITERATIONS = 4096
MAX_ITERATIONS = 16_384
DIGESTS: Mapping[str, str] = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
SALT_BYTES = 16
KAFKA_SALT = -1
"""Stands for the length of salts of Kafka's tools, which are numbers of 130 bits as text."""
_DIGITS = b"0123456789abcdefghijklmnopqrstuvwxyz"
_KAFKA_SALT = re.compile(rb"[0-9a-z]{20,25}|1[0-9a-z]{25}")


def credential_from_password(
    mechanism: str, password: str, iterations: int = MIN_ITERATIONS
) -> ScramCredential:
    """The credential of a new password; takes milliseconds."""
    salt = secrets.token_bytes(SALT_BYTES)
    salted = hashlib.pbkdf2_hmac(DIGESTS[mechanism], password.encode(), salt, iterations)
    return credential_from_salted(mechanism, salt, iterations, salted)


def credential_from_salted(
    mechanism: str, salt: bytes, iterations: int, salted_password: bytes
) -> ScramCredential:
    """The credential of a password that a client has salted and hashed."""
    digest = DIGESTS[mechanism]
    client_key = hmac.digest(salted_password, b"Client Key", digest)
    stored_key = hashlib.new(digest, client_key).digest()
    server_key = hmac.digest(salted_password, b"Server Key", digest)
    return ScramCredential(salt, iterations, stored_key, server_key)


def is_password(mechanism: str, credential: ScramCredential, password: str) -> bool:
    """Whether the password matches the credential; takes milliseconds."""
    digest = DIGESTS[mechanism]
    salted = hashlib.pbkdf2_hmac(digest, password.encode(), credential.salt, credential.iterations)
    client_key = hmac.digest(salted, b"Client Key", digest)
    return hmac.compare_digest(hashlib.new(digest, client_key).digest(), credential.stored_key)


class ChallengeForm(NamedTuple):
    """What a challenge shows of a credential, apart from the bytes of its salt."""

    salt_bytes: int
    """The length of the salt; KAFKA_SALT for one that Kafka's tools have made."""
    iterations: int


def challenge_form(credential: ScramCredential) -> ChallengeForm:
    """The form of a user's challenge."""
    made_by_kafka = _KAFKA_SALT.fullmatch(credential.salt) is not None
    salt_bytes = KAFKA_SALT if made_by_kafka else len(credential.salt)
    return ChallengeForm(salt_bytes, credential.iterations)


DEFAULT_FORM = ChallengeForm(SALT_BYTES, MIN_ITERATIONS)


def invented_choice(options: Mapping[_Option, int], username: str, secret: bytes) -> _Option:
    """One of the options for a user who does not exist, as often as real users have it.

    `options` has the number of users with each. A name keeps its choice while the numbers stay, and
    nearly always when they change a little: a user who is added or removed must not show in the
    challenges of unknown ones.
    """

    def score(option: _Option) -> float:
        digest = hmac.digest(secret, f"choice {option!r} {username}".encode(), "sha256")
        return math.log((int.from_bytes(digest[:8]) + 1) / 2**64) / options[option]

    return max(options, key=score)


def invented_credential(
    mechanism: str, username: str, secret: bytes, form: ChallengeForm = DEFAULT_FORM
) -> ScramCredential:
    """A credential for an unknown user: always the same salt, and without a valid password."""
    source = hashlib.shake_256(secret + f"salt {mechanism} {username}".encode())
    if form.salt_bytes == KAFKA_SALT:
        salt = _base36(int.from_bytes(source.digest(17)) >> 6)
    else:
        salt = source.digest(form.salt_bytes)
    size = hashlib.new(DIGESTS[mechanism]).digest_size
    return ScramCredential(salt, form.iterations, secrets.token_bytes(size), bytes(size))


def _base36(number: int) -> bytes:
    digits = bytearray()
    while number:
        number, digit = divmod(number, 36)
        digits.append(_DIGITS[digit])
    return bytes(reversed(digits))


@dataclass(frozen=True, slots=True)
class ClientFirst:
    """The client's first message: user name, nonce and extensions."""

    username: str
    nonce: str
    bare: str
    extensions: Mapping[str, str]


def parse_client_first(message: bytes) -> ClientFirst:
    """Parse the first message; LoginRefused if it is malformed."""
    try:
        text = message.decode()
        binding, authzid, bare = text.split(",", 2)
        fields = bare.split(",")
        name, nonce = fields[0], fields[1]
        extensions = dict(part.split("=", 1) for part in fields[2:])
    except (UnicodeDecodeError, ValueError, IndexError) as error:
        raise LoginRefused("malformed first SCRAM message") from error
    if binding != "n":
        raise LoginRefused("SCRAM with channel binding is not supported")
    if not name.startswith("n=") or not nonce.startswith("r=") or len(nonce) < 3:
        raise LoginRefused("malformed first SCRAM message")
    username = _plain_name(name[2:])
    if authzid and _plain_name(authzid.removeprefix("a=")) != username:
        raise LoginRefused("the authorization id is not the user's name")
    return ClientFirst(username, nonce[2:], bare, extensions)


def _plain_name(name: str) -> str:
    """A name without SCRAM's escapes for `,` and `=`."""
    if not name or "=" in name.replace("=2C", "").replace("=3D", ""):
        raise LoginRefused("malformed SCRAM user name")
    return name.replace("=2C", ",").replace("=3D", "=")


class ScramExchange:
    """The second half of a SCRAM login: the challenge, and the check of the proof."""

    def __init__(self, mechanism: str, first: ClientFirst, credential: ScramCredential) -> None:
        self._digest = DIGESTS[mechanism]
        self._credential = credential
        self._nonce = first.nonce + secrets.token_urlsafe(24)
        salt = base64.b64encode(credential.salt).decode()
        self._challenge = f"r={self._nonce},s={salt},i={credential.iterations}"
        self._first = first.bare

    @property
    def challenge(self) -> bytes:
        """The reply to the client's first message."""
        return self._challenge.encode()

    def finish(self, message: bytes) -> bytes:
        """Check the client's proof and return the broker's; LoginRefused if it is wrong."""
        try:
            text = message.decode()
            without_proof, proof_text = text.rsplit(",p=", 1)
            proof = base64.b64decode(proof_text, validate=True)
            fields = dict(part.split("=", 1) for part in without_proof.split(","))
        except ValueError as error:
            raise LoginRefused("malformed last SCRAM message") from error
        if fields.get("c") != "biws":
            raise LoginRefused("the header in the last SCRAM message differs from the first")
        if not hmac.compare_digest(fields.get("r", "").encode(), self._nonce.encode()):
            raise LoginRefused(
                "the last SCRAM message has another nonce (librdkafka before 2.6.1 does this)"
            )
        signed = ",".join((self._first, self._challenge, without_proof)).encode()
        stored_key = self._credential.stored_key
        signature = hmac.digest(stored_key, signed, self._digest)
        if len(proof) != len(signature):
            raise LoginRefused("wrong password, or no such user")
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        if not hmac.compare_digest(hashlib.new(self._digest, client_key).digest(), stored_key):
            raise LoginRefused("wrong password, or no such user")
        own = hmac.digest(self._credential.server_key, signed, self._digest)
        return b"v=" + base64.b64encode(own)
