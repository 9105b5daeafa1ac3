"""Who may use a console, from which pages and hosts, and which headers its answers have."""

import re
from collections.abc import Iterator
from urllib.parse import urlsplit

import httpx
import pytest

from headrace.console.assets import SECURITY_HEADERS
from headrace.console.routes import routes
from headrace.security.http_users import verifier_text, write_user
from headrace.security.roles import Role
from headrace.testing.running import RunningBroker
from tests.admin.test_exporter import DASHBOARDS
from tests.cli.conftest import execute
from tests.console.test_groups import commit_offset
from tests.console.test_records_api import create, produce
from tests.support.headrace_console import HeadraceConsole
from tests.support.stores import eventually

PASSWORD = "a-secret-7"
KEPT = {(row.method, row.pattern) for row in routes(read_only=True)}
CHANGES = [row for row in routes(read_only=False) if (row.method, row.pattern) not in KEPT]


@pytest.fixture(scope="module")
def read_only(
    headrace: RunningBroker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[HeadraceConsole]:
    """A console that changes nothing, with metrics of the cluster."""
    folder = tmp_path_factory.mktemp("console")
    with HeadraceConsole(headrace.bootstrap_servers, folder, "--read-only", "--metrics") as running:
        yield running


@pytest.fixture(scope="module")
def with_login(
    headrace: RunningBroker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[HeadraceConsole]:
    """A console with a user for each role; the user has the name of the role."""
    folder = tmp_path_factory.mktemp("console")
    for role in Role:
        name = role.name.lower()
        write_user(folder / "users", name, f"{verifier_text(PASSWORD)},{name}")
    settings = ("authentication.method=BASIC", f"headrace.authentication.users.file={folder}/users")
    options = [word for each in settings for word in ("--set", each)]
    with HeadraceConsole(headrace.bootstrap_servers, folder, *options) as running:
        yield running


def path_of(pattern: str) -> str:
    """A path that the pattern matches, without the prefix of the API."""
    return re.sub(r"\{\w+\}", "1", pattern).removeprefix("/api")


def test_a_read_only_console_has_no_route_that_changes_something(
    read_only: HeadraceConsole,
) -> None:
    assert len(CHANGES) > 10
    for row in CHANGES:
        answer = read_only.http.request(row.method, path_of(row.pattern), json={})
        assert answer.status_code in (404, 405), row
    assert read_only.http.get("/session").json()["read_only"] is True


def test_no_route_that_changes_something_is_a_get() -> None:
    assert {row.method for row in CHANGES} <= {"POST", "PUT", "PATCH", "DELETE"}


@pytest.mark.parametrize("path", ["/", "/topics", "/api/session", "/api/topics", "/metrics"])
def test_a_host_name_that_is_not_the_consoles_is_refused(
    console: HeadraceConsole, path: str
) -> None:
    port = urlsplit(console.url).port
    for host, status in (
        (f"rebound.example:{port}", 403),
        ("rebound.example", 403),
        (f"localhost:{port}", 200),
        (f"127.0.0.1:{port}", 200),
        ("10.0.0.7:8080", 200),
        ("[fd00::7]", 200),
        ("10.0.0.7.rebound.example", 403),
    ):
        answer = httpx.get(f"{console.url}{path}", headers={"host": host}, timeout=60)
        assert answer.status_code == status, host


@pytest.mark.parametrize(
    ("headers", "allowed"),
    [
        ({"origin": "https://evil.example"}, False),
        ({"origin": "null"}, False),
        ({"origin": "http://127.0.0.1:1"}, False),
        ({"sec-fetch-site": "cross-site"}, False),
        ({"sec-fetch-site": "same-site"}, False),
        ({"sec-fetch-site": "same-origin"}, True),
        ({}, True),
    ],
)
def test_a_change_from_a_page_of_another_site_is_refused(
    console: HeadraceConsole, topic: str, headers: dict[str, str], allowed: bool
) -> None:
    answer = console.http.post("/topics", json={"name": topic, "partitions": 1}, headers=headers)
    assert answer.status_code == (200 if allowed else 403)
    assert console.http.get(f"/topics/{topic}").status_code == (200 if allowed else 404)


def test_a_form_of_another_site_cannot_send_json_as_text(
    console: HeadraceConsole, topic: str
) -> None:
    body = f'{{"name": "{topic}", "partitions": 1}}'
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        answer = console.http.post("/topics", content=body, headers={"content-type": kind})
        assert answer.status_code == 415
    assert console.http.get(f"/topics/{topic}").status_code == 404


def test_every_answer_has_the_security_headers(console: HeadraceConsole, topic: str) -> None:
    create(console, topic)
    produce(console, topic, [{"value": "<script>alert(1)</script>"}])
    for path, status in (
        ("/", 200),
        (f"/topics/{topic}", 200),
        ("/assets/none.js", 404),
        ("/api/none", 404),
        ("/api/session", 200),
        (f"/api/topics/{topic}/records", 200),
        (f"/api/topics/{topic}/records/0/0/value", 200),
        (f"/api/topics/{topic}/search?q=a", 200),
        ("/metrics", 200),
        ("/health", 200),
    ):
        answer = httpx.get(f"{console.url}{path}", timeout=60)
        assert answer.status_code == status, path
        missing = SECURITY_HEADERS.keys() - answer.headers.keys()
        assert not missing, path
        assert answer.headers["content-security-policy"].startswith("default-src 'none'")


def test_an_address_that_others_reach_needs_a_login_or_insecure() -> None:
    done = execute("console", "--listen", "0.0.0.0:0", "--bootstrap", "127.0.0.1:1")
    assert done.code == 2
    assert "can be reached from other machines" in done.err
    assert "--insecure" in done.err


def test_roles_decide_what_a_user_may_do(
    console: HeadraceConsole, with_login: HeadraceConsole, topic: str
) -> None:
    create(console, topic)
    produce(console, topic, [{"value": "one"}])
    assert with_login.http.get("/topics").status_code == 401
    assert with_login.http.get("/topics", auth=("admin", "wrong")).status_code == 401
    allowed = {
        Role.VIEW: [("GET", f"/topics/{topic}"), ("GET", "/groups")],
        Role.READ: [
            ("GET", f"/topics/{topic}/records"),
            ("GET", f"/topics/{topic}/records/0/0"),
            ("GET", f"/topics/{topic}/records/0/0/value"),
            ("GET", f"/topics/{topic}/search?q=one"),
        ],
        Role.WRITE: [("POST", f"/topics/{topic}/records")],
        Role.ADMIN: [("GET", "/quotas")],
    }
    for role in Role:
        for needed, requests in allowed.items():
            for method, path in requests:
                answer = with_login.http.request(
                    method,
                    path,
                    json={"value": {"text": "two"}} if method == "POST" else None,
                    auth=(role.name.lower(), PASSWORD),
                )
                assert answer.status_code == (200 if role >= needed else 403), (role, path)
    with with_login.http.stream("GET", f"/topics/{topic}/tail", auth=("view", PASSWORD)) as answer:
        assert answer.status_code == 403


def test_metrics_have_every_name_that_dashboards_of_kafka_exporter_use(
    console: HeadraceConsole, read_only: HeadraceConsole, topic: str
) -> None:
    create(console, topic)
    produce(console, topic, [{"value": "one"}])
    commit_offset(console, f"{topic}-g", topic, 1)

    def names() -> set[str]:
        text = httpx.get(f"{read_only.url}/metrics", timeout=60).text
        return {
            re.split(r"[{ ]", line)[0] for line in text.splitlines() if not line.startswith("#")
        }

    eventually(lambda: names() >= DASHBOARDS, "all metrics")
