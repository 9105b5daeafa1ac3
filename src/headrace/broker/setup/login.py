"""SASL logins: the first requests on a listener that requires them, and re-authentication.

Until a client has logged in, only ApiVersions, once, and SaslHandshake are accepted; any other
request closes the connection without being decoded. SaslHandshake v1 is followed by
SaslAuthenticate requests, v0 by the mechanism's messages as plain frames. A failed login gets the
same error message for all causes, after a delay, and then the connection is closed.

A login that expires, by `connections.max.reauth.ms` or with its token, has to be repeated by the
same user with the same mechanism (KIP-368). Connections without an expiry are then served by
dispatch alone.
"""

import asyncio
import logging
import struct
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any

from headrace.apis.hot import Answer, CloseConnection, Later
from headrace.apis.routes import API_VERSIONS, ROUTES, SASL_AUTHENTICATE, SASL_HANDSHAKE
from headrace.broker.connection import ClientConnection, Handler, Limits
from headrace.broker.setup.log_limit import LogLimit
from headrace.broker.setup.setups import Setups
from headrace.clock import Clock
from headrace.errors import ErrorCode, KafkaError, MalformedRequest
from headrace.security.audit import Audit
from headrace.security.logins import LoginRefused
from headrace.security.mechanisms import Exchange, LoggedIn, RefusedWithStatus
from headrace.wire.framing import (
    REQUEST_START_BYTES,
    frame_response,
    request_start,
)
from headrace.wire.sasl import (
    authenticate_body,
    handshake_body,
    read_authenticate,
    read_handshake,
)
from headrace.wire.varint import skip_tagged_fields

logger = logging.getLogger(__name__)
logger.addFilter(LogLimit())

_UNREADABLE = (MalformedRequest, struct.error, IndexError, UnicodeDecodeError)
_SIZE = struct.Struct(">i")
_RAW_HANDSHAKE = 0
"""The version of SaslHandshake that is followed by plain frames."""
RELOGIN_PAUSE_S = 1.0
"""A client that logs in again sooner than this is refused."""


@dataclass(frozen=True, slots=True)
class LoginRules:
    """The login settings of one listener."""

    listener: str
    mechanisms: Sequence[str]
    make_exchange: Callable[[str], Exchange]
    clock: Clock
    failure_delay_s: float
    under_way: "Setups[Login]"
    """The logins of all listeners that are not done."""
    most_session_ms: int
    """The longest lifetime of a login; 0: until its token expires."""
    first_limits: Limits
    """The limits before a client has logged in."""
    limits: Limits
    dispatch: Handler
    audit: Audit
    welcome: Callable[[ClientConnection, LoggedIn], None]
    """Sets the user of a login as the principal of the connection."""


