"""What a write does, without Kafka and without HTTP."""

import json
from collections.abc import Callable
from functools import partial

import pytest

from headrace.registry import compatibility, decisions, submission
from headrace.registry.decisions import Decision
from headrace.registry.failures import RegistryError
from headrace.registry.parsing import Parser
from headrace.registry.records import decode, encode
from headrace.registry.state import RegistryState
from headrace.registry.work import Answers
from tests.registry.schemas import AGE, AGE_WITH_DEFAULT, user


class Desk:
    """A state, and the decisions applied to it as the registry applies them: by replay."""

    def __init__(self) -> None:
        self.state = RegistryState()
        self.log: list[tuple[bytes, bytes | None]] = []
        self._parser = Parser()

    def apply(self, outcome: Decision) -> object:
        for change in outcome.changes:
            self.log.append(encode(change))
            again = decode(*self.log[-1])
            assert again is not None
            self.state.replay(again)
        return outcome.answer

    def register(self, subject: str, text: str, **fields: object) -> dict[str, object]:
        wanted = submission.from_json({"schema": text, **fields})
        answer = self.apply(
            decisions.register(self.state, Answers(self._parser), subject, wanted, normalize=False)
        )
        assert isinstance(answer, dict)
        return answer

    def delete(self, subject: str, *, permanent: bool = False) -> object:
        return self.apply(decisions.delete_subject(self.state, subject, permanent=permanent))

    def delete_version(self, subject: str, number: int, *, permanent: bool = False) -> object:
        return self.apply(
            decisions.delete_version(self.state, subject, number, permanent=permanent)
        )

    def config(self, scope: str | None, **fields: object) -> object:
        return self.apply(decisions.set_config(self.state, scope, fields))

    def mode(self, scope: str | None, mode: str, *, force: bool = False) -> object:
        return self.apply(decisions.set_mode(self.state, scope, {"mode": mode}, force=force))

    def compacted(self) -> "Desk":
        """Another registry that reads the topic after it was compacted."""
        latest = {key: position for position, (key, _) in enumerate(self.log)}
        other = Desk()
        for position, (key, value) in enumerate(self.log):
            change = decode(key, value) if latest[key] == position else None
            if change is not None:
                other.state.replay(change)
        return other


@pytest.fixture
def desk() -> Desk:
    return Desk()


def code_of(action: Callable[[], object]) -> int:
    with pytest.raises(RegistryError) as caught:
        action()
    return caught.value.code


def test_one_schema_has_one_id_under_all_subjects_and_spellings(desk: Desk) -> None:
    first = desk.register("a", user(AGE))
    spaced = json.dumps(json.loads(user(AGE)), indent=2)
    assert desk.register("b", spaced)["id"] == first["id"] == 1
    assert desk.register("a", user(AGE))["version"] == 1
    assert desk.register("c", user())["id"] == 2
    assert len(desk.log) == 3


def test_an_incompatible_schema_is_refused_and_the_message_names_the_field(desk: Desk) -> None:
    desk.register("a", user())
    with pytest.raises(RegistryError) as caught:
        desk.register("a", user(AGE))
    assert caught.value.code == 409
    assert "field 'age'" in caught.value.message
    assert "version 1" in caught.value.message
    assert desk.register("a", user(AGE_WITH_DEFAULT))["version"] == 2


LEVELS = {
    # level: may a field be added without a default, with one; removed without one, with one
    "NONE": (True, True, True, True),
    "BACKWARD": (False, True, True, True),
    "FORWARD": (True, True, False, True),
    "FULL": (False, True, False, True),
}


@pytest.mark.parametrize("level", compatibility.LEVELS)
def test_each_level_allows_what_it_should(level: str) -> None:
    cases = (
        (user(), user(AGE)),
        (user(), user(AGE_WITH_DEFAULT)),
        (user(AGE), user()),
        (user(AGE_WITH_DEFAULT), user()),
    )
    for (old, new), allowed in zip(cases, LEVELS[level.partition("_")[0]], strict=True):
        desk = Desk()
        desk.config("a", compatibility=level)
        desk.register("a", old)
        if allowed:
            assert desk.register("a", new)["version"] == 2
        else:
            assert code_of(partial(desk.register, "a", new)) == 409


def test_only_a_transitive_level_looks_further_back_than_the_last_version() -> None:
    # age without a default may follow age with one, but not the version that had no age.
    for level, allowed in (("BACKWARD", True), ("BACKWARD_TRANSITIVE", False)):
        desk = Desk()
        desk.config(None, compatibility=level)
        desk.register("a", user())
        desk.register("a", user(AGE_WITH_DEFAULT))
        if allowed:
            assert desk.register("a", user(AGE))["version"] == 3
        else:
            assert code_of(partial(desk.register, "a", user(AGE))) == 409


