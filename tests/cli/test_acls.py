"""`headrace acls`, on Headrace and on Apache Kafka."""

from collections.abc import Iterator

import pytest

from tests.cli.conftest import Run
from tests.support import java
from tests.support.apache_kafka import ApacheKafka
from tests.support.headrace_broker import HeadraceBroker

SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS;User:root",
}
Rows = list[dict[str, object]]


@pytest.fixture(scope="module", params=["headrace", pytest.param("kafka", marks=pytest.mark.java)])
def address(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("acls")
    if request.param == "headrace":
        with HeadraceBroker(folder, settings=SETTINGS) as broker:
            yield broker.bootstrap
        return
    if reason := java.missing():
        pytest.skip(reason)
    with ApacheKafka(folder, settings=SETTINGS, quick=True) as kafka:
        yield kafka.bootstrap


@pytest.fixture
def acls(here: Run, address: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    monkeypatch.setenv("HEADRACE_BOOTSTRAP", address)
    yield lambda *words, **named: here("acls", *words, **named)
    here("acls", "remove", "--resource-pattern-type", "any", "--principal", "User:alice", "--yes")


def brief(rows: Rows) -> set[str]:
    """`READ TOPIC orders` for each row."""
    return {f"{row['operation']} {row['resource_type']} {row['resource_name']}" for row in rows}


def test_an_acl_is_added_listed_and_removed(acls: Run) -> None:
    words = ("--topic", "orders", "--operation", "Read")
    who = ("--allow-principal", "User:alice", "--allow-host", "10.0.0.7")
    row = {
        "principal": "User:alice",
        "host": "10.0.0.7",
        "permission": "ALLOW",
        "operation": "READ",
        "resource_type": "TOPIC",
        "pattern_type": "LITERAL",
        "resource_name": "orders",
    }
    assert acls("add", *who, *words, "--json").rows() == [row]
    assert acls("list", "--topic", "orders", "--json").rows() == [row]
    assert "10.0.0.7" in acls("list").text
    assert acls("list", "--topic", "others", "--json").json() == []
    assert acls("remove", *who, *words).code == 2  # nobody is there to confirm it
    assert acls("remove", *who, *words, "--yes", "--json").rows() == [row]
    assert acls("list", "--topic", "orders", "--json").json() == []
    assert acls("remove", *who, *words, "--yes").code == 4


def test_roles_give_what_clients_need(acls: Run) -> None:
    who = ("--allow-principal", "alice")
    made = acls("add", *who, "--producer", "--idempotent", "--topic", "orders",
                "--transactional-id", "copier", "--json")  # fmt: skip
    assert brief(made.rows()) == {
        "WRITE TOPIC orders",
        "DESCRIBE TOPIC orders",
        "CREATE TOPIC orders",
        "WRITE TRANSACTIONAL_ID copier",
        "DESCRIBE TRANSACTIONAL_ID copier",
        "IDEMPOTENT_WRITE CLUSTER kafka-cluster",
    }
    consumer = (*who, "--consumer", "--topic", "orders", "--group", "billing")
    assert brief(acls("add", *consumer, "--json").rows()) == {
        "READ TOPIC orders",
        "DESCRIBE TOPIC orders",
        "READ GROUP billing",
    }
    assert len(acls("list", "--principal", "alice", "--json").rows()) == 8
    assert brief(acls("remove", *consumer, "--yes", "--json").rows()) == {
        "READ TOPIC orders",
        "DESCRIBE TOPIC orders",
        "READ GROUP billing",
    }


def test_a_prefix_is_found_by_a_name_that_it_matches(acls: Run) -> None:
    prefixed = ("--resource-pattern-type", "prefixed")
    words = ("--allow-principal", "alice", "--operation", "describe-configs", "--topic", "logs-")
    assert acls("add", *words, *prefixed).code == 0
    found = acls("list", "--topic", "logs-1", "--resource-pattern-type", "match", "--json")
    assert brief(found.rows()) == {"DESCRIBE_CONFIGS TOPIC logs-"}
    assert acls("list", "--topic", "logs-1", "--json").json() == []
    assert acls("remove", "--topic", "logs-", "--yes").code == 4  # literal, unless said otherwise
    assert acls("remove", "--topic", "logs-", *prefixed, "--yes").code == 0


def test_explain_names_the_rule_that_decides(acls: Run) -> None:
    ask = ("explain", "alice", "write", "topic", "orders")
    before = acls(*ask, "--json")
    assert before.code == 1
    assert before.document()["allowed"] is False
    assert before.document()["reason"] == "TOPIC orders has no ACL"
    acls("add", "--allow-principal", "alice", "--operation", "all", "--topic", "*")
    allowed = acls(*ask)
    assert allowed.code == 0
    assert allowed.text.startswith("User:alice may WRITE TOPIC orders: allowed by the ACL: ALLOW")
    acls("add", "--deny-principal", "User:*", "--operation", "write", "--topic", "orders",
         "--deny-host", "10.0.0.7")  # fmt: skip
    assert acls(*ask).code == 0
    denied = acls(*ask, "--host", "10.0.0.7", "--json").document()
    assert denied["allowed"] is False
    assert isinstance(denied["acl"], dict)
    assert denied["acl"]["permission"] == "DENY"
    assert denied["acl"]["principal"] == "User:*"
    acls("remove", "--principal", "User:*", "--topic", "orders", "--yes")


def test_explain_considers_super_users_or_reports_that_they_are_unknown(acls: Run) -> None:
    asked = acls("explain", "root", "create", "cluster")
    if asked.code:
        assert "The values of super.users" in asked.err
    else:
        assert "User:root is a super user" in asked.text


@pytest.mark.parametrize(
    "words",
    [
        ("add", "--topic", "orders"),
        ("add", "--allow-principal", "alice"),
        ("add", "--allow-principal", "alice", "--topic", "orders", "--operation", "fly"),
        ("add", "--allow-principal", "alice", "--topic", "orders", "--operation", "clusteraction"),
        ("add", "--allow-principal", "alice", "--topic", "o", "--resource-pattern-type", "match"),
        ("add", "--allow-principal", "alice", "--consumer", "--topic", "orders"),
        ("add", "--allow-principal", "alice", "--producer"),
        ("add", "--allow-principal", "alice", "--idempotent", "--topic", "orders"),
        ("add", "--deny-principal", "alice", "--producer", "--topic", "orders"),
        ("remove", "--yes"),
        ("explain", "alice", "write", "topic"),
        ("explain", "alice", "write", "group", "billing"),
        ("explain", "alice", "write", "planet", "earth"),
    ],
)
def test_wrong_options_are_bad_usage(here: Run, words: tuple[str, ...]) -> None:
    done = here("acls", *words, "--bootstrap", "127.0.0.1:1")
    assert done.code == 2, done.err


def test_a_broker_without_an_authorizer_says_which_setting_is_missing(run: Run) -> None:
    done = run("acls", "list")
    assert done.code == 1
    assert "authorizer.class.name" in done.err
