"""Users with SCRAM credentials: list, set a password, delete. All calls are retried.

The password is salted and hashed here and never sent. The mechanisms of a user are changed one
after the other, each in a request of its own.
"""

import hashlib
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.client.cluster import Cluster
from headrace.client.errors import check
from headrace.errors import ErrorCode
from headrace.security.scram import DIGESTS, MIN_ITERATIONS, SALT_BYTES
from headrace.wire.primitives import i8, i32

if TYPE_CHECKING:
    from kio.schema.alter_user_scram_credentials.v0.request import (
        AlterUserScramCredentialsRequest,
    )

_NUMBERS = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
_NAMES = {number: name for name, number in _NUMBERS.items()}


@dataclass(frozen=True, slots=True)
class UserDescription:
    """A user and the iterations of its credentials, by mechanism."""

    name: str
    iterations: dict[str, int] = field(default_factory=dict)


def describe_users(cluster: Cluster, names: Sequence[str] = ()) -> dict[str, UserDescription]:
    """The named users, or all; missing ones are left out."""
    from kio.schema.describe_user_scram_credentials.v0.request import (
        DescribeUserScramCredentialsRequest,
        UserName,
    )
    from kio.schema.describe_user_scram_credentials.v0.response import (
        DescribeUserScramCredentialsResponse,
    )

    wanted = tuple(UserName(name=name) for name in names) or None
    request = DescribeUserScramCredentialsRequest(users=wanted)

    def attempt() -> dict[str, UserDescription]:
        answer = cluster.ask(request, DescribeUserScramCredentialsResponse)
        check(int(answer.error_code), "users", answer.error_message)
        found: dict[str, UserDescription] = {}
        for row in answer.results:
            if int(row.error_code) == ErrorCode.RESOURCE_NOT_FOUND:
                continue
            check(int(row.error_code), f"user {row.user!r}", row.error_message)
            found[row.user] = UserDescription(
                row.user,
                {
                    _NAMES.get(int(one.mechanism), "unknown"): int(one.iterations)
                    for one in row.credential_infos
                },
            )
        return dict(sorted(found.items()))

    return cluster.retry("describing users", attempt)


def set_password(
    cluster: Cluster,
    name: str,
    password: str,
    mechanisms: Iterable[str] = tuple(DIGESTS),
    iterations: int = MIN_ITERATIONS,
) -> None:
    """Set a user's password for these mechanisms; a missing user is created."""
    from kio.schema.alter_user_scram_credentials.v0.request import (
        AlterUserScramCredentialsRequest,
        ScramCredentialUpsertion,
    )

    for mechanism in mechanisms:
        salt = secrets.token_bytes(SALT_BYTES)
        digest = DIGESTS[mechanism]
        upsertion = ScramCredentialUpsertion(
            name=name,
            mechanism=i8(_NUMBERS[mechanism]),
            iterations=i32(iterations),
            salt=salt,
            salted_password=hashlib.pbkdf2_hmac(digest, password.encode(), salt, iterations),
        )
        request = AlterUserScramCredentialsRequest(deletions=(), upsertions=(upsertion,))
        _alter(cluster, request, f"user {name!r}")


def delete_user(cluster: Cluster, user: UserDescription) -> None:
    """Delete a user's credentials for all its mechanisms."""
    from kio.schema.alter_user_scram_credentials.v0.request import (
        AlterUserScramCredentialsRequest,
        ScramCredentialDeletion,
    )

    for mechanism in user.iterations:
        deletion = ScramCredentialDeletion(name=user.name, mechanism=i8(_NUMBERS[mechanism]))
        request = AlterUserScramCredentialsRequest(deletions=(deletion,), upsertions=())
        _alter(cluster, request, f"user {user.name!r}")


def _alter(cluster: Cluster, request: "AlterUserScramCredentialsRequest", what: str) -> None:
    from kio.schema.alter_user_scram_credentials.v0.response import (
        AlterUserScramCredentialsResponse,
    )

    def attempt() -> None:
        answer = cluster.ask_controller(request, AlterUserScramCredentialsResponse)
        for row in answer.results:
            check(int(row.error_code), what, row.error_message)

    cluster.retry(f"changing {what}", attempt)
