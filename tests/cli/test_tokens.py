"""`headrace tokens`: a user creates a token, and a program logs in with it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.security.secured import SecuredBroker

ALICE, PASSWORD = "alice", "s3cret-of-alice"
KEY = {"delegation.token.secret.key": "s3cret-key"}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    with SecuredBroker(tmp_path_factory.mktemp("tokens"), {ALICE: PASSWORD}, KEY) as running:
        yield running


@pytest.fixture
def tokens(here: Run, broker: SecuredBroker, tmp_path: Path) -> Run:
    config = tmp_path / "alice.properties"
    config.write_text(
        f"bootstrap.servers={broker.addresses['SASL_PLAINTEXT']}\n"
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\n"
        f"sasl.username={ALICE}\nsasl.password={PASSWORD}\n"
    )
    return lambda *words, **named: here("tokens", *words, "--client-config", str(config), **named)


def test_a_token_is_made_listed_renewed_and_deleted(tokens: Run) -> None:
    (made,) = tokens("create", "--renewer", "User:bob", "--hours", "2", "--json").rows()
    secret = made.pop("hmac")
    assert (made["owner"], made["requester"], made["renewers"]) == (
        "User:alice", "User:alice", ["User:bob"],
    )  # fmt: skip
    assert int(str(made["max_ms"])) - int(str(made["issue_ms"])) == 2 * 3_600_000
    listed = tokens("list", "--json")
    assert made in listed.rows()
    assert str(secret) not in listed.text
    assert str(made["id"]) in tokens("list").text
    assert "expires at" in tokens("renew", str(made["id"])).text
    assert tokens("delete", str(made["id"])).code == 0
    assert made not in tokens("list", "--json").rows()
    gone = tokens("renew", str(made["id"]))
    assert gone.code != 0
    assert "unknown token" in gone.err


def test_the_printed_line_logs_a_client_in(
    here: Run, broker: SecuredBroker, tokens: Run, tmp_path: Path
) -> None:
    line = tokens("create").text
    config = tmp_path / "token.properties"
    config.write_text(
        f"bootstrap.servers={broker.addresses['SASL_PLAINTEXT']}\n"
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\n{line}"
    )
    done = here("topics", "list", "--client-config", str(config))
    assert done.code == 0, done.err
    # A client that has logged in with a token cannot make others.
    assert here("tokens", "create", "--client-config", str(config)).code != 0


def test_a_lifetime_must_be_positive(tokens: Run) -> None:
    assert tokens("create", "--hours", "0").code == 2
