"""Connections of users and tokens that are deleted stay, or are closed by a setting."""

import base64
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from headrace.client.config import ClientConfig, Security, parse_bootstrap
from headrace.client.connection import Connection
from headrace.client.errors import Unreachable
from headrace.client.users import delete_user, describe_users, set_password
from headrace.clock import SystemClock
from headrace.errors import ErrorCode
from headrace.security.tokens import Tokens
from headrace.settings import Settings
from tests.security.nodes import PASSWORD, LoginNode, login_nodes
from tests.security.test_acl_enforcement import Case, ask, codes
from tests.support.stores import eventually

KEY = {"delegation.token.secret.key": "the key of all brokers"}
SETTING = "headrace.sasl.close.deleted.users"


@contextmanager
def brokers(folder: Path, **settings: str) -> Iterator[Sequence[LoginNode]]:
    with login_nodes(folder, 2, settings={**KEY, **settings}) as nodes:
        with nodes[0].admin() as admin:
            for name in ("alice", "bob"):
                set_password(admin, name, PASSWORD)
        for node in nodes:
            with node.admin() as admin:
                eventually(lambda: len(describe_users(admin, ["alice", "bob"])) == 2, "all known")
        yield nodes


def remove(node: LoginNode, name: str) -> None:
    with node.admin() as admin:
        delete_user(admin, describe_users(admin, [name])[name])


def works(connection: Connection) -> bool:
    try:
        ask(connection, Case("metadata", 12, (), {"topics": ()}))
    except Unreachable:
        return False
    return True


def token_of(connection: Connection) -> tuple[str, bytes]:
    """A new delegation token of a connection's user: its id and its secret."""
    values = {"renewers": (), "max_lifetime": timedelta(hours=1)}
    values |= {"owner_principal_type": None, "owner_principal_name": None}
    answer = ask(connection, Case("create_delegation_token", 3, (), values))
    assert int(answer.error_code) == 0
    return str(answer.token_id), bytes(answer.hmac)


def log_in_by_token(node: LoginNode, token_id: str) -> Connection:
    settings = Settings.parse(KEY)
    secret = base64.b64encode(Tokens.of(settings, SystemClock()).hmac(token_id)).decode()
    addresses = parse_bootstrap(node.address)
    security = Security(
        "SASL_PLAINTEXT", mechanism="SCRAM-SHA-256", username=token_id, password=secret,
        by_token=True,
    )  # fmt: skip
    return Connection(addresses[0], ClientConfig(addresses, security=security))


def expire(connection: Connection, secret: bytes) -> None:
    values = {"hmac": secret, "expiry_time_period": timedelta(milliseconds=-1)}
    assert set(codes(ask(connection, Case("expire_delegation_token", 2, (), values)))) == {0}


def test_the_connections_of_a_deleted_user_are_closed_on_all_brokers(tmp_path: Path) -> None:
    with brokers(tmp_path, **{SETTING: "true"}) as nodes, ExitStack() as undo:
        alice = [undo.enter_context(node.connect("alice")) for node in nodes]
        bob = [undo.enter_context(node.connect("bob")) for node in nodes]
        token_id, secret = token_of(bob[0])
        by_token = undo.enter_context(log_in_by_token(nodes[0], token_id))
        assert all(works(one) for one in (*alice, *bob, by_token))
        remove(nodes[0], "alice")
        eventually(lambda: not any(works(one) for one in alice), "alice's are closed")
        assert all(works(one) for one in (*bob, by_token))
        expire(bob[0], secret)
        eventually(lambda: not works(by_token), "the connection of the token is closed")
        assert all(works(one) for one in bob)


def test_by_default_they_stay_as_in_kafka(tmp_path: Path) -> None:
    with brokers(tmp_path) as nodes, nodes[1].connect("alice") as alice:
        remove(nodes[1], "alice")
        with nodes[1].admin() as admin:
            eventually(lambda: not describe_users(admin, ["alice"]), "alice is deleted")
        assert works(alice)
        with pytest.raises(Exception, match=ErrorCode.SASL_AUTHENTICATION_FAILED.name):
            nodes[1].connect("alice")
