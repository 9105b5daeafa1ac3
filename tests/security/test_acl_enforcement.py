"""Every API refuses what a client may not do, with the error codes of Apache Kafka.

Each case is asked on Headrace and on a secured Apache Kafka: without any right, with the rights
that it needs, and with a DENY beside them. Both have to give the same error codes.
"""

import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, is_dataclass
from datetime import timedelta
from functools import partial
from importlib import import_module
from random import Random
from typing import Any

import pytest

from headrace.client.config import ClientConfig, Security, parse_bootstrap
from headrace.client.connection import Connection
from headrace.client.errors import Unreachable
from headrace.security.acls import (
    CLUSTER_NAME,
    SUPPORTED,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)
from headrace.wire import codec_fields
from headrace.wire.records import Record, encode_batch
from tests.security.secured import SecuredBroker
from tests.support.apache_kafka import ApacheKafka
from tests.support.ports import free_port

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
ALICE, PASSWORD = "alice", "s3cret"
REFUSED = {29, 30, 31, 53, 65}
ZERO = timedelta(0)
SECOND = timedelta(seconds=1)
T, G, X, C = (
    (ResourceType.TOPIC, "orders"),
    (ResourceType.GROUP, "g"),
    (ResourceType.TRANSACTIONAL_ID, "x"),
    (ResourceType.CLUSTER, CLUSTER_NAME),
)
MADE = (ResourceType.TOPIC, "made")
Right = tuple[tuple[ResourceType, str], str]


@dataclass(frozen=True)
class Case:
    """A request, and the rights that it needs."""

    api: str
    version: int
    rights: tuple[Right, ...]
    values: dict[str, Any] = field(default_factory=dict)
    title: str = ""

    def __str__(self) -> str:
        return self.title or self.api


def batch() -> bytes:
    return bytes(encode_batch([Record(0, 1, b"k", b"v")], 0))


def partition(**values: Any) -> list[dict[str, Any]]:
    return [{"name": "orders", "partitions": [values]}]


def transactional_batch() -> bytes:
    return bytes(
        encode_batch(
            [Record(0, 1, b"k", b"v")], 0, producer_id=99, producer_epoch=0, base_sequence=0,
            attributes=0x10,
        )
    )  # fmt: skip


