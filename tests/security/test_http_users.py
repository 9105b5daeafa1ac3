"""The file with users of HTTP services."""

import asyncio
import base64
import os
import stat
from pathlib import Path

import pytest

from headrace.errors import SettingError
from headrace.security.http_users import (
    HttpUsers,
    parse_users,
    verifier_text,
    write_user,
)
from headrace.security.logins import LoginRefused, parse_basic
from headrace.security.passwords import PasswordChecks
from headrace.security.roles import Role
from headrace.security.state import ScramCredential

PASSWORD = "correct horse"
VERIFIER = verifier_text(PASSWORD)


def check(users: HttpUsers, name: str, password: str) -> None:
    asyncio.run(users.check(name, password))


def test_a_user_has_the_highest_of_its_roles_and_comments_are_skipped() -> None:
    users = parse_users(f"# people\n\nalice: {VERIFIER},read,write\n bob :*,admin\n")
    assert {name: user.role for name, user in users.items()} == {
        "alice": Role.WRITE,
        "bob": Role.ADMIN,
    }
    assert users["bob"].credential is None


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("alice: secret-text,read", "passwords are not accepted"),
        (f"alice: {VERIFIER}", "expected a role"),
        (f"alice: {VERIFIER},owner", "expected a role"),
        ("alice", "expected NAME: VERIFIER,ROLE"),
        (f": {VERIFIER},read", "expected NAME: VERIFIER,ROLE"),
        (f"alice: {VERIFIER.replace('$100000:', '$1:')},read", "iterations"),
        ("alice: SCRAM-SHA-256$4096:AAAA$AAAA:AAAA,read", "32 bytes"),
        ("alice: SCRAM-SHA-256$4096:A$AAAA:AAAA,read", "base64"),
        (f"alice: {VERIFIER},read\nalice: *,read", "twice"),
    ],
)
def test_a_line_that_is_wrong_is_named_and_not_quoted(tmp_path: Path, line: str, why: str) -> None:
    file = tmp_path / "users"
    file.write_text(f"root: {VERIFIER},admin\n{line}\n")
    with pytest.raises(SettingError, match=why) as raised:
        HttpUsers("users.file", str(file))
    assert "line " in str(raised.value)
    assert "users.file=" in str(raised.value)
    assert "secret-text" not in str(raised.value)


@pytest.mark.parametrize("text", [None, "", "# nobody\n"])
def test_a_file_that_is_missing_or_has_no_user_is_refused(tmp_path: Path, text: str | None) -> None:
    file = tmp_path / "users"
    if text is not None:
        file.write_text(text)
    with pytest.raises(SettingError, match="headrace users add NAME --file"):
        HttpUsers("users.file", str(file))


def test_only_the_right_password_of_a_user_with_a_password_is_accepted(tmp_path: Path) -> None:
    file = tmp_path / "users"
    file.write_text(f"alice: {VERIFIER},read\nbob: *,read\n")
    users = HttpUsers("users.file", str(file))
    check(users, "alice", PASSWORD)
    for name, password in (("alice", "wrong"), ("bob", PASSWORD), ("bob", "*"), ("eve", PASSWORD)):
        with pytest.raises(LoginRefused, match="wrong password, or no such user"):
            check(users, name, password)
    users.close()


def test_an_unknown_user_costs_what_a_known_one_costs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, int]] = []

    async def note(
        _: PasswordChecks, mechanism: str, credential: ScramCredential, password: str
    ) -> None:
        asked.append((mechanism, credential.iterations))
        raise LoginRefused("wrong password, or no such user")

    monkeypatch.setattr(PasswordChecks, "check", note)
    file = tmp_path / "users"
    file.write_text(f"alice: {VERIFIER.replace('$100000:', '$50000:')},read\nbob: *,read\n")
    users = HttpUsers("users.file", str(file))
    for name in ("alice", "bob", "eve"):
        with pytest.raises(LoginRefused):
            check(users, name, "wrong")
    assert asked == [("SCRAM-SHA-256", 50_000)] * 3


def test_an_unknown_user_costs_the_same_in_every_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the times before and after a restart tell who exists, if users differ."""
    asked: list[int] = []

    async def note(
        _: PasswordChecks, mechanism: str, credential: ScramCredential, password: str
    ) -> None:
        asked.append(credential.iterations)

    monkeypatch.setattr(PasswordChecks, "check", note)
    file = tmp_path / "users"
    other = VERIFIER.replace("$100000:", "$50000:")
    file.write_text(f"alice: {VERIFIER},read\nbob: {other},read\n")
    for _ in range(2):
        users = HttpUsers("users.file", str(file))
        for number in range(30):
            check(users, f"unknown-{number}", "wrong")
        users.close()
    assert asked[:30] == asked[30:]
    assert set(asked) == {50_000, 100_000}


def test_a_changed_file_counts_and_one_with_a_mistake_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "users"
    write_user(file, "alice", f"{VERIFIER},read")
    users = HttpUsers("users.file", str(file))
    write_user(file, "alice", f"{VERIFIER},admin")
    write_user(file, "bob", "*,read")
    users.renew()
    assert (users.role("alice"), users.role("bob")) == (Role.ADMIN, Role.READ)
    file.write_text("alice: nonsense\n")
    users.renew()
    assert users.role("alice") is Role.ADMIN
    write_user_again = f"bob: {VERIFIER},write\n"
    file.write_text(write_user_again)
    users.renew()
    assert (users.role("alice"), users.role("bob")) == (None, Role.WRITE)


def test_a_password_that_was_right_is_wrong_after_it_has_been_changed(tmp_path: Path) -> None:
    file = tmp_path / "users"
    write_user(file, "alice", f"{VERIFIER},read")
    users = HttpUsers("users.file", str(file))
    check(users, "alice", PASSWORD)
    write_user(file, "alice", f"{verifier_text('another')},read")
    users.renew()
    with pytest.raises(LoginRefused):
        check(users, "alice", PASSWORD)
    check(users, "alice", "another")
    users.close()


def test_a_written_file_keeps_its_other_lines_and_is_for_its_owner_only(tmp_path: Path) -> None:
    file = tmp_path / "users"
    file.write_text(f"# people\nalice: {VERIFIER},read\nbob: *,write\n")
    write_user(file, "alice", None)
    assert file.read_text() == "# people\nbob: *,write\n"
    assert stat.S_IMODE(os.stat(file).st_mode) == 0o600


def test_a_password_may_contain_colons() -> None:
    assert parse_basic(base64.b64encode(b"alice:a:b:")) == ("alice", "a:b:")


@pytest.mark.parametrize(
    "header", [b"", b"!!", base64.b64encode(b"alice"), base64.b64encode(b":x")]
)
def test_a_malformed_header_is_a_value_error(header: bytes) -> None:
    with pytest.raises(ValueError):
        parse_basic(header)
