"""Delegation tokens (KIP-48): creation, renewal, expiry and verification.

A token is an id and an HMAC of the id with the brokers' secret key. A client logs in by SCRAM with
the id as its name and the HMAC, in base64, as its password. The rules here are pure: they take a
state of the cluster and return another one.
"""

import base64
import hashlib
import hmac
import secrets
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from headrace.clock import Clock
from headrace.errors import ErrorCode, KafkaError
from headrace.security.scram import (
    DIGESTS,
    MIN_ITERATIONS,
    SALT_BYTES,
    credential_from_salted,
)
from headrace.security.state import DelegationToken, ScramCredential, SecurityState
from headrace.settings import Settings

_ID_BYTES = 16
_LATEST_MS = 253_402_300_799_999
"""The end of the year 9999: no token is valid for longer."""


class TokenTimes(NamedTuple):
    """The lifetimes of tokens, in milliseconds."""

    max_ms: int
    """The longest lifetime from the creation, with all renewals."""
    expiry_ms: int
    """The lifetime from the creation or the last renewal."""


class Tokens:
    """The rules of one cluster's tokens."""

    def __init__(self, secret_key: str, times: TokenTimes, clock: Clock) -> None:
        """Without a secret key tokens are disabled."""
        self._secret_key = secret_key.encode()
        self._times = times
        self._clock = clock

    @classmethod
    def of(cls, settings: Settings, clock: Clock) -> "Tokens":
        """The rules with the settings of a broker."""
        times = TokenTimes(
            settings.integer("delegation.token.max.lifetime.ms"),
            settings.integer("delegation.token.expiry.time.ms"),
        )
        return cls(settings.text("delegation.token.secret.key"), times, clock)

    @property
    def enabled(self) -> bool:
        """Whether a secret key is set."""
        return bool(self._secret_key)

    def need_enabled(self) -> None:
        """KafkaError unless a secret key is set."""
        if not self.enabled:
            raise KafkaError(
                ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED,
                "delegation tokens are disabled on this broker; set delegation.token.secret.key",
            )

    def hmac(self, token_id: str) -> bytes:
        """The secret of a token."""
        return hmac.digest(self._secret_key, token_id.encode(), "sha512")

    # ------------------------------------------------------------------------------- changes

    def create(
        self, owner: str, requester: str, renewers: Sequence[str], lifetime_ms: int
    ) -> DelegationToken:
        """A new token; a lifetime of 0 or less means the longest one."""
        self.need_enabled()
        now = self._clock.now_ms()
        longest_ms = self._times.max_ms
        lifetime_ms = min(lifetime_ms, longest_ms) if lifetime_ms > 0 else longest_ms
        max_ms = min(now + lifetime_ms, _LATEST_MS)
        token_id = base64.urlsafe_b64encode(secrets.token_bytes(_ID_BYTES)).decode().rstrip("=")
        return DelegationToken(
            id=token_id,
            owner=owner,
            requester=requester,
            renewers=tuple(renewers),
            issue_ms=now,
            expiry_ms=min(max_ms, now + self._times.expiry_ms),
            max_ms=max_ms,
        )

    def renew(
        self, state: SecurityState, secret: bytes, principal: str, period_ms: int
    ) -> tuple[DelegationToken, SecurityState]:
        """A token with a later expiry; KafkaError if the principal may not renew it."""
        token = self._find(state, secret)
        self._need_valid(token)
        _need_renewer(token, principal)
        if period_ms <= 0:
            period_ms = self._times.expiry_ms
        later = self._clock.now_ms() + min(period_ms, self._times.expiry_ms)
        renewed = replace(token, expiry_ms=min(token.max_ms, later))
        return renewed, state.with_token(renewed)

    def expire(
        self, state: SecurityState, secret: bytes, principal: str, period_ms: int
    ) -> tuple[DelegationToken, SecurityState]:
        """A token that expires after the period; a negative one deletes it now."""
        token = self._find(state, secret)
        _need_renewer(token, principal)
        now = self._clock.now_ms()
        if period_ms < 0:
            return replace(token, expiry_ms=now), state.without_token(token.id)
        self._need_valid(token)
        changed = replace(token, expiry_ms=min(token.max_ms, now + period_ms))
        return changed, state.with_token(changed)

    def expired(self, state: SecurityState) -> list[DelegationToken]:
        """The expired tokens."""
        return [token for token in state.tokens.values() if not self._is_valid(token)]

    # -------------------------------------------------------------------------------- checks

    def valid(self, state: SecurityState, token_id: str) -> DelegationToken | None:
        """The token of this id; None if it does not exist or has expired."""
        token = state.tokens.get(token_id)
        return token if self.enabled and token is not None and self._is_valid(token) else None

    def salt(self, token_id: str, mechanism: str) -> bytes:
        """The salt of a token, also of an unknown one; needs a secret key."""
        text = f"{mechanism} {token_id}".encode()
        return hmac.digest(self._secret_key, text, "sha256")[:SALT_BYTES]

    def credential(self, token_id: str, mechanism: str) -> ScramCredential:
        """The SCRAM credential of the HMAC; deterministic, takes milliseconds."""
        salt = self.salt(token_id, mechanism)
        password = base64.b64encode(self.hmac(token_id))
        salted = hashlib.pbkdf2_hmac(DIGESTS[mechanism], password, salt, MIN_ITERATIONS)
        return credential_from_salted(mechanism, salt, MIN_ITERATIONS, salted)

    def _find(self, state: SecurityState, secret: bytes) -> DelegationToken:
        self.need_enabled()
        for token in state.tokens.values():
            if hmac.compare_digest(self.hmac(token.id), secret):
                return token
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND, "unknown delegation token")

    def _is_valid(self, token: DelegationToken) -> bool:
        return self._clock.now_ms() <= min(token.expiry_ms, token.max_ms)

    def _need_valid(self, token: DelegationToken) -> None:
        if not self._is_valid(token):
            raise KafkaError(
                ErrorCode.DELEGATION_TOKEN_EXPIRED, f"the delegation token {token.id} has expired"
            )


def _need_renewer(token: DelegationToken, principal: str) -> None:
    if principal != token.owner and principal not in token.renewers:
        raise KafkaError(
            ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH,
            f"{principal} is neither the owner nor a renewer of this delegation token",
        )
