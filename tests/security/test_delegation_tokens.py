"""Delegation tokens are made, used and refused as by Apache Kafka."""

import base64
import json
import re
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from headrace.client.cluster import Cluster as AdminCluster
from headrace.client.config import ClientConfig, Security, parse_bootstrap
from headrace.client.connection import Connection
from headrace.client.errors import ClientError
from headrace.client.users import delete_user, describe_users, set_password
from headrace.errors import KafkaError
from headrace.security.acls import AclOperation, AclPermission, PatternType, ResourceType
from tests.security.secured import SecuredBroker
from tests.security.test_acl_enforcement import AUTHORIZER, Case, ask, codes
from tests.support.apache_kafka import ApacheKafka
from tests.support.java import run_tool
from tests.support.ports import free_port

USERS = {"alice": "s3cret-of-alice", "bob": "s3cret-of-bob"}
SECRET_KEY = "s3cret-key-of-tokens"
DEFAULT = timedelta(milliseconds=-1)
MODULE = "org.apache.kafka.common.security"
TOKENS = {
    "authorizer.class.name": AUTHORIZER,
    "super.users": "User:ANONYMOUS",
    "delegation.token.secret.key": SECRET_KEY,
}


class Cluster:
    """A broker with tokens: alice's and bob's connections to it, and that of a super user."""

    def __init__(self, admin: str, users: str) -> None:
        self.bootstrap = users
        self._users = parse_bootstrap(users)
        self.admins = parse_bootstrap(admin)
        self.admin = Connection(self.admins[0], ClientConfig(self.admins))
        self.alice, self.bob = (
            self.connect(Security("SASL_PLAINTEXT", username=name, password=password))
            for name, password in USERS.items()
        )

    def connect(self, security: Security) -> Connection:
        return Connection(self._users[0], ClientConfig(self._users, security=security))

    def log_in(self, token: Any, mechanism: str = "SCRAM-SHA-256") -> Connection:
        """Connect with a token."""
        secret = base64.b64encode(token.hmac).decode()
        return self.connect(
            Security("SASL_PLAINTEXT", mechanism=mechanism, username=token.token_id,
                     password=secret, by_token=True)
        )  # fmt: skip

    def allow(self, kind: ResourceType, name: str, operation: AclOperation) -> None:
        """Let alice do this."""
        row = {
            "resource_type": kind, "resource_name": name,
            "resource_pattern_type": PatternType.LITERAL, "principal": "User:alice", "host": "*",
            "operation": operation, "permission_type": AclPermission.ALLOW,
        }  # fmt: skip
        assert codes(ask(self.admin, Case("create_acls", 3, (), {"creations": [row]}))) == [0]


def create(connection: Connection, owner: str | None = None, *renewers: tuple[str, str]) -> Any:
    values = {
        "owner_principal_type": owner and "User", "owner_principal_name": owner,
        "renewers": [{"principal_type": kind, "principal_name": name} for kind, name in renewers],
        "max_lifetime": DEFAULT,
    }  # fmt: skip
    return ask(connection, Case("create_delegation_token", 3, (), values))


def renew(connection: Connection, hmac: bytes) -> int:
    values = {"hmac": hmac, "renew_period": DEFAULT}
    return int(ask(connection, Case("renew_delegation_token", 2, (), values)).error_code)


def expire(connection: Connection, hmac: bytes, ms: int = -1) -> int:
    values = {"hmac": hmac, "expiry_time_period": timedelta(milliseconds=ms)}
    return int(ask(connection, Case("expire_delegation_token", 2, (), values)).error_code)


def describe(connection: Connection, *owners: str, everybody: bool = False) -> Any:
    named = [{"principal_type": "User", "principal_name": name} for name in owners]
    values = {"owners": None if everybody else named}
    return ask(connection, Case("describe_delegation_token", 3, (), values))


def found(connection: Connection, *owners: str, everybody: bool = False) -> list[str]:
    """The owners of the tokens that a client sees."""
    tokens = describe(connection, *owners, everybody=everybody).tokens
    return sorted(one.principal_name for one in tokens)


def hmacs(connection: Connection) -> list[bytes]:
    """The keys of the tokens that a client sees."""
    return [one.hmac for one in describe(connection, everybody=True).tokens]


