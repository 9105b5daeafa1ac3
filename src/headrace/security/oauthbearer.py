"""OAUTHBEARER (RFC 7628) on the broker's side: a client logs in with a signed token.

The broker verifies tokens itself: it checks the signature with the issuer's keys (`jwks.py`), in a
worker thread. A refused token is answered with a JSON status, which the client acknowledges; then
the login fails like any other.
"""

import asyncio
import logging
import re
from functools import partial

from headrace.clock import Clock
from headrace.errors import SettingError
from headrace.security.jwks import Jwk, RefreshedKeys, RefreshTimes
from headrace.security.jwt import (
    LARGEST_TOKEN_BYTES,
    UNSIGNED,
    InvalidToken,
    ParsedToken,
    TokenRules,
    TokenUser,
    parse_token,
    shown,
    verify_token,
)
from headrace.security.logins import WAITING, LoginRefused, LoginWorker
from headrace.security.mechanisms import LoggedIn, RefusedWithStatus
from headrace.security.web_fetch import TIMEOUT_S, fetch, url_problem
from headrace.settings.setting import SettingValues

logger = logging.getLogger(__name__)

_LARGEST_MESSAGE_BYTES = LARGEST_TOKEN_BYTES + 8192
REFUSAL = b'{"status":"invalid_token"}'
_UNSIGNED = "headrace.oauthbearer.test.unsigned.tokens"
_JWKS = "sasl.oauthbearer.jwks.endpoint.url"
_ISSUER = "sasl.oauthbearer.expected.issuer"
_AUDIENCE = "sasl.oauthbearer.expected.audience"

_FIRST = re.compile(rb"n,(?:a=([^,\x01]+))?,\x01((?:[A-Za-z]+=[^\x01]*\x01)+)\x01")
_TOKEN = re.compile(rb"(?i:bearer) +([A-Za-z0-9._~+/=-]+) *")


def parse_first(message: bytes) -> tuple[str, str]:
    """The authorization id and the token in a client's first message; LoginRefused if malformed."""
    match = _FIRST.fullmatch(message)
    if match is None:
        raise LoginRefused("malformed OAUTHBEARER message")
    fields = [field.split(b"=", 1) for field in match[2].split(b"\x01")[:-1]]
    tokens = [_TOKEN.fullmatch(value) for name, value in fields if name == b"auth"]
    if len(tokens) != 1 or tokens[0] is None:
        raise LoginRefused("the OAUTHBEARER message has no bearer token, or several")
    name = (match[1] or b"").decode(errors="replace")
    return name.replace("=2C", ",").replace("=3D", "="), tokens[0][1].decode()


class BearerTokens:
    """Checks the tokens of one listener's clients."""

    def __init__(self, rules: TokenRules, keys: RefreshedKeys | None, clock: Clock) -> None:
        self._rules = rules
        self._keys = keys
        self._clock = clock
        self._waiting = 0
        """Logins that wait for keys."""
        self._worker = LoginWorker("tokens", "bearer-tokens")

    async def check(self, text: str) -> TokenUser:
        """The user of a token; InvalidToken if it is not valid."""
        token = await self._worker.run(partial(parse_token, text))
        key = None if token.algorithm == UNSIGNED else await self._key(token)
        return await self._worker.run(
            partial(verify_token, token, key, self._rules, self._clock.now_ms())
        )

    def close(self) -> None:
        """Stop the threads."""
        self._worker.close()
        if self._keys is not None:
            self._keys.close()

    async def _key(self, token: ParsedToken) -> Jwk:
        """The key for a token's signature; InvalidToken if the issuer has no such key."""
        key = self._find(token)
        again = None if key is not None or self._keys is None else self._keys.read_again()
        if again is not None:
            if self._waiting >= WAITING:
                raise InvalidToken("too many logins wait for the issuer's keys")
            self._waiting += 1
            try:
                async with asyncio.timeout(TIMEOUT_S):
                    await asyncio.shield(asyncio.wrap_future(again))
            except TimeoutError:
                raise InvalidToken("the issuer's keys could not be read in time") from None
            finally:
                self._waiting -= 1
            key = self._find(token)
        if key is None:
            raise InvalidToken(
                f"the issuer has no key {shown(token.key_id)} for {shown(token.algorithm)}"
            )
        return key

    def _find(self, token: ParsedToken) -> Jwk | None:
        current = None if self._keys is None else self._keys.current
        return None if current is None else current.find(token.key_id, token.algorithm)


