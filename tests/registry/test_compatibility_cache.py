"""The caches of compatibility checks and parsed schemas: exact results, bounded memory."""

import json
from collections.abc import Sequence

import pytest

from headrace.registry import decisions, lookup, submission
from headrace.registry.cache import BoundedCache
from headrace.registry.compatibility_cache import (
    CACHE_CHARACTERS,
    LARGEST_CHARACTERS,
    CompatibilityChecks,
)
from headrace.registry.lookup import Comparison
from headrace.registry.parsing import Parser, SchemaSource
from headrace.registry.state import RegistryState
from headrace.registry.work import Answers
from headrace.schemas import formats
from headrace.schemas.interface import ParsedSchema, SchemaDependency
from tests.registry.schemas import AGE, AGE_WITH_DEFAULT, user


class RegisteredSchemas:
    """A state with registered schemas, and compatibility checks against it."""

    def __init__(self) -> None:
        self.parser = Parser()
        self.checks = CompatibilityChecks(self.parser)
        self.state = RegistryState()

    def register(self, subject: str, text: str, **fields: object) -> None:
        wanted = submission.from_json({"schema": text, **fields})
        outcome = decisions.register(
            self.state, Answers(self.parser), subject, wanted, normalize=False
        )
        for change in outcome.changes:
            self.state.replay(change)

    def level(self, level: str) -> None:
        for change in decisions.set_config(self.state, None, {"compatibility": level}).changes:
            self.state.replay(change)

    def comparison(self, subject: str, text: str, **fields: object) -> Comparison:
        wanted = submission.from_json({"schema": text, **fields})
        wanted = submission.resolved(wanted, self.state, subject)
        return lookup.comparison(self.state, subject, wanted)

    def check(self, subject: str, text: str, **fields: object) -> Sequence[str]:
        """The result, verified to be equal to that of an uncached check."""
        compared = self.comparison(subject, text, **fields)
        found = self.checks.problems(compared)
        assert list(found) == compared.run(Parser())
        return found


@pytest.fixture
def registered() -> RegisteredSchemas:
    return RegisteredSchemas()


