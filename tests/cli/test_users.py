"""`headrace users`, on Headrace, on Apache Kafka, and on the folder of a stopped broker."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Result, Run, execute
from tests.security.secured import SecuredBroker
from tests.support import java
from tests.support.apache_kafka import ApacheKafka

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
SETTINGS = {"authorizer.class.name": AUTHORIZER, "super.users": "User:ANONYMOUS"}
PASSWORD = b"s3cret of alice\n"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    with SecuredBroker(tmp_path_factory.mktemp("secured"), {"root": "r00t"}, SETTINGS) as broker:
        yield broker


@pytest.fixture(scope="module", params=["headrace", pytest.param("kafka", marks=pytest.mark.java)])
def address(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    if request.param == "headrace":
        broker: SecuredBroker = request.getfixturevalue("secured")
        yield broker.addresses["PLAINTEXT"]
        return
    if reason := java.missing():
        pytest.skip(reason)
    with ApacheKafka(tmp_path_factory.mktemp("kafka"), settings=SETTINGS, quick=True) as kafka:
        yield kafka.bootstrap


@pytest.fixture
def run_there(here: Run, address: str, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("HEADRACE_BOOTSTRAP", address)
    return here


def names(run: Run, *words: str) -> list[object]:
    return [row["name"] for row in run("users", "list", "--json", *words).rows()]


def client_file(folder: Path, broker: SecuredBroker, name: str, password: str) -> Path:
    file = folder / f"{name}.properties"
    file.write_text(
        f"security.protocol=SASL_SSL\nssl.ca.location={broker.ca}\nsasl.mechanism=SCRAM-SHA-512\n"
        f"sasl.username={name}\nsasl.password={password}\n"
    )
    return file


def test_users_are_added_changed_and_deleted(run_there: Run) -> None:
    run = run_there
    added = run("users", "add", "alice", "--json", stdin=PASSWORD)
    assert added.document() == {
        "name": "alice",
        "mechanisms": ["SCRAM-SHA-256", "SCRAM-SHA-512"],
        "admin": False,
    }
    assert "alice" in names(run)
    again = run("users", "add", "alice", stdin=PASSWORD)
    assert again.code == 1
    assert "headrace users password alice" in again.err
    assert run("users", "password", "alice", stdin=b"other\n").code == 0
    assert run("users", "delete", "alice").code == 2  # nobody is there to confirm it
    assert run("users", "delete", "alice", "--yes").code == 0
    assert "alice" not in names(run)
    assert run("users", "delete", "alice", "--yes").code == 4
    assert run("users", "password", "alice", stdin=PASSWORD).code == 4


def test_one_mechanism_can_be_chosen(run_there: Run) -> None:
    run = run_there
    words = ("--mechanism", "SCRAM-SHA-512")
    assert run("users", "add", "carol", *words, stdin=PASSWORD).code == 0
    row = next(row for row in run("users", "list", "--json").rows() if row["name"] == "carol")
    assert row["mechanisms"] == {"SCRAM-SHA-512": 4096}
    assert run("users", "delete", "carol", "--yes").code == 0


def test_the_password_comes_from_a_file_and_never_from_an_argument(
    run_there: Run, tmp_path: Path
) -> None:
    run = run_there
    file = tmp_path / "password"
    file.write_bytes(PASSWORD)
    assert run("users", "add", "dave", "--password-file", str(file)).code == 0
    run("users", "delete", "dave", "--yes")
    assert run("users", "add", "dave", "--password", "x").code == 2
    assert run("users", "add", "dave", "--password-file", str(tmp_path / "none")).code == 2
    assert run("users", "add", "dave", stdin=b"\n").code == 2
    assert run("users", "add", "dave", stdin=b"two\nlines\n").code == 2
    assert run("users", "add", "User:dave", stdin=PASSWORD).code == 2
    assert "dave" not in names(run)


def test_a_new_user_logs_in_until_its_password_changes(
    secured: SecuredBroker, here: Run, tmp_path: Path
) -> None:
    plain = ("--bootstrap", secured.addresses["PLAINTEXT"])
    file = client_file(tmp_path, secured, "erin", "first")
    words = ("--bootstrap", secured.addresses["SASL_SSL"], "--client-config", str(file))
    unknown = here("topics", "list", *words)
    assert unknown.code == 1
    assert "Check the user and the password" in unknown.err
    assert here("users", "add", "erin", *plain, stdin=b"first\n").code == 0
    assert here("topics", "list", *words).code == 0
    assert here("users", "password", "erin", *plain, stdin=b"second\n").code == 0
    assert here("topics", "list", *words).code == 1
    client_file(tmp_path, secured, "erin", "second")
    assert here("topics", "list", *words).code == 0


def test_an_admin_may_do_what_another_user_may_not(
    secured: SecuredBroker, here: Run, tmp_path: Path
) -> None:
    plain = ("--bootstrap", secured.addresses["PLAINTEXT"])
    assert here("users", "add", "boss", "--admin", *plain, stdin=b"b0ss\n").code == 0
    assert here("users", "add", "guest", *plain, stdin=b"gu3st\n").code == 0
    for name, password, code in (("boss", "b0ss", 0), ("guest", "gu3st", 1)):
        file = client_file(tmp_path, secured, name, password)
        words = ("--bootstrap", secured.addresses["SASL_SSL"], "--client-config", str(file))
        for command in (
            ("topics", "create", f"of-{name}"),
            ("users", "list"),
            ("acls", "list"),
            ("configs", "describe", "broker", "1"),
        ):
            done = here(*command, *words)
            assert done.code == code, (command, done.err)
            assert ("acls explain" in done.err) == bool(code), (command, done.err)


class TestAStoppedBroker:
    def test_it_gets_its_first_admin(self, here: Run, tmp_path: Path) -> None:
        data = tmp_path / "data"
        words = ("--data", str(data))
        assert here("users", "add", "admin", "--admin", *words, stdin=b"adm1n\n").code == 0
        assert names(here, *words) == ["admin"]
        assert oct(data.stat().st_mode & 0o777) == "0o700"
        assert oct((data / "metadata.sqlite").stat().st_mode & 0o777) == "0o600"
        settings = {"authorizer.class.name": AUTHORIZER}
        with SecuredBroker(tmp_path, {}, settings) as broker:
            file = client_file(tmp_path, broker, "admin", "adm1n")
            there = ("--bootstrap", broker.addresses["SASL_SSL"], "--client-config", str(file))
            assert here("topics", "create", "orders", *there).code == 0
            refused = here("users", "list", *words)
            assert refused.code == 1
            assert f"a broker is using {data}" in refused.err
        assert here("users", "delete", "admin", "--yes", *words).code == 0
        assert names(here, *words) == []

    def test_only_add_makes_a_folder(self, here: Run, tmp_path: Path) -> None:
        folder = tmp_path / "none"
        assert here("users", "list", "--data", str(folder)).code == 4
        assert here("users", "delete", "alice", "--yes", "--data", str(folder)).code == 4
        assert not folder.exists()

    def test_a_folder_without_the_metadata_is_refused(self, here: Run, tmp_path: Path) -> None:
        (tmp_path / "meta.properties").write_text("version=1\n")
        refused = here("users", "list", "--data", str(tmp_path))
        assert refused.code == 1
        assert "are not in that folder" in refused.err


def test_the_first_start_makes_an_admin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = tmp_path / "password"
    secret.write_text("fr0m-a-file\n")
    monkeypatch.setenv("HEADRACE_ADMIN_PASSWORD_FILE", str(secret))
    settings = {"authorizer.class.name": AUTHORIZER}

    def create(broker: SecuredBroker, topic: str, password: str) -> Result:
        file = client_file(tmp_path, broker, "admin", password)
        there = ("--bootstrap", broker.addresses["SASL_SSL"], "--client-config", str(file))
        return execute("topics", "create", topic, *there)

    with SecuredBroker(tmp_path, {}, settings) as broker:
        assert "created the user admin" in broker.log()
        assert "fr0m-a-file" not in broker.log()
        assert create(broker, "first", "fr0m-a-file").code == 0
    # The user exists by now and keeps its password.
    secret.write_text("another\n")
    with SecuredBroker(tmp_path, {}, settings) as broker:
        assert create(broker, "second", "fr0m-a-file").code == 0


def test_a_missing_password_file_is_an_error_at_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_ADMIN_PASSWORD_FILE", str(tmp_path / "none"))
    done = execute("serve", "--data-dir", str(tmp_path / "data"), "--listen", "127.0.0.1:0")
    assert done.code == 1
    assert "HEADRACE_ADMIN_PASSWORD_FILE" in done.err


def test_users_of_http_services_are_in_a_file(here: Run, tmp_path: Path) -> None:
    file = tmp_path / "http-users"
    words = ("--file", str(file), "--password-file", "-")
    assert here("users", "add", "alice", *words, "--role", "write", stdin=PASSWORD).code == 0
    assert here("users", "add", "bob", *words, stdin=PASSWORD).code == 0
    lines = file.read_text().splitlines()
    assert [line.partition(":")[0] for line in lines] == ["alice", "bob"]
    assert [line.rpartition(",")[2] for line in lines] == ["write", "read"]
    assert "s3cret" not in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600
    again = here("users", "add", "alice", *words, stdin=PASSWORD)
    assert (again.code, "exists already" in again.err) == (1, True)
    assert here("users", "password", "alice", *words, stdin=b"other\n").code == 0
    changed = file.read_text().splitlines()
    assert changed[0] == lines[1]
    assert changed[1].startswith("alice: ")
    assert changed[1].endswith(",write")
    assert changed[1] != lines[0]
    listed = here("users", "list", "--file", str(file), "--json").json()
    assert isinstance(listed, list)
    assert [user["name"] for user in listed] == ["alice", "bob"]
    assert here("users", "delete", "bob", "--yes", "--file", str(file)).code == 0
    assert here("users", "delete", "bob", "--yes", "--file", str(file)).code == 4


def test_options_of_one_kind_of_user_are_refused_for_another(here: Run, tmp_path: Path) -> None:
    file = ("--file", str(tmp_path / "users"))
    assert here("users", "add", "a", *file, "--admin", stdin=PASSWORD).code == 2
    assert here("users", "add", "a", "--role", "read", stdin=PASSWORD).code == 2
    (tmp_path / "users").write_text("a: plain-text,read\n")
    refused = here("users", "list", *file)
    assert (refused.code, "line 1" in refused.err) == (1, True)
    assert "plain-text" not in refused.err
