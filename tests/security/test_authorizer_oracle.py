"""The authorizer decides as Apache Kafka's StandardAuthorizer does, on random ACLs and requests."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.security.acls import (
    CLUSTER_NAME,
    SUPPORTED,
    AclBinding,
    AclEntry,
    AclOperation,
    AclPermission,
    PatternType,
    ResourcePattern,
    ResourceType,
)
from headrace.security.authorizer import Authorizer
from headrace.security.state import NOTHING
from tests.support.java import QUICK_START, jars, missing

pytestmark = pytest.mark.java

PROGRAM = Path(__file__).parent / "oracle" / "AuthorizerOracle.java"
SUPER_USERS = ("User:root", "User:broker")
PRINCIPALS = ("User:alice", "User:bob", "User:root", "User:ali")
HOSTS = ("10.0.0.7", "10.0.0.8")
Question = tuple[str, str, AclOperation, ResourceType, str]


class Oracle:
    """The process with Kafka's authorizer."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def decide(
        self, acls: list[AclBinding], allow_without_acl: bool, questions: list[Question]
    ) -> list[tuple[bool, bool]]:
        """Whether each request is allowed, and whether it would be on any resource of its type."""
        lines = [["NEW", str(allow_without_acl).lower(), ";".join(SUPER_USERS)]]
        for resource, entry in acls:
            lines.append(
                ["ACL", resource.type.name, resource.pattern.name, resource.name, entry.principal,
                 entry.host, entry.operation.name, entry.permission.name]
            )  # fmt: skip
        for principal, host, operation, kind, name in questions:
            lines.append(["ASK", principal, host, operation.name, kind.name, name])
            lines.append(["ANY", principal, host, operation.name, kind.name])
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write("".join("\t".join(line) + "\n" for line in lines))
        stdin.flush()
        answers = [stdout.readline().strip() == "ALLOWED" for _ in range(2 * len(questions))]
        assert self._process.poll() is None
        return list(zip(answers[::2], answers[1::2], strict=True))


@pytest.fixture(scope="module")
def oracle() -> Iterator[Oracle]:
    if (reason := missing()) is not None:
        pytest.skip(reason)
    modules = subprocess.run(["java", "--list-modules"], capture_output=True, check=True, text=True)
    if "jdk.compiler@" not in modules.stdout:
        pytest.skip("no Java compiler: install the Debian package openjdk-17-jdk-headless")
    with subprocess.Popen(
        ["java", *QUICK_START, "-cp", f"{jars()}/*", str(PROGRAM)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8",
    ) as process:  # fmt: skip
        yield Oracle(process)
        assert process.stdin is not None
        process.stdin.close()


kinds = st.sampled_from(sorted(SUPPORTED))
# Names that begin with a star are left out: for `*a` Kafka does not find the ACL of `*`, which is
# safe to find. Topics cannot have such names.
names = st.one_of(st.text("abé", min_size=1, max_size=4), st.sampled_from(["aaaa", "hardcode"]))


@st.composite
def bindings(draw: st.DrawFn) -> AclBinding:
    kind = draw(kinds)
    name = CLUSTER_NAME if kind is ResourceType.CLUSTER else draw(st.one_of(names, st.just("*")))
    pattern = draw(st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]))
    principal = draw(st.sampled_from(["User:alice", "User:alice", "User:bob", "User:*", "User:a"]))
    return AclBinding(
        ResourcePattern(kind, pattern, name),
        AclEntry(
            principal,
            draw(st.sampled_from(["*", "*", *HOSTS])),
            draw(st.sampled_from([AclOperation.ALL, *sorted(SUPPORTED[kind])])),
            draw(st.sampled_from([AclPermission.ALLOW, AclPermission.ALLOW, AclPermission.DENY])),
        ),
    )


@st.composite
def questions(draw: st.DrawFn) -> Question:
    kind = draw(kinds)
    name = CLUSTER_NAME if kind is ResourceType.CLUSTER else draw(names)
    operation = draw(st.sampled_from(sorted(SUPPORTED[kind])))
    host = draw(st.sampled_from(HOSTS))
    return draw(st.sampled_from(PRINCIPALS)), host, operation, kind, name


@settings(
    max_examples=500, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    acls=st.lists(bindings(), max_size=12, unique=True),
    asked=st.lists(questions(), min_size=1, max_size=20),
    allow_without_acl=st.booleans(),
)
def test_every_decision_is_that_of_kafka(
    oracle: Oracle, acls: list[AclBinding], asked: list[Question], allow_without_acl: bool
) -> None:
    ours = Authorizer(
        NOTHING.with_acls(acls).acls, SUPER_USERS, allow_without_acl=allow_without_acl
    )
    found = [
        (
            ours.allows(principal, host, operation, kind, name),
            ours.allows_any(principal, host, operation, kind),
        )
        for principal, host, operation, kind, name in asked
    ]
    assert found == oracle.decide(acls, allow_without_acl, asked)
