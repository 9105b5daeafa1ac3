"""Delegation tokens: create, describe, renew, expire."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from headrace.client.cluster import Cluster
from headrace.client.errors import check

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_USER = "User"


@dataclass(frozen=True, slots=True)
class TokenDescription:
    """A token, with the HMAC that is its secret."""

    id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issue_ms: int
    expiry_ms: int
    max_ms: int
    hmac: bytes = field(repr=False)


def create_token(
    cluster: Cluster, owner: str | None, renewers: Sequence[str], lifetime_ms: int
) -> TokenDescription:
    """Create a token for a user, or for the caller; without retries."""
    from kio.schema.create_delegation_token.v3.request import (
        CreatableRenewers,
        CreateDelegationTokenRequest,
    )
    from kio.schema.create_delegation_token.v3.response import CreateDelegationTokenResponse

    request = CreateDelegationTokenRequest(
        owner_principal_type=None if owner is None else _USER,
        owner_principal_name=owner,
        renewers=tuple(
            CreatableRenewers(principal_type=_USER, principal_name=name) for name in renewers
        ),
        max_lifetime=timedelta(milliseconds=lifetime_ms),  # type: ignore[arg-type]
    )
    made = cluster.ask(request, CreateDelegationTokenResponse)
    check(int(made.error_code), "creating a delegation token")
    return TokenDescription(
        made.token_id,
        f"{made.principal_type}:{made.principal_name}",
        f"{made.token_requester_principal_type}:{made.token_requester_principal_name}",
        tuple(f"{_USER}:{name}" for name in renewers),
        _ms(made.issue_timestamp),
        _ms(made.expiry_timestamp),
        _ms(made.max_timestamp),
        made.hmac,
    )


def describe_tokens(cluster: Cluster) -> list[TokenDescription]:
    """The tokens that the caller may see, oldest first."""
    from kio.schema.describe_delegation_token.v3.request import DescribeDelegationTokenRequest
    from kio.schema.describe_delegation_token.v3.response import DescribeDelegationTokenResponse

    def attempt() -> list[TokenDescription]:
        answer = cluster.ask(
            DescribeDelegationTokenRequest(owners=None), DescribeDelegationTokenResponse
        )
        check(int(answer.error_code), "delegation tokens")
        found = [
            TokenDescription(
                one.token_id,
                f"{one.principal_type}:{one.principal_name}",
                f"{one.token_requester_principal_type}:{one.token_requester_principal_name}",
                tuple(f"{who.principal_type}:{who.principal_name}" for who in one.renewers),
                one.issue_timestamp,
                one.expiry_timestamp,
                one.max_timestamp,
                one.hmac,
            )
            for one in answer.tokens
        ]
        return sorted(found, key=lambda token: (token.issue_ms, token.id))

    return cluster.retry("describing delegation tokens", attempt)


def renew_token(cluster: Cluster, token: TokenDescription) -> int:
    """Extend the expiry time of a token as far as brokers allow; returns the time."""
    from kio.schema.renew_delegation_token.v2.request import RenewDelegationTokenRequest
    from kio.schema.renew_delegation_token.v2.response import RenewDelegationTokenResponse

    request = RenewDelegationTokenRequest(
        hmac=token.hmac,
        renew_period=-_MILLISECOND,  # type: ignore[arg-type]
    )
    answer = cluster.ask(request, RenewDelegationTokenResponse)
    check(int(answer.error_code), f"renewing the delegation token {token.id}")
    return _ms(answer.expiry_timestamp)


def delete_token(cluster: Cluster, token: TokenDescription) -> None:
    """Expire a token now."""
    from kio.schema.expire_delegation_token.v2.request import ExpireDelegationTokenRequest
    from kio.schema.expire_delegation_token.v2.response import ExpireDelegationTokenResponse

    request = ExpireDelegationTokenRequest(
        hmac=token.hmac,
        expiry_time_period=-_MILLISECOND,  # type: ignore[arg-type]
    )
    answer = cluster.ask(request, ExpireDelegationTokenResponse)
    check(int(answer.error_code), f"deleting the delegation token {token.id}")


def _ms(when: datetime) -> int:
    return (when - _EPOCH) // _MILLISECOND