@pytest.fixture
def parsed_texts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that are parsed during the test."""
    seen: list[str] = []
    real = formats.parse

    def parse(kind: str, text: str, dependencies: Sequence[SchemaDependency] = ()) -> ParsedSchema:
        seen.append(text)
        return real(kind, text, dependencies)

    monkeypatch.setattr(formats, "parse", parse)
    return seen


@pytest.mark.parametrize("new", [user(AGE), user(AGE_WITH_DEFAULT)])
def test_a_repeated_check_parses_nothing_and_returns_the_same_result(
    registered: RegisteredSchemas, parsed_texts: list[str], new: str
) -> None:
    registered.register("users", user())
    first = registered.checks.problems(registered.comparison("users", new))
    parsed_texts.clear()
    assert registered.checks.problems(registered.comparison("users", new)) == first
    assert parsed_texts == []


def test_another_level_is_another_check(registered: RegisteredSchemas) -> None:
    registered.register("users", user(AGE))
    for level, fits in (("BACKWARD", True), ("FORWARD", False), ("FULL", False), ("NONE", True)):
        registered.level(level)
        for _ in range(2):
            assert (not registered.check("users", user())) is fits, level


def test_a_check_after_a_new_version_is_made_against_that_version(
    registered: RegisteredSchemas,
) -> None:
    registered.register("users", user())
    assert "version 1" in registered.check("users", user(AGE))[0]
    registered.register("users", user({"name": "mail", "type": "string", "default": ""}))
    assert "version 2" in registered.check("users", user(AGE))[0]
    registered.level("NONE")
    registered.register("users", user(AGE))
    registered.level("BACKWARD")
    assert not registered.check("users", user(AGE))


def test_the_same_text_with_other_references_is_another_check(
    registered: RegisteredSchemas,
) -> None:
    order = json.dumps(
        {"type": "record", "name": "Order", "fields": [{"name": "by", "type": "shop.User"}]}
    )

    def by(version: int) -> list[dict[str, object]]:
        return [{"name": "shop.User", "subject": "users", "version": version}]

    registered.level("NONE")
    registered.register("users", user())
    registered.register("users", user(AGE))
    registered.register("orders", order, references=by(1))
    registered.level("BACKWARD")
    assert not registered.check("orders", order, references=by(1))
    assert "field 'by.age'" in registered.check("orders", order, references=by(2))[0]
    assert "field 'by.age'" in registered.check("orders", order, references=by(-1))[0]
    registered.level("NONE")
    registered.register("users", user())
    registered.register("users", user(AGE_WITH_DEFAULT))
    registered.level("BACKWARD")
    assert not registered.check("orders", order, references=by(-1))


def test_the_same_text_as_another_type_is_another_check(registered: RegisteredSchemas) -> None:
    text = '{"type": "string"}'
    registered.register("names", text)
    assert not registered.check("names", text)
    assert (
        "the type of the new schema is JSON"
        in registered.check("names", text, schemaType="JSON")[0]
    )


def test_checks_of_new_schemas_do_not_evict_the_registered_ones(
    parsed_texts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.registry.parsing.CACHE_CHARACTERS", 2000)
    registered = RegisteredSchemas()
    for subject in ("users", "others"):
        registered.register(subject, user(name=subject))
        registered.check(subject, user(name=subject))
    texts = [user({**AGE_WITH_DEFAULT, "name": f"age_{n}"}, name="users") for n in range(50)]
    parsed_texts.clear()
    for text in texts:
        registered.checks.problems(registered.comparison("users", text))
    new = user(AGE_WITH_DEFAULT, name="others")
    registered.checks.problems(registered.comparison("others", new))
    assert parsed_texts == [*texts, new]


def test_a_check_with_long_messages_is_not_cached() -> None:
    """Short schemas, each message of which lists all members of a union."""

    def members(letter: str) -> str:
        return json.dumps([{"type": "record", "name": f"{letter}{n}", "fields": []}
                           for n in range(400)])  # fmt: skip

    registered = RegisteredSchemas()
    registered.register("members", members("A"))
    compared = registered.comparison("members", members("B"))
    assert compared.characters < LARGEST_CHARACTERS
    messages = registered.checks.problems(compared)
    assert sum(map(len, messages)) > LARGEST_CHARACTERS
    assert registered.checks.problems(compared) is not messages
    small = registered.comparison("members", '"string"')
    assert registered.checks.problems(small) is registered.checks.problems(small)


def test_the_cache_is_bounded_and_evicts_the_least_recently_used_entries() -> None:
    cache: BoundedCache[str, int] = BoundedCache(100, 40)
    for number in range(5):
        cache.put(f"key {number}", number, 30)
        assert cache.get("key 0") == 0
        assert cache.characters <= 100
    assert [cache.get(f"key {number}") for number in range(5)] == [0, None, None, 3, 4]
    cache.put("too large", 9, 41)
    assert cache.get("too large") is None
    cache.put("key 4", 4, 30)
    assert cache.characters == 90
    assert LARGEST_CHARACTERS < CACHE_CHARACTERS


def test_a_schema_with_large_references_is_parsed_but_not_cached() -> None:
    doc = "x" * 300_000
    large = [
        SchemaDependency(name, json.dumps({"type": "fixed", "name": name, "size": 1, "doc": doc}))
        for name in ("A", "B")
    ]
    parser = Parser()
    both, one = (
        SchemaSource("AVRO", '["A"]', tuple(large)),
        SchemaSource("AVRO", '["A"]', tuple(large[:1])),
    )
    assert parser.parse(one) is parser.parse(one)
    assert parser.parse(both) is not parser.parse(both)
