"""What is remembered of checks and schemas: never another's answer, and never too much."""

import json
from collections.abc import Sequence

import pytest

from headrace.registry import decisions, formats, lookup, submission
from headrace.registry.formats.parsed import Dependency, Parsed
from headrace.registry.kept import Kept
from headrace.registry.lookup import Comparison
from headrace.registry.parsing import Parser, Source
from headrace.registry.state import State
from headrace.registry.verdicts import KEPT_CHARACTERS, LARGEST_CHARACTERS, Verdicts
from headrace.registry.work import Answers
from tests.registry.schemas import AGE, AGE_WITH_DEFAULT, user


class Desk:
    """Registered schemas, and one who checks others against them."""

    def __init__(self) -> None:
        self.parser = Parser()
        self.verdicts = Verdicts(self.parser)
        self.state = State()

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
        """The answer, which must be the one that nobody remembers."""
        compared = self.comparison(subject, text, **fields)
        found = self.verdicts.problems(compared)
        assert list(found) == compared.run(Parser())
        return found


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
def parsed_texts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every text that is parsed from now on."""
    seen: list[str] = []
    real = formats.parse

    def parse(kind: str, text: str, dependencies: Sequence[Dependency] = ()) -> Parsed:
        seen.append(text)
        return real(kind, text, dependencies)

    monkeypatch.setattr(formats, "parse", parse)
    return seen


@pytest.mark.parametrize("new", [user(AGE), user(AGE_WITH_DEFAULT)])
def test_a_check_that_is_made_again_parses_nothing_and_says_the_same(
    desk: Desk, parsed_texts: list[str], new: str
) -> None:
    desk.register("users", user())
    first = desk.verdicts.problems(desk.comparison("users", new))
    parsed_texts.clear()
    assert desk.verdicts.problems(desk.comparison("users", new)) == first
    assert parsed_texts == []


def test_another_level_is_another_check(desk: Desk) -> None:
    desk.register("users", user(AGE))
    for level, fits in (("BACKWARD", True), ("FORWARD", False), ("FULL", False), ("NONE", True)):
        desk.level(level)
        for _ in range(2):
            assert (not desk.check("users", user())) is fits, level


def test_a_verdict_ends_with_the_version_that_it_was_about(desk: Desk) -> None:
    desk.register("users", user())
    assert "version 1" in desk.check("users", user(AGE))[0]
    desk.register("users", user({"name": "mail", "type": "string", "default": ""}))
    assert "version 2" in desk.check("users", user(AGE))[0]
    desk.level("NONE")
    desk.register("users", user(AGE))
    desk.level("BACKWARD")
    assert not desk.check("users", user(AGE))


def test_the_same_text_with_other_references_is_another_check(desk: Desk) -> None:
    order = json.dumps(
        {"type": "record", "name": "Order", "fields": [{"name": "by", "type": "shop.User"}]}
    )

    def by(version: int) -> list[dict[str, object]]:
        return [{"name": "shop.User", "subject": "users", "version": version}]

    desk.level("NONE")
    desk.register("users", user())
    desk.register("users", user(AGE))
    desk.register("orders", order, references=by(1))
    desk.level("BACKWARD")
    assert not desk.check("orders", order, references=by(1))
    assert "field 'by.age'" in desk.check("orders", order, references=by(2))[0]
    assert "field 'by.age'" in desk.check("orders", order, references=by(-1))[0]
    desk.level("NONE")
    desk.register("users", user())
    desk.register("users", user(AGE_WITH_DEFAULT))
    desk.level("BACKWARD")
    assert not desk.check("orders", order, references=by(-1))


def test_the_same_text_as_another_type_is_another_check(desk: Desk) -> None:
    text = '{"type": "string"}'
    desk.register("names", text)
    assert not desk.check("names", text)
    assert "its type is JSON" in desk.check("names", text, schemaType="JSON")[0]


def test_checks_of_new_schemas_do_not_push_out_the_registered_ones(
    parsed_texts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.registry.parsing.KEPT_CHARACTERS", 2000)
    desk = Desk()
    for subject in ("users", "others"):
        desk.register(subject, user(name=subject))
        desk.check(subject, user(name=subject))
    texts = [user({**AGE_WITH_DEFAULT, "name": f"age_{n}"}, name="users") for n in range(50)]
    parsed_texts.clear()
    for text in texts:
        desk.verdicts.problems(desk.comparison("users", text))
    new = user(AGE_WITH_DEFAULT, name="others")
    desk.verdicts.problems(desk.comparison("others", new))
    assert parsed_texts == [*texts, new]


def test_a_check_with_much_to_say_is_not_remembered() -> None:
    """Short schemas, each message of which lists all members of a union."""

    def members(letter: str) -> str:
        return json.dumps([{"type": "record", "name": f"{letter}{n}", "fields": []}
                           for n in range(400)])  # fmt: skip

    desk = Desk()
    desk.register("members", members("A"))
    compared = desk.comparison("members", members("B"))
    assert compared.characters < LARGEST_CHARACTERS
    messages = desk.verdicts.problems(compared)
    assert sum(map(len, messages)) > LARGEST_CHARACTERS
    assert desk.verdicts.problems(compared) is not messages
    small = desk.comparison("members", '"string"')
    assert desk.verdicts.problems(small) is desk.verdicts.problems(small)


def test_what_is_kept_has_a_bound_and_what_was_used_last_stays() -> None:
    kept: Kept[str, int] = Kept(100, 40)
    for number in range(5):
        kept.put(f"key {number}", number, 30)
        assert kept.get("key 0") == 0
        assert kept.characters <= 100
    assert [kept.get(f"key {number}") for number in range(5)] == [0, None, None, 3, 4]
    kept.put("too large", 9, 41)
    assert kept.get("too large") is None
    kept.put("key 4", 4, 30)
    assert kept.characters == 90
    assert LARGEST_CHARACTERS < KEPT_CHARACTERS


def test_a_schema_with_large_references_is_parsed_but_not_kept() -> None:
    doc = "x" * 300_000
    large = [
        Dependency(name, json.dumps({"type": "fixed", "name": name, "size": 1, "doc": doc}))
        for name in ("A", "B")
    ]
    parser = Parser()
    both, one = Source("AVRO", '["A"]', tuple(large)), Source("AVRO", '["A"]', tuple(large[:1]))
    assert parser.parse(one) is parser.parse(one)
    assert parser.parse(both) is not parser.parse(both)