class BearerLogin:
    """One login with a token."""

    def __init__(self, tokens: BearerTokens) -> None:
        self._tokens = tokens
        self.username = ""
        self.result: LoggedIn | None = None

    async def step(self, token: bytes) -> bytes:
        """Check the token; RefusedWithStatus if it is not valid."""
        if len(token) > _LARGEST_MESSAGE_BYTES:
            raise RefusedWithStatus(f"the message has {len(token)} bytes", REFUSAL)
        authzid, text = parse_first(token)
        self.username = authzid
        try:
            user = await self._tokens.check(text)
            self.username = user.username
            if authzid not in ("", user.username):
                raise InvalidToken("the authorization id is not the token's user")
        except InvalidToken as error:
            raise RefusedWithStatus(f"its token is refused: {error}", REFUSAL) from error
        self.result = LoggedIn(user.username, user.expiry_ms)
        return b""


# -------------------------------------------------------------------------------- the settings


class _HttpNames:
    """The settings of an HTTP service, whose names have no prefix `sasl.`."""

    def __init__(self, settings: SettingValues) -> None:
        self._settings = settings

    def text(self, name: str) -> str:
        return self._settings.text(name.removeprefix("sasl."))

    def integer(self, name: str) -> int:
        return self._settings.integer(name.removeprefix("sasl."))

    def words(self, name: str) -> tuple[str, ...]:
        return self._settings.words(name.removeprefix("sasl."))

    def boolean(self, name: str) -> bool:
        """Unsigned tokens are for tests of brokers only."""
        return name != _UNSIGNED and self._settings.boolean(name)


def make_http_tokens(owner: str, settings: SettingValues, clock: Clock) -> BearerTokens:
    """Like `make_tokens`, for an HTTP service."""
    try:
        return make_tokens(owner, _HttpNames(settings), clock)
    except SettingError as error:
        raise SettingError(str(error).replace("sasl.oauthbearer.", "oauthbearer.")) from error


def make_tokens(owner: str, settings: SettingValues, clock: Clock) -> BearerTokens:
    """The token checks of a server; SettingError if its settings are not complete.

    `owner` describes in messages where tokens are accepted.
    """
    rules = TokenRules(
        issuer=settings.text(_ISSUER),
        audiences=settings.words(_AUDIENCE),
        user_claim=settings.text("sasl.oauthbearer.sub.claim.name"),
        scope_claim=settings.text("sasl.oauthbearer.scope.claim.name"),
        skew_s=settings.integer("sasl.oauthbearer.clock.skew.seconds"),
        unsigned=settings.boolean(_UNSIGNED),
    )
    for name, given in ((_ISSUER, rules.issuer), (_AUDIENCE, rules.audiences)):
        if not given:
            raise SettingError(
                f"{name} is missing, but {owner}: tokens of another issuer, or for another "
                "service, would be accepted"
            )
    if rules.unsigned:
        logger.warning("%s and accepts unsigned tokens (%s): for tests only", owner, _UNSIGNED)
    return BearerTokens(rules, _make_keys(owner, settings, rules.unsigned), clock)


def _make_keys(owner: str, settings: SettingValues, unsigned: bool) -> RefreshedKeys | None:
    url = settings.text(_JWKS)
    if not url:
        if unsigned:
            return None
        raise SettingError(
            f"{_JWKS} is missing, but {owner}: set it to the issuer's key set (https://..., or "
            "file:///... for a copy of it)"
        )
    problem = url_problem(url)
    if problem:
        raise SettingError(f"{_JWKS}={url}: {problem}")
    if url.startswith("http:"):
        logger.warning("%s uses http, so the issuer's keys could be replaced on the network", url)
    times = RefreshTimes(
        settings.integer("sasl.oauthbearer.jwks.endpoint.refresh.ms") / 1000,
        settings.integer("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms") / 1000,
        settings.integer("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms") / 1000,
    )
    keys = RefreshedKeys(url, partial(fetch, url), times)
    if url.startswith("file:"):
        problem = keys.load()
        if problem:
            raise SettingError(f"{_JWKS}: {problem}")
    keys.start()
    return keys
