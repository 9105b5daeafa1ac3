"""The blocking connection to one broker: its socket, TLS and login. The protocol: `protocol.py`."""

import select
import socket
from types import TracebackType
from typing import TYPE_CHECKING, Self

from headrace.client.bearer import bearer_token
from headrace.client.config import ClientConfig, Security
from headrace.client.errors import ClientError, Unreachable
from headrace.client.login import login_requests
from headrace.client.protocol import (
    RESPONSE_HEAD_BYTES,
    Conversation,
    Message,
    NotAResponse,
    Response,
)
from headrace.types import Address

if TYPE_CHECKING:
    import ssl

SMALL_BUFFER_BYTES = 1 << 20


class Connection:
    """A socket after its login, with negotiated versions; not thread-safe."""

    def __init__(self, address: Address, config: ClientConfig) -> None:
        self.address = address
        self._conversation = Conversation(config.client_id, str(address))
        self._spare = bytearray()
        self._socket = _connect(address, config)
        try:
            self._socket.settimeout(config.request_timeout_s)
            self._write(self._conversation.ask_versions())
            self._conversation.take_versions(self.receive())
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
        """Close the socket."""
        self._socket.close()

    def fileno(self) -> int:
        """The descriptor for select: readable when a response begins to arrive."""
        return self._socket.fileno()

    def is_quiet(self) -> bool:
        """Whether no response is due, and nothing has come: neither bytes nor the end."""
        if self._conversation.is_waiting or self._socket.fileno() < 0:
            return False
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return not poll.poll(0)

    def release_buffer(self) -> None:
        """Give up a large buffer that `receive` has for its next call."""
        if len(self._spare) > SMALL_BUFFER_BYTES:
            self._spare = bytearray()

    def version(self, api_key: int, newest: int) -> int:
        """The newest version of an API, up to `newest`, that the broker supports too."""
        return self._conversation.version(api_key, newest)

    def ask(self, request: object, shape: type[Message]) -> Message:
        """Send a request and return its response."""
        self.send(request)
        return self._conversation.decode(self.receive(), shape)

    def send(self, request: object) -> None:
        """Send a request; `receive` returns its response, after those to earlier requests."""
        self._write(self._conversation.request(request))

    def receive(self, *, reuse: bool = False) -> Response:
        """The next response. With `reuse` its bytes are valid only until the next such call."""
        head = bytearray(RESPONSE_HEAD_BYTES)
        self._receive_into(memoryview(head))
        try:
            size = self._conversation.response_bytes(head)
        except NotAResponse as error:
            raise self._lost(str(error)) from error
        if reuse and len(self._spare) < size:
            self._spare = bytearray(size + (size >> 2))
        data = self._spare if reuse else bytearray(size)
        with memoryview(data) as view:
            self._receive_into(view[:size])
        return self._conversation.take_response(data, 0, size)

    def _write(self, frame: bytes) -> None:
        try:
            self._socket.sendall(frame)
        except OSError as error:
            raise self._lost(f"failed on sending: {error}") from error

    def _receive_into(self, view: memoryview) -> None:
        done, size = 0, len(view)
        try:
            while done < size:
                count = self._socket.recv_into(view[done:])
                if not count:
                    raise self._lost("closed the connection")
                done += count
        except TimeoutError as error:
            raise self._lost("did not respond in time (request.timeout.ms)") from error
        except OSError as error:
            raise self._lost(f"disconnected: {error}") from error

    def _lost(self, why: str) -> Unreachable:
        self.close()
        return Unreachable(f"the broker at {self.address} {why}")

    def _login(self, security: Security) -> None:
        token = bearer_token(security.tokens) if security.tokens else ""
        steps = login_requests(security, str(self.address), token)
        exchange = next(steps)
        while True:
            answer = self.ask(*exchange)
            try:
                exchange = steps.send(answer)
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
        context = config.security.context or _tls_context(config.security)
        return context.wrap_socket(sock, server_hostname=address.host)
    except ssl.SSLCertVerificationError as error:
        sock.close()
        raise ClientError(
            f"the certificate of {address} is not trusted ({error.verify_message}); "
            "set ssl.ca.location to the PEM file of the authority"
        ) from error
    except OSError as error:
        sock.close()
        raise Unreachable(
            f"the TLS handshake with the broker at {address} failed: {error}"
        ) from error


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
        raise ClientError(f"cannot load the TLS files: {error}") from error
    return context
