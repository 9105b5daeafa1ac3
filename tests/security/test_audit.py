"""The audit log has logins, denied operations with the rule, and changes."""

import json
import logging
import os
import socket
import stat
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from headrace.apis.context import Caller
from headrace.client.config import ClientConfig, Security, parse_bootstrap
from headrace.client.connection import Connection
from headrace.client.errors import ClientError
from headrace.clock import ManualClock
from headrace.errors import KafkaError, SettingError
from headrace.security import audit as audit_module
from headrace.security.acls import (
    AclBinding,
    AclEntry,
    AclOperation,
    AclPermission,
    PatternType,
    ResourcePattern,
    ResourceType,
)
from headrace.security.audit import IN_WINDOW, OF_CLIENT, OF_KIND, WINDOW_S, Audit
from headrace.security.guard import Guard, Permissions
from headrace.security.state import SecurityState
from tests.security.authority import Authority, write
from tests.security.secured import SecuredBroker
from tests.security.test_acl_enforcement import AUTHORIZER, Case, ask, codes
from tests.support.ports import free_port
from tests.support.stores import eventually

READ, TOPIC = AclOperation.READ, ResourceType.TOPIC
METRICS = f"127.0.0.1:{free_port()}"
ALICE, PASSWORD, NEW_PASSWORD = "alice", "s3cret-of-alice", b"salted-s3cret"
ORDERS = ResourcePattern(TOPIC, PatternType.LITERAL, "orders")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "audit.jsonl"


