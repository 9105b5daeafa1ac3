"""python -m benchmarks.security.logins PORT MECHANISM SECONDS SECRET: logs in as often as it can.

Each login is a new TLS connection, SaslHandshake and SaslAuthenticate. SECRET is a password or a
token. The password is stretched once, as clients do that remember it. Prints how many there were.
"""

import base64
import hashlib
import hmac
import secrets
import socket
import ssl
import struct
import sys
import time

from benchmarks.security.brokers import SCRAM, USER

_stretched: dict[tuple[bytes, int], bytes] = {}


class Login:
    """One connection."""

    def __init__(self, port: int, context: ssl.SSLContext) -> None:
        plain = socket.create_connection(("127.0.0.1", port), 60)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = context.wrap_socket(plain)

    def _ask(self, key: int, body: bytes) -> bytes:
        head = struct.pack(">hhih", key, 1, 7, 5) + b"bench"
        self._socket.sendall(struct.pack(">i", len(head) + len(body)) + head + body)
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = self._socket.recv(size - len(data))
            if not piece:
                raise ConnectionError("the broker closed the connection during a login")
            data += piece
        return data

    def _authenticate(self, message: bytes) -> bytes:
        answer = self._ask(36, struct.pack(">i", len(message)) + message)
        code, text = struct.unpack_from(">hh", answer, 4)
        if code:
            raise PermissionError(f"the login failed with error {code}: {answer!r}")
        at = 8 + max(text, 0)
        (size,) = struct.unpack_from(">i", answer, at)
        return answer[at + 4 : at + 4 + size]

    def run(self, mechanism: str, secret: str) -> None:
        """Log in; raises if that fails."""
        name = mechanism.encode()
        answer = self._ask(17, struct.pack(">h", len(name)) + name)
        if struct.unpack_from(">h", answer, 4) != (0,):
            raise PermissionError(f"{mechanism} is refused")
        if mechanism == SCRAM:
            self._scram(secret)
        else:
            refusal = self._authenticate(f"n,,\x01auth=Bearer {secret}\x01\x01".encode())
            if refusal:
                raise PermissionError(f"the token is refused: {refusal!r}")
        self._socket.close()

    def _scram(self, password: str) -> None:
        first = f"n={USER},r={secrets.token_urlsafe(24)}"
        challenge = self._authenticate(b"n,," + first.encode()).decode()
        fields = dict(part.split("=", 1) for part in challenge.split(","))
        salt, rounds = base64.b64decode(fields["s"]), int(fields["i"])
        if (salt, rounds) not in _stretched:
            _stretched[salt, rounds] = hashlib.pbkdf2_hmac(
                "sha256", password.encode(), salt, rounds
            )
        salted = _stretched[salt, rounds]
        final = f"c=biws,r={fields['r']}"
        client_key = hmac.digest(salted, b"Client Key", "sha256")
        signature = hmac.digest(
            hashlib.sha256(client_key).digest(), f"{first},{challenge},{final}".encode(), "sha256"
        )
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self._authenticate(f"{final},p={base64.b64encode(proof).decode()}".encode())


def main() -> None:
    port, mechanism, seconds, secret = sys.argv[1:5]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    end = time.monotonic() + float(seconds)
    count = 0
    while time.monotonic() < end:
        Login(int(port), context).run(mechanism, secret)
        count += 1
    print(count)


if __name__ == "__main__":
    main()