NO_ACL = {
    "resource_type_filter": 2, "resource_name_filter": "nothing", "pattern_type_filter": 3,
    "principal_filter": None, "host_filter": None, "operation": 1, "permission_type": 1,
}  # fmt: skip
MARKER = {
    "producer_id": 99, "producer_epoch": 0, "transaction_result": True, "coordinator_epoch": 0,
    "topics": [{"name": "missing", "partition_indexes": (0,)}],
}  # fmt: skip
CASES = [
    Case(
        "metadata", 12, ((T, "DESCRIBE"),),
        {"topics": [{"topic_id": None, "name": "orders"}], "allow_auto_topic_creation": False},
    ),
    Case("metadata", 12, ((T, "DESCRIBE"),), {"topics": None}, "metadata of all topics"),
    Case(
        "metadata", 12, ((C, "CREATE"), ((ResourceType.TOPIC, "new"), "DESCRIBE")),
        {"topics": [{"topic_id": None, "name": "new"}], "allow_auto_topic_creation": True},
        "metadata that creates",
    ),
    Case(
        "produce", 10, ((T, "WRITE"),),
        {
            "transactional_id": None, "acks": 1, "timeout": SECOND,
            "topic_data": [
                {"name": "orders", "partition_data": [{"index": 0, "records": batch()}]}
            ],
        },
    ),
    Case(
        "fetch", 12, ((T, "READ"),),
        {
            "replica_id": -1, "max_wait": ZERO, "min_bytes": 1, "max_bytes": 1000,
            "isolation_level": 0, "session_id": 0, "session_epoch": -1,
            "topics": [
                {
                    "topic": "orders",
                    "partitions": [
                        {
                            "partition": 0, "current_leader_epoch": -1, "fetch_offset": 0,
                            "partition_max_bytes": 1000,
                        }
                    ],
                }
            ],
            "forgotten_topics_data": [], "rack_id": "",
        },
    ),
    Case(
        "fetch", 12, ((C, "CLUSTER_ACTION"),),
        {
            "replica_id": 7, "max_wait": ZERO, "min_bytes": 1, "max_bytes": 1000,
            "isolation_level": 0, "session_id": 0, "session_epoch": -1,
            "topics": [
                {
                    "topic": "missing",
                    "partitions": [
                        {
                            "partition": 0, "current_leader_epoch": -1, "fetch_offset": 0,
                            "partition_max_bytes": 1000,
                        }
                    ],
                }
            ],
            "forgotten_topics_data": [], "rack_id": "",
        },
        "fetch of a follower",
    ),
    Case(
        "list_offsets", 7, ((T, "DESCRIBE"),),
        {
            "replica_id": -1, "isolation_level": 0,
            "topics": partition(partition_index=0, current_leader_epoch=-1, timestamp=-1),
        },
    ),
    Case(
        "delete_records", 2, ((T, "DELETE"),),
        {"timeout": SECOND, "topics": partition(partition_index=0, offset=0)},
    ),
    Case(
        "offset_for_leader_epoch", 4, ((T, "DESCRIBE"),),
        {
            "replica_id": -2,
            "topics": [
                {
                    "topic": "orders",
                    "partitions": [
                        {"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}
                    ],
                }
            ],
        },
    ),
    Case(
        "create_topics", 7,
        ((MADE, "CREATE"), (MADE, "DESCRIBE_CONFIGS")),
        {
            "topics": [
                {
                    "name": "made", "num_partitions": 1, "replication_factor": 1,
                    "assignments": [], "configs": [],
                }
            ],
            "timeout": SECOND, "validate_only": True,
        },
    ),
    Case(
        "create_topics", 7, ((C, "CREATE"), (MADE, "DESCRIBE_CONFIGS")),
        {
            "topics": [
                {
                    "name": "made", "num_partitions": 1, "replication_factor": 1,
                    "assignments": [], "configs": [],
                }
            ],
            "timeout": SECOND, "validate_only": True,
        },
        "create_topics by the cluster's right",
    ),
    Case(
        "delete_topics", 6, (((ResourceType.TOPIC, "absent"), "DELETE"),),
        {"topics": [{"name": "absent", "topic_id": None}], "timeout": SECOND},
    ),
    Case(
        "create_partitions", 3, ((T, "ALTER"),),
        {
            "topics": [{"name": "orders", "count": 1, "assignments": None}],
            "timeout": SECOND, "validate_only": True,
        },
    ),
    Case(
        "describe_topic_partitions", 0, ((T, "DESCRIBE"),),
        {"topics": [{"name": "orders"}], "response_partition_limit": 10, "cursor": None},
    ),
    Case(
        "offset_commit", 8, ((G, "READ"), (T, "READ")),
        {
            "group_id": "g", "generation_id_or_member_epoch": -1, "member_id": "",
            "topics": partition(
                partition_index=0, committed_offset=0, committed_leader_epoch=-1,
                committed_metadata="",
            ),
        },
    ),
    Case(
        "offset_fetch", 8, ((G, "DESCRIBE"), (T, "DESCRIBE")),
        {
            "groups": [
                {"group_id": "g", "topics": [{"name": "orders", "partition_indexes": (0,)}]}
            ],
            "require_stable": False,
        },
    ),
    Case(
        "find_coordinator", 4, ((G, "DESCRIBE"),), {"key_type": 0, "coordinator_keys": ("g",)},
    ),
    Case(
        "find_coordinator", 4, ((X, "DESCRIBE"),), {"key_type": 1, "coordinator_keys": ("x",)},
        "find_coordinator of transactions",
    ),
    Case(
        "join_group", 9, ((G, "READ"),),
        {
            "group_id": "g", "session_timeout": timedelta(seconds=6),
            "rebalance_timeout": timedelta(seconds=6), "member_id": "",
            "protocol_type": "consumer", "protocols": [{"name": "range", "metadata": b""}],
            "reason": None,
        },
    ),
    Case(
        "heartbeat", 4, ((G, "READ"),), {"group_id": "g", "generation_id": 1, "member_id": "m"},
    ),
    Case(
        "leave_group", 5, ((G, "READ"),),
        {"group_id": "g", "members": [{"member_id": "m", "reason": None}]},
    ),
    Case(
        "sync_group", 5, ((G, "READ"),),
        {
            "group_id": "g", "generation_id": 1, "member_id": "m", "protocol_type": "consumer",
            "protocol_name": "range", "assignments": [],
        },
    ),
    Case(
        "describe_groups", 5, ((G, "DESCRIBE"),),
        {"groups": ("g",), "include_authorized_operations": False},
    ),
    Case("list_groups", 5, ((C, "DESCRIBE"),), {"states_filter": (), "types_filter": ()}),
    Case("delete_groups", 2, ((G, "DELETE"),), {"groups_names": ("g",)}),
    Case(
        "offset_delete", 0, ((G, "DELETE"), (T, "READ")),
        {"group_id": "g", "topics": partition(partition_index=0)},
    ),
    Case(
        "consumer_group_heartbeat", 0, (((ResourceType.GROUP, "c"), "READ"), (T, "DESCRIBE")),
        {
            "group_id": "c", "member_id": "", "member_epoch": 0,
            "rebalance_timeout": timedelta(seconds=6), "subscribed_topic_names": ("orders",),
            "server_assignor": None, "topic_partitions": [],
        },
    ),
    Case(
        "consumer_group_describe", 0, (((ResourceType.GROUP, "absent"), "DESCRIBE"),),
        {"group_ids": ("absent",), "include_authorized_operations": False},
    ),
    Case(
        "init_producer_id", 4, ((X, "WRITE"),),
        {
            "transactional_id": "x", "transaction_timeout": SECOND, "producer_id": -1,
            "producer_epoch": -1,
        },
    ),
    Case(
        "init_producer_id", 4, ((C, "IDEMPOTENT_WRITE"),),
        {
            "transactional_id": None, "transaction_timeout": SECOND, "producer_id": -1,
            "producer_epoch": -1,
        },
        "init_producer_id of an idempotent producer",
    ),
    Case(
        "init_producer_id", 4, (((ResourceType.TOPIC, "anything"), "WRITE"),),
        {
            "transactional_id": None, "transaction_timeout": SECOND, "producer_id": -1,
            "producer_epoch": -1,
        },
        "init_producer_id of a producer that may write to some topic",
    ),
    Case(
        "add_partitions_to_txn", 3, ((X, "WRITE"), (T, "WRITE")),
        {
            "v3_and_below_transactional_id": "x", "v3_and_below_producer_id": 99,
            "v3_and_below_producer_epoch": 0,
            "v3_and_below_topics": [{"name": "orders", "partitions": (0,)}],
        },
    ),
    Case(
        "add_offsets_to_txn", 3, ((X, "WRITE"), (G, "READ")),
        {"transactional_id": "x", "producer_id": 99, "producer_epoch": 0, "group_id": "g"},
    ),
    Case(
        "end_txn", 3, ((X, "WRITE"),),
        {"transactional_id": "x", "producer_id": 99, "producer_epoch": 0, "committed": True},
    ),
    Case(
        "txn_offset_commit", 3, ((X, "WRITE"), (G, "READ"), (T, "READ")),
        {
            "transactional_id": "x", "group_id": "g", "producer_id": 99, "producer_epoch": 0,
            "generation_id": -1, "member_id": "",
            "topics": partition(
                partition_index=0, committed_offset=0, committed_leader_epoch=-1,
                committed_metadata="",
            ),
        },
    ),
    Case(
        "describe_producers", 0, ((T, "READ"),),
        {"topics": [{"name": "orders", "partition_indexes": (0,)}]},
    ),
    Case(
        "describe_transactions", 0, (((ResourceType.TRANSACTIONAL_ID, "absent"), "DESCRIBE"),),
        {"transactional_ids": ("absent",)},
    ),
    Case(
        "describe_configs", 4, ((T, "DESCRIBE_CONFIGS"), (C, "DESCRIBE_CONFIGS")),
        {
            "resources": [
                {"resource_type": 2, "resource_name": "orders", "configuration_keys": ("x",)},
                {"resource_type": 4, "resource_name": "1", "configuration_keys": ("x",)},
            ],
            "include_synonyms": False, "include_documentation": False,
        },
    ),
    Case(
        "incremental_alter_configs", 1, ((T, "ALTER_CONFIGS"),),
        {
            "resources": [
                {
                    "resource_type": 2, "resource_name": "orders",
                    "configs": [
                        {"name": "retention.ms", "config_operation": 0, "value": "100000000"}
                    ],
                }
            ],
            "validate_only": True,
        },
    ),
    Case("describe_log_dirs", 4, ((C, "DESCRIBE"),), {"topics": []}),
    Case("list_partition_reassignments", 0, ((C, "DESCRIBE"),), {"timeout": SECOND, "topics": []}),
    Case("alter_partition_reassignments", 0, ((C, "ALTER"),), {"timeout": SECOND, "topics": []}),
    Case(
        "elect_leaders", 2, ((C, "ALTER"),),
        {
            "election_type": 0, "timeout": SECOND,
            "topic_partitions": [{"topic": "orders", "partitions": (0,)}],
        },
    ),
    Case(
        "describe_acls", 3, ((C, "DESCRIBE"),),
        {
            "resource_type_filter": 2, "resource_name_filter": "nothing",
            "pattern_type_filter": 3, "principal_filter": None, "host_filter": None,
            "operation": 1, "permission_type": 1,
        },
    ),
    Case(
        "create_acls", 3, ((C, "ALTER"),),
        {
            "creations": [
                {
                    "resource_type": 4, "resource_name": "wrong", "resource_pattern_type": 3,
                    "principal": "User:x", "host": "*", "operation": 3, "permission_type": 3,
                }
            ]
        },
    ),
    Case("describe_user_scram_credentials", 0, ((C, "DESCRIBE"),), {"users": [{"name": "none"}]}),
    Case(
        "alter_user_scram_credentials", 0, ((C, "ALTER"),),
        {"deletions": [{"name": "none", "mechanism": 1}], "upsertions": []},
    ),
    Case(
        "produce", 10, ((X, "WRITE"), (T, "WRITE")),
        {
            "transactional_id": "x", "acks": -1, "timeout": SECOND,
            "topic_data": [
                {
                    "name": "orders",
                    "partition_data": [{"index": 0, "records": transactional_batch()}],
                }
            ],
        },
        "produce in a transaction",
    ),
    Case("delete_acls", 3, ((C, "ALTER"),), {"filters": [NO_ACL]}),
    Case(
        "write_txn_markers", 1, ((C, "ALTER"),), {"markers": [MARKER]},
    ),
    Case(
        "write_txn_markers", 1, ((C, "CLUSTER_ACTION"),), {"markers": [MARKER]},
        "write_txn_markers of a broker",
    ),
    Case(
        "add_partitions_to_txn", 4, ((C, "CLUSTER_ACTION"),),
        {
            "transactions": [
                {
                    "transactional_id": "x", "producer_id": 99, "producer_epoch": 0,
                    "verify_only": True, "topics": [{"name": "orders", "partitions": (0,)}],
                }
            ]
        },
        "add_partitions_to_txn of a broker",
    ),
    Case(
        "alter_configs", 2, ((T, "ALTER_CONFIGS"),),
        {
            "resources": [
                {
                    "resource_type": 2, "resource_name": "orders",
                    "configs": [{"name": "retention.ms", "value": "100000000"}],
                }
            ],
            "validate_only": True,
        },
    ),
    Case(
        "incremental_alter_configs", 1, ((G, "ALTER_CONFIGS"), (C, "ALTER_CONFIGS")),
        {
            "resources": [
                {
                    "resource_type": 32, "resource_name": "g",
                    "configs": [
                        {
                            "name": "consumer.session.timeout.ms", "config_operation": 0,
                            "value": "50000",
                        }
                    ],
                },
                {
                    "resource_type": 4, "resource_name": "",
                    "configs": [
                        {"name": "log.retention.ms", "config_operation": 0, "value": "100000000"}
                    ],
                },
            ],
            "validate_only": True,
        },
        "incremental_alter_configs of a group and of brokers",
    ),
    Case(
        "describe_configs", 4, ((G, "DESCRIBE_CONFIGS"),),
        {
            "resources": [
                {"resource_type": 32, "resource_name": "g", "configuration_keys": ("x",)}
            ],
            "include_synonyms": False, "include_documentation": False,
        },
        "describe_configs of a group",
    ),
    Case("list_config_resources", 1, ((C, "DESCRIBE_CONFIGS"),), {"resource_types": (16,)}),
    Case(
        "describe_client_quotas", 1, ((C, "DESCRIBE_CONFIGS"),),
        {"components": [{"entity_type": "user", "match_type": 2, "match": None}], "strict": False},
    ),
    Case(
        "alter_client_quotas", 1, ((C, "ALTER_CONFIGS"),),
        {
            "entries": [
                {
                    "entity": [{"entity_type": "user", "entity_name": "bob"}],
                    "ops": [{"key": "producer_byte_rate", "value": 1000.0, "remove": False}],
                }
            ],
            "validate_only": True,
        },
    ),
    Case(
        "alter_replica_log_dirs", 2, ((C, "ALTER"),),
        {"dirs": [{"path": "/none", "topics": [{"name": "missing", "partitions": (0,)}]}]},
    ),
    Case(
        "describe_quorum", 2, ((C, "DESCRIBE"),),
        {"topics": [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]},
    ),
    Case(
        "update_features", 1, ((C, "ALTER"),),
        {"timeout": SECOND, "feature_updates": [], "validate_only": True},
    ),
]  # fmt: skip


def build(shape: type, values: dict[str, Any]) -> Any:
    """A message of kio from plain values; what is left out has its default."""
    made = {}
    for one in codec_fields.fields(shape):
        value = values.get(one.name, one.default)
        if one.entity is not None and one.array and value is not None:
            value = tuple(build(one.entity, item) for item in value)
        made[one.name] = value
    return shape(**made)


def ask(connection: Connection, case: Case) -> Any:
    name = "".join(word.capitalize() for word in case.api.split("_"))
    package = f"kio.schema.{case.api}.v{case.version}"
    request = getattr(import_module(f"{package}.request"), f"{name}Request")
    response = getattr(import_module(f"{package}.response"), f"{name}Response")
    return connection.ask(build(request, case.values), response)


def codes(message: Any) -> list[int]:
    """All error codes in a response, in their order."""
    found: list[int] = []
    for one in codec_fields.fields(type(message)):
        value = getattr(message, one.name)
        if one.name.endswith("error_code"):
            found.append(int(value))
        elif isinstance(value, tuple):
            for item in value:
                if is_dataclass(item):
                    found += codes(item)
    return found


NAMED = {"orders", "veiled", "g", "veiled-g", "x", "veiled-x"}
SOFTWARE = {"client_software_name": "tests", "client_software_version": "1"}


def texts(message: Any) -> set[str]:
    """All texts in a response."""
    found: set[str] = set()
    for one in codec_fields.fields(type(message)):
        value = getattr(message, one.name)
        for item in value if isinstance(value, tuple) else (value,):
            if is_dataclass(item):
                found |= texts(item)
            elif isinstance(item, str):
                found.add(str(item))
    return found


class Secured:
    """A broker with an authorizer, the super user's connection to it, and that of alice."""

    def __init__(self, admin: str, users: str) -> None:
        bootstrap = parse_bootstrap(admin)
        self._admin = Connection(bootstrap[0], ClientConfig(bootstrap))
        self._users = parse_bootstrap(users)
        self.create("orders")
        self._warm_up("g", 0)
        self._warm_up("x", 1)

    def create(self, name: str) -> None:
        """Create a topic."""
        topic = {
            "name": name, "num_partitions": 1, "replication_factor": 1, "assignments": [],
            "configs": [],
        }  # fmt: skip
        values = {
            "topics": [topic], "timeout": timedelta(seconds=30), "validate_only": False,
        }  # fmt: skip
        assert codes(ask(self._admin, Case("create_topics", 7, (), values))) == [0, 0]

    def _warm_up(self, key: str, kind: int) -> None:
        """Have the coordinator's topic created."""
        case = Case("find_coordinator", 4, (), {"key_type": kind, "coordinator_keys": (key,)})
        until = time.monotonic() + 60
        while codes(ask(self._admin, case)) != [0]:
            assert time.monotonic() < until, "no coordinator"
            time.sleep(0.1)

    def connect(self) -> Connection:
        security = Security("SASL_PLAINTEXT", username=ALICE, password=PASSWORD)
        return Connection(self._users[0], ClientConfig(self._users, security=security))

    def set_acls(self, rights: tuple[Right, ...], denied: tuple[Right, ...] = ()) -> None:
        """Let alice do this and no more."""
        rows = [
            {
                "resource_type": kind, "resource_name": name,
                "resource_pattern_type": PatternType.LITERAL, "principal": f"User:{ALICE}",
                "host": "*", "operation": AclOperation[operation], "permission_type": permission,
            }
            for permission, given in ((AclPermission.ALLOW, rights), (AclPermission.DENY, denied))
            for (kind, name), operation in given
        ]  # fmt: skip
        self.set_rows(rows)

    def set_rows(self, rows: list[dict[str, Any]]) -> None:
        """Have these ACLs and no others."""
        everything = {
            "resource_type_filter": 1, "resource_name_filter": None, "pattern_type_filter": 1,
            "principal_filter": None, "host_filter": None, "operation": 1, "permission_type": 1,
        }  # fmt: skip
        ask(self._admin, Case("delete_acls", 3, (), {"filters": [everything]}))
        if rows:
            made = ask(self._admin, Case("create_acls", 3, (), {"creations": rows}))
            assert set(codes(made)) == {0}

    def operations(self, acls: list[dict[str, Any]]) -> list[tuple[int, int]]:
        """The error code and the operations that alice may do on each topic, by these ACLs."""
        self.set_rows(acls)
        case = Case(
            "metadata", 12, (),
            {
                "topics": [{"topic_id": None, "name": "orders"}],
                "allow_auto_topic_creation": False,
                "include_topic_authorized_operations": True,
            },
        )  # fmt: skip
        with self.connect() as connection:
            topics = ask(connection, case).topics
        return [(int(one.error_code), int(one.topic_authorized_operations)) for one in topics]

    def subscribed(self, group: str, expression: str) -> set[str]:
        """The topics that a member of a new group is assigned, by a regular expression."""
        self.set_acls((((ResourceType.GROUP, group), "READ"), (T, "DESCRIBE")))
        everything = Case("metadata", 12, (), {"topics": None})
        names = {one.topic_id: str(one.name) for one in ask(self._admin, everything).topics}
        joining = {
            "group_id": group, "member_id": str(uuid.uuid4()), "member_epoch": 0,
            "rebalance_timeout": timedelta(seconds=60), "subscribed_topic_names": None,
            "subscribed_topic_regex": expression, "server_assignor": None, "topic_partitions": [],
        }  # fmt: skip
        beats = {"topic_partitions": None, "subscribed_topic_regex": None}
        found: set[str] = set()
        until = time.monotonic() + 60
        with self.connect() as connection:
            while not found and time.monotonic() < until:
                answer = ask(connection, Case("consumer_group_heartbeat", 1, (), joining))
                if answer.assignment is not None:
                    rows = answer.assignment.topic_partitions
                    found = {names[one.topic_id] for one in rows}
                joining.update(beats, member_epoch=answer.member_epoch)
                joining["rebalance_timeout"] = timedelta(milliseconds=-1)
                time.sleep(0.2)
        return found

    def seen(self, case: Case) -> set[str]:
        """Which of our own topics, groups and transactional ids a response to alice names."""
        with self.connect() as connection:
            return texts(ask(connection, case)) & NAMED

    def fill(self) -> None:
        """Topics, groups with offsets in two topics, and transactional ids."""
        self.create("veiled")
        for group in ("g", "veiled-g"):
            offsets = [
                {
                    "name": name,
                    "partitions": [
                        {
                            "partition_index": 0, "committed_offset": 0,
                            "committed_leader_epoch": -1, "committed_metadata": "",
                        }
                    ],
                }
                for name in ("orders", "veiled")
            ]  # fmt: skip
            values = {
                "group_id": group, "generation_id_or_member_epoch": -1, "member_id": "",
                "topics": offsets,
            }  # fmt: skip
            self._until_done(Case("offset_commit", 8, (), values))
        for name in ("x", "veiled-x"):
            begun = {
                "transactional_id": name, "transaction_timeout": SECOND, "producer_id": -1,
                "producer_epoch": -1,
            }  # fmt: skip
            self._until_done(Case("init_producer_id", 4, (), begun))

    def _until_done(self, case: Case) -> None:
        until = time.monotonic() + 60
        while set(codes(ask(self._admin, case))) != {0}:
            assert time.monotonic() < until, case
            time.sleep(0.1)

    def topic_id(self, name: str) -> uuid.UUID:
        case = Case("metadata", 12, (), {"topics": [{"topic_id": None, "name": name}]})
        (topic,) = ask(self._admin, case).topics
        found: uuid.UUID = topic.topic_id
        return found

    def deleted(self, topic: uuid.UUID, rights: tuple[Right, ...]) -> list[tuple[int, str | None]]:
        """What alice is told when she deletes a topic by its id."""
        self.set_acls(rights)
        values = {"topics": [{"name": None, "topic_id": topic}], "timeout": SECOND}
        with self.connect() as connection:
            answer = ask(connection, Case("delete_topics", 6, (), values))
        return [(int(one.error_code), one.name) for one in answer.responses]

    def is_cut_off(self, rights: tuple[Right, ...]) -> bool:
        """Whether alice's connection ends after a Produce request without an answer."""
        self.set_acls(rights)
        values = {
            "transactional_id": None, "acks": 0, "timeout": SECOND,
            "topic_data": [
                {"name": "orders", "partition_data": [{"index": 0, "records": batch()}]}
            ],
        }  # fmt: skip
        produce = import_module("kio.schema.produce.v10.request").ProduceRequest
        with self.connect() as connection:
            connection.send(build(produce, values))
            connection._conversation._waiting.clear()  # there is no answer
            try:
                ask(connection, Case("api_versions", 3, (), SOFTWARE))
            except Unreachable:
                return True
        return False

    def outcomes(self, case: Case) -> dict[str, list[int]]:
        """The error codes without rights, with them, and with a DENY of each."""
        steps: dict[str, tuple[tuple[Right, ...], tuple[Right, ...]]] = {
            "nothing": ((), ()),
            "all": (case.rights, ()),
        }
        for number, right in enumerate(case.rights):
            steps[f"deny {right[1]}"] = (case.rights, (right,))
            if len(case.rights) > 1:
                others = (*case.rights[:number], *case.rights[number + 1 :])
                steps[f"without {right[1]}"] = (others, ())
        found = {}
        for step, (rights, denied) in steps.items():
            self.set_acls(rights, denied)
            with self.connect() as connection:
                found[step] = codes(ask(connection, case))
        return found


@pytest.fixture(scope="module")
def headrace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    settings = {
        "authorizer.class.name": AUTHORIZER,
        "super.users": "User:ANONYMOUS",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "1",
    }
    folder = tmp_path_factory.mktemp("headrace")
    with SecuredBroker(folder, {ALICE: PASSWORD}, settings) as broker:
        yield Secured(broker.addresses["PLAINTEXT"], broker.addresses["SASL_PLAINTEXT"])


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    users = free_port()
    plain = free_port()
    controller = free_port()
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    settings = {
        "listeners": (
            f"PLAINTEXT://127.0.0.1:{plain},SASL_PLAINTEXT://127.0.0.1:{users},"
            f"CONTROLLER://127.0.0.1:{controller}"
        ),
        "advertised.listeners": (
            f"PLAINTEXT://127.0.0.1:{plain},SASL_PLAINTEXT://127.0.0.1:{users}"
        ),
        "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller}",
        "listener.security.protocol.map": (
            "PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT"
        ),
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
            f'{module} required user_{ALICE}="{PASSWORD}";'
        ),
        "authorizer.class.name": AUTHORIZER,
        "super.users": "User:ANONYMOUS",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "1",
    }
    folder = tmp_path_factory.mktemp("kafka")
    with ApacheKafka(folder, port=plain, settings=settings, quick=True):
        yield Secured(f"127.0.0.1:{plain}", f"127.0.0.1:{users}")


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_client_without_the_right_is_refused(headrace: Secured, case: Case) -> None:
    found = headrace.outcomes(case)
    if case.title != "metadata of all topics" and case.api != "list_groups":
        assert set(found["nothing"]) & REFUSED, found
    assert not set(found["all"]) & REFUSED, found


