"""Delegation tokens: lifetimes, who may change them, and what they prove."""

import asyncio
import base64

import pytest

from headrace.client.config import Security
from headrace.client.login import login
from headrace.clock import ManualClock
from headrace.errors import ErrorCode, KafkaError
from headrace.security.logins import LoginRefused
from headrace.security.mechanisms import LoggedIn, make_exchange
from headrace.security.passwords import Passwords
from headrace.security.scram import DIGESTS
from headrace.security.state import NOTHING, DelegationToken, SecurityState
from headrace.security.tokens import Tokens, TokenTimes

ALICE, BOB, CAROL = "User:alice", "User:bob", "User:carol"
HOUR_MS = 3_600_000
TIMES = TokenTimes(max_ms=7 * 24 * HOUR_MS, expiry_ms=24 * HOUR_MS)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def tokens(clock: ManualClock) -> Tokens:
    return Tokens("the secret key", TIMES, clock)


def created(tokens: Tokens, lifetime_ms: int = -1) -> tuple[DelegationToken, SecurityState]:
    token = tokens.create(ALICE, ALICE, [BOB], lifetime_ms)
    return token, NOTHING.with_token(token)


def test_the_hmac_is_that_of_kafka() -> None:
    # HmacSHA512 of the id under the key, as `openssl dgst -sha512 -hmac key` computes it.
    made = Tokens("key", TIMES, ManualClock()).hmac("The quick brown fox jumps over the lazy dog")
    assert made.hex().startswith("b42af09057bac1e2d41708e48a902e09b5ff7f12ab428a4fe86653c73dd248fb")


def test_a_token_is_valid_for_a_while_and_never_for_longer_than_its_lifetime(
    tokens: Tokens, clock: ManualClock
) -> None:
    token, _ = created(tokens)
    assert token.expiry_ms == clock.now_ms() + TIMES.expiry_ms
    assert token.max_ms == clock.now_ms() + TIMES.max_ms
    short, state = created(tokens, HOUR_MS)
    assert (short.expiry_ms, short.max_ms) == (clock.now_ms() + HOUR_MS,) * 2
    clock.advance(HOUR_MS // 2)
    renewed, _ = tokens.renew(state, tokens.hmac(short.id), ALICE, -1)
    assert renewed.expiry_ms == short.max_ms
    long, _ = created(tokens, 2**62)
    assert long.max_ms == clock.now_ms() + TIMES.max_ms


@pytest.mark.parametrize("principal", [ALICE, BOB])
def test_owner_and_renewers_renew_and_expire_a_token(
    tokens: Tokens, clock: ManualClock, principal: str
) -> None:
    token, state = created(tokens)
    clock.advance(HOUR_MS)
    renewed, state = tokens.renew(state, tokens.hmac(token.id), principal, HOUR_MS)
    assert renewed.expiry_ms == clock.now_ms() + HOUR_MS
    assert state.tokens[token.id] == renewed
    changed, state = tokens.expire(state, tokens.hmac(token.id), principal, 5)
    assert state.tokens[token.id].expiry_ms == changed.expiry_ms == clock.now_ms() + 5
    _, state = tokens.expire(state, tokens.hmac(token.id), principal, -1)
    assert not state.tokens


def test_nobody_else_does(tokens: Tokens) -> None:
    token, state = created(tokens)
    for change in (tokens.renew, tokens.expire):
        with pytest.raises(KafkaError) as refused:
            change(state, tokens.hmac(token.id), CAROL, -1)
        assert refused.value.code is ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
        with pytest.raises(KafkaError) as refused:
            change(state, b"another", ALICE, -1)
        assert refused.value.code is ErrorCode.DELEGATION_TOKEN_NOT_FOUND


def test_an_expired_token_can_be_deleted_but_not_renewed(
    tokens: Tokens, clock: ManualClock
) -> None:
    token, state = created(tokens)
    clock.advance(TIMES.expiry_ms)
    assert tokens.expired(state) == []
    clock.advance(1)
    assert tokens.expired(state) == [token]
    for change in (tokens.renew, tokens.expire):
        with pytest.raises(KafkaError) as refused:
            change(state, tokens.hmac(token.id), ALICE, 1)
        assert refused.value.code is ErrorCode.DELEGATION_TOKEN_EXPIRED
    assert not tokens.expire(state, tokens.hmac(token.id), ALICE, -1)[1].tokens


def test_without_a_secret_key_there_are_no_tokens(clock: ManualClock) -> None:
    tokens = Tokens("", TIMES, clock)
    assert tokens.valid(created(Tokens("key", TIMES, clock))[1], "x") is None
    with pytest.raises(KafkaError) as refused:
        created(tokens)
    assert refused.value.code is ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED


def log_in(
    passwords: Passwords, mechanism: str, username: str, password: str, *, by_token: bool = True
) -> LoggedIn | None:
    async def run() -> LoggedIn | None:
        exchange = make_exchange(mechanism, passwords)
        client = login(
            Security("SASL_SSL", mechanism=mechanism, username=username, password=password,
                     by_token=by_token)
        )  # fmt: skip
        message = next(client)
        try:
            while True:
                message = client.send(await exchange.step(message))
        except StopIteration:
            return exchange.result

    return asyncio.run(run())


@pytest.mark.parametrize("mechanism", DIGESTS)
def test_a_token_proves_its_owner_until_it_expires(
    tokens: Tokens, clock: ManualClock, mechanism: str
) -> None:
    token, state = created(tokens)
    passwords = Passwords(lambda: state, b"secret", tokens)
    secret = base64.b64encode(tokens.hmac(token.id)).decode()
    expected = LoggedIn("alice", token.expiry_ms, by_token=True)
    for _ in range(2):  # the second time from what is remembered
        assert log_in(passwords, mechanism, token.id, secret) == expected
    refused = [(token.id, "wrong", True), ("unknown", secret, True), (token.id, secret, False)]
    for username, password, by_token in refused:
        with pytest.raises(LoginRefused):
            log_in(passwords, mechanism, username, password, by_token=by_token)
    clock.advance(TIMES.expiry_ms + 1)
    with pytest.raises(LoginRefused):
        log_in(passwords, mechanism, token.id, secret)
    passwords.close()
