"""Secrets stay in their files while a secured broker, its registry and the command line work."""

import base64
import json
import signal
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.client.cluster import Cluster
from headrace.client.config import client_config
from headrace.client.configs import alter_configs
from headrace.errors import KafkaError
from headrace.settings.files import format_properties, read_properties, warn_of_visible_secrets
from headrace.settings.resolve import is_secret_setting
from headrace.types import ConfigResourceType
from tests.cli.conftest import Result, command, execute
from tests.security.initialized import InitializedBroker
from tests.security.secured import add_user

ALICE = "pl4nted-secret-of-alice"
WRONG = "pl4nted-but-wr0ng"
STORE = "pl4nted-in-a-dyn4mic-config"
MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
KEY_LINE = 40
"""So many characters of a private key are a part of it and nothing else."""


@dataclass
class Written:
    """A running broker with its registry, and all that commands have printed."""

    broker: InitializedBroker
    registry_url: str
    registry_log: Path
    pids: list[int]
    metrics: str
    texts: dict[str, str] = field(default_factory=dict)

    def http(self, url: str, body: bytes | None = None, password: str = "") -> bytes:
        """The answer of the registry or of the broker's page, to the user admin."""
        password = password or secrets_of(self.broker.folder)["admin of HTTP"]
        login = base64.b64encode(f"admin:{password}".encode()).decode()
        kind = "application/vnd.schemaregistry.v1+json"
        headers = {"Content-Type": kind, "Authorization": f"Basic {login}"}
        context = ssl.create_default_context(cafile=self.broker.folder / "ca.pem")
        request = urllib.request.Request(url, body, headers)
        with urllib.request.urlopen(request, timeout=60, context=context) as answer:
            return bytes(answer.read())

    def run(self, *words: str, stdin: bytes = b"", config: Path | None = None) -> Result:
        file = config or self.broker.folder / "admin.properties"
        done = execute(*words, "--client-config", str(file), stdin=stdin)
        self.texts[f"{' '.join(words)} #{len(self.texts)}"] = done.text + done.err
        return done


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Written]:
    home = tmp_path_factory.mktemp("secrets")
    users = home / "security" / "http-users"
    serve = (
        "--log-level", "debug", "--metrics", "https://127.0.0.1:0",
        "--set", f"headrace.metrics.users.file={users}",
    )  # fmt: skip
    with InitializedBroker(home, serve=serve) as broker:
        log = home / "registry.log"
        file = str(broker.folder / "registry.properties")
        with log.open("ab") as output:
            registry = subprocess.Popen(
                command("registry", "serve", "--client-config", file, "--listen", "127.0.0.1:0",
                        "--config", str(broker.folder / "registry-http.properties"),
                        "--log-level", "debug"),
                stdout=subprocess.PIPE, stderr=output, text=True,
            )  # fmt: skip
        assert registry.stdout is not None
        try:
            line = registry.stdout.readline()
            assert "ready on" in line, log.read_text()
            url = f"https://{line.split('ready on ')[1].split(',')[0].strip()}"
            metrics = broker.log().split("metrics are at ")[1].split()[0]
            yield Written(broker, url, log, [broker.pid, registry.pid], metrics)
        finally:
            registry.send_signal(signal.SIGTERM)
            registry.wait(60)
            registry.stdout.close()


def register(written: Written, subject: str) -> int:
    body = json.dumps({"schema": '"string"'}).encode()
    url = f"{written.registry_url}/subjects/{subject}/versions"
    return int(json.loads(written.http(url, body))["id"])


def secrets_of(folder: Path) -> dict[str, str]:
    """Everything that `security init` has made and nobody may see, by name."""
    found = {}
    for name in ("admin", "console"):
        client = json.loads((folder / f"{name}.registry.json").read_text())
        found[f"{name} of HTTP"] = client["basic.auth.user.info"].partition(":")[2]
    for name in ("admin", "connect", "console", "registry"):
        text = (folder / f"{name}.properties").read_text()
        found[name] = text.split("sasl.password=")[1].splitlines()[0]
    text = (folder / "broker.properties").read_text()
    found["broker"] = text.split('password="')[1].split('"')[0]
    for name in ("ca.key", "broker.pem", "registry.pem"):
        key = (folder / name).read_text().split("PRIVATE KEY-----\n")[1]
        found[name] = key.splitlines()[1][:KEY_LINE]
    return found


