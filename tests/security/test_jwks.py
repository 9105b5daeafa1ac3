"""Key sets: accepted keys, and refreshing a set."""

import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from headrace.security import jwks
from headrace.security.jwks import RefreshedKeys, RefreshTimes, parse_key_set
from headrace.security.jwt import InvalidToken
from headrace.security.web_fetch import LARGEST_BYTES, fetch, url_problem
from tests.security.issuer import Provider, SigningKey, key_set

RARELY = RefreshTimes(3600, 0.1, 0.2)


@pytest.fixture(scope="module")
def keys() -> list[SigningKey]:
    return [SigningKey("one"), SigningKey("two"), SigningKey("ec", "ES256")]


def until(holds: Callable[[], bool]) -> None:
    ends_at = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < ends_at
        time.sleep(0.01)


def test_a_key_is_found_by_its_id_and_its_type(keys: list[SigningKey]) -> None:
    found = parse_key_set(key_set(*keys))
    assert found.find("one", "RS256") is not None
    assert found.find("one", "ES256") is None
    assert found.find("ec", "ES256") is not None
    assert found.find("ec", "RS256") is None
    assert found.find("three", "RS256") is None
    assert found.find(None, "RS256") is None, "without an id the key is not guessed"
    assert parse_key_set(key_set(keys[0])).find(None, "RS256") is not None


@pytest.mark.parametrize(
    "changes",
    [
        {"kty": "oct", "k": "AAAA"},
        {"kty": "OKP", "crv": "Ed25519", "x": "AAAA"},
        {"use": "enc"},
        {"key_ops": ["encrypt"]},
        {"key_ops": 5},
        {"alg": "HS256"},
        {"alg": "ES256"},
        {"alg": ["RS256"]},
        {"kid": 5},
        {"n": "AQAB"},
        {"n": "!"},
        {"n": None},
        {"e": "AA"},
        {"kty": "EC", "crv": "P-256", "x": "AAAA", "y": "AAAA"},
        {"kty": "EC", "crv": ["P-256"]},
    ],
    ids=str,
)
def test_an_unusable_key_is_left_out_and_the_others_count(
    keys: list[SigningKey], changes: dict[str, Any]
) -> None:
    entries = [keys[0].jwk(**changes), keys[1].jwk()]
    found = parse_key_set(json.dumps({"keys": entries}).encode())
    assert set(found.keys) == {"two"}
    with pytest.raises(InvalidToken, match="no RSA or EC key"):
        parse_key_set(json.dumps({"keys": entries[:1]}).encode())


def test_short_rsa_keys_are_left_out() -> None:
    with pytest.raises(InvalidToken):
        parse_key_set(key_set(SigningKey("short", bits=1024)))


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"{}", b'{"keys": 5}', b'{"keys": [5]}', b"\xff", b'{"keys":[],"keys":[]}']
)
def test_what_is_no_key_set_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidToken):
        parse_key_set(data)


def test_a_set_is_read_again_after_the_refresh_interval(
    tmp_path: Path, keys: list[SigningKey]
) -> None:
    path = tmp_path / "keys.json"
    path.write_bytes(key_set(keys[0]))
    refreshed = RefreshedKeys("x", path.read_bytes, RefreshTimes(0.05, 0.1, 0.1))
    refreshed.start()
    until(lambda: refreshed.current is not None and "one" in refreshed.current.keys)
    path.write_bytes(key_set(keys[1]))
    until(lambda: refreshed.current is not None and set(refreshed.current.keys) == {"two"})
    refreshed.close()


def test_the_last_set_stays_when_the_next_cannot_be_read(
    keys: list[SigningKey], caplog: pytest.LogCaptureFixture
) -> None:
    answers = [key_set(keys[0])]
    tries: list[float] = []

    def read() -> bytes:
        tries.append(time.monotonic())
        return answers.pop() if answers else b"nonsense"

    refreshed = RefreshedKeys("the-source", read, RefreshTimes(0.01, 0.05, 0.1))
    refreshed.start()
    until(lambda: len(tries) > 4)
    assert refreshed.current is not None
    assert "one" in refreshed.current.keys
    refreshed.close()
    lines = [line.getMessage() for line in caplog.records if "the-source" in line.getMessage()]
    assert len(lines) == 1, "the same failure is logged once"


def test_an_unknown_key_has_the_set_read_again_at_most_every_ten_seconds(
    keys: list[SigningKey], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr(jwks, "monotonic", lambda: now[0])
    reads: list[int] = []

    def read() -> bytes:
        reads.append(1)
        return key_set(keys[0])

    refreshed = RefreshedKeys("x", read, RARELY)
    first = refreshed.read_again()
    assert first is not None, "the first reading is waited for"
    refreshed.start()
    first.result(60)
    for expected in (2, 3):
        again = refreshed.read_again()
        assert again is not None
        again.result(60)
        assert len(reads) == expected
        now[0] += 9.9
        assert [refreshed.read_again() for _ in range(50)] == [None] * 50
        assert len(reads) == expected
        now[0] += 0.2
    refreshed.close()


def test_waiting_logins_end_when_it_closes(keys: list[SigningKey]) -> None:
    with Provider(*keys) as provider:
        provider.answering.clear()
        refreshed = RefreshedKeys("x", partial(fetch, f"{provider.url}/keys"), RARELY)
        refreshed.start()
        waiting = refreshed.read_again()
        assert waiting is not None
        assert refreshed.read_again() is waiting, "one reading for all"
        refreshed.close()
        provider.answering.set()
        waiting.result(60)


@pytest.mark.parametrize("status", [302, 404, 500])
def test_an_answer_that_is_no_key_set_is_an_error(keys: list[SigningKey], status: int) -> None:
    with Provider(*keys) as provider:
        assert parse_key_set(fetch(f"{provider.url}/keys")).keys.keys() == {"one", "two", "ec"}
        provider.status = status
        with pytest.raises(OSError, match=str(status)):
            fetch(f"{provider.url}/keys")
        assert "/elsewhere" not in provider.asked, "redirects are not followed"


def test_a_large_document_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "large file"
    path.write_bytes(b" " * (LARGEST_BYTES + 1))
    with pytest.raises(OSError, match="more than"):
        fetch(path.as_uri())
    path.write_bytes(b"x")
    assert fetch(path.as_uri()) == b"x"


@pytest.mark.parametrize(
    "url",
    [
        "", "keys.json", "/keys.json", "ftp://a/b", "file://host/x", "file:x", "https://", "http://:1/",
        "https://user:pw@host/", "https://host:0/", "https://host:99999/", "https://[::1/",
    ],
)  # fmt: skip
def test_a_url_that_cannot_be_fetched_is_refused(url: str) -> None:
    assert url_problem(url)


@pytest.mark.parametrize("url", ["https://a/b", "http://[::1]:80/x?y", "file:///a%20b"])
def test_https_http_and_file_can_be_fetched(url: str) -> None:
    assert url_problem(url) == ""