def until(wanted: Any, call: Any) -> Any:
    """The result of the call; Kafka's brokers hear of changes a little later."""
    end = time.monotonic() + 60
    while (result := call()) != wanted and time.monotonic() < end:
        time.sleep(0.1)
    return result


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    folder = tmp_path_factory.mktemp("headrace")
    settings = {
        **TOKENS,
        "headrace.audit.file": str(folder / "audit.jsonl"),
        "delegation.token.expiry.check.interval.ms": "500",
        "ssl.client.auth": "requested",
    }
    with SecuredBroker(folder, USERS, settings) as running:
        yield running


def fresh(broker: SecuredBroker) -> Cluster:
    """The cluster without tokens."""
    cluster = Cluster(broker.addresses["PLAINTEXT"], broker.addresses["SASL_PLAINTEXT"])
    for connection in (cluster.alice, cluster.bob):
        for token in describe(connection, everybody=True).tokens:
            expire(connection, token.hmac)
    return cluster


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    users, plain, controller = free_port(), free_port(), free_port()
    doors = f"PLAINTEXT://127.0.0.1:{plain},SASL_PLAINTEXT://127.0.0.1:{users}"
    passwords = " ".join(f'user_{name}="{password}"' for name, password in USERS.items())
    settings = {
        **TOKENS,
        "listeners": f"{doors},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": doors,
        "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller}",
        "listener.security.protocol.map": (
            "PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT"
        ),
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
            f"{MODULE}.plain.PlainLoginModule required {passwords};"
        ),
        "listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config": (
            f"{MODULE}.scram.ScramLoginModule required;"
        ),
    }
    folder = tmp_path_factory.mktemp("kafka")
    with ApacheKafka(folder, port=plain, settings=settings, quick=True):
        yield Cluster(f"127.0.0.1:{plain}", f"127.0.0.1:{users}")


OUTCOMES = {
    "create without a login": 64,
    "describe without a login": 64,
    "create": 0,
    "create with a renewer that is no user": 67,
    "create for another owner": 65,
    "create for another owner with the right": 0,
    "the other owner sees it": ["bob"],
    "the requester sees it": ["alice", "bob"],
    "tokens of nobody": [],
    "tokens of others": ["alice", "bob"],
    "describe with the right": ["alice", "bob", "bob"],
    "renew": 0,
    "renew as a stranger": 63,
    "renew an unknown token": 62,
    "renew as a renewer": 0,
    "a renewer sees it": ["alice", "bob"],
    "login": "alice",
    "create by a token": 64,
    "renew by a token": 64,
    "describe by a token": 64,
    "expire as a stranger": 63,
    "expire an unknown token": 62,
    "expire later": 0,
    "renew an expired token": 66,
    "expire an expired token": 66,
    "delete": 0,
    "renew a deleted token": 62,
}


def outcomes(cluster: Cluster) -> dict[str, Any]:
    """What every step leads to."""
    alice, bob, admin = cluster.alice, cluster.bob, cluster.admin
    out: dict[str, Any] = {
        "create without a login": int(create(admin).error_code),
        "describe without a login": int(describe(admin, everybody=True).error_code),
    }
    token = create(alice)
    out["create"] = int(token.error_code)
    until(["alice"], lambda: found(alice, everybody=True))
    out["create with a renewer that is no user"] = int(create(alice, None, ("X", "x")).error_code)
    out["create for another owner"] = int(create(alice, "bob").error_code)
    cluster.allow(ResourceType.USER, "User:bob", AclOperation.CREATE_TOKENS)
    until(0, lambda: int(create(alice, "bob").error_code))
    out["create for another owner with the right"] = 0
    out["the other owner sees it"] = until(["bob"], lambda: found(bob, everybody=True))
    out["the requester sees it"] = found(alice, everybody=True)
    out["tokens of nobody"] = found(alice)
    own = create(bob)
    until(["bob", "bob"], lambda: found(bob, everybody=True))
    out["tokens of others"] = found(alice, everybody=True)
    cluster.allow(ResourceType.USER, "User:bob", AclOperation.DESCRIBE_TOKENS)
    out["describe with the right"] = until(
        ["alice", "bob", "bob"], lambda: found(alice, "alice", "bob")
    )
    expire(bob, own.hmac)
    until(["bob"], lambda: found(bob, everybody=True))
    out["renew"] = renew(alice, token.hmac)
    out["renew as a stranger"] = renew(bob, token.hmac)
    out["renew an unknown token"] = renew(alice, b"unknown")
    renewable = create(alice, None, ("User", "bob"))
    out["a renewer sees it"] = until(["alice", "bob"], lambda: found(bob, everybody=True))
    out["renew as a renewer"] = renew(bob, renewable.hmac)
    with cluster.log_in(token) as by_token:
        out["login"] = token.principal_name
        out["create by a token"] = int(create(by_token).error_code)
        out["renew by a token"] = renew(by_token, token.hmac)
        out["describe by a token"] = int(describe(by_token, everybody=True).error_code)
    out["expire as a stranger"] = expire(bob, token.hmac)
    out["expire an unknown token"] = expire(alice, b"unknown")
    out["expire later"] = expire(alice, renewable.hmac, 1)
    time.sleep(0.1)
    out["renew an expired token"] = until(66, lambda: renew(alice, renewable.hmac))
    out["expire an expired token"] = expire(alice, renewable.hmac, 1)
    out["delete"] = expire(alice, token.hmac)
    # A broker of Kafka that has not heard of the deletion yet would renew the token, and so
    # restore it.
    until(False, lambda: token.hmac in hmacs(alice))
    out["renew a deleted token"] = renew(alice, token.hmac)
    return out


