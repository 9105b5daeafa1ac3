"""PLAIN and SCRAM from the broker's side, without sockets."""

import asyncio
from collections.abc import Iterator

import pytest

from headrace.client.config import Security
from headrace.client.login import login
from headrace.clock import ManualClock
from headrace.security import passwords as passwords_module
from headrace.security.logins import WAITING, LoginRefused
from headrace.security.mechanisms import MECHANISMS, Exchange, LoggedIn, make_exchange
from headrace.security.passwords import Passwords
from headrace.security.scram import (
    DIGESTS,
    credential_from_password,
    credential_from_salted,
    is_password,
)
from headrace.security.state import NOTHING, ScramCredential, SecurityState
from headrace.security.tokens import Tokens, TokenTimes

SECRET = b"the secret of a cluster"
KAFKA_SALTS = (b"1ktdnm2nn7qjz8f6mm4g1r2c3x", b"h5k1v0l2x8q9w7e6r5t4y3u2i")
"""As `kafka-configs` makes them: random numbers of 130 bits, in base 36."""


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
    passwords = Passwords(lambda: cluster.state, SECRET)
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


def test_an_unknown_user_has_the_same_salt_in_every_process(cluster: Cluster) -> None:
    for mechanism in DIGESTS:
        found = set()
        for _ in range(2):
            passwords = Passwords(lambda: cluster.state, SECRET)
            found.add(passwords.credential("nobody", mechanism).salt)
            passwords.close()
        assert len(found) == 1
    passwords = Passwords(lambda: cluster.state, b"of another cluster")
    assert passwords.credential("nobody", mechanism).salt not in found
    passwords.close()


@pytest.mark.parametrize("salt", [b"\1" * 64, b"\0" * 24, *KAFKA_SALTS])
def test_an_unknown_user_has_a_salt_of_the_form_of_real_ones(
    cluster: Cluster, passwords: Passwords, salt: bytes
) -> None:
    """Clients choose the salts: librdkafka has 64 bytes, Kafka's tools 25 or 26 characters."""
    made = credential_from_salted("SCRAM-SHA-256", salt, 4096, b"salted")
    cluster.state = NOTHING.with_user("bob", {"SCRAM-SHA-256": made})
    names = [f"unknown-{number}" for number in range(200)]
    salts = [passwords.credential(name, "SCRAM-SHA-256").salt for name in names]
    assert len(set(salts)) == len(names)
    if salt not in KAFKA_SALTS:
        assert {len(one) for one in salts} == {len(salt)}
        return
    assert all(one.decode().isalnum() and one == one.lower() for one in salts)
    assert {25, 26} <= {len(one) for one in salts} <= {23, 24, 25, 26}
    assert all(int(one, 36) < 2**130 for one in salts)


def test_a_new_user_changes_the_challenges_of_few_unknown_ones(
    cluster: Cluster, passwords: Passwords
) -> None:
    """Otherwise each change of users would tell which names had nothing to do with it."""

    def with_users(rare: int) -> list[int]:
        common = credential_from_password("SCRAM-SHA-256", "x")
        other = credential_from_password("SCRAM-SHA-256", "x", 8192)
        users = {f"user{n}": {"SCRAM-SHA-256": common} for n in range(90)}
        users |= {f"rare{n}": {"SCRAM-SHA-256": other} for n in range(rare)}
        cluster.state = SecurityState(users=users)
        names = [f"unknown-{number}" for number in range(1000)]
        return [passwords.credential(name, "SCRAM-SHA-256").iterations for name in names]

    before, after = with_users(10), with_users(11)
    assert 50 < before.count(8192) < 200, "as rare as for real users"
    assert sum(a != b for a, b in zip(before, after, strict=True)) < 50


def test_an_unknown_token_has_the_salt_that_a_token_of_this_id_would_have(
    cluster: Cluster,
) -> None:
    tokens = Tokens("the key", TokenTimes(1000, 1000), ManualClock())
    passwords = Passwords(lambda: cluster.state, SECRET, tokens)
    for mechanism in DIGESTS:
        _, invented = asyncio.run(passwords.token_credential("unknown", mechanism))
        assert invented.salt == tokens.credential("unknown", mechanism).salt
        assert invented.stored_key != tokens.credential("unknown", mechanism).stored_key
    passwords.close()