@pytest.mark.java
@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_answer_has_the_error_codes_of_kafka(
    headrace: Secured, kafka: Secured, case: Case
) -> None:
    ours = headrace.outcomes(case)
    until = time.monotonic() + 60
    while (theirs := kafka.outcomes(case)) != ours and time.monotonic() < until:
        time.sleep(0.2)  # a broker of Kafka hears of new ACLs a little later
    assert ours == theirs


NAMES = ("orders", "order", "ord", "o", "payments", "*")
HOSTS = ("*", "127.0.0.1", "10.0.0.7")
PRINCIPALS = (f"User:{ALICE}", "User:*", "User:bob")
ON_TOPIC = [AclOperation.ALL, *sorted(SUPPORTED[ResourceType.TOPIC])]


def some_acls(random: Random) -> list[dict[str, Any]]:
    """Rules for topics: of several principals, hosts, patterns and operations."""
    return [
        {
            "resource_type": ResourceType.TOPIC,
            "resource_name": random.choice(NAMES),
            "resource_pattern_type": random.choice((PatternType.LITERAL, PatternType.PREFIXED)),
            "principal": random.choice(PRINCIPALS),
            "host": random.choice(HOSTS),
            "operation": random.choice(ON_TOPIC),
            "permission_type": random.choice(
                (AclPermission.ALLOW, AclPermission.ALLOW, AclPermission.DENY)
            ),
        }
        for _ in range(random.randrange(1, 9))
    ]