class Login:
    """Serves a connection until its client has logged in, and again when the login has expired."""

    def __init__(self, rules: LoginRules) -> None:
        self._rules = rules
        self._versions_asked = False
        self._mechanism = ""
        self._exchange: Exchange | None = None
        self._raw = False
        self._refused: RefusedWithStatus | None = None
        self._connection: ClientConnection | None = None
        """Until the first login is done."""
        self._user: LoggedIn | None = None
        self._ends_at = 0.0
        self._logged_in_at = 0.0

    @property
    def first_limits(self) -> Limits:
        """The limits before the client has logged in."""
        return self._rules.first_limits

    def begin(self, connection: ClientConnection) -> None:
        """Begin the time in which the client has to log in."""
        self._connection = connection
        self._rules.under_way.begin(self)

    def end(self, why: str) -> None:
        """Close the connection of a client that has not logged in."""
        assert self._connection is not None, "a login that is not done has a connection"
        if why:
            logger.warning("closing %s: it %s", self._connection.address, why)
        self._connection.close()

    def leave_setup(self) -> None:
        """The client has logged in, or its connection is closed."""
        self._rules.under_way.finish(self)
        self._connection = None

    def handle(
        self, connection: ClientConnection, buf: bytearray, view: memoryview, pos: int, end: int
    ) -> Answer | Later:
        """The response to a request of a login, or of a client that has logged in."""
        try:
            return self._handle(connection, buf, view, pos, end)
        except CloseConnection:
            raise
        except _UNREADABLE as error:
            raise CloseConnection(f"malformed request before the login: {error}") from error
        except Exception as error:
            logger.exception("unexpected error in a login from %s", connection.address)
            raise CloseConnection("internal error") from error

    def _handle(
        self, connection: ClientConnection, buf: bytearray, view: memoryview, pos: int, end: int
    ) -> Answer | Later:
        if self._raw:
            connection.hold()
            return self._step_raw(connection, bytes(view[pos:end]))
        key, version, correlation_id, size = request_start(buf, pos)
        if self._exchange is None:
            if key == SASL_HANDSHAKE.key:
                connection.hold()
                body = self._body(SASL_HANDSHAKE, buf, version, pos, end, size)
                return self._handshake(connection, version, correlation_id, bytes(view[body:end]))
            if self._user is not None and monotonic() < self._ends_at:
                return self._rules.dispatch.handle(connection, buf, view, pos, end)
            if self._user is None and key == API_VERSIONS.key and not self._versions_asked:
                self._versions_asked = version <= API_VERSIONS.max_version
                return self._rules.dispatch.handle(connection, buf, view, pos, end)
            why = "its login has expired" if self._user else "it has not logged in"
            raise CloseConnection(f"it sent a request with API key {key}, but {why}")
        connection.hold()
        if key == SASL_AUTHENTICATE.key:
            body = self._body(SASL_AUTHENTICATE, buf, version, pos, end, size)
            return self._authenticate(connection, version, correlation_id, bytes(view[body:end]))
        return self._refuse_other(connection, buf, view, pos, end)

    def _body(self, route: Any, buf: bytearray, version: int, pos: int, end: int, size: int) -> int:
        """The position of a request's first field."""
        body = pos + REQUEST_START_BYTES + max(size, 0)
        if body > end or not route.min_version <= version <= route.max_version:
            raise CloseConnection(f"malformed {route.name} v{version} before the login")
        return skip_tagged_fields(buf, body) if version >= route.flexible_from else body

    # ---------------------------------------------------------------------------- the steps

    async def _handshake(
        self, connection: ClientConnection, version: int, correlation_id: int, body: bytes
    ) -> Answer:
        try:
            mechanism = read_handshake(body)
        except _UNREADABLE as unreadable:
            raise CloseConnection(f"malformed SaslHandshake: {unreadable}") from unreadable
        code, why = self._check_mechanism(mechanism)
        response = handshake_body(code, self._rules.mechanisms)
        answer = frame_response(correlation_id, False, response)
        if code is not ErrorCode.NONE:
            await self._refuse(connection, answer, why)
        self._mechanism = mechanism
        self._exchange = self._rules.make_exchange(mechanism)
        self._raw = version == _RAW_HANDSHAKE
        return answer

    def _check_mechanism(self, mechanism: str) -> tuple[ErrorCode, str]:
        if self._user is not None:
            if monotonic() < self._logged_in_at + RELOGIN_PAUSE_S:
                return ErrorCode.ILLEGAL_SASL_STATE, "it logged in less than a second ago"
            if mechanism != self._mechanism:
                why = f"it logs in again with {mechanism} instead of {self._mechanism}"
                return ErrorCode.SASL_AUTHENTICATION_FAILED, why
        if mechanism not in self._rules.mechanisms:
            wanted = ", ".join(self._rules.mechanisms)
            why = f"it wants to log in with {mechanism}; {self._rules.listener} has {wanted}"
            return ErrorCode.UNSUPPORTED_SASL_MECHANISM, why
        return ErrorCode.NONE, ""

    async def _authenticate(
        self, connection: ClientConnection, version: int, correlation_id: int, body: bytes
    ) -> Answer:
        def answer(code: ErrorCode, message: str | None, token: bytes, lifetime_ms: int) -> bytes:
            response = authenticate_body(version, code, message, token, lifetime_ms)
            flexible = version >= SASL_AUTHENTICATE.flexible_from
            return frame_response(correlation_id, flexible, response)

        try:
            token = read_authenticate(body, version)
        except _UNREADABLE as unreadable:
            raise CloseConnection(f"malformed SaslAuthenticate: {unreadable}") from unreadable
        try:
            token, lifetime_ms = await self._step(connection, token)
        except LoginRefused as refused:
            text = f"authentication failed: invalid credentials with {self._mechanism}"
            refusal = answer(ErrorCode.SASL_AUTHENTICATION_FAILED, text, b"", 0)
            await self._refuse(connection, refusal, f"its login failed: {refused}")
        return answer(ErrorCode.NONE, None, token, lifetime_ms)

    async def _step_raw(self, connection: ClientConnection, token: bytes) -> Answer:
        try:
            answer, _ = await self._step(connection, token)
        except LoginRefused as refused:
            await self._refuse(connection, None, f"its login failed: {refused}")
        return _SIZE.pack(len(answer)) + answer

    async def _step(self, connection: ClientConnection, token: bytes) -> tuple[bytes, int]:
        """The response to a token, and the lifetime of the login if it is complete."""
        assert self._exchange is not None, "a token follows a handshake"
        if self._refused is not None:
            raise self._refused
        try:
            answer = await self._exchange.step(token)
        except RefusedWithStatus as refused:
            # Recorded now, because the client need not acknowledge it.
            self._record_failure(connection, f"its login failed: {refused}")
            self._refused = refused
            return refused.status, 0
        user = self._exchange.result
        if user is None:
            return answer, 0
        self._exchange, self._raw = None, False
        if self._user is not None and user.username != self._user.username:
            raise LoginRefused(f"it logs in again as {user.username}, not {self._user.username}")
        return answer, self._finish(connection, user)

    def _finish(self, connection: ClientConnection, user: LoggedIn) -> int:
        """Serve the user; the lifetime of the login in milliseconds, 0 without a limit."""
        rules = self._rules
        self._user = user
        self.leave_setup()
        self._logged_in_at = monotonic()
        rules.welcome(connection, user)
        rules.audit.login(connection.caller, self._mechanism)
        lifetimes = [rules.most_session_ms] if rules.most_session_ms else []
        if user.expiry_ms is not None:
            lifetimes.append(max(1, user.expiry_ms - rules.clock.now_ms()))
        if not lifetimes:
            connection.serve_with(rules.dispatch, rules.limits)
            return 0
        connection.serve_with(self, rules.limits)
        self._ends_at = self._logged_in_at + min(lifetimes) / 1000
        return min(lifetimes)

    # ----------------------------------------------------------------------------- refusals

    def _refuse_other(
        self, connection: ClientConnection, buf: bytearray, view: memoryview, pos: int, end: int
    ) -> Coroutine[None, None, Answer]:
        """Refuse another request during a login with its own response, then close."""
        from headrace.wire import codec
        from headrace.wire.refusal import refusal

        key, version, correlation_id, size = request_start(buf, pos)
        route = ROUTES.get(key)
        why = f"it sent a request with API key {key} in the middle of a login"
        if route is None or not route.min_version <= version <= route.max_version:
            raise CloseConnection(why)
        body = self._body(route, buf, version, pos, end, size)
        try:
            request = codec.decode(key, version, bytes(view[body:end]))
        except (
            *_UNREADABLE,
            ModuleNotFoundError,
        ) as error:  # some versions of Produce have no class
            raise CloseConnection(why) from error
        response = refusal(key, request, KafkaError(ErrorCode.ILLEGAL_SASL_STATE))
        encoded = codec.encode(key, version, response)
        flexible = version >= route.flexible_from
        return self._refuse(connection, frame_response(correlation_id, flexible, encoded), why)

    async def _refuse(self, connection: ClientConnection, answer: bytes | None, why: str) -> Answer:
        """Respond after a delay, in which the client is not read, and close."""
        if self._refused is None:
            self._record_failure(connection, why)
        await asyncio.sleep(self._rules.failure_delay_s)
        if answer is not None:
            connection.send(answer)
        raise CloseConnection(why)

    def _record_failure(self, connection: ClientConnection, why: str) -> None:
        user = self._exchange.username if self._exchange is not None else ""
        self._rules.audit.login_failed(connection.caller, self._mechanism, user, why)
