"""Secrets by reference, and what responses hide."""

from pathlib import Path

import pytest

from headrace.connect.secrets import (
    HIDDEN,
    SecretSources,
    UnresolvedSecret,
    mask,
    resolve,
    unmask,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "db.properties").write_text("user=alice\npassword=s3cret\\=x\n")
    (tmp_path / "token").write_text("abc\n")
    return tmp_path


def test_references_are_replaced_wherever_they_stand_in_a_value(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DB_HOST", "db.lan")
    config = {
        "user": f"${{file:{folder}/db.properties:user}}",
        "url": f"x://${{env:DB_HOST}}/?p=${{file:{folder}/db.properties:password}}",
        "token": f"${{dir:{folder}:token}}",
        "again": f"${{directory:{folder}:token}}",
        "plain": "as it is",
    }
    assert resolve(config) == {
        "user": "alice",
        "url": "x://db.lan/?p=s3cret=x",
        "token": "abc",
        "again": "abc",
        "plain": "as it is",
    }


@pytest.mark.parametrize("text", ["${topic}", "${vault:a:b}", "$1:$2", "${", "${a"])
def test_other_texts_with_dollars_stay_as_they_are(text: str) -> None:
    assert resolve({"x": text}) == {"x": text}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("${env:HEADRACE_NO_SUCH_VARIABLE}", "no such environment variable"),
        ("${file:/nowhere/x:y}", "No such file"),
        ("${file:FOLDER/db.properties:nope}", "no such key"),
        ("${dir:FOLDER:nope}", "No such file"),
        ("${dir:FOLDER:..}", "name of a file"),
    ],
)
def test_a_reference_that_leads_nowhere_is_an_error_that_names_it(
    folder: Path, text: str, reason: str
) -> None:
    given = text.replace("FOLDER", str(folder))
    with pytest.raises(UnresolvedSecret, match=reason) as caught:
        resolve({"password": given})
    assert (caught.value.option, given in str(caught.value)) == ("password", True)


def test_the_operator_limits_what_references_may_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_A", "1")
    allowed = SecretSources(("file", "env"), (str(folder / "sub"),), (), "PUBLIC_.*")
    for text in (f"${{file:{folder}/db.properties:user}}", "${env:SECRET_A}"):
        with pytest.raises(UnresolvedSecret, match="does not allow"):
            resolve({"x": text}, allowed)
    link = folder / "sub" / "link"
    link.parent.mkdir()
    link.symlink_to(folder / "db.properties")
    with pytest.raises(UnresolvedSecret, match="does not allow"):
        resolve({"x": f"${{file:{link}:user}}"}, allowed)
    unresolved = f"${{dir:{folder}:token}}"
    assert resolve({"x": unresolved}, allowed) == {"x": unresolved}


def test_literal_passwords_are_hidden_and_references_are_shown() -> None:
    config = {"password": "s3cret", "key": "${env:KEY}", "user": "alice"}
    shown = mask(config, ["password", "key"])
    assert shown == {"password": HIDDEN, "key": "${env:KEY}", "user": "alice"}


def test_a_hidden_password_that_is_sent_back_keeps_the_stored_one() -> None:
    stored = {"password": "s3cret", "user": "alice"}
    assert unmask({"password": HIDDEN, "user": "bob"}, stored) == {
        "password": "s3cret",
        "user": "bob",
    }
    assert unmask({"password": "new"}, stored) == {"password": "new"}
    assert unmask({"password": HIDDEN}, {}) == {"password": HIDDEN}
