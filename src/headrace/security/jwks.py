"""The keys with which an issuer signs tokens: a JSON Web Key Set (RFC 7517), kept up to date.

A thread reads the set from a file or over HTTP, again after each refresh interval, and earlier if a
token has a key id that is not in the set. Logins wait for it only if their key is unknown. If the
set cannot be read, the last one stays in use.
"""

import logging
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from time import monotonic
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

from headrace.security.jwt import InvalidToken, decode_base64url, parse_object, shown

logger = logging.getLogger(__name__)

UNKNOWN_KEY_PAUSE_S = 10.0
"""The shortest interval between reads that tokens with an unknown key cause."""
_SHORTEST_BACKOFF_S = 0.05
_LEAST_RSA_BITS = 2048
_MOST_RSA_BITS = 8192
_MOST_KEYS = 1000

_Hash = type[hashes.SHA256] | type[hashes.SHA384] | type[hashes.SHA512]
_HASHES: dict[str, _Hash] = {"256": hashes.SHA256, "384": hashes.SHA384, "512": hashes.SHA512}
_RSA = frozenset(f"{family}{bits}" for family in ("RS", "PS") for bits in _HASHES)
_CURVES: dict[str, tuple[str, ec.EllipticCurve]] = {
    "P-256": ("ES256", ec.SECP256R1()),
    "P-384": ("ES384", ec.SECP384R1()),
    "P-521": ("ES512", ec.SECP521R1()),
}


@dataclass(frozen=True, slots=True)
class Jwk:
    """A public key and the signature algorithms that it permits."""

    key: rsa.RSAPublicKey | ec.EllipticCurvePublicKey
    algorithms: frozenset[str]

    def has_signed(self, algorithm: str, data: bytes, signature: bytes) -> bool:
        """Whether the signature of the data is valid."""
        if algorithm not in self.algorithms:
            return False
        digest = _HASHES[algorithm[2:]]()
        try:
            if isinstance(self.key, ec.EllipticCurvePublicKey):
                half = (self.key.curve.key_size + 7) // 8
                if len(signature) != 2 * half:
                    return False
                r, s = (int.from_bytes(part) for part in (signature[:half], signature[half:]))
                self.key.verify(encode_dss_signature(r, s), data, ec.ECDSA(digest))
            elif algorithm.startswith("PS"):
                pss = padding.PSS(padding.MGF1(digest), digest.digest_size)
                self.key.verify(signature, data, pss, digest)
            else:
                self.key.verify(signature, data, padding.PKCS1v15(), digest)
        except InvalidSignature:
            return False
        return True


@dataclass(frozen=True, slots=True)
class KeySet:
    """The usable keys of a JSON Web Key Set."""

    keys: dict[str | None, tuple[Jwk, ...]]
    """The keys by key id."""

    def find(self, key_id: str | None, algorithm: str) -> Jwk | None:
        """The key of a token, or None. For a token without a key id the set must have one key."""
        if key_id is None:
            found: Iterable[Jwk] = [key for keys in self.keys.values() for key in keys]
            if len(list(found)) != 1:
                return None
        else:
            found = self.keys.get(key_id, ())
        return next((key for key in found if algorithm in key.algorithms), None)


def parse_key_set(data: bytes) -> KeySet:
    """The keys for signatures; InvalidToken if it is not a key set or has none."""
    entries = parse_object(data, "key set").get("keys")
    if not isinstance(entries, list) or len(entries) > _MOST_KEYS:
        raise InvalidToken(f"its field keys is not a list of at most {_MOST_KEYS} keys")
    found: dict[str | None, tuple[Jwk, ...]] = {}
    for entry in entries:
        try:
            key_id, key = _parse_key(entry)
        except (InvalidToken, ValueError, TypeError) as error:
            logger.warning("ignoring a key of the key set: %s", error)
            continue
        found[key_id] = (*found.get(key_id, ()), key)
    if not found:
        raise InvalidToken("it has no RSA or EC key for signatures")
    return KeySet(found)


