"""CreateDelegationToken (38), v1-3; Renew- (39) and Expire- (40), v1-2; Describe- (41), v1-3.

v2 flexible; v3 of Create and Describe has an owner other than the requester. A client that
authenticated with a token, or is anonymous, cannot use these APIs.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from kio.schema.create_delegation_token.v3.request import CreateDelegationTokenRequest
from kio.schema.create_delegation_token.v3.response import CreateDelegationTokenResponse
from kio.schema.describe_delegation_token.v3.request import DescribeDelegationTokenRequest
from kio.schema.describe_delegation_token.v3.response import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenResponse,
)
from kio.schema.expire_delegation_token.v2.request import ExpireDelegationTokenRequest
from kio.schema.expire_delegation_token.v2.response import ExpireDelegationTokenResponse
from kio.schema.renew_delegation_token.v2.request import RenewDelegationTokenRequest
from kio.schema.renew_delegation_token.v2.response import RenewDelegationTokenResponse

from headrace.apis.context import Caller, RequestContext, Services
from headrace.apis.rights import denied
from headrace.errors import ErrorCode, KafkaError
from headrace.security.acls import ANONYMOUS, AclOperation, ResourceType
from headrace.security.state import DelegationToken, SecurityState
from headrace.security.tokens import Tokens
from headrace.wire.codec_fields import EPOCH
from headrace.wire.primitives import NO_ERROR, error, i64, respond, to_milliseconds

if TYPE_CHECKING:
    from kio.static.primitive import TZAware

_USER = "User"
_NO_TIME = 0


class _Principal(NamedTuple):
    type: str
    name: str

    @classmethod
    def parse(cls, text: str) -> "_Principal":
        kind, _, name = text.partition(":")
        return cls(kind, name)

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


def create_delegation_token(
    services: Services, request: CreateDelegationTokenRequest, context: RequestContext
) -> CreateDelegationTokenResponse:
    """Create a token for the client, or for another owner if the client has the right."""
    requester = _Principal.parse(context.caller.principal)
    owner = requester
    if request.owner_principal_name:
        owner = _Principal(request.owner_principal_type or "", request.owner_principal_name)
    code, token = ErrorCode.NONE, None
    try:
        token = _create(services, request, context.caller, owner)
    except KafkaError as refused:
        code = refused.code
    secret = b"" if token is None else Tokens.of(services.settings, services.clock).hmac(token.id)
    return respond(
        partial(
            CreateDelegationTokenResponse,
            error_code=error(code),
            principal_type=owner.type,
            principal_name=owner.name,
            token_requester_principal_type=requester.type,
            token_requester_principal_name=requester.name,
            issue_timestamp=_time(_NO_TIME if token is None else token.issue_ms),
            expiry_timestamp=_time(_NO_TIME if token is None else token.expiry_ms),
            max_timestamp=_time(_NO_TIME if token is None else token.max_ms),
            token_id="" if token is None else token.id,
            hmac=secret,
        )
    )


def _create(
    services: Services, request: CreateDelegationTokenRequest, caller: Caller, owner: _Principal
) -> DelegationToken:
    _need_own_login(services, caller)
    if str(owner) != caller.principal and not caller.may(
        AclOperation.CREATE_TOKENS, ResourceType.USER, str(owner)
    ):
        raise denied(ResourceType.DELEGATION_TOKEN)
    renewers = [_Principal(one.principal_type, one.principal_name) for one in request.renewers]
    if any(one.type != _USER for one in (owner, *renewers)):
        raise KafkaError(
            ErrorCode.INVALID_PRINCIPAL_TYPE, f"owners and renewers have the type {_USER}"
        )
    tokens = Tokens.of(services.settings, services.clock)
    lifetime_ms = to_milliseconds(request.max_lifetime)
    token = tokens.create(str(owner), caller.principal, list(map(str, renewers)), lifetime_ms)
    services.metadata.alter_security(lambda state: ([], state.with_token(token)))
    _audit(services, caller, "token_created", token)
    return token


_Change = Callable[[SecurityState, bytes, str, int], tuple[DelegationToken, SecurityState]]


def renew_delegation_token(
    services: Services, request: RenewDelegationTokenRequest, context: RequestContext
) -> RenewDelegationTokenResponse:
    """Extend the expiry time of a token; for its owner and its renewers."""
    change = Tokens.of(services.settings, services.clock).renew
    code, expiry = _change(
        services, context.caller, "token_renewed", change, request.hmac, request.renew_period
    )
    return respond(
        partial(
            RenewDelegationTokenResponse, error_code=error(code), expiry_timestamp=_time(expiry)
        )
    )


def expire_delegation_token(
    services: Services, request: ExpireDelegationTokenRequest, context: RequestContext
) -> ExpireDelegationTokenResponse:
    """Change the expiry time of a token, or expire it now; for its owner and its renewers."""
    change = Tokens.of(services.settings, services.clock).expire
    code, expiry = _change(
        services, context.caller, "token_expired", change, request.hmac, request.expiry_time_period
    )
    return respond(
        partial(
            ExpireDelegationTokenResponse, error_code=error(code), expiry_timestamp=_time(expiry)
        )
    )


def _change(
    services: Services, caller: Caller, what: str, change: _Change, secret: bytes, period: timedelta
) -> tuple[ErrorCode, int]:
    """Change a token; returns an error, or the new expiry time."""
    period_ms = to_milliseconds(period)

    def decide(state: SecurityState) -> tuple[list[DelegationToken], SecurityState]:
        token, changed = change(state, secret, caller.principal, period_ms)
        return [token], changed

    try:
        _need_own_login(services, caller)
        (token,) = services.metadata.alter_security(decide)
    except KafkaError as refused:
        return refused.code, _NO_TIME
    _audit(services, caller, what, token)
    return ErrorCode.NONE, token.expiry_ms


def describe_delegation_token(
    services: Services, request: DescribeDelegationTokenRequest, context: RequestContext
) -> DescribeDelegationTokenResponse:
    """The tokens that the client has requested, owns, or may renew or describe."""
    caller = context.caller
    _need_own_login(services, caller)
    tokens = Tokens.of(services.settings, services.clock)
    tokens.need_enabled()
    owners: set[str] | None = None
    if request.owners is not None:
        owners = {str(_Principal(one.principal_type, one.principal_name)) for one in request.owners}
    found = tuple(
        _described(token, tokens.hmac(token.id))
        for token in services.metadata.image.security.tokens.values()
        if (owners is None or owners & _users(token)) and _may_describe(caller, token)
    )
    return respond(partial(DescribeDelegationTokenResponse, error_code=NO_ERROR, tokens=found))


def _may_describe(caller: Caller, token: DelegationToken) -> bool:
    return (
        caller.principal in _users(token)
        or caller.may(AclOperation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token.id, silent=True)
        or caller.may(AclOperation.DESCRIBE_TOKENS, ResourceType.USER, token.owner, silent=True)
    )


def _users(token: DelegationToken) -> set[str]:
    """The principals that can see a token without further rights."""
    return {token.owner, token.requester, *token.renewers}


def _described(token: DelegationToken, secret: bytes) -> DescribedDelegationToken:
    owner, requester = _Principal.parse(token.owner), _Principal.parse(token.requester)
    renewers = map(_Principal.parse, token.renewers)
    return DescribedDelegationToken(
        principal_type=owner.type,
        principal_name=owner.name,
        token_requester_principal_type=requester.type,
        token_requester_principal_name=requester.name,
        issue_timestamp=i64(token.issue_ms),
        expiry_timestamp=i64(token.expiry_ms),
        max_timestamp=i64(token.max_ms),
        token_id=token.id,
        hmac=secret,
        renewers=tuple(
            DescribedDelegationTokenRenewer(principal_type=one.type, principal_name=one.name)
            for one in renewers
        ),
    )


def _need_own_login(services: Services, caller: Caller) -> None:
    """KafkaError unless the client has authenticated by other means than a token."""
    listeners = {one.name: one for one in services.settings.listeners.all}
    listener = listeners.get(caller.listener)
    proved = listener is not None and (
        listener.login or (listener.tls and caller.principal != ANONYMOUS)
    )
    if caller.by_token or not proved:
        raise KafkaError(
            ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
            "a client needs to authenticate by other means than a token to use delegation tokens",
        )


def _audit(services: Services, caller: Caller, what: str, token: DelegationToken) -> None:
    fields = {
        "token": token.id,
        "owner": token.owner,
        "renewers": list(token.renewers),
        "expiry_ms": token.expiry_ms,
    }
    services.audit.changed(caller, what, fields)


def _time(ms: int) -> "TZAware":
    when: datetime = EPOCH + timedelta(milliseconds=ms)
    return when  # type: ignore[return-value]
