"""Tokens that are accepted, and tokens that are refused."""

import hmac
import json
import time
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from headrace.security.jwks import Jwk, parse_key_set
from headrace.security.jwt import (
    LARGEST_TOKEN_BYTES,
    InvalidToken,
    TokenRules,
    TokenUser,
    parse_token,
    verify_token,
)
from tests.security.issuer import AUDIENCE, ISSUER, SigningKey, claims, encode

RULES = TokenRules(ISSUER, ["other", AUDIENCE])
ALGORITHMS = [f"{family}{bits}" for family in ("RS", "PS", "ES") for bits in (256, 384, 512)]


@pytest.fixture(scope="module")
def rsa_key() -> SigningKey:
    return SigningKey("one")


@pytest.fixture(scope="module")
def ec_keys() -> dict[str, SigningKey]:
    return {name: SigningKey(name, name) for name in ("ES256", "ES384", "ES512")}


def jwk(key: SigningKey, **changes: Any) -> Jwk:
    entry = key.jwk(**changes)
    return parse_key_set(json.dumps({"keys": [entry]}).encode()).keys[key.key_id][0]


def verify(token: str, key: Jwk | None, rules: TokenRules = RULES) -> TokenUser:
    return verify_token(parse_token(token), key, rules, int(time.time() * 1000))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_token_signed_by_the_issuers_key_names_its_user(
    rsa_key: SigningKey, ec_keys: dict[str, SigningKey], algorithm: str
) -> None:
    key = ec_keys.get(algorithm, rsa_key)
    said = claims("alice")
    user = verify(key.token(said, algorithm=algorithm), jwk(key))
    assert user == TokenUser("alice", said["exp"] * 1000)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_one_changed_byte_is_refused(
    rsa_key: SigningKey, ec_keys: dict[str, SigningKey], algorithm: str
) -> None:
    key = ec_keys.get(algorithm, rsa_key)
    header, body, signature = key.token(claims("bob"), algorithm=algorithm).split(".")
    other = encode(claims("admin"))
    wrong = ("A" if signature[5] != "A" else "B").join((signature[:5], signature[6:]))
    for token in (f"{header}.{other}.{signature}", f"{header}.{body}.{wrong}"):
        with pytest.raises(InvalidToken, match="signature is invalid"):
            verify(token, jwk(key))
    for short in ("", signature[:-4], signature + "AAAA"):
        with pytest.raises(InvalidToken, match=r"signature is invalid|base64url"):
            verify(f"{header}.{body}.{short}", jwk(key))


def test_a_foreign_key_with_the_same_id_is_refused(rsa_key: SigningKey) -> None:
    with pytest.raises(InvalidToken, match="signature is invalid"):
        verify(SigningKey("one").token(), jwk(rsa_key))


@pytest.mark.parametrize("algorithm", ["HS256", "HS384", "HS512"])
def test_the_public_key_is_no_password(rsa_key: SigningKey, algorithm: str) -> None:
    public = rsa_key.private.public_key()
    for encoding, form in (
        (Encoding.PEM, PublicFormat.SubjectPublicKeyInfo),
        (Encoding.DER, PublicFormat.SubjectPublicKeyInfo),
        (Encoding.PEM, PublicFormat.PKCS1),
    ):
        secret = public.public_bytes(encoding, form)
        signed = f"{encode({'alg': algorithm, 'kid': 'one'})}.{encode(claims())}"
        digest = hmac.digest(secret, signed.encode(), f"sha{algorithm[2:]}")
        with pytest.raises(InvalidToken, match="signature is invalid"):
            verify(f"{signed}.{encode(digest)}", jwk(rsa_key))


@pytest.mark.parametrize("algorithm", [*ALGORITHMS, "HS256", "EdDSA", "none", "", "rs256"])
def test_the_keys_own_type_decides_which_algorithms_count(
    ec_keys: dict[str, SigningKey], algorithm: str
) -> None:
    key = ec_keys["ES256"]
    token = key.token(header={"alg": algorithm})
    if algorithm == "ES256":
        verify(token, jwk(key))
        return
    with pytest.raises(InvalidToken):
        verify(token, jwk(key))