@pytest.mark.java
def test_operations_are_allowed_by_the_rules_of_kafka(headrace: Secured, kafka: Secured) -> None:
    random = Random(20261116)
    compared = 0
    for _ in range(100):
        acls = some_acls(random)
        ours = headrace.operations(acls)
        until = time.monotonic() + 60
        while (theirs := kafka.operations(acls)) != ours and time.monotonic() < until:
            time.sleep(0.2)
        assert ours == theirs, acls
        compared += sum(bits > 0 for _, bits in ours)
    assert compared > 20, "too few rules allowed anything"


def test_an_expression_finds_only_topics_that_the_member_may_describe(headrace: Secured) -> None:
    headrace.create("hidden")
    assert headrace.subscribed("by-expression", "orders|hidden") == {"orders"}


@pytest.mark.java
def test_kafka_finds_only_topics_that_the_member_may_describe(kafka: Secured) -> None:
    kafka.create("hidden")
    assert kafka.subscribed("by-expression", "orders|hidden") == {"orders"}


def agree(ours: Callable[[], object], theirs: Callable[[], object], what: object) -> object:
    """What both find; a broker of Kafka hears of new ACLs a little later."""
    found, until = ours(), time.monotonic() + 60
    while (other := theirs()) != found and time.monotonic() < until:
        time.sleep(0.2)
    assert found == other, what
    return found


