"""One connection to one broker: frames out, frames in, in the newest version both sides speak.

Requests and responses are kio's classes. The class that the caller uses names the newest version
that he knows; an older broker gets that message in its own newest version.
"""

import socket
import struct
from collections import deque
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, Self, TypeVar

from headrace.client.config import Address, ClientConfig, Security
from headrace.client.errors import ClientError, Unreachable, check
from headrace.client.login import login
from headrace.errors import ErrorCode
from headrace.wire import codec

if TYPE_CHECKING:
    import ssl

API_VERSIONS = 18
LARGEST_ANSWER_BYTES = (1 << 31) - 1

OLDEST = {1: 12, 8: 5, 9: 8, 10: 4, 13: 3, 22: 1}
"""The oldest version whose fields say what the newer ones say, where that is not 0."""

_SIZE = struct.Struct(">i")
_HEAD = struct.Struct(">hhih")
Shape = TypeVar("Shape")


class Answer(NamedTuple):
    """A response as it came: its body begins at `position` and ends at `end`."""

    version: int
    data: bytearray
    position: int
    end: int


class _Sent(NamedTuple):
    correlation_id: int
    api_key: int
    version: int
    flexible: bool


class Connection:
    """A socket with its login done and the broker's versions known; not for several threads."""

    def __init__(self, address: Address, config: ClientConfig) -> None:
        self.address = address
        self._client_id = config.client_id.encode()
        self._waiting: deque[_Sent] = deque()
        self._next_id = 1
        self._spare = bytearray()
        self._versions: dict[int, tuple[int, int]] = {}
        self._socket = _connect(address, config)
        try:
            self._socket.settimeout(config.request_timeout_s)
            self._versions = self._ask_versions()
            if config.security.login:
                self._login(config.security)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Hang up."""
        self._socket.close()

    def fileno(self) -> int:
        """For select: readable when an answer begins to arrive."""
        return self._socket.fileno()

    def version(self, api_key: int, newest: int) -> int:
        """The newest version of an API, up to `newest`, that the broker speaks too."""
        oldest = OLDEST.get(api_key, 0)
        low, high = self._versions.get(api_key, (0, -1))
        version = min(newest, high)
        if version < max(low, oldest):
            spoken = f"{low} to {high}" if high >= low else "none"
            raise ClientError(
                f"the broker at {self.address} speaks versions {spoken} of API {api_key}, and "
                f"{oldest} to {newest} are needed; Apache Kafka 3.0 and newer have them"
            )
        return version

    def ask(self, request: object, shape: type[Shape]) -> Shape:
        """One request and its answer."""
        self.send(request)
        answer = self.receive()
        return self._decode(answer, shape)

    def send(self, request: object) -> None:
        """Send a request; its answer comes from `receive`, after those to earlier ones."""
        api_key: int = request.__api_key__  # type: ignore[attr-defined]
        newest: int = request.__version__  # type: ignore[attr-defined]
        self._send(request, api_key, self.version(api_key, newest))

    def receive(self, *, reuse: bool = False) -> Answer:
        """The next answer. With `reuse` its bytes are valid only until the next such call."""
        sent = self._waiting[0]
        head = bytearray(8)
        self._receive_into(memoryview(head))
        size, correlation_id = struct.unpack(">ii", head)
        if not 4 <= size <= LARGEST_ANSWER_BYTES or correlation_id != sent.correlation_id:
            raise self._lost(f"answered with a frame of {size} bytes that is no answer")
        size -= 4
        if reuse and len(self._spare) < size:
            self._spare = bytearray(size + (size >> 2))
        data = self._spare if reuse else bytearray(size)
        with memoryview(data) as view:
            self._receive_into(view[:size])
        self._waiting.popleft()
        # An answer to ApiVersions keeps the old header, whatever its version.
        flexible = sent.flexible and sent.api_key != API_VERSIONS
        return Answer(sent.version, data, 1 if flexible else 0, size)

    def _decode(self, answer: Answer, shape: type[Shape]) -> Shape:
        try:
            return codec.decode_response(answer.version, shape, answer.data, answer.position)
        except (ValueError, IndexError, struct.error, OverflowError) as error:
            name = shape.__name__
            raise ClientError(f"{self.address} sent a {name} that is none: {error}") from error

    def _send(self, request: object, api_key: int, version: int) -> None:
        flexible: bool = codec.request_class(api_key, version).__flexible__  # type: ignore[attr-defined]
        body = codec.encode_request(version, request)
        sent = _Sent(self._next_id, api_key, version, flexible)
        self._next_id = self._next_id % 0x7FFFFFFF + 1
        head = _HEAD.pack(api_key, version, sent.correlation_id, len(self._client_id))
        head += self._client_id + (b"\0" if flexible else b"")
        try:
            self._socket.sendall(_SIZE.pack(len(head) + len(body)) + head + body)
        except OSError as error:
            raise self._lost(f"cannot be written to: {error}") from error
        self._waiting.append(sent)

    def _receive_into(self, view: memoryview) -> None:
        done, size = 0, len(view)
        try:
            while done < size:
                count = self._socket.recv_into(view[done:])
                if not count:
                    raise self._lost("closed the connection")
                done += count
        except TimeoutError as error:
            raise self._lost("did not answer in time (request.timeout.ms)") from error
        except OSError as error:
            raise self._lost(f"went away: {error}") from error

    def _lost(self, why: str) -> Unreachable:
        self.close()
        return Unreachable(f"the broker at {self.address} {why}")

    def _ask_versions(self) -> dict[int, tuple[int, int]]:
        from kio.schema.api_versions.v3.request import ApiVersionsRequest
        from kio.schema.api_versions.v3.response import ApiVersionsResponse

        from headrace import __version__

        request = ApiVersionsRequest(
            client_software_name="headrace", client_software_version=__version__
        )
        self._send(request, API_VERSIONS, 3)
        answer = self.receive()
        (code,) = struct.unpack_from(">h", answer.data, answer.position)
        if code == ErrorCode.UNSUPPORTED_VERSION:
            raise ClientError(
                f"the broker at {self.address} is too old; Apache Kafka 3.0 and newer will do"
            )
        check(code, f"asking {self.address} for its versions")
        said = self._decode(answer, ApiVersionsResponse)
        return {int(row.api_key): (row.min_version, row.max_version) for row in said.api_keys}

    def _login(self, security: Security) -> None:
        from kio.schema.sasl_authenticate.v2.request import SaslAuthenticateRequest
        from kio.schema.sasl_authenticate.v2.response import SaslAuthenticateResponse
        from kio.schema.sasl_handshake.v1.request import SaslHandshakeRequest
        from kio.schema.sasl_handshake.v1.response import SaslHandshakeResponse

        what = f"logging in to {self.address} as {security.username!r}"
        hands = self.ask(SaslHandshakeRequest(mechanism=security.mechanism), SaslHandshakeResponse)
        if hands.error_code:
            offered = ", ".join(hands.mechanisms) or "none"
            raise ClientError(f"{what}: sasl.mechanism {security.mechanism} is not of {offered}")
        steps = login(security)
        to_send = next(steps)
        while True:
            answer = self.ask(SaslAuthenticateRequest(auth_bytes=to_send), SaslAuthenticateResponse)
            check(int(answer.error_code), what, answer.error_message)
            try:
                to_send = steps.send(answer.auth_bytes)
            except StopIteration:
                return


def _connect(address: Address, config: ClientConfig) -> socket.socket:
    try:
        sock = socket.create_connection((address.host, address.port), config.connect_timeout_s)
    except OSError as error:
        raise Unreachable(f"the broker at {address} cannot be reached: {error}") from error
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if not config.security.tls:
        return sock
    import ssl

    try:
        return _tls_context(config.security).wrap_socket(sock, server_hostname=address.host)
    except ssl.SSLCertVerificationError as error:
        sock.close()
        raise ClientError(
            f"the certificate of {address} is not trusted ({error.verify_message}); "
            "name the authority's PEM file in ssl.ca.location"
        ) from error
    except OSError as error:
        sock.close()
        raise Unreachable(f"no TLS with the broker at {address}: {error}") from error


def _tls_context(security: Security) -> "ssl.SSLContext":
    import ssl

    try:
        context = ssl.create_default_context(cafile=security.ca_file)
        context.check_hostname = security.check_host
        if security.certificate_file is not None:
            context.load_cert_chain(
                security.certificate_file, security.key_file, security.key_password
            )
    except OSError as error:
        raise ClientError(f"the TLS files cannot be used: {error}") from error
    return context