def test_deletion_is_soft_first_and_then_for_good(desk: Desk) -> None:
    desk.register("a", user())
    desk.register("a", user(AGE_WITH_DEFAULT))
    assert code_of(lambda: desk.delete("a", permanent=True)) == 40405
    assert code_of(lambda: desk.delete_version("a", 1, permanent=True)) == 40407
    assert desk.delete_version("a", 1) == 1
    assert code_of(lambda: desk.delete_version("a", 1)) == 40406
    assert desk.delete("a") == [2]
    assert code_of(lambda: desk.delete("a")) == 40404
    assert desk.state.by_id(".", 1) is not None, "records with the id must stay readable"
    assert desk.delete("a", permanent=True) == [1, 2]
    assert desk.state.by_id(".", 1) is None
    assert code_of(lambda: desk.delete("a")) == 40401
    assert code_of(lambda: desk.delete_version("b", 1)) == 40401


def test_an_id_is_never_given_twice_even_after_deletion_and_compaction(desk: Desk) -> None:
    desk.register("a", user())
    desk.register("a", user(AGE_WITH_DEFAULT))
    desk.delete("a")
    desk.delete("a", permanent=True)
    other = desk.compacted()
    assert other.register("b", '"string"')["id"] == 3


def test_a_soft_deleted_version_may_be_registered_again_as_a_new_version(desk: Desk) -> None:
    first = desk.register("a", user())
    desk.delete("a")
    again = desk.register("a", user())
    assert (again["id"], again["version"]) == (first["id"], 2)
    assert [each.version for each in desk.state.versions("a", deleted=True)] == [2]


def test_a_schema_that_others_refer_to_cannot_be_deleted(desk: Desk) -> None:
    desk.register("address", user(name="Address"))
    reference = {"name": "shop.Address", "subject": "address", "version": 1}
    order = json.dumps(
        {"type": "record", "name": "Order", "fields": [{"name": "to", "type": "shop.Address"}]}
    )
    assert code_of(lambda: desk.register("order", order)) == 42201
    desk.register("order", order, references=[reference])
    assert code_of(lambda: desk.delete("address")) == 42206
    with pytest.raises(RegistryError) as caught:
        desk.delete_version("address", 1)
    assert caught.value.code == 42206
    # Character for character as Confluent writes it.
    assert caught.value.message == (
        "One or more references exist to the schema "
        "{magic=1,keytype=SCHEMA,subject=address,version=1}."
    )
    desk.delete("order")
    assert desk.delete("address") == [1]
    assert code_of(lambda: desk.delete("address", permanent=True)) == 42206
    desk.delete("order", permanent=True)
    assert desk.delete("address", permanent=True) == [1]


def test_a_reference_to_the_latest_version_is_kept_with_its_number(desk: Desk) -> None:
    desk.register("address", user(name="Address"))
    order = '{"type":"record","name":"Order","fields":[{"name":"to","type":"shop.Address"}]}'
    reference = {"name": "shop.Address", "subject": "address", "version": -1}
    made = desk.register("order", order, references=[reference])
    assert made["references"] == [{**reference, "version": 1}]


def test_a_reference_to_nothing_is_refused(desk: Desk) -> None:
    missing = {"name": "x", "subject": "nowhere", "version": 1}
    assert code_of(lambda: desk.register("a", user(), references=[missing])) == 42201


def test_a_reference_to_a_schema_of_another_type_is_refused(desk: Desk) -> None:
    desk.register("avro", user())
    reference = {"name": "x", "subject": "avro", "version": 1}
    with pytest.raises(RegistryError, match="type AVRO"):
        desk.register("a", "{}", schemaType="JSON", references=[reference])


def test_a_subject_does_not_change_the_type_of_its_schemas(desk: Desk) -> None:
    desk.register("a", user())
    with pytest.raises(RegistryError, match="the type of the new schema is JSON"):
        desk.register("a", "{}", schemaType="JSON")


def test_contexts_have_ids_of_their_own(desk: Desk) -> None:
    assert desk.register("a", user())["id"] == 1
    assert desk.register(":.other:a", '"string"')["id"] == 1
    assert desk.register(":.other:b", user())["id"] == 2
    desk.config(":.other:", compatibility="NONE")
    assert desk.state.config(":.other:a")["compatibilityLevel"] == "NONE"
    assert desk.state.config("a")["compatibilityLevel"] == "BACKWARD"


