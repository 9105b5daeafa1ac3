"""Users who log in with their name and password of the cluster: its ACLs decide."""

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from headrace.client.acls import create_acls
from headrace.client.cluster import Cluster
from headrace.client.config import ClientConfig, Security, parse_bootstrap
from headrace.client.topics import create_topics
from headrace.security.acls import (
    AclBinding,
    AclEntry,
    AclOperation,
    AclPermission,
    PatternType,
    ResourcePattern,
    ResourceType,
)
from tests.cli.conftest import execute
from tests.security.secured import SecuredBroker
from tests.support.headrace_console import HeadraceConsole

ADMIN, ALICE, PASSWORD = "admin", "alice", "s3cret"
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
PROPERTIES = "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\n"
LOGIN = (
    *("--set", "authentication.method=CLUSTER"),
    *("--set", "headrace.authentication.default.role=write"),
)


def _may(operation: AclOperation, topic: str) -> AclBinding:
    pattern = ResourcePattern(ResourceType.TOPIC, PatternType.LITERAL, topic)
    return AclBinding(pattern, AclEntry(f"User:{ALICE}", "*", operation, AclPermission.ALLOW))


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A cluster on which alice may only read the topic `seen`."""
    settings = {"authorizer.class.name": AUTHORIZER, "super.users": f"User:{ADMIN}"}
    users = {ADMIN: PASSWORD, ALICE: PASSWORD}
    with SecuredBroker(tmp_path_factory.mktemp("secured"), users, settings) as broker:
        address = broker.addresses["SASL_PLAINTEXT"]
        security = Security("SASL_PLAINTEXT", username=ADMIN, password=PASSWORD)
        config = ClientConfig(parse_bootstrap(address), total_timeout_s=60, security=security)
        with Cluster(config) as cluster:
            assert create_topics(cluster, ["hidden", "seen"], partitions=1) == {}
            create_acls(cluster, [_may(AclOperation.READ, "seen")])
        yield address


@pytest.fixture(scope="module")
def own_login(
    bootstrap: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[HeadraceConsole]:
    """A console that has no user of the cluster itself."""
    folder = tmp_path_factory.mktemp("console")
    (folder / "client.properties").write_text(PROPERTIES)
    options = ("--client-config", f"{folder}/client.properties", *LOGIN)
    audit = ("--set", f"headrace.audit.file={folder}/audit.jsonl")
    with HeadraceConsole(bootstrap, folder, *options, *audit) as running:
        yield running


def _as(console: HeadraceConsole, user: str, password: str = PASSWORD) -> httpx.Client:
    return httpx.Client(base_url=f"{console.url}/api", auth=(user, password), timeout=60)


def _audit(console: HeadraceConsole) -> list[dict[str, str]]:
    return [json.loads(line) for line in (console.folder / "audit.jsonl").read_text().splitlines()]


def test_nobody_enters_without_a_password_that_the_cluster_accepts(
    own_login: HeadraceConsole,
) -> None:
    for path in ("/", "/api/topics", "/metrics"):
        answer = httpx.get(f"{own_login.url}{path}", timeout=60)
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"].startswith("Basic ")
    with _as(own_login, ALICE, "wrong") as wrong:
        assert wrong.get("/topics").status_code == 401
    refused = [each for each in _audit(own_login) if each["event"] == "login_failed"]
    assert refused[-1]["user"] == ALICE
    assert PASSWORD not in json.dumps(_audit(own_login)) + own_login.log()


def test_users_see_what_the_acls_of_the_cluster_allow(own_login: HeadraceConsole) -> None:
    with _as(own_login, ADMIN) as admin, _as(own_login, ALICE) as alice:
        made = admin.post("/topics/hidden/records", json={"value": {"text": "a needle"}})
        assert made.status_code == 200, made.text
        assert {each["name"] for each in admin.get("/topics").json()["topics"]} >= {"hidden"}
        assert [each["name"] for each in alice.get("/topics").json()["topics"]] == ["seen"]
        assert alice.get("/topics/seen/records").status_code == 200
        for path in ("/topics/hidden", "/topics/hidden/records", "/topics/hidden/records/0/0"):
            assert alice.get(path).status_code in (403, 404), path
        assert "needle" in admin.get("/topics/hidden/search?q=needle").text
        assert "needle" not in alice.get("/topics/hidden/search?q=needle").text
        assert "needle" not in alice.get("/topics/hidden/tail").text
        assert alice.get("/groups").json()["groups"] == []


def test_changes_are_made_in_the_name_of_the_user(own_login: HeadraceConsole) -> None:
    with _as(own_login, ADMIN) as admin, _as(own_login, ALICE) as alice:
        record = {"value": {"text": "x"}}
        assert alice.post("/topics/seen/records", json=record).status_code == 403
        assert admin.post("/topics/seen/records", json=record).status_code == 200
        assert alice.get("/session").json()["principal"] == f"User:{ALICE}"
        # The role is the upper bound for everybody, super users included.
        assert admin.get("/acls").status_code == 403
    changes = [each for each in _audit(own_login) if each["event"] == "console_change"]
    assert {(each["principal"], each["result"]) for each in changes} == {
        (f"User:{ALICE}", "failed"),
        (f"User:{ADMIN}", "done"),
    }


@pytest.mark.parametrize(
    ("properties", "settings", "told"),
    [
        ("", ["authentication.method=CLUSTER"], "set headrace.authentication.default.role"),
        ("", list(LOGIN[1::2]), "must have security.protocol=SASL_SSL"),
        (PROPERTIES, [*LOGIN[1::2], "authentication.method=CLUSTER,BASIC"], "cannot be combined"),
        (PROPERTIES, [*LOGIN[1::2], "headrace.authentication.anonymous.role=read"], "no effect"),
        (PROPERTIES, [*LOGIN[1::2], "listeners=http://0.0.0.0:0"], "has no TLS"),
    ],
)
def test_settings_that_do_not_fit_are_explained(
    tmp_path: Path, properties: str, settings: list[str], told: str
) -> None:
    file = tmp_path / "client.properties"
    file.write_text(properties)
    words = [word for each in settings for word in ("--set", each)]
    done = execute("console", "--client-config", str(file), *words)
    assert done.code == 2
    assert told in done.err