def test_every_step_has_its_outcome(tmp_path: Path) -> None:
    with SecuredBroker(tmp_path, USERS, TOKENS) as broker:
        cluster = Cluster(broker.addresses["PLAINTEXT"], broker.addresses["SASL_PLAINTEXT"])
        assert outcomes(cluster) == OUTCOMES
        text = broker.log()
    assert SECRET_KEY not in text


@pytest.mark.java
def test_the_outcomes_are_those_of_kafka(kafka: Cluster) -> None:
    assert outcomes(kafka) == OUTCOMES


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_client_with_a_token_has_the_rights_of_its_owner(
    broker: SecuredBroker, mechanism: str
) -> None:
    cluster = fresh(broker)
    topic = f"of-alice-{mechanism}"
    cluster.allow(ResourceType.TOPIC, topic, AclOperation.CREATE)
    wanted = {
        "name": topic, "num_partitions": 1, "replication_factor": 1, "assignments": [],
        "configs": [],
    }  # fmt: skip
    values = {"topics": [wanted], "timeout": timedelta(seconds=30), "validate_only": False}
    with cluster.log_in(create(cluster.alice), mechanism) as connection:
        response = ask(connection, Case("create_topics", 7, (), values))
    assert [int(one.error_code) for one in response.topics] == [0]


def test_a_deleted_token_and_a_wrong_hmac_do_not_log_in(broker: SecuredBroker) -> None:
    cluster = fresh(broker)
    token, other = create(cluster.alice), create(cluster.alice)
    cluster.log_in(token).close()
    assert expire(cluster.alice, token.hmac) == 0
    with pytest.raises(KafkaError, match="invalid credentials"):
        cluster.log_in(token)
    with pytest.raises(KafkaError, match="invalid credentials"):
        cluster.connect(
            Security("SASL_PLAINTEXT", mechanism="SCRAM-SHA-256", username=other.token_id,
                     password=base64.b64encode(token.hmac).decode(), by_token=True)
        )  # fmt: skip


def _answers(connection: Connection) -> bool:
    try:
        return describe(connection, everybody=True) is not None
    except ClientError:
        return False


def _refused(log_in: Callable[[], Connection]) -> bool:
    try:
        log_in().close()
    except KafkaError:
        return True
    return False


def answers_after_deletion(cluster: Cluster) -> dict[str, bool]:
    """Whether open connections of a deleted user and of a deleted token are still served."""
    carol = Security("SASL_PLAINTEXT", mechanism="SCRAM-SHA-256", username="carol", password="c")
    with AdminCluster(ClientConfig(cluster.admins)) as admin:
        set_password(admin, "carol", "c", ["SCRAM-SHA-256"])
        until(False, lambda: _refused(lambda: cluster.connect(carol)))
        by_password = cluster.connect(carol)
        delete_user(admin, describe_users(admin, ["carol"])["carol"])
    assert until(True, lambda: _refused(lambda: cluster.connect(carol)))
    token = create(cluster.alice)
    until(False, lambda: _refused(lambda: cluster.log_in(token)))
    by_token = cluster.log_in(token)
    expire(cluster.alice, token.hmac)
    assert until(True, lambda: _refused(lambda: cluster.log_in(token)))
    return {"user": _answers(by_password), "token": _answers(by_token)}


def test_open_connections_of_deleted_users_and_tokens_stay(broker: SecuredBroker) -> None:
    assert answers_after_deletion(fresh(broker)) == {"user": True, "token": True}