LISTS = {
    "metadata": Case("metadata", 12, (), {"topics": None}),
    "list_groups": Case("list_groups", 5, (), {"states_filter": (), "types_filter": ()}),
    "list_transactions": Case("list_transactions", 1, (), {}),
    "offset_fetch": Case(
        "offset_fetch", 8, (),
        {"groups": [{"group_id": "g", "topics": None}], "require_stable": False},
    ),
    "describe_log_dirs": Case("describe_log_dirs", 4, (), {"topics": None}),
    "describe_topic_partitions": Case(
        "describe_topic_partitions", 0, (),
        {"topics": [], "response_partition_limit": 10, "cursor": None},
    ),
    "list_config_resources": Case("list_config_resources", 1, (), {"resource_types": (2, 32)}),
}  # fmt: skip
RIGHTS: tuple[tuple[Right, ...], ...] = (
    (),
    ((T, "DESCRIBE"), (G, "DESCRIBE"), (X, "DESCRIBE")),
    ((G, "DESCRIBE"),),
    ((C, "DESCRIBE"),),
    ((C, "DESCRIBE"), ((ResourceType.TOPIC, "*"), "DESCRIBE")),
    (((ResourceType.GROUP, "*"), "READ"), (T, "READ"), ((ResourceType.TOPIC, "veiled"), "WRITE")),
    (((ResourceType.TRANSACTIONAL_ID, "*"), "WRITE"),),
    ((C, "DESCRIBE_CONFIGS"),),
)


