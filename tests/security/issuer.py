"""An issuer of tokens for tests: keys, tokens, and an HTTP server that behaves as it is told."""

import base64
import json
import threading
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

ISSUER, AUDIENCE = "https://issuer.example", "kafka"
HASHES: dict[str, hashes.HashAlgorithm] = {
    "256": hashes.SHA256(),
    "384": hashes.SHA384(),
    "512": hashes.SHA512(),
}
CURVES: dict[str, tuple[str, ec.EllipticCurve]] = {
    "ES256": ("P-256", ec.SECP256R1()),
    "ES384": ("P-384", ec.SECP384R1()),
    "ES512": ("P-521", ec.SECP521R1()),
}
PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey


def encode(data: bytes | str | Mapping[str, Any]) -> str:
    """base64url, of JSON if it is no text."""
    if not isinstance(data, bytes | str):
        data = json.dumps(data)
    if isinstance(data, str):
        data = data.encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _number(value: int, size: int | None = None) -> str:
    return encode(value.to_bytes(size or (value.bit_length() + 7) // 8))


def claims(user: str = "alice", lifetime_s: float = 3600, **changes: Any) -> dict[str, Any]:
    """The claims of a valid token; a change to None leaves one out."""
    now = int(time.time())
    given = {
        "iss": ISSUER, "aud": AUDIENCE, "sub": user, "iat": now, "exp": now + lifetime_s, **changes
    }  # fmt: skip
    return {name: value for name, value in given.items() if value is not None}


class SigningKey:
    """A private key with its id."""

    def __init__(self, key_id: str, algorithm: str = "RS256", bits: int = 2048) -> None:
        self.key_id = key_id
        self.algorithm = algorithm
        self.private: PrivateKey
        if algorithm in CURVES:
            self.private = ec.generate_private_key(CURVES[algorithm][1])
        else:
            self.private = rsa.generate_private_key(65537, bits)

    def jwk(self, **changes: Any) -> dict[str, Any]:
        """The public key as an entry of a key set."""
        public = self.private.public_key()
        numbers: dict[str, Any]
        if isinstance(public, rsa.RSAPublicKey):
            rsa_numbers = public.public_numbers()
            numbers = {"kty": "RSA", "n": _number(rsa_numbers.n), "e": _number(rsa_numbers.e)}
        else:
            point, size = public.public_numbers(), (public.curve.key_size + 7) // 8
            numbers = {
                "kty": "EC", "crv": CURVES[self.algorithm][0],
                "x": _number(point.x, size), "y": _number(point.y, size),
            }  # fmt: skip
        return {"kid": self.key_id, "use": "sig", **numbers, **changes}

    def signature(self, data: bytes, algorithm: str) -> bytes:
        digest = HASHES[algorithm[2:]]
        if isinstance(self.private, ec.EllipticCurvePrivateKey):
            size = (self.private.curve.key_size + 7) // 8
            r, s = decode_dss_signature(self.private.sign(data, ec.ECDSA(digest)))
            return r.to_bytes(size) + s.to_bytes(size)
        if algorithm.startswith("PS"):
            pss = padding.PSS(padding.MGF1(digest), digest.digest_size)
            return self.private.sign(data, pss, digest)
        return self.private.sign(data, padding.PKCS1v15(), digest)

    def token(
        self,
        said: Mapping[str, Any] | str | None = None,
        header: Mapping[str, Any] | None = None,
        algorithm: str | None = None,
    ) -> str:
        """A signed token; `header` changes or adds fields."""
        algorithm = algorithm or self.algorithm
        head = {"alg": algorithm, "kid": self.key_id, "typ": "JWT", **(header or {})}
        head = {name: value for name, value in head.items() if value is not None}
        signed = f"{encode(head)}.{encode(claims() if said is None else said)}"
        return f"{signed}.{encode(self.signature(signed.encode(), algorithm))}"


def key_set(*keys: SigningKey) -> bytes:
    return json.dumps({"keys": [key.jwk() for key in keys]}).encode()


def write_key_set(path: Path, *keys: SigningKey) -> str:
    """Write a key set; its URL."""
    path.write_bytes(key_set(*keys))
    return path.as_uri()


class Provider:
    """An HTTP server with a key set at /keys and tokens at /token; it hangs on demand."""

    def __init__(self, *keys: SigningKey) -> None:
        self.keys = list(keys)
        self.answering = threading.Event()
        self.answering.set()
        self.status = 200
        self.asked: list[str] = []
        self.forms: list[dict[str, list[str]]] = []
        self.logins: list[str] = []
        self.lifetime_s = 3600

    def __enter__(self) -> Self:
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                provider.asked.append(self.path)
                provider.answering.wait(120)
                self._answer(key_set(*provider.keys))

            def do_POST(self) -> None:
                provider.asked.append(self.path)
                body = self.rfile.read(int(self.headers["Content-Length"]))
                provider.forms.append(parse_qs(body.decode()))
                login = base64.b64decode(self.headers["Authorization"].removeprefix("Basic "))
                provider.logins.append(login.decode())
                user = login.decode().partition(":")[0]
                token = provider.keys[0].token(claims(user, provider.lifetime_s))
                answer = {
                    "access_token": token,
                    "token_type": "Bearer",
                    "expires_in": provider.lifetime_s,
                }
                self._answer(json.dumps(answer).encode())

            def _answer(self, body: bytes) -> None:
                self.send_response(provider.status)
                if provider.status == 302:
                    self.send_header("Location", f"{provider.url}/elsewhere")
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.answering.set()
        self._server.shutdown()
        self._server.server_close()