def alter_store(written: Written) -> None:
    """Give a running broker a password of its key store, and another time a wrong store."""
    file = written.broker.folder / "admin.properties"
    properties = {name: value for _, name, value in read_properties(file.read_text())}
    prefix = "listener.name.sasl_ssl.ssl.key"
    with Cluster(client_config(properties)) as cluster:
        for name, value in (("location", "/none.p12"), ("type", "PEM")):
            changes = {f"{prefix}.password": STORE, f"{prefix}store.{name}": value}
            try:
                alter_configs(cluster, ConfigResourceType.BROKER, "1", changes)
                accepted = True
            except KafkaError as error:
                accepted = False
                written.texts[name] = str(error)
            assert accepted == (name == "type")


def forms(secret: str) -> list[bytes]:
    """A secret as it is, and as base64, whose middle is the same wherever it begins."""
    encoded = [base64.b64encode(b"x" * shift + secret.encode())[4:-4] for shift in range(3)]
    return [secret.encode(), *(one for one in encoded if len(one) > 8)]


def test_the_registry_works_as_a_user_with_the_least_permissions(written: Written) -> None:
    assert register(written, "orders-value") == 1
    assert "_schemas" in written.run("topics", "list").text


def test_no_secret_is_written_anywhere(written: Written, tmp_path: Path) -> None:
    register(written, "secrets-value")
    run = written.run
    assert run("users", "add", "alice", stdin=ALICE.encode()).code == 0
    assert run("users", "password", "alice", stdin=ALICE.encode()).code == 0
    wrong = tmp_path / "wrong.properties"
    good = (written.broker.folder / "admin.properties").read_text()
    wrong.write_text(good.replace(secrets_of(written.broker.folder)["admin"], WRONG))
    assert run("topics", "list", config=wrong).code == 1
    wrong.write_text(wrong.read_text().replace("SCRAM-SHA-512", "PLAIN"))
    assert run("topics", "list", config=wrong).code == 1
    wrong.write_text(wrong.read_text() + "sasl.jaas.config=x password=" + WRONG)
    assert run("topics", "list", config=wrong).code == 2
    for url in (f"{written.registry_url}/subjects", written.metrics):
        with pytest.raises(urllib.error.HTTPError, match="401"):
            written.http(url, password=WRONG)
    alter_store(written)
    assert run("produce", "orders", "--create", stdin=b"x\n").code == 0
    assert run("configs", "describe", "broker", "1", "--all", "--json").code == 0
    assert run("users", "list", "--json").code == 0
    assert run("acls", "list").code == 0
    checked = execute("security", "check", "--folder", str(written.broker.folder))
    assert checked.code == 0, checked.text
    written.texts["check"] = checked.text

    found = {name: text.encode() for name, text in written.texts.items()}
    found["broker.log"] = written.broker.log().encode()
    found["registry.log"] = written.registry_log.read_bytes()
    found["init"] = written.broker.shown.encode()
    found["metrics"] = written.http(written.metrics)
    for pid in written.pids:
        for name in ("cmdline", "environ"):
            found[f"{name} of {pid}"] = Path(f"/proc/{pid}/{name}").read_bytes()
    for file in (written.broker.home / "data").rglob("*"):
        if file.is_file():
            found[str(file)] = file.read_bytes()

    secrets = {**secrets_of(written.broker.folder), "alice": ALICE, "wrong": WRONG, "store": STORE}
    # Dynamic configs are stored as they are, as in Kafka.
    stored = [where for where, data in found.items() if STORE.encode() in data]
    assert stored
    assert all("metadata.sqlite" in where for where in stored)
    del secrets["store"]
    leaks = [
        f"the secret of {name} is in {where}"
        for where, data in found.items()
        for name, secret in secrets.items()
        if any(form in data for form in forms(secret))
    ]
    assert leaks == []
    # This would have found them.
    mine = (written.broker.folder / "broker.properties").read_bytes()
    assert forms(secrets["broker"])[0] in mine
    assert any("metadata.sqlite" in where for where in found)
    assert b"alice" in b"".join(data for where, data in found.items() if "metadata.sqlite" in where)


