"""Real clients log in with signed tokens; other tokens are refused, without delaying others."""

import asyncio
import json
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider as AiokafkaTokens
from aiokafka.helpers import create_ssl_context
from confluent_kafka import Producer
from kafka import KafkaProducer
from kafka.net.sasl.oauth import AbstractTokenProvider as KafkaPythonTokens
from kio.schema.metadata.v12.request import MetadataRequest
from kio.schema.metadata.v12.response import MetadataResponse

from headrace.client import bearer
from headrace.client.bearer import TokenSource
from headrace.client.config import ClientConfig, Security, client_config, parse_bootstrap
from headrace.client.connection import Connection
from headrace.client.errors import ClientError, Unreachable
from headrace.clock import SystemClock
from headrace.errors import ErrorCode, KafkaError, SettingError
from headrace.security.logins import WAITING, LoginRefused
from headrace.security.oauthbearer import make_tokens, parse_first
from headrace.settings import Settings
from tests.security.issuer import (
    AUDIENCE,
    ISSUER,
    Provider,
    SigningKey,
    claims,
    encode,
    write_key_set,
)
from tests.security.secured import SecuredBroker
from tests.security.test_logins import Raw, request, text
from tests.support.java import QUICK_START, run_tool

KEY = SigningKey("one")
REFUSAL = b'{"status":"invalid_token"}'
OURS = {
    "sasl.enabled.mechanisms": "OAUTHBEARER,SCRAM-SHA-256",
    "sasl.oauthbearer.expected.issuer": ISSUER,
    "sasl.oauthbearer.expected.audience": f"other,{AUDIENCE}",
    "headrace.sasl.oauthbearer.without.tls": "true",
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    folder = tmp_path_factory.mktemp("tokens")
    url = write_key_set(folder / "keys.json", KEY)
    settings = {**OURS, "sasl.oauthbearer.jwks.endpoint.url": url}
    with SecuredBroker(folder, {"scram": "pw"}, settings) as running:
        yield running


@pytest.fixture
def provider() -> Iterator[Provider]:
    with Provider(KEY) as running:
        yield running


def ask(connection: Connection) -> None:
    wanted = MetadataRequest(topics=(), include_topic_authorized_operations=False)
    assert len(connection.ask(wanted, MetadataResponse).brokers) == 1


def connect(broker: SecuredBroker, tokens: TokenSource, protocol: str = "SASL_SSL") -> Connection:
    security = Security(protocol, broker.ca, mechanism="OAUTHBEARER", tokens=tokens)
    bootstrap = parse_bootstrap(broker.addresses[protocol])
    return Connection(bootstrap[0], ClientConfig(bootstrap, security=security))


def in_file(folder: Path, token: str) -> TokenSource:
    path = folder / "token"
    path.write_text(token + "\n")
    return TokenSource(path.as_uri())


# ----------------------------------------------------------------------------------- the clients


@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_our_client_logs_in_with_a_token_from_a_file(
    broker: SecuredBroker, tmp_path: Path, protocol: str
) -> None:
    with connect(broker, in_file(tmp_path, KEY.token()), protocol) as connection:
        ask(connection)


def test_our_client_gets_a_token_for_its_credentials_and_keeps_it(
    broker: SecuredBroker, provider: Provider
) -> None:
    config = client_config(
        {
            "bootstrap.servers": broker.addresses["SASL_SSL"],
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": broker.ca,
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.client.id": "orders",
            "sasl.oauthbearer.client.secret": "planted:secret/of-orders",
            "sasl.oauthbearer.scope": "read write",
            "sasl.oauthbearer.token.endpoint.url": f"{provider.url}/token",
        }
    )
    assert "planted" not in repr(config)
    for _ in range(3):
        with Connection(config.bootstrap[0], config) as connection:
            ask(connection)
    assert provider.logins == ["orders:planted%3Asecret%2Fof-orders"], "one token for all logins"
    assert provider.forms == [{"grant_type": ["client_credentials"], "scope": ["read write"]}]


def test_our_client_gets_the_next_token_before_the_last_one_expires(provider: Provider) -> None:
    provider.lifetime_s = 0
    source = TokenSource(f"{provider.url}/token", "orders", "x")
    bearer.bearer_token(source)
    bearer.bearer_token(source)
    assert len(provider.asked) == 2
    provider.status = 401
    with pytest.raises(ClientError, match="401"):
        bearer.bearer_token(source)
    provider.status = 503
    with pytest.raises(Unreachable, match="503"):
        bearer.bearer_token(source)


@pytest.mark.parametrize("content", ["", "two words", "a\x01b", "ä"])
def test_a_file_without_a_token_is_an_error_that_names_it(tmp_path: Path, content: str) -> None:
    with pytest.raises(ClientError, match="token"):
        bearer.bearer_token(in_file(tmp_path, content))


def produce_with_confluent(settings: dict[str, Any]) -> None:
    producer = Producer(settings)
    delivered = []
    producer.produce("orders", b"x", callback=lambda error, _: delivered.append(error))
    assert producer.flush(60) == 0
    assert delivered == [None]


def test_confluent_kafka_logs_in_with_a_callback(broker: SecuredBroker) -> None:
    produce_with_confluent(
        {
            "bootstrap.servers": broker.addresses["SASL_SSL"],
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": broker.ca,
            "sasl.mechanism": "OAUTHBEARER",
            "oauth_cb": lambda _: (KEY.token(), time.time() + 3600),
        }
    )


def test_confluent_kafka_logs_in_by_its_own_oidc(broker: SecuredBroker, provider: Provider) -> None:
    produce_with_confluent(
        {
            "bootstrap.servers": broker.addresses["SASL_PLAINTEXT"],
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.client.id": "orders",
            "sasl.oauthbearer.client.secret": "x",
            "sasl.oauthbearer.token.endpoint.url": f"{provider.url}/token",
        }
    )


class PythonTokens(KafkaPythonTokens):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()

    def token(self) -> str:
        return KEY.token()


class AsyncTokens(AiokafkaTokens):  # type: ignore[misc]
    async def token(self) -> str:
        return KEY.token()


def test_kafka_python_logs_in(broker: SecuredBroker) -> None:
    producer = KafkaProducer(
        bootstrap_servers=broker.addresses["SASL_PLAINTEXT"],
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauth_token_provider=PythonTokens(),
    )
    assert producer.send("orders", b"x").get(60).offset >= 0
    producer.close()


def test_aiokafka_logs_in(broker: SecuredBroker) -> None:
    async def produce() -> int:
        producer = AIOKafkaProducer(
            bootstrap_servers=broker.addresses["SASL_SSL"],
            security_protocol="SASL_SSL",
            ssl_context=create_ssl_context(cafile=broker.ca),
            sasl_mechanism="OAUTHBEARER",
            sasl_oauth_token_provider=AsyncTokens(),
        )
        await producer.start()
        try:
            return int((await producer.send_and_wait("orders", b"x")).offset)
        finally:
            await producer.stop()

    assert asyncio.run(produce()) >= 0


@pytest.mark.java
def test_a_java_client_logs_in_with_its_credentials(
    broker: SecuredBroker, provider: Provider, tmp_path: Path
) -> None:
    url = f"{provider.url}/token"
    module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
    properties = {
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": broker.ca,
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": url,
        "sasl.jaas.config": f'{module} required clientId="orders" clientSecret="x";',
        "sasl.login.callback.handler.class": module.replace("LoginModule", "LoginCallbackHandler"),
    }
    config = tmp_path / "client.properties"
    config.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    listed = run_tool(
        "kafka-broker-api-versions", "--bootstrap-server", broker.addresses["SASL_SSL"],
        "--command-config", str(config),
        options=(*QUICK_START, f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={url}"),
    )  # fmt: skip
    assert "Produce(0)" in listed.stdout
    assert provider.logins[0] == "orders:x"


# ---------------------------------------------------------------------------------- the refusals


def first(token: str) -> bytes:
    return f"n,,\x01auth=Bearer {token}\x01\x01".encode()


def authenticate(raw: Raw, message: bytes) -> tuple[int, bytes, int]:
    """The error code, the bytes and the session lifetime of an answer; -1 at the end."""
    raw.send(request(36, 1, struct.pack(">i", len(message)) + message))
    answer = raw.receive()
    if answer is None:
        return -1, b"", 0
    code, size = struct.unpack_from(">hh", answer, 4)
    pos = 8 + max(size, 0)
    (size,) = struct.unpack_from(">i", answer, pos)
    token = answer[pos + 4 : pos + 4 + size]
    return code, token, struct.unpack_from(">q", answer, pos + 4 + size)[0]


def shake(broker: SecuredBroker, version: int = 1) -> Raw:
    raw = Raw(broker, "SASL_PLAINTEXT")
    raw.send(request(17, version, text("OAUTHBEARER")))
    assert raw.receive()
    return raw


def hostile() -> dict[str, str]:
    stranger = SigningKey("one")
    unsigned = f"{encode({'alg': 'none'})}.{encode(claims())}."
    return {
        "foreign key": stranger.token(),
        "unknown key": SigningKey("two").token(),
        "other audience": KEY.token(claims(aud="registry")),
        "other issuer": KEY.token(claims(iss="https://evil.example")),
        "expired": KEY.token(claims(lifetime_s=-60)),
        "not yet valid": KEY.token(claims(nbf=int(time.time()) + 3600)),
        "unsigned": unsigned,
        "own key": stranger.token(header={"jwk": stranger.jwk()}),
        "claim twice": KEY.token(json.dumps(claims())[:-1] + ', "sub": "admin"}'),
        "large": KEY.token(claims(groups="g" * 300_000)),
        "malformed": "abc.def.ghi",
        "no JWT": "opaque",
    }


@pytest.mark.parametrize("name", hostile())
def test_a_refused_token_is_answered_with_a_status_and_then_with_the_error(
    broker: SecuredBroker, name: str
) -> None:
    raw = shake(broker)
    assert authenticate(raw, first(hostile()[name])) == (0, REFUSAL, 0)
    code, _, _ = authenticate(raw, b"\x01")
    assert code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert raw.receive() is None


@pytest.mark.parametrize("second", [b"", b"\x01\x01", first(KEY.token())])
def test_after_a_refusal_no_other_message_is_a_login(broker: SecuredBroker, second: bytes) -> None:
    raw = shake(broker)
    assert authenticate(raw, first("opaque"))[1] == REFUSAL
    code, token, _ = authenticate(raw, second)
    assert (code, token) == (ErrorCode.SASL_AUTHENTICATION_FAILED, b"")
    assert raw.receive() is None


def test_a_refused_token_is_audited_once_whether_it_is_acknowledged_or_not(tmp_path: Path) -> None:
    settings = {
        **OURS,
        "sasl.oauthbearer.jwks.endpoint.url": write_key_set(tmp_path / "keys.json", KEY),
        "headrace.audit.file": str(tmp_path / "audit.log"),
    }
    token = KEY.token(claims(aud="registry"))
    with SecuredBroker(tmp_path, {}, settings) as broker:
        for user in ("acknowledges", "hangs-up"):
            raw = shake(broker)
            message = f"n,a={user},\x01auth=Bearer {token}\x01\x01"
            assert authenticate(raw, message.encode())[1] == REFUSAL
            if user == "acknowledges":
                assert authenticate(raw, b"\x01")[0] == ErrorCode.SASL_AUTHENTICATION_FAILED
                assert raw.receive() is None
            raw.sock.close()
    lines = (tmp_path / "audit.log").read_text().splitlines()
    events = [one for one in map(json.loads, lines) if one["event"] == "login_failed"]
    assert [one["user"] for one in events] == ["acknowledges", "hangs-up"]
    assert all("its audience is 'registry'" in one["reason"] for one in events)


def test_a_token_of_900_kb_closes_the_connection(broker: SecuredBroker) -> None:
    raw = shake(broker)
    message = first("A" * 900_000)
    raw.sock.sendall(struct.pack(">i", len(message) + 14) + request(36, 1))
    assert raw.receive() is None


def test_a_login_by_plain_frames_works_and_is_refused_alike(broker: SecuredBroker) -> None:
    raw = shake(broker, 0)
    raw.send(first(KEY.token()))
    assert raw.receive() == b""
    raw.send(request(3, 1, struct.pack(">i", 0)))
    assert raw.receive()
    raw = shake(broker, 0)
    raw.send(first("opaque"))
    assert raw.receive() == REFUSAL
    raw.send(b"\x01")
    assert raw.receive() is None


def test_our_client_and_librdkafka_acknowledge_a_refusal_and_see_the_error(
    broker: SecuredBroker, tmp_path: Path
) -> None:
    with pytest.raises(KafkaError) as refused:
        connect(broker, in_file(tmp_path, hostile()["other audience"]))
    assert refused.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED
    errors: list[str] = []
    producer = Producer(
        {
            "bootstrap.servers": broker.addresses["SASL_PLAINTEXT"],
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "oauth_cb": lambda _: (hostile()["expired"], time.time() + 3600),
            "error_cb": lambda error: errors.append(error.name()),
        }
    )
    ends_at = time.monotonic() + 60
    while "_AUTHENTICATION" not in errors and time.monotonic() < ends_at:
        producer.poll(0.1)
    assert "_AUTHENTICATION" in errors


def test_the_log_says_why_and_has_no_token(broker: SecuredBroker) -> None:
    tokens = hostile()
    for token in tokens.values():
        raw = shake(broker)
        authenticate(raw, first(token))
        authenticate(raw, b"\x01")
    log = broker.log()
    for why in ("its signature is invalid", "its audience is 'registry'", "it expired", "(nbf)"):
        assert why in log
    for token in (*tokens.values(), KEY.token()):
        for part in token.split("."):
            assert len(part) < 20 or part not in log
    assert "unexpected error" not in log


@pytest.mark.parametrize(
    "message",
    [
        b"", b"\x01", b"n,,", b"n,,\x01\x01",
        b"n,,\x01auth=Bearer \x01\x01", b"n,,\x01auth=Basic x\x01\x01",
        b"y,,\x01auth=Bearer x\x01\x01", b"p=tls,,\x01auth=Bearer x\x01\x01",
        b"n,,\x01auth=Bearer x\x01auth=Bearer y\x01\x01", b"n,,\x01auth=Bearer x y\x01\x01",
        b"n,,\x01auth=Bearer x\x01", b"n,,\x01auth=Bearer x\x01\x01 ",
        b"n,b,\x01auth=Bearer x\x01\x01",
        b"\xff", b"n,,\x01host=a\x01\x01", b"n,,\x01=x\x01auth=Bearer x\x01\x01",
    ],
)  # fmt: skip
def test_a_message_that_is_none_is_refused(message: bytes) -> None:
    with pytest.raises(LoginRefused):
        parse_first(message)


def test_a_message_may_have_an_authorization_id_and_extensions() -> None:
    message = b"n,a=b=2Cc,\x01host=h\x01port=1\x01auth=Bearer x.y.z\x01traceId=\x01\x01"
    assert parse_first(message) == ("b,c", "x.y.z")


def test_the_authorization_id_is_the_tokens_user_or_none(broker: SecuredBroker) -> None:
    token = KEY.token(claims("alice"))
    raw = shake(broker)
    assert authenticate(raw, f"n,a=alice,\x01auth=Bearer {token}\x01\x01".encode())[:2] == (0, b"")
    raw = shake(broker)
    answer = authenticate(raw, f"n,a=bob,\x01auth=Bearer {token}\x01\x01".encode())
    assert answer[:2] == (0, REFUSAL)


def test_a_flood_of_tokens_is_bounded(tmp_path: Path) -> None:
    url = write_key_set(tmp_path / "keys.json", KEY)
    settings = Settings.parse({**OURS, "sasl.oauthbearer.jwks.endpoint.url": url})
    tokens = make_tokens("SASL_SSL", settings, SystemClock())

    async def flood() -> list[str]:
        tries = [tokens.check("opaque") for _ in range(300)]
        refused = [str(one) for one in await asyncio.gather(*tries, return_exceptions=True)]
        assert (await tokens.check(KEY.token())).username == "alice", "and afterwards logins work"
        return refused

    assert asyncio.run(flood()).count("too many tokens are being checked") == 300 - WAITING
    tokens.close()


# ---------------------------------------------------------------------------------- the sessions


def test_the_session_ends_with_the_token(broker: SecuredBroker) -> None:
    for _ in range(10):
        began = time.monotonic()
        raw = shake(broker)
        code, _, lifetime_ms = authenticate(raw, first(KEY.token(claims(lifetime_s=3))))
        raw.send(request(3, 1, struct.pack(">i", 0)))
        answered = raw.receive()
        if time.monotonic() - began < 1.5:
            break  # on a busy machine the token may have expired by now
    assert code == 0
    assert 0 < lifetime_ms <= 3000
    assert answered
    time.sleep(3.1)
    raw.send(request(3, 1, struct.pack(">i", 0)))
    assert raw.receive() is None


def test_the_same_user_goes_on_with_another_token_and_another_user_does_not(
    broker: SecuredBroker,
) -> None:
    for user, expected in (("alice", b""), ("bob", b"x")):
        raw = shake(broker)
        authenticate(raw, first(KEY.token(claims("alice"))))
        time.sleep(1.1)
        raw.send(request(17, 1, text("OAUTHBEARER")))
        assert raw.receive()
        code, _, _ = authenticate(raw, first(KEY.token(claims(user))))
        assert code == (0 if not expected else ErrorCode.SASL_AUTHENTICATION_FAILED)


# ------------------------------------------------------------------------------ keys over HTTP


def test_a_new_key_of_the_issuer_counts_without_a_restart(
    tmp_path: Path, provider: Provider
) -> None:
    settings = {**OURS, "sasl.oauthbearer.jwks.endpoint.url": f"{provider.url}/keys"}
    with SecuredBroker(tmp_path, {}, settings) as broker:
        assert authenticate(shake(broker), first(KEY.token()))[:2] == (0, b"")
        new = SigningKey("new", "ES256")
        provider.keys.append(new)
        assert authenticate(shake(broker), first(new.token()))[:2] == (0, b"")
        asked = len(provider.asked)
        for _ in range(5):
            assert authenticate(shake(broker), first(SigningKey("x").token()))[1] == REFUSAL
        assert len(provider.asked) == asked, "unknown keys make it ask at most every ten seconds"


def test_other_logins_do_not_wait_while_the_issuer_does_not_respond(
    tmp_path: Path, provider: Provider
) -> None:
    settings = {
        **OURS,
        "sasl.oauthbearer.jwks.endpoint.url": f"{provider.url}/keys",
        "socket.connection.setup.timeout.ms": "60000",
    }
    with SecuredBroker(tmp_path, {"scram": "pw"}, settings) as broker:
        known = first(KEY.token())
        assert authenticate(shake(broker), known)[:2] == (0, b"")
        provider.answering.clear()
        stranger = first(SigningKey("two").token())
        done: list[tuple[int, bytes, int]] = []
        waiting = [
            threading.Thread(target=lambda: done.append(authenticate(shake(broker), stranger)))
            for _ in range(20)
        ]
        for one in waiting:
            one.start()
        while "/keys" not in provider.asked[1:]:
            time.sleep(0.01)
        security = Security(
            "SASL_SSL", broker.ca, mechanism="SCRAM-SHA-256", username="scram", password="pw"
        )
        bootstrap = parse_bootstrap(broker.addresses["SASL_SSL"])
        with Connection(bootstrap[0], ClientConfig(bootstrap, security=security)) as connection:
            ask(connection)
        assert authenticate(shake(broker), known)[:2] == (0, b""), "its key is known"
        assert done == [], "they still wait"
        provider.answering.set()
        for one in waiting:
            one.join(60)
        assert {answer[:2] for answer in done} == {(0, REFUSAL)}


def test_a_broker_starts_while_the_issuer_is_away(tmp_path: Path, provider: Provider) -> None:
    provider.status = 503
    settings = {**OURS, "sasl.oauthbearer.jwks.endpoint.url": f"{provider.url}/keys"}
    with SecuredBroker(tmp_path, {}, settings) as broker:
        assert authenticate(shake(broker), first(KEY.token()))[1] == REFUSAL
        assert "cannot read the keys of tokens" in broker.log()
        provider.status = 200
        ends_at = time.monotonic() + 60
        while authenticate(shake(broker), first(KEY.token()))[1] and time.monotonic() < ends_at:
            time.sleep(0.1)
        assert authenticate(shake(broker), first(KEY.token()))[:2] == (0, b"")


# ---------------------------------------------------------------------------------- the settings


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"sasl.oauthbearer.expected.issuer": ""}, "sasl.oauthbearer.expected.issuer"),
        ({"sasl.oauthbearer.expected.audience": ""}, "sasl.oauthbearer.expected.audience"),
        ({"sasl.oauthbearer.jwks.endpoint.url": ""}, "sasl.oauthbearer.jwks.endpoint.url"),
        ({"sasl.oauthbearer.jwks.endpoint.url": "ftp://x"}, "https://"),
        ({"sasl.oauthbearer.jwks.endpoint.url": "file:///nowhere/keys"}, "/nowhere/keys"),
    ],
)
def test_a_start_without_what_makes_tokens_safe_is_refused(
    tmp_path: Path, changes: dict[str, str], named: str
) -> None:
    url = write_key_set(tmp_path / "keys.json", KEY)
    given = {**OURS, "sasl.oauthbearer.jwks.endpoint.url": url, **changes}
    with pytest.raises(SettingError, match=named):
        make_tokens("SASL_SSL", Settings.parse(given), SystemClock())


