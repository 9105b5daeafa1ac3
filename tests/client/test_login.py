"""SCRAM with the examples of RFC 7677, and servers that fail to authenticate."""

import pytest

from headrace.client import login
from headrace.client.config import Security
from headrace.client.errors import ClientError

USER = Security("SASL_PLAINTEXT", mechanism="SCRAM-SHA-256", username="user", password="pencil")
NONCE = "rOprNGfwEbeRWgbNEkqO"
CHALLENGE = (
    b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
)
PROOF = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
    b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)


@pytest.fixture(autouse=True)
def _known_nonce(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login, "_nonce", lambda: NONCE)


def test_the_exchange_of_the_rfc_is_spoken() -> None:
    steps = login.login(USER)
    assert next(steps) == b"n,,n=user,r=" + NONCE.encode()
    assert steps.send(CHALLENGE) == PROOF
    with pytest.raises(StopIteration):
        steps.send(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


@pytest.mark.parametrize(
    ("challenge", "verdict"),
    [
        (CHALLENGE, b"v=AAAATRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="),
        (CHALLENGE, b"e=other-error"),
        (CHALLENGE.replace(b"i=4096", b"i=1"), b""),
        (CHALLENGE.replace(b"r=rOpr", b"r=XXXX"), b""),
        (b"nonsense", b""),
    ],
)
def test_a_server_that_cannot_prove_itself_is_refused(challenge: bytes, verdict: bytes) -> None:
    steps = login.login(USER)
    next(steps)

    def go_on() -> None:
        steps.send(challenge)
        steps.send(verdict)

    with pytest.raises(ClientError, match="SCRAM"):
        go_on()