@pytest.mark.java
def test_lists_leave_out_what_those_of_kafka_leave_out(headrace: Secured, kafka: Secured) -> None:
    for one in (headrace, kafka):
        one.fill()
    seen: dict[str, set[frozenset[str]]] = {name: set() for name in LISTS}
    for rights in RIGHTS:
        for broker in (headrace, kafka):
            broker.set_acls(rights)
        for name, case in LISTS.items():
            found = agree(partial(headrace.seen, case), partial(kafka.seen, case), (name, rights))
            assert isinstance(found, set)
            seen[name].add(frozenset(found))
    assert all(len(different) > 1 for different in seen.values()), seen


PATTERNS: dict[str, list[dict[str, Any]]] = {
    "prefixed": [{"resource_pattern_type": PatternType.PREFIXED, "cut": 1}],
    "everything": [{"resource_name": "*"}],
    "a star as a prefix": [{"resource_name": "*", "resource_pattern_type": PatternType.PREFIXED}],
    "this host": [{"host": "127.0.0.1"}],
    "another host": [{"host": "10.0.0.7"}],
    "every user": [{"principal": "User:*"}],
    "another user": [{"principal": "User:bob"}],
    "denied by a prefix": [
        {},
        {"permission_type": AclPermission.DENY, "resource_pattern_type": 4, "cut": 1},
    ],
    "denied everywhere": [{}, {"permission_type": AclPermission.DENY, "resource_name": "*"}],
    "denied from another host": [{}, {"permission_type": AclPermission.DENY, "host": "10.0.0.7"}],
    "every operation": [{"operation": AclOperation.ALL}],
    "another operation denied": [
        {"operation": AclOperation.ALL},
        {"operation": AclOperation.DELETE, "permission_type": AclPermission.DENY},
    ],
}  # fmt: skip
PATTERNED = [
    one
    for one in CASES
    if str(one) in ("produce", "offset_commit", "init_producer_id", "delete_acls", "list_offsets")
]