def arguments_of_children(pid: int) -> list[str]:
    """What the list of processes shows of the processes that one has started."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [Path(f"/proc/{one}/cmdline").read_text().replace("\0", " ") for one in children]


def test_several_brokers_get_their_settings_where_nobody_else_reads_them(tmp_path: Path) -> None:
    """Backslashes, blanks and letters of other alphabets reach the brokers as they are."""
    password = "pl4nted \\ = : # ü"
    quoted = password.replace("\\", "\\\\")
    jaas = f'{MODULE} required username="broker" password="{quoted}";'
    add_user(tmp_path / "data", "broker", password)
    file = tmp_path / "broker.properties"
    file.write_text(
        f"sasl.jaas.config={jaas}\n".replace("\\", "\\\\")
        + "sasl.mechanism.inter.broker.protocol=SCRAM-SHA-512\n"
        "security.inter.broker.protocol=SASL_PLAINTEXT\n"
    )
    file.chmod(0o644)
    words = ["serve", "--brokers", "2", "--config", str(file), "--data-dir", str(tmp_path / "data")]
    words += ["--set", "listeners=SASL_PLAINTEXT://127.0.0.1:0"]
    words += ["--set", "delegation.token.secret.key=pl4nted-key"]
    with (tmp_path / "log.txt").open("w") as log:
        serve = subprocess.Popen(command(*words), stdout=subprocess.PIPE, stderr=log, text=True)
    assert serve.stdout is not None
    try:
        ready = serve.stdout.readline()
        assert "2 brokers at" in ready, (tmp_path / "log.txt").read_text()
        seen = arguments_of_children(serve.pid)
        assert len(seen) == 2
        assert not any("pl4nted" in one for one in seen), seen
    finally:
        serve.terminate()
        serve.wait(60)
    written = (tmp_path / "log.txt").read_text()
    assert "pl4nted" not in written
    assert "can read delegation.token.secret.key in the list of processes" in written
    assert f"may read sasl.jaas.config in {file}" in written


@pytest.mark.parametrize(
    ("words", "warned"),
    [
        (["sasl.jaas.config=X required password=pl4nted;"], "sasl.jaas.config"),
        (["listener.name.a.ssl.key.password=pl4nted"], "listener.name.a.ssl.key.password"),
        (["delegation.token.secret.key=pl4nted"], "delegation.token.secret.key"),
        (['sasl.jaas.config=Krb5LoginModule required keyTab="/etc/k.keytab";'], None),
        (["ssl.truststore.certificates=-----BEGIN CERTIFICATE-----"], None),
        (["num.partitions=3"], None),
    ],
)
def test_a_secret_among_the_arguments_is_warned_of(
    words: list[str], warned: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    warn_of_visible_secrets(words, is_secret_setting)
    if warned is None:
        assert not caplog.records
    else:
        (line,) = caplog.messages
        assert f"can read {warned} in the list of processes" in line
        assert "--config" in line
        assert "pl4nted" not in line


@pytest.mark.parametrize(
    "words", [("serve", "--data-dir", "/dev/null/none"), ("registry", "serve", "-b", "127.0.0.1:1")]
)
def test_serve_and_services_warn_of_secrets_among_their_arguments(words: tuple[str, ...]) -> None:
    given = ("--set", "ssl.key.password=pl4nted", "--listen", "127.0.0.1:0")
    process = subprocess.Popen(
        command(*words, *given), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    line = process.stderr.readline()
    process.kill()
    process.wait(60)
    process.stderr.close()
    assert "can read ssl.key.password in the list of processes" in line
    assert "pl4nted" not in line


@given(st.dictionaries(st.text(min_size=1), st.text()))
def test_settings_that_are_written_as_properties_are_read_back(settings: dict[str, str]) -> None:
    read = {name: value for _, name, value in read_properties(format_properties(settings))}
    assert read == settings
