"""TLS, logins and roles of a service, over real HTTP."""

import asyncio
import base64
import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from headrace.errors import SettingError
from headrace.security import logins
from headrace.security.http_users import verifier_text, write_user
from headrace.service.authentication import Authentication
from headrace.service.errors import HttpError
from headrace.service.request import Request
from headrace.service.security import make_security
from headrace.service.settings import ServiceSettings
from headrace.settings.service_table import REGISTRY_TABLE
from tests.security.authority import Authority, write
from tests.security.issuer import AUDIENCE, ISSUER, SigningKey, claims, write_key_set
from tests.service.running import running

PASSWORDS = {"reader": "r-secret-9", "writer": "w-secret-9"}
BASIC = {"authentication.method": "BASIC"}


@pytest.fixture(scope="module")
def users(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with users."""
    file = tmp_path_factory.mktemp("users") / "users"
    write_user(file, "reader", f"{verifier_text(PASSWORDS['reader'])},read")
    write_user(file, "writer", f"{verifier_text(PASSWORDS['writer'])},write")
    write_user(file, "orders", "*,write")
    return file


@pytest.fixture(scope="module")
def basic(users: Path) -> Iterator[httpx.Client]:
    """A client of a service with users."""
    settings = {**BASIC, "headrace.authentication.users.file": str(users)}
    with running(settings={**settings, "authentication.realm": "notes"}) as service:
        yield service.http


def login(name: str) -> tuple[str, str]:
    return name, PASSWORDS[name]


def test_a_user_logs_in_with_its_password_and_the_handler_knows_it(basic: httpx.Client) -> None:
    answer = basic.put("/notes/a", json=1, auth=login("writer"))
    assert (answer.status_code, answer.json()["by"]) == (200, "User:writer")


@pytest.mark.parametrize(
    "auth", [("reader", "wrong"), ("nobody", "r-secret-9"), ("orders", "*"), ("", "")]
)
def test_a_refused_login_does_not_say_why(basic: httpx.Client, auth: tuple[str, str]) -> None:
    answer = basic.get("/notes/a", auth=auth)
    assert (answer.status_code, answer.headers["www-authenticate"]) == (401, 'Basic realm="notes"')
    assert answer.json() == {"error_code": 401, "message": "HTTP 401 Unauthorized"}


@pytest.mark.parametrize("header", ["Basic", "Basic !", "Bearer abc", "Digest x", "", "Basic \xff"])
def test_a_malformed_header_is_a_refused_login(basic: httpx.Client, header: str) -> None:
    answer = basic.get("/notes/a", headers=[(b"authorization", header.encode("latin-1"))])
    assert answer.status_code == 401


def test_a_role_that_is_too_low_is_refused_before_the_body_is_read(basic: httpx.Client) -> None:
    answer = basic.put("/notes/b", content=b"x" * 5000, auth=login("reader"))
    assert answer.status_code == 403
    assert "has the role read, and this request needs the role write" in answer.json()["message"]
    assert basic.get("/notes/b", auth=login("reader")).status_code == 404
    assert basic.get("/metrics", auth=login("reader")).status_code == 200


def test_everybody_reads_and_only_users_write_if_a_setting_says_so(users: Path) -> None:
    settings = {
        **BASIC,
        "headrace.authentication.users.file": str(users),
        "headrace.authentication.anonymous.role": "read",
    }
    with running(settings=settings) as service:
        assert service.http.get("/notes/a").status_code == 404
        assert service.http.put("/notes/a", json=1).status_code == 403
        assert service.http.put("/notes/a", json=1, auth=login("writer")).status_code == 200
        assert service.http.get("/notes/a", auth=("writer", "wrong")).status_code == 401


def test_roles_that_may_not_log_in_are_refused(users: Path) -> None:
    settings = {
        **BASIC,
        "headrace.authentication.users.file": str(users),
        "authentication.roles": "write,admin",
    }
    with running(settings=settings) as service:
        assert service.http.get("/notes/a", auth=login("reader")).status_code == 403
        assert service.http.get("/notes/a", auth=login("writer")).status_code == 404


def test_a_user_that_is_added_to_the_file_can_log_in_without_a_restart(tmp_path: Path) -> None:
    file = tmp_path / "users"
    write_user(file, "alice", f"{verifier_text('a')},read")
    settings = {**BASIC, "headrace.authentication.users.file": str(file)}
    with running(settings=settings) as service:
        assert service.http.get("/notes/a", auth=("bob", "b")).status_code == 401
        write_user(file, "bob", f"{verifier_text('b')},read")
        write_user(file, "alice", None)
        assert service.http.get("/notes/a", auth=("bob", "b")).status_code == 404
        assert service.http.get("/notes/a", auth=("alice", "a")).status_code == 401


def test_failed_logins_are_logged_without_the_password(users: Path) -> None:
    settings = {**BASIC, "headrace.authentication.users.file": str(users)}
    with running(settings=settings) as service:
        service.http.get("/notes/a", auth=("reader", "planted-secret"))
        service.http.get("/notes/a", auth=login("reader"))
        service.terminate()
        _, _, log = service.end()
    assert '"event": "login_failed"' in log
    assert '"user": "reader"' in log
    assert "planted-secret" not in log
    assert PASSWORDS["reader"] not in log


# --------------------------------------------------------------------------------------- tokens


def test_a_signed_token_is_a_login_and_the_file_gives_its_user_a_role(
    users: Path, tmp_path: Path
) -> None:
    key, foreign = SigningKey("k1"), SigningKey("k1")
    settings = {
        "authentication.method": "BASIC,BEARER",
        "headrace.authentication.users.file": str(users),
        "oauthbearer.jwks.endpoint.url": write_key_set(tmp_path / "keys.json", key),
        "oauthbearer.expected.issuer": ISSUER,
        "oauthbearer.expected.audience": AUDIENCE,
    }

    def bearer(token: str) -> dict[str, str]:
        return {"authorization": f"Bearer {token}"}

    with running(settings=settings) as service:
        http = service.http
        good = bearer(key.token(claims("orders")))
        for _ in range(2):
            answer = http.put("/notes/a", json=1, headers=good)
            assert (answer.status_code, answer.json()["by"]) == (200, "User:orders")
        stranger = http.get("/notes/a", headers=bearer(key.token(claims("stranger"))))
        assert stranger.status_code == 403
        bad = [
            key.token(claims("orders", lifetime_s=-100)),
            key.token(claims("orders", aud="other")),
            foreign.token(claims("orders")),
            "abc",
        ]
        for token in bad:
            answer = http.get("/notes/a", headers=bearer(token))
            assert answer.status_code == 401
        challenge = 'Basic realm="tiny", Bearer realm="tiny"'
        assert answer.headers["www-authenticate"] == challenge
        assert http.get("/notes/a", auth=login("reader")).status_code == 200


def test_users_of_tokens_who_are_not_in_the_file_have_the_default_role(tmp_path: Path) -> None:
    key = SigningKey("k1")
    settings = {
        "authentication.method": "BEARER",
        "headrace.authentication.default.role": "read",
        "oauthbearer.jwks.endpoint.url": write_key_set(tmp_path / "keys.json", key),
        "oauthbearer.expected.issuer": ISSUER,
        "oauthbearer.expected.audience": AUDIENCE,
    }
    with running(settings=settings) as service:
        token = {"authorization": f"Bearer {key.token(claims('anyone'))}"}
        assert service.http.get("/notes/a", headers=token).status_code == 404
        assert service.http.put("/notes/a", json=1, headers=token).status_code == 403


# ------------------------------------------------------------------------------------------ TLS


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


def tls_settings(authority: Authority, folder: Path, kind: str = "PEM") -> dict[str, str]:
    issued = authority.issue("CN=tiny")
    settings = {"listeners": "https://127.0.0.1:0", "ssl.truststore.location": str(folder / "ca")}
    write(folder / "ca", authority.pem)
    if kind == "PKCS12":
        (folder / "store").write_bytes(issued.pkcs12("p12-secret"))
        settings |= {"ssl.keystore.type": "PKCS12", "ssl.keystore.password": "p12-secret"}
    else:
        write(folder / "store", issued.key_pem(), issued.certificate_pem)
    return {**settings, "ssl.keystore.location": str(folder / "store")}


@pytest.mark.parametrize("kind", ["PEM", "PKCS12"])
def test_a_service_speaks_tls_with_its_certificate(
    authority: Authority, tmp_path: Path, kind: str
) -> None:
    with running(settings=tls_settings(authority, tmp_path, kind)) as service:
        url = str(service.http.base_url).replace("http:", "https:")
        trusting = ssl.create_default_context(cadata=authority.pem)
        assert httpx.get(f"{url}/health/live", verify=trusting).status_code == 200
        with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
            httpx.get(f"{url}/health/live", verify=ssl.create_default_context())
        with pytest.raises(httpx.HTTPError):
            service.http.get("/health/live")
        old = ssl.create_default_context(cadata=authority.pem)
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        assert httpx.get(f"{url}/health/live", verify=old).status_code == 200


def test_a_renewed_certificate_is_used_without_a_restart(
    authority: Authority, tmp_path: Path
) -> None:
    with running(settings=tls_settings(authority, tmp_path)) as service:
        port = int(str(service.http.base_url).rstrip("/").rpartition(":")[2])

        def served() -> str:
            return ssl.get_server_certificate(("127.0.0.1", port))

        first = served()
        renewed = authority.issue("CN=tiny")
        write(tmp_path / "store", renewed.key_pem(), renewed.certificate_pem)
        _until(lambda: served() != first)
        assert served().split() == renewed.certificate_pem.split()


def test_a_client_certificate_is_a_login(authority: Authority, users: Path, tmp_path: Path) -> None:
    settings = {
        **tls_settings(authority, tmp_path),
        "authentication.method": "CERTIFICATE,BASIC",
        "ssl.client.authentication": "REQUESTED",
        "ssl.principal.mapping.rules": "RULE:^CN=([^,]+).*$/$1/",
        "headrace.authentication.users.file": str(users),
    }
    with running(settings=settings) as service:
        url = str(service.http.base_url).replace("http:", "https:")
        with httpx.Client(base_url=url, verify=_context(authority, tmp_path, "CN=orders")) as http:
            answer = http.put("/notes/a", json=1)
            assert (answer.status_code, answer.json()["by"]) == (200, "User:orders")
        with httpx.Client(base_url=url, verify=_context(authority, tmp_path, "CN=eve")) as http:
            assert http.get("/notes/a").status_code == 403
        with httpx.Client(base_url=url, verify=_context(authority, tmp_path)) as http:
            assert http.get("/notes/a").status_code == 401
            assert http.get("/notes/a", auth=login("reader")).status_code == 200
        stranger = _context(authority, tmp_path, "CN=orders", issuer=Authority("Other"))
        with httpx.Client(base_url=url, verify=stranger) as http, pytest.raises(httpx.HTTPError):
            http.get("/notes/a")


def test_a_required_client_certificate_is_needed_for_every_connection(
    authority: Authority, tmp_path: Path
) -> None:
    settings = {**tls_settings(authority, tmp_path), "ssl.client.authentication": "REQUIRED"}
    with running(settings=settings) as service:
        url = str(service.http.base_url).replace("http:", "https:")
        with httpx.Client(base_url=url, verify=_context(authority, tmp_path, "CN=x")) as http:
            assert http.get("/notes/a").status_code == 404
        with (
            httpx.Client(base_url=url, verify=_context(authority, tmp_path)) as http,
            pytest.raises(httpx.HTTPError),
        ):
            http.get("/notes/a")


def _context(
    authority: Authority, folder: Path, subject: str = "", issuer: Authority | None = None
) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=authority.pem)
    if subject:
        issued = (issuer or authority).issue(subject)
        file = write(folder / "client.pem", issued.key_pem(), issued.certificate_pem)
        context.load_cert_chain(file)
    return context


# ------------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"authentication.method": "BASIC"}, "headrace.authentication.users.file"),
        ({"authentication.method": "BEARER"}, "oauthbearer.expected.issuer"),
        ({"authentication.method": "CERTIFICATE"}, "ssl.client.authentication"),
        ({"listeners": "https://127.0.0.1:0"}, "ssl.keystore.location"),
        ({"ssl.keystore.location": "/x.pem"}, "use https://"),
        ({"ssl.client.authentication": "REQUIRED"}, "use https://"),
        ({"ssl.truststore.location": "/ca.pem"}, "use https://"),
        ({"headrace.authentication.anonymous.role": "read"}, "set authentication.method"),
        ({"authentication.roles": "admin"}, "set authentication.method"),
        ({"authentication.realm": 'a"b'}, "authentication.realm"),
        ({"headrace.authentication.users.file": "/x"}, "authentication.method"),
        (
            {"authentication.method": "BASIC", "listeners": "http://0.0.0.0:0",
             "headrace.authentication.users.file": "/x"},
            "headrace.authentication.without.tls",
        ),
    ],
)  # fmt: skip
def test_a_setting_that_cannot_be_honoured_refuses_the_start(
    settings: dict[str, str], named: str
) -> None:
    with pytest.raises(SettingError, match=named):
        make_security("tiny", ServiceSettings(REGISTRY_TABLE, settings))


def _until(done: object) -> None:
    deadline = time.monotonic() + 60
    assert callable(done)
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_a_flood_of_logins_is_refused_without_using_memory(
    users: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More logins at a time than may wait: the rest gets 503, and the right password is served."""
    monkeypatch.setattr(logins, "WAITING", 2)
    settings = {**BASIC, "headrace.authentication.users.file": str(users)}
    authentication = Authentication("tiny", ServiceSettings(REGISTRY_TABLE, settings))

    def request(password: str) -> Request:
        login = base64.b64encode(f"reader:{password}".encode())
        return Request("GET", {}, {}, {b"authorization": b"Basic " + login})

    async def status(password: str) -> int:
        try:
            await authentication(request(password))
        except HttpError as error:
            return error.status
        return 200

    async def flood() -> list[int]:
        return await asyncio.gather(*(status(f"wrong-{number}") for number in range(10)))

    assert sorted(asyncio.run(flood())) == [401] * 2 + [503] * 8
    assert asyncio.run(status(PASSWORDS["reader"])) == 200
    authentication.close()