def _parse_key(entry: Any) -> tuple[str | None, Jwk]:
    if not isinstance(entry, dict):
        raise InvalidToken("it is not a JSON object")
    key_id, stated = entry.get("kid"), entry.get("alg")
    if key_id is not None and not isinstance(key_id, str):
        raise InvalidToken("its id is not a string")
    operations = entry.get("key_ops", ["verify"])
    if entry.get("use", "sig") != "sig" or "verify" not in operations:
        raise InvalidToken(f"{shown(key_id)} is not for signatures")
    key: rsa.RSAPublicKey | ec.EllipticCurvePublicKey
    if entry.get("kty") == "RSA":
        modulus = _integer(entry, "n")
        if not _LEAST_RSA_BITS <= modulus.bit_length() <= _MOST_RSA_BITS:
            raise InvalidToken(
                f"{shown(key_id)} has {modulus.bit_length()} bits; RSA keys have "
                f"{_LEAST_RSA_BITS} to {_MOST_RSA_BITS}"
            )
        key, algorithms = rsa.RSAPublicNumbers(_integer(entry, "e"), modulus).public_key(), _RSA
    elif entry.get("kty") == "EC" and entry.get("crv") in _CURVES:
        algorithm, curve = _CURVES[entry["crv"]]
        numbers = ec.EllipticCurvePublicNumbers(_integer(entry, "x"), _integer(entry, "y"), curve)
        key, algorithms = numbers.public_key(), frozenset([algorithm])
    else:
        raise InvalidToken(f"{shown(key_id)} has the type {shown(entry.get('kty'))}")
    if stated is not None:
        algorithms &= {stated}
    if not algorithms:
        raise InvalidToken(f"{shown(key_id)} is for the algorithm {shown(stated)}")
    return key_id, Jwk(key, algorithms)


def _integer(entry: dict[str, Any], name: str) -> int:
    value = entry.get(name)
    if not isinstance(value, str):
        raise InvalidToken(f"its field {name} is missing")
    return int.from_bytes(decode_base64url(value, name))


@dataclass(frozen=True, slots=True)
class RefreshTimes:
    """The intervals at which a key set is read."""

    refresh_s: float
    backoff_s: float
    most_backoff_s: float


class RefreshedKeys:
    """The current key set of an issuer; a thread keeps it up to date."""

    def __init__(self, source: str, read: Callable[[], bytes], times: RefreshTimes) -> None:
        self._source = source
        self._read = read
        self._times = times
        self._changed = threading.Condition()
        self._wanted: Future[None] | None = Future()
        """Done after the next read; set from the start, because the first read is always needed."""
        self._may_ask_at = 0.0
        self._closed = False
        self._failure = ""
        self.current: KeySet | None = None
        self._thread = threading.Thread(target=self._run, name="jwks", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def read_again(self) -> "Future[None] | None":
        """A future that is done after another read; None if the last one was too recent."""
        with self._changed:
            if self._wanted is None:
                if monotonic() < self._may_ask_at:
                    return None
                self._wanted = Future()
                self._may_ask_at = monotonic() + UNKNOWN_KEY_PAUSE_S
                self._changed.notify()
            return self._wanted

    def close(self) -> None:
        """Stop the thread without waiting, because it may be in the middle of a request."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def load(self) -> str:
        """Read the set now; the reason of a failure, or an empty string."""
        try:
            self.current = parse_key_set(self._read())
        except (OSError, InvalidToken) as error:
            failure = f"cannot read the keys of tokens from {self._source}: {error}"
            if failure != self._failure:
                logger.warning("%s; retrying", failure)
        else:
            failure = ""
            if self._failure:
                logger.warning("the keys of tokens can be read again from %s", self._source)
        self._failure = failure
        return failure

    def _run(self) -> None:
        backoff_s = self._times.backoff_s
        while True:
            if self.load():
                pause_s = max(_SHORTEST_BACKOFF_S, min(backoff_s, self._times.most_backoff_s))
                backoff_s *= 2
            else:
                pause_s, backoff_s = self._times.refresh_s, self._times.backoff_s
            self._tell_waiting()
            with self._changed:
                if not self._closed and self._wanted is None:
                    self._changed.wait(min(pause_s, threading.TIMEOUT_MAX))
                closed = self._closed
            if closed:
                self._tell_waiting()
                return

    def _tell_waiting(self) -> None:
        with self._changed:
            done, self._wanted = self._wanted, None
        if done is not None:
            done.set_result(None)
