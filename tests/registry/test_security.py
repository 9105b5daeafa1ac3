"""A registry with TLS and logins, and its clients."""

import json
import os
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError as ConfluentError

from headrace.schemas.client import RequestRefused, SchemaClient, SchemaRegistryError
from headrace.security.http_users import verifier_text, write_user
from tests.cli.conftest import command
from tests.security.authority import Authority, write
from tests.security.issuer import AUDIENCE, ISSUER, SigningKey, claims, write_key_set
from tests.support.headrace_broker import HeadraceBroker
from tests.support.headrace_registry import HeadraceRegistry

PASSWORDS = {"reader": "r-secret-7", "writer": "w-secret-7", "owner": "o-secret-7"}
ROLES = {"reader": "read", "writer": "write", "owner": "admin"}
TEXT = json.dumps({"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]})
KEY = SigningKey("k1")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("secured")


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture(scope="module")
def secured(folder: Path, authority: Authority) -> Iterator[HeadraceRegistry]:
    """A registry with HTTPS, users, tokens and client certificates."""
    issued, client = authority.issue("CN=registry"), authority.issue("CN=writer")
    for name, password in PASSWORDS.items():
        write_user(folder / "users", name, f"{verifier_text(password)},{ROLES[name]}")
    write(folder / "ca.pem", authority.pem)
    write(folder / "client.pem", client.key_pem(), client.certificate_pem)
    settings = {
        "ssl.keystore.location": write(
            folder / "registry.pem", issued.key_pem(), issued.certificate_pem
        ),
        "ssl.truststore.location": str(folder / "ca.pem"),
        "ssl.client.authentication": "REQUESTED",
        "ssl.principal.mapping.rules": "RULE:^CN=([^,]+).*$/$1/",
        "authentication.method": "BASIC,BEARER,CERTIFICATE",
        "headrace.authentication.users.file": str(folder / "users"),
        "oauthbearer.jwks.endpoint.url": write_key_set(folder / "keys.json", KEY),
        "oauthbearer.expected.issuer": ISSUER,
        "oauthbearer.expected.audience": AUDIENCE,
    }
    with (
        HeadraceBroker(folder / "broker") as broker,
        HeadraceRegistry(broker.bootstrap, folder, settings=settings) as registry,
    ):
        yield registry


def user_info(name: str) -> str:
    return f"{name}:{PASSWORDS[name]}"


def test_confluents_client_registers_and_reads(
    secured: HeadraceRegistry, folder: Path, subject: str
) -> None:
    config = {"url": secured.url, "ssl.ca.location": str(folder / "ca.pem")}
    with SchemaRegistryClient({**config, "basic.auth.user.info": user_info("writer")}) as client:
        schema_id = client.register_schema(subject, Schema(TEXT, "AVRO"))
    token = {
        "bearer.auth.credentials.source": "STATIC_TOKEN",
        "bearer.auth.token": KEY.token(claims("reader")),
        "bearer.auth.logical.cluster": "none",
        "bearer.auth.identity.pool.id": "none",
    }
    with SchemaRegistryClient({**config, **token}) as client:
        assert json.loads(client.get_schema(schema_id).schema_str or "") == json.loads(TEXT)
        with pytest.raises(ConfluentError) as refused:
            client.register_schema(f"{subject}-2", Schema(TEXT, "AVRO"))
        assert refused.value.http_status_code == 403
    with (
        SchemaRegistryClient({**config, "basic.auth.user.info": "writer:wrong"}) as client,
        pytest.raises(ConfluentError) as refused,
    ):
        client.get_subjects()
    assert (refused.value.http_status_code, refused.value.error_code) == (401, 401)


def test_headraces_own_client_registers_and_reads(
    secured: HeadraceRegistry, folder: Path, subject: str
) -> None:
    urls, ca = (secured.url,), str(folder / "ca.pem")
    by_password = SchemaClient(urls, user_info("writer"), ca, attempts=1)
    by_certificate = SchemaClient(
        urls, ca_file=ca, certificate_file=str(folder / "client.pem"), attempts=1
    )
    by_token = SchemaClient(urls, ca_file=ca, token=KEY.token(claims("reader")), attempts=1)
    schema_id = by_password.register(subject, "AVRO", TEXT)
    assert by_certificate.register(subject, "AVRO", TEXT) == schema_id
    assert json.loads(by_token.by_id(schema_id).text) == json.loads(TEXT)
    with pytest.raises(RequestRefused, match="needs the role write"):
        by_token.register(f"{subject}-2", "AVRO", TEXT)
    with pytest.raises(RequestRefused, match="401"):
        SchemaClient(urls, "writer:wrong", ca, attempts=1).get("subjects")
    with pytest.raises(RequestRefused, match="401"):
        SchemaClient(urls, ca_file=ca, attempts=1).get("subjects")
    with pytest.raises(SchemaRegistryError, match="certificate"):
        SchemaClient(urls, user_info("writer"), attempts=1).get("subjects")


def test_curl_and_the_command_line_log_in(
    secured: HeadraceRegistry, folder: Path, subject: str
) -> None:
    ca = str(folder / "ca.pem")

    def curl(*words: str) -> str:
        done = subprocess.run(
            ["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "--cacert", ca, *words],
            capture_output=True, text=True, check=True, timeout=60,
        )  # fmt: skip
        return done.stdout

    url = f"{secured.url}/subjects"
    assert curl("-u", user_info("reader"), url) == "200"
    assert curl("-u", "reader:wrong", url) == "401"
    assert curl("--cert", str(folder / "client.pem"), url) == "200"
    environment = {
        **os.environ,
        "HEADRACE_REGISTRY": secured.url,
        "HEADRACE_REGISTRY_CA": ca,
        "HEADRACE_REGISTRY_USER_INFO": user_info("reader"),
    }
    done = subprocess.run(
        command("schemas", "list"), env=environment, capture_output=True, text=True, timeout=60,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_each_route_needs_its_role(secured: HeadraceRegistry, folder: Path, subject: str) -> None:
    body = {"schema": TEXT}
    needed = [
        ("GET", "/subjects", None, "read"),
        ("GET", "/config", None, "read"),
        ("GET", "/mode", None, "read"),
        ("GET", "/metrics", None, "read"),
        ("GET", "/health", None, "read"),
        ("POST", f"/subjects/{subject}", body, "read"),
        ("POST", f"/compatibility/subjects/{subject}/versions", body, "read"),
        ("POST", f"/compatibility/subjects/{subject}/versions/latest", body, "read"),
        ("POST", f"/subjects/{subject}/versions", body, "write"),
        ("POST", f"/contexts/c/subjects/{subject}/versions", body, "write"),
        ("PUT", f"/config/{subject}", {"compatibility": "FULL"}, "write"),
        ("DELETE", f"/config/{subject}", None, "write"),
        ("DELETE", f"/subjects/{subject}/versions/1", None, "write"),
        ("PUT", "/config", {"compatibility": "BACKWARD"}, "admin"),
        ("PUT", "/contexts/c/config", {"compatibility": "FULL"}, "admin"),
        ("DELETE", "/config", None, "admin"),
        ("PUT", f"/mode/{subject}", {"mode": "READWRITE"}, "admin"),
        ("PUT", "/mode", {"mode": "READWRITE"}, "admin"),
        ("DELETE", f"/mode/{subject}", None, "admin"),
    ]
    context = ssl.create_default_context(cafile=folder / "ca.pem")
    ranks = ["read", "write", "admin"]
    with httpx.Client(base_url=secured.url, verify=context, timeout=60) as http:
        for method, path, given, role in needed:
            for name, own in ROLES.items():
                answer = http.request(method, path, json=given, auth=(name, PASSWORDS[name]))
                allowed = ranks.index(own) >= ranks.index(role)
                assert (answer.status_code != 403) == allowed, (method, path, name, answer.text)
            assert http.request(method, path, json=given).status_code == 401
        assert http.get("/health/live").status_code == 200


def test_no_secret_is_logged_or_shown(secured: HeadraceRegistry) -> None:
    shown = Path(f"/proc/{secured.pid}/cmdline").read_text()
    for secret in (*PASSWORDS.values(), "PRIVATE KEY"):
        assert secret not in secured.log()
        assert secret not in shown
