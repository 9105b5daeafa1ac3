"""Password checks, which take milliseconds, outside the event loop.

A correct password is cached as an HMAC with a random key of this process, so that the next
login of the same client takes microseconds.
"""

import hashlib
import hmac
import secrets
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from headrace.security.logins import LoginRefused, LoginWorker
from headrace.security.scram import (
    DIGESTS,
    MIN_ITERATIONS,
    invented_choice,
    invented_credential,
    is_password,
)
from headrace.security.state import Credentials, DelegationToken, ScramCredential, SecurityState
from headrace.security.tokens import Tokens

REMEMBERED = 10_000
_DEFAULT_MECHANISM = "SCRAM-SHA-256"


class PasswordChecks:
    """Compares passwords with credentials, in a thread."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)
        self._known: set[bytes] = set()
        self.worker = LoginWorker("passwords", "passwords")

    async def check(self, mechanism: str, credential: ScramCredential, password: str) -> None:
        """LoginRefused unless the password matches the credential."""
        proof = self._proof(credential, password)
        if proof in self._known:
            return
        if not await self.worker.run(partial(is_password, mechanism, credential, password)):
            raise LoginRefused("wrong password, or no such user")
        if len(self._known) >= REMEMBERED:
            self._known.clear()
        self._known.add(proof)

    def close(self) -> None:
        """Stop the thread."""
        self.worker.close()

    def _proof(self, credential: ScramCredential, password: str) -> bytes:
        """The cache key of a correct password for this credential."""
        key = hashlib.sha256(self._key + credential.stored_key).digest()
        return hmac.digest(key, password.encode(), "sha256")


class Passwords:
    """The passwords of the cluster's users."""

    def __init__(self, state: Callable[[], SecurityState], tokens: Tokens | None = None) -> None:
        self._state = state
        self._tokens = tokens
        self._token_credentials: dict[tuple[str, str], ScramCredential] = {}
        self._key = secrets.token_bytes(32)
        self._checks = PasswordChecks()
        self._seen_users: Mapping[str, Credentials] | None = None
        self._iterations: dict[str, Sequence[int]] = {}
        """The numbers of iterations that users have, by mechanism."""
        self._first_mechanisms: Sequence[str] = ()
        """The mechanisms whose credentials check passwords of PLAIN."""

    def credential(self, username: str, mechanism: str) -> ScramCredential:
        """The SCRAM credential of a user; an invented one for an unknown user."""
        credential = self._state().users.get(username, {}).get(mechanism)
        return credential or self._invented(mechanism, username)

    async def token_credential(
        self, token_id: str, mechanism: str
    ) -> tuple[DelegationToken | None, ScramCredential]:
        """A delegation token and its SCRAM credential; an invented one for an unknown id."""
        token = self._tokens.valid(self._state(), token_id) if self._tokens is not None else None
        if token is None or self._tokens is None:
            # The credentials of tokens have the least iterations, unlike those of users.
            return None, invented_credential(mechanism, token_id, self._key)
        key = (token_id, mechanism)
        known = self._token_credentials.get(key)
        if known is None:
            known = await self._checks.worker.run(
                partial(self._tokens.credential, token_id, mechanism)
            )
            if len(self._token_credentials) >= REMEMBERED:
                self._token_credentials.clear()
            self._token_credentials[key] = known
        return token, known

    async def check(self, username: str, password: str) -> None:
        """LoginRefused unless the password is correct."""
        await self._checks.check(*self._any_credential(username), password)

    def close(self) -> None:
        """Stop the worker thread."""
        self._checks.close()

    def _any_credential(self, username: str) -> tuple[str, ScramCredential]:
        known: Credentials = self._state().users.get(username, {})
        for mechanism, credential in known.items():
            return mechanism, credential
        self._follow_users()
        mechanism = invented_choice(self._first_mechanisms, username, self._key)
        return mechanism, self._invented(mechanism, username)

    def _invented(self, mechanism: str, username: str) -> ScramCredential:
        """A credential for an unknown user, with as many iterations as some user has."""
        self._follow_users()
        iterations = invented_choice(self._iterations[mechanism], username, self._key)
        return invented_credential(mechanism, username, self._key, iterations)

    def _follow_users(self) -> None:
        """Learn what credentials users have, so that invented ones do not differ from them."""
        users = self._state().users
        if users is self._seen_users:
            return
        self._seen_users = users
        firsts = {next(iter(one)) for one in users.values() if one}
        self._first_mechanisms = sorted(firsts) or [_DEFAULT_MECHANISM]
        for mechanism in DIGESTS:
            found = {one[mechanism].iterations for one in users.values() if mechanism in one}
            self._iterations[mechanism] = sorted(found) or [MIN_ITERATIONS]