def test_a_key_that_states_its_algorithm_has_no_other(rsa_key: SigningKey) -> None:
    verify(rsa_key.token(algorithm="RS512"), jwk(rsa_key, alg="RS512"))
    with pytest.raises(InvalidToken):
        verify(rsa_key.token(algorithm="RS256"), jwk(rsa_key, alg="RS512"))


@pytest.mark.parametrize("algorithm", ["none", "None", "NONE", "nOnE"])
def test_an_unsigned_token_is_refused(rsa_key: SigningKey, algorithm: str) -> None:
    for signature in ("", "AAAA"):
        token = f"{encode({'alg': algorithm})}.{encode(claims())}.{signature}"
        for key in (None, jwk(rsa_key)):
            with pytest.raises(InvalidToken):
                verify(token, key)


def test_tests_may_allow_unsigned_tokens_and_their_claims_are_checked() -> None:
    rules = TokenRules(ISSUER, [AUDIENCE], unsigned=True)
    head = encode({"alg": "none"})
    assert verify(f"{head}.{encode(claims())}.", None, rules).username == "alice"
    with pytest.raises(InvalidToken, match="issuer"):
        verify(f"{head}.{encode(claims(iss='x'))}.", None, rules)
    with pytest.raises(InvalidToken, match="has a signature"):
        verify(f"{head}.{encode(claims())}.AAAA", None, rules)


@pytest.mark.parametrize("name", ["jwk", "jku", "x5u", "x5c", "crit"])
def test_a_header_that_brings_its_own_key_is_refused(rsa_key: SigningKey, name: str) -> None:
    value: Any = rsa_key.jwk() if name == "jwk" else "https://evil.example/keys"
    with pytest.raises(InvalidToken, match=name):
        verify(rsa_key.token(header={name: value}), jwk(rsa_key))


@pytest.mark.parametrize("kind", ["logout+jwt", "JWE", 5, ["JWT"]])
def test_a_token_of_another_type_is_refused(rsa_key: SigningKey, kind: object) -> None:
    with pytest.raises(InvalidToken, match="its type is"):
        verify(rsa_key.token(header={"typ": kind}), jwk(rsa_key))


@pytest.mark.parametrize("kind", [None, "jwt", "at+jwt", "application/at+jwt"])
def test_access_tokens_are_of_the_right_type(rsa_key: SigningKey, kind: str | None) -> None:
    assert verify(rsa_key.token(header={"typ": kind}), jwk(rsa_key)).username == "alice"


NOW = int(time.time())


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"iss": None}, "issuer"),
        ({"iss": "https://issuer.example/"}, "issuer"),
        ({"iss": [ISSUER]}, "issuer"),
        ({"aud": None}, "audience"),
        ({"aud": "kafka2"}, "audience"),
        ({"aud": []}, "audience"),
        ({"aud": {"kafka": 1}}, "audience"),
        ({"aud": [["kafka"], 5]}, "audience"),
        ({"exp": None}, "exp"),
        ({"exp": NOW - 60}, "expired"),
        ({"exp": "never"}, "exp"),
        ({"exp": True}, "exp"),
        ({"exp": -1}, "exp"),
        ({"exp": 10**20}, "exp"),
        ({"nbf": NOW + 3600}, "nbf"),
        ({"nbf": "later"}, "nbf"),
        ({"iat": None}, "iat"),
        ({"iat": NOW + 3600}, "iat"),
        ({"sub": None}, "sub"),
        ({"sub": ""}, "sub"),
        ({"sub": " alice"}, "sub"),
        ({"sub": "al\nice"}, "sub"),
        ({"sub": "\ud800"}, "sub"),
        ({"sub": 7}, "sub"),
        ({"sub": "a" * 256}, "sub"),
        ({"scope": 5}, "scope"),
        ({"scope": ["a", 5]}, "scope"),
    ],
)
def test_wrong_claims_are_refused(rsa_key: SigningKey, changes: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidToken, match=why):
        verify(rsa_key.token(claims(**changes)), jwk(rsa_key))


@pytest.mark.parametrize("text", ['"exp": NaN', '"exp": Infinity', '"exp": 1e400', '"exp": -0.1'])
def test_numbers_that_are_no_time_are_refused(rsa_key: SigningKey, text: str) -> None:
    said = json.dumps(claims(exp=None))[:-1] + f", {text}}}"
    with pytest.raises(InvalidToken):
        verify(rsa_key.token(said), jwk(rsa_key))


