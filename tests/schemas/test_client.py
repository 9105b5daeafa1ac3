"""The client of schema registries: addresses, login, TLS, errors and what is tried again."""

import base64
import json
import pickle
import shutil
import ssl
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from headrace.client.errors import ClientError
from headrace.schemas import client as schema_client
from headrace.schemas.client import RequestRefused, SchemaClient, SchemaRegistryError, split_urls
from headrace.schemas.interface import RegisteredSchema, SchemaDependency
from tests.support.ports import free_port


class ScriptedRegistry:
    """A server that answers as the test says, and remembers what it was asked."""

    def __init__(self) -> None:
        self.answers: dict[str, object] = {}
        self.failures: list[tuple[int, bytes]] = []
        self.asked: list[str] = []
        self.logins: list[str | None] = []
        scripted = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                scripted.asked.append(self.path)
                scripted.logins.append(self.headers["Authorization"])
                if scripted.failures:
                    status, body = scripted.failures.pop(0)
                elif self.path in scripted.answers:
                    status, body = 200, json.dumps(scripted.answers[self.path]).encode()
                else:
                    said = {"error_code": 40401, "message": "Subject 's' not found."}
                    status, body = 404, json.dumps(said).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self.server.server_port}"
        self.url = f"http://{self.address}"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedRegistry]:
    monkeypatch.setattr(schema_client, "FIRST_PAUSE_S", 0.001)
    made = ScriptedRegistry()
    yield made
    made.server.shutdown()
    made.server.server_close()


def avro(schema_id: int, text: str = '"string"', **more: object) -> dict[str, object]:
    return {"id": schema_id, "version": 1, "schema": text, **more}


def test_a_refusal_has_the_registrys_code_and_message_and_is_not_tried_again(
    registry: ScriptedRegistry,
) -> None:
    with pytest.raises(RequestRefused, match=registry.url) as caught:
        SchemaClient((registry.url, registry.url)).by_version("s", "latest")
    found = caught.value
    assert (found.status, found.code, found.reason) == (404, 40401, "Subject 's' not found.")
    assert len(registry.asked) == 1


def test_a_registry_that_fails_is_tried_again(registry: ScriptedRegistry) -> None:
    registry.answers["/subjects/s/versions/latest"] = avro(7)
    registry.failures = [(503, b""), (500, b"not json")]
    assert SchemaClient((registry.url,)).by_version("s", "latest").id == 7
    assert len(registry.asked) == 3


@pytest.mark.parametrize("attempts", [1, 3])
def test_a_registry_that_goes_on_failing_is_given_up(
    registry: ScriptedRegistry, attempts: int
) -> None:
    registry.failures = [(503, b'{"error_code": 50302, "message": "later"}')] * 10
    with pytest.raises(SchemaRegistryError, match="returned 503: later") as caught:
        SchemaClient((registry.url,), attempts=attempts).get("subjects")
    assert not isinstance(caught.value, RequestRefused)
    assert (caught.value.status, caught.value.code) == (503, 50302)
    assert len(registry.asked) == attempts


def test_the_next_url_is_asked_where_no_registry_answers(registry: ScriptedRegistry) -> None:
    registry.answers["/subjects"] = ["s"]
    nobody = f"http://127.0.0.1:{free_port()}"
    assert SchemaClient((nobody, registry.url), attempts=1).get("subjects") == ["s"]
    with pytest.raises(SchemaRegistryError, match=f"no schema registry responds at {nobody}"):
        SchemaClient((nobody,), attempts=1).get("subjects")


def test_an_answer_that_is_not_a_registrys_is_an_error(registry: ScriptedRegistry) -> None:
    registry.failures = [(200, b"<html>")]
    with pytest.raises(SchemaRegistryError, match="is not a schema registry"):
        SchemaClient((registry.url,), attempts=1).get("subjects")
    registry.answers["/schemas/ids/1"] = ["s"]
    with pytest.raises(SchemaRegistryError, match="not a response of a schema registry"):
        SchemaClient((registry.url,)).by_id(1)


