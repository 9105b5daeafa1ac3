"""PLAIN and SCRAM from the broker's side, without sockets."""

import asyncio
from collections.abc import Iterator

import pytest

from headrace.client.config import Security
from headrace.client.login import login
from headrace.security import passwords as passwords_module
from headrace.security.logins import WAITING, LoginRefused
from headrace.security.mechanisms import MECHANISMS, Exchange, LoggedIn, make_exchange
from headrace.security.passwords import Passwords
from headrace.security.scram import credential_from_password, is_password
from headrace.security.state import NOTHING, ScramCredential, SecurityState


def with_user(name: str, password: str, *mechanisms: str) -> SecurityState:
    credentials = {one: credential_from_password(one, password) for one in mechanisms}
    return NOTHING.with_user(name, credentials)


class Cluster:
    """A state that can change."""

    def __init__(self) -> None:
        self.state = with_user("alice", "sésame", "SCRAM-SHA-256", "SCRAM-SHA-512")


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def passwords(cluster: Cluster) -> Iterator[Passwords]:
    passwords = Passwords(lambda: cluster.state)
    yield passwords
    passwords.close()


async def run(exchange: Exchange, mechanism: str, username: str, password: str) -> LoggedIn | None:
    """Let our client log in."""
    client = login(
        Security(protocol="SASL_SSL", mechanism=mechanism, username=username, password=password)
    )
    token = next(client)
    try:
        while True:
            answer = await exchange.step(token)
            token = client.send(answer)
    except StopIteration:
        return exchange.result


def log_in(
    passwords: Passwords, mechanism: str, username: str = "alice", password: str = "sésame"
) -> LoggedIn | None:
    return asyncio.run(run(make_exchange(mechanism, passwords), mechanism, username, password))


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_right_password_logs_a_user_in(passwords: Passwords, mechanism: str) -> None:
    assert log_in(passwords, mechanism) == LoggedIn("alice")


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize(("username", "password"), [("alice", "wrong"), ("nobody", "sésame")])
def test_a_wrong_password_and_an_unknown_user_are_refused_alike(
    passwords: Passwords, mechanism: str, username: str, password: str
) -> None:
    with pytest.raises(LoginRefused, match="wrong password, or no such user"):
        log_in(passwords, mechanism, username, password)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_user_with_one_credential_logs_in_with_plain_too(
    cluster: Cluster, passwords: Passwords, mechanism: str
) -> None:
    cluster.state = with_user("bob", "x", mechanism)
    assert log_in(passwords, "PLAIN", "bob", "x") == LoggedIn("bob")


def test_a_changed_password_counts_at_once(cluster: Cluster, passwords: Passwords) -> None:
    assert log_in(passwords, "PLAIN")
    cluster.state = with_user("alice", "other", "SCRAM-SHA-256")
    with pytest.raises(LoginRefused):
        log_in(passwords, "PLAIN")
    assert log_in(passwords, "PLAIN", password="other")
    cluster.state = NOTHING
    with pytest.raises(LoginRefused):
        log_in(passwords, "PLAIN", password="other")


def test_a_password_that_was_right_is_not_stretched_again(
    passwords: Passwords, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def counted(mechanism: str, credential: ScramCredential, password: str) -> bool:
        calls.append(password)
        return is_password(mechanism, credential, password)

    monkeypatch.setattr(passwords_module, "is_password", counted)
    for _ in range(3):
        log_in(passwords, "PLAIN")
    assert len(calls) == 1


def test_a_flood_of_passwords_is_bounded(passwords: Passwords) -> None:
    async def flood() -> list[BaseException | None]:
        tries = [passwords.check("alice", f"wrong{n}") for n in range(300)]
        return await asyncio.gather(*tries, return_exceptions=True)

    texts = [str(one) for one in asyncio.run(flood())]
    assert texts.count("too many passwords are being checked") == 300 - WAITING
    assert log_in(passwords, "PLAIN"), "and afterwards logins work again"


@pytest.mark.parametrize(
    "token",
    [
        b"",
        b"alice",
        b"\0alice",
        "\0alice\0sésame\0".encode(),
        b"\0\0pw",
        b"\0alice\0",
        "bob\0alice\0sésame".encode(),
        b"\xff\0alice\0pw",
    ],
)
def test_a_plain_message_that_is_none_is_refused(passwords: Passwords, token: bytes) -> None:
    exchange = make_exchange("PLAIN", passwords)
    with pytest.raises(LoginRefused):
        asyncio.run(exchange.step(token))
    assert exchange.result is None


def test_a_plain_login_may_name_itself_as_authorization_id(passwords: Passwords) -> None:
    exchange = make_exchange("PLAIN", passwords)
    asyncio.run(exchange.step("alice\0alice\0sésame".encode()))
    assert exchange.result == LoggedIn("alice")


def test_an_unknown_user_has_the_iterations_and_the_mechanism_of_a_known_one(
    cluster: Cluster, passwords: Passwords
) -> None:
    """Otherwise the challenge of SCRAM, and the time of PLAIN, would tell who exists."""
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        assert passwords.credential("nobody", mechanism).iterations == 4096
    many = credential_from_password("SCRAM-SHA-512", "x", 10_000)
    cluster.state = SecurityState().with_user("bob", {"SCRAM-SHA-512": many})
    assert passwords.credential("nobody", "SCRAM-SHA-512").iterations == 10_000
    assert passwords.credential("bob", "SCRAM-SHA-256").iterations == 4096
    assert passwords._any_credential("nobody")[0] == "SCRAM-SHA-512"
    more = credential_from_password("SCRAM-SHA-512", "x", 12_000)
    cluster.state = cluster.state.with_user("carol", {"SCRAM-SHA-512": more})
    names = [f"unknown-{number}" for number in range(100)]
    found = [passwords.credential(name, "SCRAM-SHA-512").iterations for name in names]
    assert set(found) == {10_000, 12_000}
    assert found == [passwords.credential(name, "SCRAM-SHA-512").iterations for name in names]