def test_one_of_several_audiences_and_a_list_of_scopes_will_do(rsa_key: SigningKey) -> None:
    said = claims(aud=["x", AUDIENCE], scope=["a", "b"], nbf=NOW + 10)
    assert verify(rsa_key.token(said), jwk(rsa_key)).username == "alice"


def test_the_name_may_be_in_another_claim(rsa_key: SigningKey) -> None:
    rules = TokenRules(ISSUER, [AUDIENCE], user_claim="client_id")
    said = claims(sub="12345", client_id="orders-service")
    assert verify(rsa_key.token(said), jwk(rsa_key), rules).username == "orders-service"


def test_a_token_expired_within_the_clock_skew_counts_until_the_skew_is_over(
    rsa_key: SigningKey,
) -> None:
    said = claims(exp=int(time.time()) - 10)
    assert verify(rsa_key.token(said), jwk(rsa_key)).expiry_ms == (said["exp"] + 30) * 1000
    with pytest.raises(InvalidToken, match="expired"):
        verify(rsa_key.token(said), jwk(rsa_key), TokenRules(ISSUER, [AUDIENCE], skew_s=5))


@pytest.mark.parametrize("name", ["sub", "aud", "exp", "other"])
def test_a_claim_that_occurs_twice_is_refused(rsa_key: SigningKey, name: str) -> None:
    said = json.dumps({"other": 1, **claims()})[:-1] + f', "{name}": 1}}'
    with pytest.raises(InvalidToken, match="duplicate name"):
        verify(rsa_key.token(said), jwk(rsa_key))


def hostile() -> dict[str, str]:
    head, body = encode({"alg": "RS256", "kid": "one"}), encode(claims())
    twice = '{"alg":"RS256","alg":"none"}'
    long_number = '{"exp":' + "9" * 30_000 + "}"
    return {
        "empty": "",
        "no dots": "abc",
        "two parts": f"{head}.{body}",
        "five parts": f"{head}.{body}.a.b.c",
        "padding": f"{head}=.{body}.AAAA",
        "blank": f"{head} .{body}.AAAA",
        "plus": f"{head}.{body}.AA+/",
        "one letter": f"{head}.{body}.A",
        "unused bits": f"{head}.{body}.AB",
        "not ASCII": f"{head}.{body}.ä",
        "no JSON": f"{encode('{')}.{body}.AAAA",
        "list": f"{encode('[]')}.{body}.AAAA",
        "no UTF-8": f"{encode(bytes([123, 34, 255]))}.{body}.AAAA",
        "no algorithm": f"{encode({'kid': 'one'})}.{body}.AAAA",
        "algorithm list": f"{encode({'alg': ['RS256']})}.{body}.AAAA",
        "key id number": f"{encode({'alg': 'RS256', 'kid': 1})}.{body}.AAAA",
        "algorithm twice": f"{encode(twice)}.{body}.AAAA",
        "deep": f"{head}.{encode('[' * 20_000)}.AAAA",
        "long number": f"{head}.{encode(long_number)}.AAAA",
        "large": f"{head}.{'A' * 900_000}.AAAA",
    }


@pytest.mark.parametrize("name", hostile())
def test_a_malformed_token_is_refused(name: str) -> None:
    with pytest.raises(InvalidToken):
        parse_token(hostile()[name])


def test_no_message_quotes_the_token(rsa_key: SigningKey) -> None:
    for token in hostile().values():
        with pytest.raises(InvalidToken) as refused:
            parse_token(token)
        assert len(str(refused.value)) < 200
        assert not token or len(token) < 5 or token not in str(refused.value)
    with pytest.raises(InvalidToken) as refused:
        verify(rsa_key.token(claims(iss="x\n" * 10_000)), jwk(rsa_key))
    assert len(str(refused.value)) < 200
    assert "\n" not in str(refused.value)


def test_the_largest_token_is_read(rsa_key: SigningKey) -> None:
    token = rsa_key.token(claims(groups="g" * 45_000))
    assert 60_000 < len(token) < LARGEST_TOKEN_BYTES
    assert verify(token, jwk(rsa_key)).username == "alice"