def events(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def audit(path: Path, clock: ManualClock) -> Iterator[Audit]:
    made = Audit(clock, 7, path=str(path))
    yield made
    made.close()


def permissions(audit: Audit, *acls: AclBinding) -> Permissions:
    guard = Guard(SecurityState().with_acls(acls), frozenset(), audit, allow_without_acl=False)
    return guard.permissions("User:alice", "10.0.0.7", "SASL_SSL")


def test_a_denial_has_principal_operation_address_and_rule(audit: Audit, path: Path) -> None:
    deny = AclBinding(ORDERS, AclEntry("User:alice", "*", READ, AclPermission.DENY))
    assert not permissions(audit, deny).allows(READ, TOPIC, "orders")
    (event,) = events(path)
    assert event.pop("time").endswith("Z")
    assert event == {
        "event": "denied",
        "broker": 7,
        "principal": "User:alice",
        "client": "10.0.0.7",
        "listener": "SASL_SSL",
        "operation": "READ",
        "resource": "TOPIC",
        "name": "orders",
        "rule": f"denied by the ACL: {deny}",
    }


def test_each_denied_request_is_an_event_also_when_the_answer_is_known(
    audit: Audit, path: Path
) -> None:
    client = permissions(audit)
    for _ in range(3):
        assert not client.allows(READ, TOPIC, "orders")
    assert [event["event"] for event in events(path)] == ["denied"] * 3


def test_silent_checks_and_allowed_operations_are_no_events(audit: Audit, path: Path) -> None:
    allow = AclBinding(ORDERS, AclEntry("User:alice", "*", READ, AclPermission.ALLOW))
    client = permissions(audit, allow)
    for _ in range(2):
        assert client.allows(READ, TOPIC, "orders")
        assert not client.allows(READ, TOPIC, "others", silent=True)
    assert events(path) == []


def test_allowed_operations_are_events_on_demand(path: Path) -> None:
    audit = Audit(ManualClock(), path=str(path), log_allowed=True)
    allow = AclBinding(ORDERS, AclEntry("User:alice", "*", READ, AclPermission.ALLOW))
    client = permissions(audit, allow)
    assert client.allows(READ, TOPIC, "orders")
    assert client.allows(READ, TOPIC, "orders")
    audit.close()
    assert [(one["event"], one["rule"]) for one in events(path)] == [
        ("allowed", f"allowed by the ACL: {allow}")
    ] * 2


def test_events_beyond_the_rate_are_counted_in_the_next_line(
    audit: Audit, path: Path, clock: ManualClock
) -> None:
    client = permissions(audit)
    for _ in range(IN_WINDOW + 12):
        client.allows(READ, TOPIC, "orders")
    client.allows(READ, TOPIC, "another cause")
    assert len(events(path)) == IN_WINDOW + 1
    clock.advance(int(WINDOW_S * 1000))
    client.allows(READ, TOPIC, "orders")
    client.allows(READ, TOPIC, "orders")
    assert [event.get("left_out") for event in events(path)[-2:]] == [12, None]


def test_new_names_do_not_lead_to_more_lines_than_a_client_may_cause(
    audit: Audit, path: Path, clock: ManualClock
) -> None:
    client = permissions(audit)
    for number in range(OF_CLIENT * 10):
        client.allows(READ, TOPIC, f"name-{number}")
    assert len(events(path)) == OF_CLIENT
    assert len(audit._rates) <= OF_CLIENT
    clock.advance(int(WINDOW_S * 1000))
    client.allows(READ, TOPIC, "one more")
    client.allows(READ, TOPIC, "and one more")
    found = [event.get("left_out_of_client") for event in events(path)[-2:]]
    assert found == [OF_CLIENT * 9, None]


def test_many_clients_cause_a_bounded_number_of_lines_and_failed_logins_displace_no_denial(
    audit: Audit, path: Path, clock: ManualClock
) -> None:
    for number in range(OF_KIND * 3):
        client = Caller(f"10.0.{number // 250}.{number % 250}:1", "SASL_SSL")
        audit.login_failed(client, "PLAIN", "alice", "wrong password, or no such user")
    assert len(events(path)) == OF_KIND
    permissions(audit).allows(READ, TOPIC, "orders")
    assert events(path)[-1]["event"] == "denied"
    clock.advance(int(WINDOW_S * 1000))
    audit.login_failed(Caller("10.9.9.9:1", "SASL_SSL"), "PLAIN", "", "malformed PLAIN message")
    assert events(path)[-1]["left_out_of_others"] == OF_KIND * 2


def test_a_new_file_after_a_rotation_is_for_the_user_of_the_broker_only(
    audit: Audit, path: Path
) -> None:
    before = os.umask(0o022)
    try:
        path.rename(path.with_suffix(".1"))
        permissions(audit).allows(READ, TOPIC, "orders")
    finally:
        os.umask(before)
    assert len(events(path)) == 1
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_what_is_left_out_at_the_end_is_said_when_the_broker_stops(
    path: Path, clock: ManualClock
) -> None:
    audit = Audit(clock, path=str(path))
    for _ in range(IN_WINDOW + 3):
        permissions(audit).allows(READ, TOPIC, "orders")
    audit.close()
    assert events(path)[-1]["left_out_of_others"] == 3


def test_the_number_of_counted_causes_is_bounded(
    audit: Audit, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_module, "CAUSES", 4)
    client = permissions(audit)
    for _ in range(IN_WINDOW + 2):
        client.allows(READ, TOPIC, "orders")
    for number in range(4):
        client.allows(READ, TOPIC, f"t{number}")
    assert len(audit._rates) <= 4
    assert events(path)[-1]["left_out_of_others"] == 2


def test_without_a_file_events_go_to_the_log_of_the_broker(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO):
        permissions(Audit()).allows(READ, TOPIC, "orders")
    (record,) = caplog.records
    assert (record.name, record.levelname) == ("headrace.audit", "INFO")
    assert json.loads(record.getMessage())["event"] == "denied"


def test_a_file_that_cannot_be_written_is_an_error_of_its_setting(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"headrace.audit.file=.*No such file or directory"):
        Audit(path=str(tmp_path / "missing" / "audit.jsonl"))


# ------------------------------------------------------------------------------ a running broker


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    folder = tmp_path_factory.mktemp("audited")
    settings = {
        "authorizer.class.name": AUTHORIZER,
        "super.users": "User:ANONYMOUS",
        "headrace.audit.file": str(folder / "audit.jsonl"),
        "ssl.client.auth": "requested",
        "headrace.metrics.address": METRICS,
    }
    with SecuredBroker(folder, {ALICE: PASSWORD}, settings) as running:
        yield running


def audited(broker: SecuredBroker, what: str) -> list[dict[str, Any]]:
    return [one for one in events(broker.folder / "audit.jsonl") if one["event"] == what]


def connect(broker: SecuredBroker, listener: str, password: str = PASSWORD) -> Connection:
    security = Security(listener, broker.ca, username=ALICE, password=password)
    bootstrap = parse_bootstrap(broker.addresses[listener])
    return Connection(bootstrap[0], ClientConfig(bootstrap, security=security))


def test_logins_are_audited(broker: SecuredBroker) -> None:
    connect(broker, "SASL_SSL").close()
    login = audited(broker, "login")[-1]
    assert (login["principal"], login["listener"]) == ("User:alice", "SASL_SSL")
    assert (login["mechanism"], login["client"].split(":")[0]) == ("PLAIN", "127.0.0.1")
    with pytest.raises(KafkaError):
        connect(broker, "SASL_PLAINTEXT", "wr0ng-password")
    failed = audited(broker, "login_failed")[-1]
    assert (failed["user"], failed["principal"], failed["listener"]) == (
        "alice", None, "SASL_PLAINTEXT",
    )  # fmt: skip
    assert "wrong password" in failed["reason"]


def counted(listener: str, mechanism: str, result: str) -> float:
    """The logins that /metrics shows."""
    labels = f'{{listener="{listener}",mechanism="{mechanism}",result="{result}"}}'
    with urllib.request.urlopen(f"http://{METRICS}/metrics", timeout=60) as page:
        for line in page.read().decode().splitlines():
            if line.startswith(f"headrace_authentications_total{labels} "):
                return float(line.rpartition(" ")[2])
    return 0


def test_logins_are_counted_by_listener_mechanism_and_result(broker: SecuredBroker) -> None:
    plain, tls = ("SASL_PLAINTEXT", "PLAIN"), ("SSL", "TLS")
    before = counted(*plain, "success"), counted(*plain, "failure"), counted(*tls, "failure")
    connect(broker, "SASL_PLAINTEXT").close()
    with pytest.raises(KafkaError):
        connect(broker, "SASL_PLAINTEXT", "wr0ng-password")
    address = parse_bootstrap(broker.addresses["SSL"])[0]
    with socket.create_connection(address, timeout=60) as client:
        client.sendall(b"GET / HTTP/1.0\r\n\r\n")
        with suppress(ConnectionResetError):
            client.recv(1000)
    assert counted(*plain, "success") == before[0] + 1
    assert counted(*plain, "failure") == before[1] + 1
    assert counted(*tls, "failure") == before[2] + 1


def test_an_unknown_mechanism_gets_no_count_of_its_own(audit: Audit) -> None:
    client = Caller("127.0.0.1:1", "SASL_SSL")
    for number in range(3):
        audit.login_failed(client, f"MADE-UP-{number}", "", "no such mechanism")
    assert audit.logins == {("SASL_SSL", "", "failure"): 3}


def test_a_client_certificate_is_a_login(broker: SecuredBroker) -> None:
    issued = broker.authority.issue("CN=carol")
    file = write(broker.folder / "carol.pem", issued.key_pem(), issued.certificate_pem)
    bootstrap = parse_bootstrap(broker.addresses["SSL"])
    security = Security("SSL", broker.ca, certificate_file=file)
    Connection(bootstrap[0], ClientConfig(bootstrap, security=security)).close()
    security = Security("SSL", broker.ca)
    Connection(bootstrap[0], ClientConfig(bootstrap, security=security)).close()
    (login,) = (one for one in audited(broker, "login") if one["listener"] == "SSL")
    assert (login["principal"], login["mechanism"]) == ("User:CN=carol", "TLS")


def test_a_client_certificate_that_is_refused_is_audited(broker: SecuredBroker) -> None:
    foreign = Authority().issue("CN=mallory")
    file = write(broker.folder / "mallory.pem", foreign.key_pem(), foreign.certificate_pem)
    bootstrap = parse_bootstrap(broker.addresses["SSL"])
    security = Security("SSL", broker.ca, certificate_file=file)
    with pytest.raises(ClientError):
        Connection(bootstrap[0], ClientConfig(bootstrap, security=security))
    eventually(lambda: bool(audited(broker, "tls_failed")), "the refusal is written")
    event = audited(broker, "tls_failed")[0]
    assert (event["principal"], event["listener"]) == (None, "SSL")
    assert event["client"].startswith("127.0.0.1:")
    assert "its certificate is refused" in event["reason"]


METADATA = {"allow_auto_topic_creation": False}


def test_a_named_topic_that_is_denied_is_audited_and_one_left_out_of_a_list_is_not(
    broker: SecuredBroker,
) -> None:
    bootstrap = parse_bootstrap(broker.addresses["PLAINTEXT"])
    topic = {
        "name": "unnamed", "num_partitions": 1, "replication_factor": 1, "assignments": [],
        "configs": [],
    }  # fmt: skip
    values = {"topics": [topic], "timeout": timedelta(seconds=30), "validate_only": False}
    with Connection(bootstrap[0], ClientConfig(bootstrap)) as admin:
        ask(admin, Case("create_topics", 7, (), values))
    with connect(broker, "SASL_PLAINTEXT") as connection:
        before = audited(broker, "denied")
        ask(connection, Case("metadata", 12, (), {"topics": None, **METADATA}))
        ask(connection, Case("list_groups", 5, (), {"states_filter": (), "types_filter": ()}))
        assert audited(broker, "denied") == before
        named = {"topics": [{"topic_id": None, "name": "named"}], **METADATA}
        assert 29 in codes(ask(connection, Case("metadata", 12, (), named)))
    denied = audited(broker, "denied")[len(before) :]
    assert [(one["operation"], one["resource"], one["name"]) for one in denied] == [
        ("DESCRIBE", "TOPIC", "named")
    ]


def test_changes_are_audited(broker: SecuredBroker) -> None:
    bootstrap = parse_bootstrap(broker.addresses["PLAINTEXT"])
    row = {
        "resource_type": 2, "resource_name": "changed", "resource_pattern_type": 3,
        "principal": "User:bob", "host": "*", "operation": 3, "permission_type": 3,
    }  # fmt: skip
    matching = {
        "resource_type_filter": 2, "resource_name_filter": "changed", "pattern_type_filter": 3,
        "principal_filter": None, "host_filter": None, "operation": 1, "permission_type": 1,
    }  # fmt: skip
    credential = {
        "name": "carol", "mechanism": 1, "iterations": 4096, "salt": b"salt",
        "salted_password": NEW_PASSWORD,
    }  # fmt: skip
    quota = {
        "entity": [{"entity_type": "user", "entity_name": "bob"}],
        "ops": [{"key": "producer_byte_rate", "value": 1000.0, "remove": False}],
    }
    with Connection(bootstrap[0], ClientConfig(bootstrap)) as connection:
        for case in (
            Case("create_acls", 3, (), {"creations": [row]}),
            Case("delete_acls", 3, (), {"filters": [matching, matching]}),
            Case(
                "alter_user_scram_credentials", 0, (), {"deletions": [], "upsertions": [credential]}
            ),
            Case("alter_client_quotas", 1, (), {"entries": [quota], "validate_only": True}),
            Case("alter_client_quotas", 1, (), {"entries": [quota], "validate_only": False}),
        ):
            assert set(codes(ask(connection, case))) == {0}
    acl = "ALLOW User:bob from * to READ LITERAL TOPIC changed"
    assert [one["acl"] for one in audited(broker, "acl_created")] == [acl]
    assert [one["acl"] for one in audited(broker, "acl_deleted")] == [acl]
    assert audited(broker, "acl_deleted")[0]["principal"] == "User:ANONYMOUS"
    (set_,) = audited(broker, "credential_set")
    assert (set_["user"], set_["mechanism"]) == ("carol", "SCRAM-SHA-256")
    (quotas,) = audited(broker, "quotas_changed")
    assert (quotas["entity"], quotas["quotas"]) == ({"user": "bob"}, {"producer_byte_rate": 1000.0})


def test_the_file_is_for_the_user_of_the_broker_and_has_no_secret(broker: SecuredBroker) -> None:
    path = broker.folder / "audit.jsonl"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    text = path.read_text()
    assert text
    for secret in (PASSWORD, "wr0ng-password", NEW_PASSWORD.decode()):
        assert secret not in text
