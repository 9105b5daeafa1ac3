"""DescribeUserScramCredentials (50) and AlterUserScramCredentials (51), version 0.

The client salts and hashes the password; the broker never sees it. A request can alter each user
once.
"""

from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import TypeAlias

from kio.schema.alter_user_scram_credentials.v0.request import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from kio.schema.alter_user_scram_credentials.v0.response import (
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from kio.schema.describe_user_scram_credentials.v0.request import (
    DescribeUserScramCredentialsRequest,
)
from kio.schema.describe_user_scram_credentials.v0.response import (
    CredentialInfo,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)

from headrace.apis.context import RequestContext, Services
from headrace.apis.rights import denied, may_with_cluster
from headrace.errors import ErrorCode, KafkaError
from headrace.security.acls import AclOperation, ResourceType
from headrace.security.scram import MAX_ITERATIONS, MIN_ITERATIONS, credential_from_salted
from headrace.security.state import Credentials, SecurityState
from headrace.wire.primitives import NO_ERROR, error, i8, i32, respond

_Change: TypeAlias = ScramCredentialDeletion | ScramCredentialUpsertion

MECHANISMS: Mapping[int, str] = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
_NUMBERS = {name: number for number, name in MECHANISMS.items()}


def describe_user_scram_credentials(
    services: Services, request: DescribeUserScramCredentialsRequest, _context: RequestContext
) -> DescribeUserScramCredentialsResponse:
    """The mechanisms and iterations of users, of all or of those named."""
    users = services.metadata.image.security.users
    names = Counter(one.name for one in request.users) if request.users else Counter(users.keys())
    results = tuple(_described(name, users.get(name), times) for name, times in names.items())
    return respond(
        partial(
            DescribeUserScramCredentialsResponse,
            error_code=NO_ERROR,
            error_message=None,
            results=results,
        )
    )


def _described(
    name: str, credentials: Credentials | None, times: int
) -> DescribeUserScramCredentialsResult:
    code, message = ErrorCode.NONE, None
    if times > 1:
        code = ErrorCode.DUPLICATE_RESOURCE
        message = f"the request names the user {name} more than once"
    elif credentials is None:
        code = ErrorCode.RESOURCE_NOT_FOUND
        message = f"the user {name} has no SCRAM credential"
    known = credentials if credentials is not None and code is ErrorCode.NONE else {}
    return DescribeUserScramCredentialsResult(
        user=name,
        error_code=error(code),
        error_message=message,
        credential_infos=tuple(
            CredentialInfo(mechanism=i8(_NUMBERS[mechanism]), iterations=i32(credential.iterations))
            for mechanism, credential in known.items()
        ),
    )


def alter_user_scram_credentials(
    services: Services, request: AlterUserScramCredentialsRequest, context: RequestContext
) -> AlterUserScramCredentialsResponse:
    """Set and delete credentials; an error of one user does not affect the others."""
    wanted: list[_Change] = [*request.deletions, *request.upsertions]
    times = Counter(one.name for one in wanted)
    by_name = {one.name: one for one in wanted}
    if not may_with_cluster(context.caller, AclOperation.ALTER):
        refused = tuple(_result(name, denied(ResourceType.CLUSTER)) for name in by_name)
        return respond(partial(AlterUserScramCredentialsResponse, results=refused))

    def decide(
        state: SecurityState,
    ) -> tuple[list[AlterUserScramCredentialsResult], SecurityState]:
        results = []
        for name, one in by_name.items():
            try:
                if times[name] > 1:
                    raise KafkaError(
                        ErrorCode.DUPLICATE_RESOURCE,
                        f"the request alters the user {name} more than once",
                    )
                state = _altered(state, one)
                results.append(_result(name, None))
            except KafkaError as refused:
                results.append(_result(name, refused))
        return results, state

    results = tuple(services.metadata.alter_security(decide))
    for result in results:
        if result.error_code == NO_ERROR:
            change = by_name[result.user]
            deleted = isinstance(change, ScramCredentialDeletion)
            what = "credential_deleted" if deleted else "credential_set"
            fields = {"user": change.name, "mechanism": MECHANISMS[change.mechanism]}
            services.audit.changed(context.caller, what, fields)
    return respond(partial(AlterUserScramCredentialsResponse, results=results))


def _result(name: str, refused: KafkaError | None) -> AlterUserScramCredentialsResult:
    return AlterUserScramCredentialsResult(
        user=name,
        error_code=error(refused.code) if refused else NO_ERROR,
        error_message=refused.message if refused else None,
    )


def _altered(state: SecurityState, one: _Change) -> SecurityState:
    mechanism = MECHANISMS.get(one.mechanism)
    if not one.name:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "the user name is empty")
    if mechanism is None:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_SASL_MECHANISM,
            f"unknown SCRAM mechanism {one.mechanism}; 1 is SCRAM-SHA-256, 2 is SCRAM-SHA-512",
        )
    known = dict(state.users.get(one.name, {}))
    if isinstance(one, ScramCredentialDeletion):
        if known.pop(mechanism, None) is None:
            raise KafkaError(
                ErrorCode.RESOURCE_NOT_FOUND, f"the user {one.name} has no {mechanism} credential"
            )
        return state.with_user(one.name, known)
    if not MIN_ITERATIONS <= one.iterations <= MAX_ITERATIONS:
        raise KafkaError(
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
            f"{one.iterations} iterations; expected {MIN_ITERATIONS} to {MAX_ITERATIONS}",
        )
    if not one.salt or not one.salted_password:
        raise KafkaError(
            ErrorCode.UNACCEPTABLE_CREDENTIAL, "the salt or the salted password is empty"
        )
    known[mechanism] = credential_from_salted(
        mechanism, one.salt, one.iterations, one.salted_password
    )
    return state.with_user(one.name, known)