def patterned_rows(case: Case, changes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    rows = []
    for (kind, name), operation in case.rights:
        for change in changes:
            row = {
                "resource_type": kind, "resource_name": name, "resource_pattern_type": 3,
                "principal": f"User:{ALICE}", "host": "*", "operation": AclOperation[operation],
                "permission_type": AclPermission.ALLOW, **change,
            }  # fmt: skip
            cut = row.pop("cut", None)
            if kind is ResourceType.CLUSTER:  # has one name only
                row |= {"resource_name": name, "resource_pattern_type": 3}
            elif cut:
                row["resource_name"] = name[:cut]
            rows.append(row)
    return rows


@pytest.mark.java
def test_rules_of_every_pattern_and_host_decide_as_in_kafka(
    headrace: Secured, kafka: Secured
) -> None:
    def answer(broker: Secured, case: Case) -> list[int]:
        with broker.connect() as connection:
            return codes(ask(connection, case))

    decided = []
    for case in PATTERNED:
        for title, changes in PATTERNS.items():
            rows = patterned_rows(case, changes)
            for broker in (headrace, kafka):
                broker.set_rows(rows)
            found = agree(
                partial(answer, headrace, case), partial(answer, kafka, case), (str(case), title)
            )
            assert isinstance(found, list)
            decided.append(bool(set(found) & REFUSED))
    assert 15 < sum(decided) < len(decided) - 15


@pytest.mark.java
def test_a_topic_deleted_by_its_id_has_no_name_for_those_who_may_not_see_it(
    headrace: Secured, kafka: Secured
) -> None:
    ids = {id(one): one.topic_id("orders") for one in (headrace, kafka)}
    for rights in ((), ((T, "DESCRIBE"),), ((T, "READ"),)):
        found = agree(
            partial(headrace.deleted, ids[id(headrace)], rights),
            partial(kafka.deleted, ids[id(kafka)], rights),
            rights,
        )
        assert found == [(29, None if not rights else "orders")]


@pytest.mark.java
def test_a_refused_produce_without_answers_ends_the_connection_as_in_kafka(
    headrace: Secured, kafka: Secured
) -> None:
    for rights, cut in (((), True), (((T, "WRITE"),), False)):
        found = agree(
            partial(headrace.is_cut_off, rights), partial(kafka.is_cut_off, rights), rights
        )
        assert found is cut
