"""DescribeUserScramCredentials and AlterUserScramCredentials."""

import hashlib
from pathlib import Path

import pytest
from kio.schema.alter_user_scram_credentials.v0.request import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from kio.schema.describe_user_scram_credentials.v0.request import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from kio.static.primitive import i8, i32

from headrace.apis.security.scram_credentials import (
    alter_user_scram_credentials,
    describe_user_scram_credentials,
)
from headrace.errors import ErrorCode
from headrace.security.scram import is_password
from tests.apis.one_broker import OneBroker

SALT = b"0123456789abcdef"


def upsertion(
    name: str = "alice", mechanism: int = 1, iterations: int = 4096, password: str = "pw"
) -> ScramCredentialUpsertion:
    digest = {1: "sha256", 2: "sha512"}.get(mechanism, "sha256")
    salted = hashlib.pbkdf2_hmac(digest, password.encode(), SALT, 4096)
    return ScramCredentialUpsertion(
        name=name,
        mechanism=i8(mechanism),
        iterations=i32(iterations),
        salt=SALT,
        salted_password=salted,
    )


def deletion(name: str = "alice", mechanism: int = 1) -> ScramCredentialDeletion:
    return ScramCredentialDeletion(name=name, mechanism=i8(mechanism))


def alter(
    broker: OneBroker, *changes: ScramCredentialDeletion | ScramCredentialUpsertion
) -> dict[str, int]:
    request = AlterUserScramCredentialsRequest(
        deletions=tuple(one for one in changes if isinstance(one, ScramCredentialDeletion)),
        upsertions=tuple(one for one in changes if isinstance(one, ScramCredentialUpsertion)),
    )
    results = broker.ask(alter_user_scram_credentials, request).results
    return {one.user: int(one.error_code) for one in results}


def describe(broker: OneBroker, *names: str) -> dict[str, tuple[int, list[tuple[int, int]]]]:
    users = tuple(UserName(name=name) for name in names)
    request = DescribeUserScramCredentialsRequest(users=users or None)
    results = broker.ask(describe_user_scram_credentials, request).results
    return {
        one.user: (
            int(one.error_code),
            [(info.mechanism, info.iterations) for info in one.credential_infos],
        )
        for one in results
    }


@pytest.fixture
def broker(tmp_path: Path) -> OneBroker:
    return OneBroker(tmp_path)


def test_credentials_are_set_described_and_deleted(broker: OneBroker) -> None:
    assert alter(broker, upsertion(), upsertion("bob", 2, 8192)) == {"alice": 0, "bob": 0}
    assert describe(broker) == {"alice": (0, [(1, 4096)]), "bob": (0, [(2, 8192)])}
    alter(broker, upsertion(mechanism=2))
    assert describe(broker, "alice") == {"alice": (0, [(1, 4096), (2, 4096)])}
    stored = broker.metadata.image.security.users["alice"]["SCRAM-SHA-256"]
    assert is_password("SCRAM-SHA-256", stored, "pw")
    assert alter(broker, deletion("bob", 2)) == {"bob": 0}
    assert describe(broker, "bob") == {"bob": (ErrorCode.RESOURCE_NOT_FOUND, [])}
    assert "bob" not in broker.metadata.image.security.users


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (upsertion(""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion(mechanism=3), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (upsertion(iterations=4095), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion(iterations=16385), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (deletion("alice", 1), ErrorCode.RESOURCE_NOT_FOUND),
        (deletion("bob", 2), ErrorCode.RESOURCE_NOT_FOUND),
        (deletion("bob", 0), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
    ],
)
def test_a_change_that_cannot_be_made_is_refused_by_itself(
    broker: OneBroker,
    change: ScramCredentialDeletion | ScramCredentialUpsertion,
    code: ErrorCode,
) -> None:
    alter(broker, upsertion("bob"))
    assert alter(broker, change, upsertion("carol")) == {change.name: code, "carol": 0}
    assert sorted(describe(broker)) == ["bob", "carol"]


def test_a_user_is_altered_once_in_a_request(broker: OneBroker) -> None:
    changes = [upsertion(), upsertion(mechanism=2), upsertion("bob")]
    assert alter(broker, *changes) == {"alice": ErrorCode.DUPLICATE_RESOURCE, "bob": 0}
    assert list(describe(broker)) == ["bob"]


def test_a_user_who_is_asked_for_twice_is_refused(broker: OneBroker) -> None:
    alter(broker, upsertion())
    assert describe(broker, "alice", "alice") == {"alice": (ErrorCode.DUPLICATE_RESOURCE, [])}
