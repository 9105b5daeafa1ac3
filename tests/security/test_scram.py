"""SCRAM between our client and our broker, and against changed messages."""

import base64

import pytest

from headrace.client.config import Security
from headrace.client.errors import ClientError
from headrace.client.login import login
from headrace.security.logins import LoginRefused
from headrace.security.scram import (
    ScramExchange,
    credential_from_password,
    invented_credential,
    is_password,
    parse_client_first,
)
from headrace.security.state import ScramCredential

MECHANISMS = ["SCRAM-SHA-256", "SCRAM-SHA-512"]


def try_login(mechanism: str, credential: ScramCredential, password: str, name: str) -> str:
    """Log a client in; the name that the broker read."""
    security = Security(protocol="SASL_SSL", mechanism=mechanism, username=name, password=password)
    client = login(security)
    first = parse_client_first(next(client))
    exchange = ScramExchange(mechanism, first, credential)
    proof = client.send(exchange.challenge)
    with pytest.raises(StopIteration):
        client.send(exchange.finish(proof))
    return first.username


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("name", ["alice", "a,b=c", "Jürgen"])
def test_the_right_password_is_accepted_and_both_sides_prove_it(mechanism: str, name: str) -> None:
    credential = credential_from_password(mechanism, "sésame")
    assert try_login(mechanism, credential, "sésame", name) == name
    assert is_password(mechanism, credential, "sésame")
    assert not is_password(mechanism, credential, "sesame")


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_wrong_password_and_an_unknown_user_fail_in_the_same_step(mechanism: str) -> None:
    known = credential_from_password(mechanism, "right")
    unknown = invented_credential(mechanism, "nobody", b"secret")
    assert len(known.salt) == len(unknown.salt)
    assert known.iterations == unknown.iterations
    texts = set()
    for credential in (known, unknown):
        with pytest.raises(LoginRefused) as refused:
            try_login(mechanism, credential, "wrong", "nobody")
        texts.add(str(refused.value))
    assert len(texts) == 1


def test_the_salt_of_an_unknown_user_stays_the_same() -> None:
    one = invented_credential("SCRAM-SHA-256", "nobody", b"secret")
    assert one.salt == invented_credential("SCRAM-SHA-256", "nobody", b"secret").salt
    assert one.salt != invented_credential("SCRAM-SHA-256", "nobody", b"other").salt
    assert one.salt != invented_credential("SCRAM-SHA-256", "somebody", b"secret").salt


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,",
        b"n,,n=alice",
        b"n,,n=alice,r=",
        b"n,,n=,r=abc",
        b"n,,n=a=b,r=abc",
        b"y,,n=alice,r=abc",
        b"p=tls-unique,,n=alice,r=abc",
        b"n,a=bob,n=alice,r=abc",
        b"n,,n=alice,r=abc,broken",
        b"\xff,,n=alice,r=abc",
    ],
)
def test_a_first_message_that_cannot_be_read_is_refused(message: bytes) -> None:
    with pytest.raises(LoginRefused):
        parse_client_first(message)


def _final(change: str) -> bytes:
    """A client's last message to a fresh exchange, changed in one place."""
    credential = credential_from_password("SCRAM-SHA-256", "x")
    exchange = ScramExchange("SCRAM-SHA-256", parse_client_first(b"n,,n=a,r=abc"), credential)
    nonce = exchange.challenge.decode().split(",")[0][2:]
    proof = base64.b64encode(bytes(32)).decode()
    fields = {"c": "biws", "r": nonce, "p": proof}
    if change == "nonce":
        fields["r"] = "abc" + nonce
    elif change == "header":
        fields["c"] = "eSws"
    elif change == "short proof":
        fields["p"] = base64.b64encode(b"1").decode()
    elif change == "not base64":
        fields["p"] = "***"
    text = f"c={fields['c']},r={fields['r']},p={fields['p']}"
    return exchange.finish(b"" if change == "empty" else text.encode())


@pytest.mark.parametrize(
    "change", ["nonce", "header", "short proof", "not base64", "zero proof", "empty"]
)
def test_a_changed_last_message_is_refused(change: str) -> None:
    with pytest.raises(LoginRefused):
        _final(change)


def test_a_client_refuses_a_broker_without_the_password() -> None:
    credential = credential_from_password("SCRAM-SHA-256", "x")
    other = ScramCredential(
        credential.salt, credential.iterations, credential.stored_key, bytes(32)
    )
    with pytest.raises(ClientError, match="could not prove"):
        try_login("SCRAM-SHA-256", other, "x", "alice")
