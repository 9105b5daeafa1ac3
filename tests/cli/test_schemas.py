"""`headrace schemas`, and typed values in `produce` and `consume`, against a real registry."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.registry.schemas import AGE, AGE_WITH_DEFAULT, user
from tests.support.headrace_registry import HeadraceRegistry


@pytest.fixture(scope="session")
def registry(
    bootstrap: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[HeadraceRegistry]:
    with HeadraceRegistry(bootstrap, tmp_path_factory.mktemp("registry")) as running:
        yield running


@pytest.fixture
def typed(run: Run, registry: HeadraceRegistry, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command that knows the registry."""
    monkeypatch.setenv("HEADRACE_REGISTRY", registry.url)
    return run


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "user.avsc"
    made.write_text(user())
    return made


def test_a_schema_is_registered_listed_shown_and_deleted(
    typed: Run, topic: str, file: Path
) -> None:
    subject = f"{topic}-value"
    made = typed("schemas", "register", subject, str(file), "--json").document()
    assert (made["subject"], made["version"]) == (subject, 1)
    file.write_text(user(AGE_WITH_DEFAULT))
    assert typed("schemas", "register", subject, str(file)).code == 0
    listed = typed("schemas", "list", "--prefix", subject, "--json").rows()
    assert listed == [{**listed[0], "subject": subject, "versions": [1, 2], "type": "AVRO"}]
    assert subject in typed("schemas", "list", "--prefix", topic).text
    shown = typed("schemas", "get", subject, "--version", "1")
    assert json.loads(shown.text) == json.loads(user())
    by_id = typed("schemas", "get", "--id", str(made["id"])).text
    assert json.loads(by_id) == json.loads(user())
    assert typed("schemas", "delete", subject, "--version", "1", "--yes").code == 0
    gone = typed("schemas", "delete", subject, "--yes", "--json").document()
    assert gone["versions"] == [2]
    missing = typed("schemas", "get", subject)
    assert missing.code == 4
    assert subject in missing.err


def test_an_incompatible_schema_is_explained_by_its_field(
    typed: Run, topic: str, file: Path
) -> None:
    subject = f"{topic}-value"
    assert typed("schemas", "check", subject, str(file)).code == 0
    typed("schemas", "register", subject, str(file))
    file.write_text(user(AGE))
    for command in ("check", "register"):
        told = typed("schemas", command, subject, str(file))
        assert told.code == 1
        assert "field 'age'" in told.err
    told = typed("schemas", "check", subject, str(file), "--json")
    assert (told.code, told.document()["compatible"]) == (1, False)
    assert typed("schemas", "config", subject, "--compatibility", "none").code == 0
    assert typed("schemas", "check", subject, str(file)).code == 0
    shown = typed("schemas", "config", subject, "--json").document()
    assert shown == {"compatibilityLevel": "NONE"}
    assert typed("schemas", "config", subject, "--unset").code == 0
    assert "BACKWARD" in typed("schemas", "config", subject).text
    assert typed("schemas", "config", subject, "--compatibility", "odd").code == 1


def test_a_diff_shows_the_line_that_changed(typed: Run, topic: str, file: Path) -> None:
    subject = f"{topic}-value"
    typed("schemas", "register", subject, str(file))
    assert typed("schemas", "diff", subject).code == 2
    file.write_text(user(AGE_WITH_DEFAULT))
    typed("schemas", "register", subject, str(file))
    shown = typed("schemas", "diff", subject).text.splitlines()
    assert shown[:2] == [f"--- {subject} version 1", f"+++ {subject} version 2"]
    assert any(line.startswith("+") and '"age"' in line for line in shown)


SCHEMAS = {
    "user.avsc": user(AGE_WITH_DEFAULT),
    "user.json": json.dumps(
        {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}}}
    ),
    "user.proto": 'syntax = "proto3"; message User { string name = 1; int32 age = 2; }',
    "born.proto": """syntax = "proto3"; import "google/type/date.proto";
        import "confluent/meta.proto";
        message User { string name = 1; int32 age = 2; google.type.Date born = 3; }""",
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_typed_values_are_written_and_shown(
    typed: Run, topic: str, tmp_path: Path, name: str
) -> None:
    file = tmp_path / name
    file.write_text(SCHEMAS[name])
    line = b'{"name": "ann", "age": 7}\n'
    assert typed("produce", topic, "--schema", str(file), stdin=line).code == 0
    assert typed("produce", topic, "--schema", "latest", stdin=line).code == 0
    raw = typed("consume", topic, "--format", "raw").out
    assert raw[:2] == b"\x00\x00"
    shown = typed("consume", topic, "--schema").text.splitlines()
    assert [json.loads(each) for each in shown] == [{"name": "ann", "age": 7}] * 2
    bad = typed("produce", topic, "--schema", "latest", stdin=b'{"name": "bob", "age": "x"}\n')
    assert bad.code == 1
    assert "age" in bad.err


def test_a_registry_that_is_not_there_is_named(here: Run) -> None:
    told = here("schemas", "list", "--registry", "http://127.0.0.1:9")
    assert told.code == 3
    assert "127.0.0.1:9" in told.err
    assert here("schemas", "list", "--registry", "nonsense").code == 2


def test_a_file_without_a_known_suffix_needs_a_type(typed: Run, tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text(user())
    assert typed("schemas", "check", "x", str(tmp_path / "x.txt")).code == 2
    assert typed("schemas", "check", "x", str(tmp_path / "none.avsc")).code == 2
    assert typed("schemas", "check", "x", str(tmp_path / "x.txt"), "--type", "avro").code == 0
