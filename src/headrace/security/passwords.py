"""Password checks, which take milliseconds, outside the event loop.

A correct password is cached as an HMAC with a random key of this process, so that the next
login of the same client takes microseconds.
"""

import hashlib
import hmac
import secrets
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from headrace.security.logins import LoginRefused, LoginWorker
from headrace.security.scram import (
    DEFAULT_FORM,
    DIGESTS,
    ChallengeForm,
    challenge_form,
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

    def __init__(
        self,
        state: Callable[[], SecurityState],
        login_secret: bytes,
        tokens: Tokens | None = None,
    ) -> None:
        """All brokers of a cluster have the same `login_secret`.

        The challenges of unknown users are derived from it.
        """
        self._state = state
        self._tokens = tokens
        self._token_credentials: dict[tuple[str, str], ScramCredential] = {}
        self._secret = login_secret
        self._checks = PasswordChecks()
        self._seen_users: Mapping[str, Credentials] | None = None
        self._forms: dict[str, Mapping[ChallengeForm, int]] = {}
        """The numbers of users with each form of a challenge, by mechanism."""
        self._first_mechanisms: Mapping[str, int] = {}
        """The mechanisms whose credentials check passwords of PLAIN, and how many users."""

    def credential(self, username: str, mechanism: str) -> ScramCredential:
        """The SCRAM credential of a user; an invented one for an unknown user."""
        # Invented for known users too, so that the time does not tell who exists.
        invented = self._invented(mechanism, username)
        return self._state().users.get(username, {}).get(mechanism) or invented

    async def token_credential(
        self, token_id: str, mechanism: str
    ) -> tuple[DelegationToken | None, ScramCredential]:
        """A delegation token and its SCRAM credential; an invented one for an unknown id."""
        token = self._tokens.valid(self._state(), token_id) if self._tokens is not None else None
        if token is None or self._tokens is None:
            # The credentials of tokens have the least iterations, unlike those of users.
            invented = invented_credential(mechanism, token_id, self._secret)
            if self._tokens is not None and self._tokens.enabled:
                invented = replace(invented, salt=self._tokens.salt(token_id, mechanism))
            return None, invented
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
        mechanism = invented_choice(self._first_mechanisms, username, self._secret)
        return mechanism, self._invented(mechanism, username)

    def _invented(self, mechanism: str, username: str) -> ScramCredential:
        """A credential for an unknown user, in the form that some user has."""
        self._follow_users()
        form = invented_choice(self._forms[mechanism], username, self._secret)
        return invented_credential(mechanism, username, self._secret, form)

    def _follow_users(self) -> None:
        """Learn what credentials users have, so that invented ones do not differ from them."""
        users = self._state().users
        if users is self._seen_users:
            return
        self._seen_users = users
        firsts = Counter(next(iter(one)) for one in users.values() if one)
        self._first_mechanisms = firsts or {_DEFAULT_MECHANISM: 1}
        for mechanism in DIGESTS:
            forms = Counter(
                challenge_form(one[mechanism]) for one in users.values() if mechanism in one
            )
            self._forms[mechanism] = forms or {DEFAULT_FORM: 1}
