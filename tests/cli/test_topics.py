"""`headrace topics`, from creation to deletion."""

import uuid

from tests.cli.conftest import Run


def _name() -> str:
    return f"cli-{uuid.uuid4().hex[:10]}"


def test_a_topic_lives_from_create_to_delete(run: Run) -> None:
    name = _name()
    created = run("topics", "create", name, "-p", "2", "--config", "retention.ms=60000", "--json")
    assert (created.code, created.json()) == (0, [{"name": name, "created": True}])
    assert name in [row["name"] for row in run("topics", "list", "--json").rows()]

    shown = run("topics", "describe", name, "--json").document()
    assert shown["name"] == name
    assert shown["configs"] == {"retention.ms": "60000"}
    partitions = shown["partitions"]
    assert isinstance(partitions, list)
    assert [(p["partition"], p["begin"], p["end"]) for p in partitions] == [(0, 0, 0), (1, 0, 0)]
    assert all(p["leader"] in p["isr"] for p in partitions)

    assert run("topics", "delete", name, "--yes", "--json").json() == [
        {"name": name, "deleted": True}
    ]
    gone = run("topics", "describe", name)
    assert (gone.code, gone.out) == (4, b"")


def test_creating_twice_fails_unless_asked_not_to(run: Run, topic: str) -> None:
    again = run("topics", "create", topic)
    assert again.code == 1
    assert topic in again.err
    tolerant = run("topics", "create", topic, "--if-not-exists", "--json")
    assert (tolerant.code, tolerant.json()) == (0, [{"name": topic, "created": False}])


def test_settings_are_set_and_unset_and_the_others_stay(run: Run, topic: str) -> None:
    assert run("topics", "alter", topic, "--set", "segment.ms=70000").code == 0
    assert run("topics", "alter", topic, "--set", "retention.ms=80000").code == 0
    configs = run("topics", "describe", topic, "--json").document()["configs"]
    assert configs == {"segment.ms": "70000", "retention.ms": "80000"}
    assert run("topics", "alter", topic, "--unset", "segment.ms").code == 0
    configs = run("topics", "describe", topic, "--json").document()["configs"]
    assert configs == {"retention.ms": "80000"}


def test_a_bad_setting_changes_nothing_and_exits_with_1(run: Run, topic: str) -> None:
    result = run("topics", "alter", topic, "--set", "cleanup.policy=burn")
    assert result.code == 1
    assert "cleanup.policy" in result.err
    assert run("topics", "describe", topic, "--json").document()["configs"] == {}


def test_altering_nothing_is_bad_usage(run: Run, topic: str) -> None:
    assert run("topics", "alter", topic).code == 2
    assert run("topics", "alter", topic, "--set", "retention.ms").code == 2


def test_partitions_can_only_grow(run: Run, topic: str) -> None:
    grown = run("topics", "add-partitions", topic, "5", "--json")
    assert (grown.code, grown.json()) == (0, {"name": topic, "partitions": 5, "before": 3})
    assert run("topics", "add-partitions", topic, "2").code == 1


def test_delete_needs_yes_without_a_terminal(run: Run, topic: str) -> None:
    result = run("topics", "delete", topic)
    assert result.code == 2
    assert "--yes" in result.err
    assert run("topics", "describe", topic).code == 0


def test_a_misspelt_topic_is_exit_code_4_with_a_suggestion(run: Run, topic: str) -> None:
    result = run("topics", "describe", topic + "x")
    assert result.code == 4
    assert f"Did you mean {topic}?" in result.err or topic in result.err.splitlines()[1]


def test_describe_shows_sizes_offsets_and_settings_to_people(run: Run, topic: str) -> None:
    run("produce", topic, "--partition", "1", stdin=b"x" * 5000 + b"\n")
    shown = run("topics", "describe", topic)
    assert "all defaults" in shown.text
    assert "KiB" in shown.text
    partitions = run("topics", "describe", topic, "--json").document()["partitions"]
    assert isinstance(partitions, list)
    assert partitions[1]["end"] == 1
    assert partitions[1]["size_bytes"] > 5000
    assert partitions[0]["size_bytes"] == 0