@pytest.mark.java
def test_open_connections_of_deleted_users_and_tokens_stay_with_kafka_too(kafka: Cluster) -> None:
    assert answers_after_deletion(kafka) == {"user": True, "token": True}


def test_a_session_ends_with_its_token_and_the_controller_deletes_it(
    broker: SecuredBroker,
) -> None:
    cluster = fresh(broker)
    token = create(cluster.alice)
    assert expire(cluster.alice, token.hmac, 2000) == 0
    end = time.monotonic() + 60
    with cluster.log_in(token) as connection:
        while time.monotonic() < end and _answers(connection):
            time.sleep(0.1)
    assert time.monotonic() < end, "the session outlived its token"
    assert until([], lambda: found(cluster.alice, everybody=True)) == []
    assert f"deleted the expired delegation token {token.token_id} of User:alice" in broker.log()


def test_changes_of_tokens_are_audited_without_their_secrets(broker: SecuredBroker) -> None:
    cluster = fresh(broker)
    token = create(cluster.alice, None, ("User", "bob"))
    assert renew(cluster.bob, token.hmac) == 0
    assert expire(cluster.alice, token.hmac) == 0
    text = (broker.folder / "audit.jsonl").read_text()
    events = [json.loads(line) for line in text.splitlines()]
    assert [
        (one["event"], one["principal"], one["owner"])
        for one in events
        if one.get("token") == token.token_id
    ] == [
        ("token_created", "User:alice", "User:alice"),
        ("token_renewed", "User:bob", "User:alice"),
        ("token_expired", "User:alice", "User:alice"),
    ]
    for secret in (base64.b64encode(token.hmac).decode(), token.hmac.hex(), SECRET_KEY):
        assert secret not in text + broker.log()


def test_without_a_secret_key_tokens_are_disabled(tmp_path: Path) -> None:
    with SecuredBroker(tmp_path, USERS) as broker:
        cluster = Cluster(broker.addresses["PLAINTEXT"], broker.addresses["SASL_PLAINTEXT"])
        assert int(create(cluster.alice).error_code) == 61
        assert renew(cluster.alice, b"x") == 61
        assert expire(cluster.alice, b"x") == 61
        assert int(describe(cluster.alice, everybody=True).error_code) == 61


@pytest.mark.java
def test_kafkas_tool_makes_tokens_and_a_java_client_logs_in_with_one(
    broker: SecuredBroker, tmp_path: Path
) -> None:
    cluster = fresh(broker)
    address = broker.addresses["SASL_PLAINTEXT"]

    def file(name: str, mechanism: str, jaas: str) -> str:
        path = tmp_path / name
        path.write_text(
            f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\nsasl.jaas.config={jaas}\n"
        )
        return str(path)

    def tool(*words: str) -> str:
        return run_tool(
            "kafka-delegation-tokens", "--bootstrap-server", address, "--command-config", alice,
            *words,
        ).text  # fmt: skip

    alice = file(
        "alice.properties", "PLAIN",
        f'{MODULE}.plain.PlainLoginModule required username="alice" password="{USERS["alice"]}";',
    )  # fmt: skip
    made = tool("--create", "--max-life-time-period", "-1", "--renewer-principal", "User:bob")
    (token,) = describe(cluster.alice, everybody=True).tokens
    secret = base64.b64encode(token.hmac).decode()
    assert token.token_id in made
    assert secret in made
    assert token.token_id in tool("--describe", "--owner-principal", "User:alice")
    assert re.search(
        "Completed renew", tool("--renew", "--renew-time-period", "-1", "--hmac", secret)
    )
    cluster.allow(ResourceType.TOPIC, "by-token", AclOperation.ALL)
    cluster.allow(ResourceType.CLUSTER, "kafka-cluster", AclOperation.CREATE)
    by_token = file(
        "token.properties", "SCRAM-SHA-512",
        f'{MODULE}.scram.ScramLoginModule required username="{token.token_id}" '
        f'password="{secret}" tokenauth="true";',
    )  # fmt: skip
    done = run_tool(
        "kafka-topics", "--bootstrap-server", address, "--command-config", by_token, "--create",
        "--topic", "by-token",
    )  # fmt: skip
    assert "Created topic by-token" in done.text
    tool("--expire", "--expiry-time-period", "-1", "--hmac", secret)
    assert found(cluster.alice, everybody=True) == []
