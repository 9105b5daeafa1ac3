"""SASL mechanisms on the broker's side: exchanges that authenticate a user, or refuse it.

An exchange processes tokens, one step at a time, until `result` is set. It performs no I/O; slow
work is awaited.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from headrace.security.logins import LoginRefused
from headrace.security.passwords import Passwords
from headrace.security.scram import (
    DIGESTS,
    ScramExchange,
    parse_client_first,
)
from headrace.security.state import DelegationToken, StoredCredential

PLAIN = "PLAIN"
_TOKEN_EXTENSION = "tokenauth"
"""The extension that marks the user name as the id of a delegation token."""
OAUTHBEARER = "OAUTHBEARER"
"""Its exchange: `oauthbearer.py`, which needs the package cryptography."""
GSSAPI = "GSSAPI"
"""Its exchange: `gssapi.py`, which needs MIT's Kerberos library."""
MECHANISMS = (PLAIN, *DIGESTS)
"""The mechanisms with a password."""


@dataclass(frozen=True, slots=True)
class LoggedIn:
    """An authenticated user."""

    username: str
    expiry_ms: int | None = None
    """The expiry of the credentials, in milliseconds since 1970; None without one."""
    by_token: bool = False
    """Whether the user authenticated with a delegation token."""
    credential: StoredCredential | None = field(default=None, compare=False)
    """The user or token in the cluster's metadata; None for an OAuth token or a ticket."""


class RefusedWithStatus(LoginRefused):
    """The login failed, and the mechanism sends a status message to the client before it ends."""

    def __init__(self, why: str, status: bytes) -> None:
        super().__init__(why)
        self.status = status


class Exchange(Protocol):
    """One login by one mechanism."""

    username: str
    """The name that the client sent; empty before."""
    result: LoggedIn | None

    async def step(self, token: bytes) -> bytes:
        """The reply to a client's token; LoginRefused ends the login."""


class PlainExchange:
    """PLAIN (RFC 4616): the user's name and password in one message."""

    def __init__(self, passwords: Passwords) -> None:
        self._passwords = passwords
        self.username = ""
        self.result: LoggedIn | None = None

    async def step(self, token: bytes) -> bytes:
        """Check the password."""
        try:
            authzid, username, password = token.decode().split("\0")
        except ValueError as error:
            raise LoginRefused("malformed PLAIN message") from error
        if not username or not password:
            raise LoginRefused("the PLAIN message has no user name or no password")
        if authzid not in ("", username):
            raise LoginRefused("the authorization id is not the user's name")
        self.username = username
        await self._passwords.check(username, password)
        self.result = LoggedIn(username, credential=("user", username))
        return b""


class ScramLogin:
    """SCRAM: the client proves that it knows the password."""

    def __init__(self, mechanism: str, passwords: Passwords) -> None:
        self._mechanism = mechanism
        self._passwords = passwords
        self.username = ""
        self._exchange: ScramExchange | None = None
        self._token: DelegationToken | None = None
        self.result: LoggedIn | None = None

    async def step(self, token: bytes) -> bytes:
        """The challenge, then the broker's own proof."""
        if self._exchange is None:
            first = parse_client_first(token)
            self.username = first.username
            if first.extensions.get(_TOKEN_EXTENSION, "").lower() == "true":
                self._token, credential = await self._passwords.token_credential(
                    first.username, self._mechanism
                )
            else:
                credential = self._passwords.credential(first.username, self._mechanism)
            self._exchange = ScramExchange(self._mechanism, first, credential)
            return self._exchange.challenge
        answer = self._exchange.finish(token)
        if self._token is None:
            self.result = LoggedIn(self.username, credential=("user", self.username))
        else:
            owner = self._token.owner.partition(":")[2]
            self.result = LoggedIn(
                owner,
                self._token.expiry_ms,
                by_token=True,
                credential=("token", self._token.id),
            )
        return answer


def make_exchange(mechanism: str, passwords: Passwords) -> Exchange:
    """A new login by this mechanism, which is one of MECHANISMS."""
    makers: dict[str, Callable[[], Exchange]] = {PLAIN: lambda: PlainExchange(passwords)}
    make = makers.get(mechanism, lambda: ScramLogin(mechanism, passwords))
    return make()