def test_a_listener_without_tls_takes_no_tokens_unless_a_setting_allows_it(tmp_path: Path) -> None:
    settings = {
        **OURS,
        "sasl.oauthbearer.jwks.endpoint.url": write_key_set(tmp_path / "keys.json", KEY),
        "headrace.sasl.oauthbearer.without.tls": "false",
    }
    broker = SecuredBroker(tmp_path, {}, settings)
    with pytest.raises(AssertionError, match=r"headrace\.sasl\.oauthbearer\.without\.tls"), broker:
        pass
    broker.__exit__(None, None, None)


@pytest.mark.parametrize(
    ("properties", "named"),
    [
        ({}, "sasl.oauthbearer.token.endpoint.url is missing"),
        ({"sasl.oauthbearer.method": "default"}, "sasl.oauthbearer.method: default"),
        ({"sasl.oauthbearer.token.endpoint.url": "https://a/b"}, "client id"),
        ({"sasl.oauthbearer.token.endpoint.url": "token.txt"}, "file://"),
    ],
)
def test_what_our_client_cannot_use_is_named(properties: dict[str, str], named: str) -> None:
    base = {
        "bootstrap.servers": "a:1", "security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"
    }  # fmt: skip
    with pytest.raises(ClientError, match=named):
        client_config({**base, **properties})


def test_our_client_reads_the_names_of_java_too() -> None:
    base = {
        "bootstrap.servers": "a:1",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": "https://a/b",
    }
    in_jaas = {
        "sasl.jaas.config": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule "
        'required clientId="me" clientSecret="s\\"x" scope="all";'
    }
    expected = TokenSource("https://a/b", "me", 's"x', "all")
    assert client_config({**base, **in_jaas}).security.tokens == expected
    own = {
        "sasl.oauthbearer.client.credentials.client.id": "me",
        "sasl.oauthbearer.client.credentials.client.secret": 's"x',
        "sasl.oauthbearer.scope": "all",
    }
    assert client_config({**base, **own}).security.tokens == expected
