"""A change of ACLs applies at once on the broker that took it, and soon on all others."""

import time
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
from kio.schema.metadata.v12.request import MetadataRequest, MetadataRequestTopic
from kio.schema.metadata.v12.response import MetadataResponse
from kio.schema.types import TopicName

from headrace.client.cluster import Cluster
from headrace.client.config import ClientConfig, parse_bootstrap
from headrace.client.connection import Connection
from headrace.client.users import describe_users, set_password
from headrace.errors import ErrorCode
from tests.security.nodes import PASSWORD, LoginNode, login_nodes
from tests.security.test_acl_enforcement import Case, ask, codes
from tests.support.stores import eventually
from tests.support.zookeeper import ZooKeeper, missing

ALICE = "alice"
ATTEMPTS = 100
PAUSE_S = 0.01
"""Without other load on the machine all attempts take about a second."""
ROUNDS = 3


def is_allowed(connection: Connection, name: str) -> bool:
    """Whether the client of an open connection may see a topic."""
    topic = MetadataRequestTopic(topic_id=None, name=TopicName(name))
    request = MetadataRequest(
        topics=(topic,),
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=False,
    )
    (found,) = connection.ask(request, MetadataResponse).topics
    return int(found.error_code) != ErrorCode.TOPIC_AUTHORIZATION_FAILED


def wait_until(client: Connection, name: str, granted: bool) -> None:
    """Until the broker of the client has followed."""
    for _ in range(ATTEMPTS):
        if is_allowed(client, name) is granted:
            return
        time.sleep(PAUSE_S)
    raise AssertionError(f"not after {ATTEMPTS} attempts")


def change(admin: Connection, name: str, granted: bool) -> None:
    """Create or delete the ACL, by a request to one broker."""
    row = {
        "resource_type": 2, "resource_name": name, "resource_pattern_type": 3,
        "principal": f"User:{ALICE}", "host": "*", "operation": 8, "permission_type": 3,
    }  # fmt: skip
    matching = {
        "resource_type_filter": 2, "resource_name_filter": name, "pattern_type_filter": 3,
        "principal_filter": None, "host_filter": None, "operation": 1, "permission_type": 1,
    }  # fmt: skip
    case = (
        Case("create_acls", 3, (), {"creations": [row]})
        if granted
        else Case("delete_acls", 3, (), {"filters": [matching]})
    )
    assert set(codes(ask(admin, case))) == {0}


def check_changes(nodes: Sequence[LoginNode]) -> None:
    """Grant and revoke at every broker; the clients' connections stay open."""
    with nodes[0].admin() as admin:
        set_password(admin, ALICE, PASSWORD)
    with ExitStack() as undo:
        admins, clients = [], []
        for node in nodes:
            addresses = parse_bootstrap(node.inner)
            connection = Connection(addresses[0], ClientConfig(addresses))
            admins.append(undo.enter_context(connection))
            with node.admin() as cluster:
                eventually(partial(has_user, cluster), "all know the user")
            clients.append(undo.enter_context(node.connect(ALICE)))
        for number in range(ROUNDS):
            for taker, admin_connection in enumerate(admins):
                name = f"topic-{number}"
                for granted in (True, False):
                    assert is_allowed(clients[taker], name) is not granted
                    change(admin_connection, name, granted)
                    assert is_allowed(clients[taker], name) is granted, "at once where it is made"
                    for client in clients:
                        wait_until(client, name, granted)


def has_user(cluster: Cluster) -> bool:
    return bool(describe_users(cluster, [ALICE]))


def test_two_brokers_with_sqlite_follow_a_grant_and_a_revocation(
    tmp_path: Path,
) -> None:
    with login_nodes(tmp_path, 2) as nodes:
        check_changes(nodes)


def test_three_brokers_with_zookeeper_follow_a_grant_and_a_revocation(
    tmp_path: Path,
) -> None:
    if (reason := missing()) is not None:
        pytest.skip(reason)
    folder = tmp_path / "zookeeper"
    folder.mkdir()
    with (
        ZooKeeper(folder) as zookeeper,
        login_nodes(tmp_path, 3, zookeeper.address("/acls")) as nodes,
    ):
        check_changes(nodes)