def test_modes_close_and_open_subjects(desk: Desk) -> None:
    desk.register("a", user())
    desk.mode("a", "READONLY")
    assert code_of(lambda: desk.register("a", user(AGE_WITH_DEFAULT))) == 42205
    assert code_of(lambda: desk.delete("a")) == 42205
    assert code_of(lambda: desk.config("a", compatibility="NONE")) == 42205
    assert code_of(lambda: desk.mode("a", "WRITEONLY")) == 42204
    assert code_of(lambda: desk.register("b", user(), id=5)) == 42205
    desk.apply(decisions.delete_mode(desk.state, "a", recursive=False))
    assert desk.register("a", user(AGE_WITH_DEFAULT))["version"] == 2


def test_an_import_keeps_ids_and_versions(desk: Desk) -> None:
    desk.register("other", user())
    assert code_of(lambda: desk.mode(None, "IMPORT")) == 42205
    desk.mode("a", "IMPORT")
    made = desk.register("a", user(AGE), id=40, version=3)
    assert (made["id"], made["version"]) == (40, 3)
    assert code_of(lambda: desk.register("a", '"string"', id=1, version=4)) == 42207
    assert code_of(lambda: desk.register("a", '"string"')) == 42205
    assert desk.register("b", '"string"')["id"] == 41


def test_settings_add_metadata_and_versions_inherit_it(desk: Desk) -> None:
    desk.config("a", defaultMetadata={"properties": {"owner": "ann", "team": "x"}})
    made = desk.register("a", user(), metadata={"properties": {"owner": "bob"}})
    assert made["metadata"] == {"properties": {"owner": "bob", "team": "x"}}
    assert desk.register("a", user())["version"] == 1
    inherited = desk.register("a", user(AGE_WITH_DEFAULT))
    assert inherited["metadata"] == {"properties": {"owner": "bob", "team": "x"}}


def test_a_compatibility_group_begins_afresh(desk: Desk) -> None:
    desk.config("a", compatibilityGroup="major")
    desk.register("a", user(), metadata={"properties": {"major": "1"}})
    fresh = {"properties": {"major": "2"}}
    assert desk.register("a", '"string"', metadata=fresh)["version"] == 2
    assert code_of(lambda: desk.register("a", '"int"', metadata=fresh)) == 409


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ([], 422),
        ({}, 42201),
        ({"schema": 5}, 42201),
        ({"schema": " "}, 42201),
        ({"schema": '"int"', "schemaType": "XML"}, 42201),
        ({"schema": '"int"', "references": {}}, 422),
        ({"schema": '"int"', "references": [{"name": "x"}]}, 422),
        ({"schema": '"int"', "references": [{"name": "x", "subject": "y", "version": 2**40}]}, 422),
        ({"schema": '"int"', "metadata": []}, 422),
        ({"schema": '"int"', "version": "1"}, 422),
        ({"schema": '"int"', "id": True}, 422),
        ({"schema": '"int"', "version": 7}, 42201),
        ({"schema": '"int"' + " " * 500_001}, 42209),
    ],
)
def test_a_body_that_is_no_schema_has_a_code_of_its_own(
    desk: Desk, body: object, code: int
) -> None:
    def register() -> None:
        wanted = submission.from_json(body)
        desk.apply(decisions.register(desk.state, Answers(Parser()), "a", wanted, normalize=False))

    assert code_of(register) == code
    assert desk.log == []


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ([], 422),
        ({"compatibility": "SOMETIMES"}, 42203),
        ({"compatibility": 5}, 42203),
        ({"normalize": "yes"}, 422),
        ({"defaultMetadata": "x"}, 422),
    ],
)
def test_settings_that_make_no_sense_are_refused(desk: Desk, body: object, code: int) -> None:
    assert code_of(lambda: decisions.set_config(desk.state, None, body)) == code


def test_settings_that_are_not_named_stay(desk: Desk) -> None:
    desk.config("a", compatibility="FULL", normalize=True)
    assert desk.config("a", compatibility="none") == {"compatibility": "NONE", "normalize": True}
    assert desk.config("a", normalize=None) == {"compatibility": "NONE"}


def test_a_registry_that_replays_the_log_agrees_on_everything(desk: Desk) -> None:
    desk.register("a", user())
    desk.register("a", user(AGE_WITH_DEFAULT))
    desk.register(":.c:a", '"string"')
    desk.delete_version("a", 1)
    desk.config("a", compatibility="FULL")
    desk.mode("b", "READONLY")
    desk.delete(":.c:a")
    for other in (desk.compacted().state, desk.state.copy()):
        assert other.subjects == desk.state.subjects
        assert other.configs == desk.state.configs
        assert other.modes == desk.state.modes
        assert other.guids == desk.state.guids
        assert other.highest_id(".") == desk.state.highest_id(".")