@pytest.mark.parametrize(
    ("in_url", "given", "sent"),
    [
        ("", "ann:secret", "ann:secret"),
        ("bob:p%40ss@", None, "bob:p@ss"),
        ("bob:pass@", "ann:secret", "ann:secret"),
        ("", None, None),
    ],
)
def test_user_and_password_come_from_the_setting_or_the_url(
    registry: ScriptedRegistry, in_url: str, given: str | None, sent: str | None
) -> None:
    client = SchemaClient((f"http://{in_url}{registry.address}/",), given)
    with pytest.raises(RequestRefused) as caught:
        client.get("subjects", "s")
    expected = None if sent is None else f"Basic {base64.b64encode(sent.encode()).decode()}"
    assert registry.logins == [expected]
    assert registry.asked == ["/subjects/s"]
    assert "pass" not in str(caught.value)
    assert "secret" not in repr(client)


def test_a_refused_login_names_the_credentials_to_set(registry: ScriptedRegistry) -> None:
    registry.failures = [(401, b"")]
    with pytest.raises(RequestRefused, match=r"schema\.registry\.basic\.auth\.user\.info"):
        SchemaClient((registry.url,)).get("subjects")


def test_references_come_before_the_schemas_that_need_them(registry: ScriptedRegistry) -> None:
    registry.answers = {
        "/schemas/ids/3": {
            "schema": "whole",
            "references": [{"name": "b", "subject": "B", "version": 2}],
        },
        "/subjects/B/versions/2": avro(
            2, "b-text", references=[{"name": "a", "subject": "A", "version": 1}]
        ),
        "/subjects/A/versions/1": avro(1, "a-text"),
    }
    client = pickle.loads(pickle.dumps(SchemaClient((registry.url,))))
    needs = (SchemaDependency("a", "a-text"), SchemaDependency("b", "b-text"))
    assert client.by_id(3, "AVRO") == RegisteredSchema("AVRO", "whole", needs, 3)


@pytest.mark.parametrize(("kind", "requests"), [(None, 2), ("PROTOBUF", 1)])
def test_a_protobuf_schema_is_fetched_as_a_descriptor(
    registry: ScriptedRegistry, kind: str | None, requests: int
) -> None:
    text = {"schemaType": "PROTOBUF", "schema": "message M {}"}
    registry.answers = {
        "/schemas/ids/5": text,
        "/schemas/ids/5?format=serialized": {**text, "schema": "CgA="},
    }
    assert SchemaClient((registry.url,)).by_id(5, kind) == RegisteredSchema(
        "PROTOBUF", "CgA=", (), 5
    )
    assert len(registry.asked) == requests


def test_the_registrys_certificate_must_be_signed_by_the_given_ca(
    registry: ScriptedRegistry, tmp_path: Path
) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("no openssl to make a certificate with")
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
         "-keyout", str(key), "-out", str(certificate), "-subj", "/CN=localhost",
         "-addext", "subjectAltName=IP:127.0.0.1"],
        check=True,
        capture_output=True,
    )  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    registry.server.socket = context.wrap_socket(registry.server.socket, server_side=True)
    registry.answers["/subjects"] = ["s"]
    url = f"https://{registry.address}"
    assert SchemaClient((url,), ca_file=str(certificate)).get("subjects") == ["s"]
    with pytest.raises(SchemaRegistryError, match=r"(?i)certificate"):
        SchemaClient((url,), attempts=1).get("subjects")
    with pytest.raises(ClientError, match=r"none\.pem of the schema registry cannot be used"):
        SchemaClient((url,), ca_file=str(tmp_path / "none.pem")).get("subjects")


def test_urls_are_separated_by_commas() -> None:
    assert split_urls(" http://a:1, http://b ,") == ("http://a:1", "http://b")
