"""What validation says about a configuration."""

import asyncio
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from headrace.connect import PermanentError, Sink, Source
from headrace.connect.converters.options import JSON
from headrace.connect.plugins import Plugin, Plugins
from headrace.connect.secrets import EVERYTHING
from headrace.connect.validation import Validation, validate
from tests.connect.stand_in import PLUGINS

STRING = "org.apache.kafka.connect.storage.StringConverter"
LOCKED = {"connector.class": "LockedSink", "name": "c", "topics": "t", "url": "u", "password": "p"}


def checked(config: dict[str, str | None], timeout_s: float = 30) -> Validation:
    plugin = Plugins(PLUGINS).find(str(config["connector.class"]))
    return asyncio.run(validate(plugin, config, {}, EVERYTHING, timeout_s))


def errors(config: dict[str, str | None]) -> dict[str, list[str]]:
    return {each.name: each.errors for each in checked(config).values if each.errors}


def test_a_valid_configuration_has_no_errors() -> None:
    assert errors({**LOCKED}) == {}


@pytest.mark.parametrize(
    ("change", "option", "message"),
    [
        ({"tasks.max": "x"}, "tasks.max", "Not a number of type INT"),
        ({"tasks.max": "0"}, "tasks.max", "Value must be at least 1"),
        ({"tasks.max": "99999999999"}, "tasks.max", "Not a number of type INT"),
        ({"tasks.max.enforce": "yes"}, "tasks.max.enforce", "either true or false"),
        ({"errors.tolerance": "x"}, "errors.tolerance", "String must be one of: none, all"),
        ({"name": ""}, "name", "String may not be empty"),
        ({"name": "a\nb"}, "name", "may not contain control sequences"),
        ({"transforms": "a,a"}, "transforms", "Duplicate alias provided."),
        ({"mode": "delete"}, "mode", "expected one of insert, upsert"),
        ({"mode": None}, "mode", "Null value can not be supplied as the configuration value."),
        ({"topics": ""}, "topics", "Must configure one of topics or topics.regex"),
        ({"topics.regex": "t.*"}, "topics", "mutually exclusive"),
        ({"errors.deadletterqueue.topic.name": "t"}, "topics", "The DLQ topic 't' may not be"),
        ({"mod": "insert"}, "mod", "did you mean mode?"),
        ({"url": "${env:HEADRACE_NO_SUCH}"}, "url", "no such environment variable"),
        ({"password": "wrong"}, "password", "the server refuses this password"),
    ],
)
def test_an_error_names_its_option(
    change: dict[str, str | None], option: str, message: str
) -> None:
    found = errors({**LOCKED, **change})
    assert message in " ".join(found[option])


def test_required_options_that_are_missing_are_errors() -> None:
    found = errors({"connector.class": "LockedSink", "topics": "t"})
    assert set(found) == {"name", "url", "password"}
    assert found["url"] == ['Missing required configuration "url" which has no default value.']


def test_options_of_clients_and_ignored_ones_are_accepted() -> None:
    config: dict[str, str | None] = {
        "connector.class": "FileStreamSink",
        "name": "c",
        "topics": "t",
        "consumer.override.max.poll.records": "1",
        "old.option": "1",
    }
    assert errors(config) == {}


def test_a_password_is_never_shown_and_neither_is_a_secret_behind_a_reference(
    tmp_path: Path,
) -> None:
    (tmp_path / "secret").write_text("t0psecret")
    reference = f"${{dir:{tmp_path}:secret}}"
    found = checked({**LOCKED, "password": "hunter2", "mode": reference})
    text = str(found.as_json())
    assert "hunter2" not in text
    assert "t0psecret" not in text
    assert reference in text
    assert len(found.errors) == 1


def test_a_check_that_hangs_or_fails_is_an_error_and_not_the_end_of_the_request() -> None:
    class Slow(Sink):
        def check(self) -> None:
            time.sleep(1)

    class Broken(Sink):
        def check(self) -> None:
            raise ValueError("nobody expects this")

    class Refused(Sink):
        def check(self) -> None:
            raise PermanentError("no such table")

    config = {"connector.class": "x", "name": "c", "topics": "t"}
    for kind, message in ((Slow, "did not end"), (Broken, "nobody expects"), (Refused, "no such")):
        plugin = Plugin("x", kind, "1")
        found = asyncio.run(validate(plugin, config, {}, EVERYTHING, 0.1))
        assert message in found.errors[0]


@pytest.mark.parametrize(
    ("change", "option", "message"),
    [
        ({"value.converter": "com.example.Nope"}, "value.converter", "could not be found"),
        (
            {
                "value.converter": "org.apache.kafka.connect.json.JsonConverter",
                "value.converter.schema.enable": "true",
            },
            "value.converter.schema.enable",
            "did you mean value.converter.schemas.enable?",
        ),
        (
            {"transforms": "a", "transforms.a.type": "com.example.Nope"},
            "transforms.a.type",
            "Class com.example.Nope could not be found.",
        ),
        ({"transforms": "a"}, "transforms.a.type", "Missing required configuration"),
    ],
)
def test_converters_and_transformations_are_validated_with_their_options(
    change: dict[str, str | None], option: str, message: str
) -> None:
    assert message in " ".join(errors({**LOCKED, **change})[option])


def test_a_header_converter_of_kafka_is_accepted() -> None:
    header = "org.apache.kafka.connect.storage.SimpleHeaderConverter"
    assert errors({**LOCKED, "header.converter": header}) == {}


@pytest.mark.parametrize("once", [True, False])
def test_a_source_that_may_repeat_records_is_refused_where_exactly_once_is_required(
    once: bool,
) -> None:
    class Given(Source):
        def __init__(self, config: Mapping[str, str]) -> None:
            super().__init__(config)
            self.once = once

    for level, is_refused in (("REQUIRED", not once), ("required", not once), ("requested", False)):
        config = {"connector.class": "x", "name": "c", "exactly.once.support": level}
        found = asyncio.run(validate(Plugin("x", Given, "1"), config, {}, EVERYTHING))
        refused = {each.name: each.errors for each in found.values if each.errors}
        sentence = (
            "The connector does not support exactly-once semantics with the provided configuration."
        )
        assert refused == ({"exactly.once.support": [sentence]} if is_refused else {})


def test_a_check_sees_the_converters_that_the_connector_gets_from_the_worker() -> None:
    seen: list[Mapping[str, str]] = []

    class Looking(Sink):
        def check(self) -> None:
            seen.append(self.config)

    config = {"connector.class": "x", "name": "c", "topics": "t", "key.converter": STRING}
    defaults = {
        "key.converter": JSON,
        "key.converter.schemas.enable": "true",
        "value.converter": JSON,
        "value.converter.schemas.enable": "false",
    }
    found = asyncio.run(validate(Plugin("x", Looking, "1"), config, defaults, EVERYTHING))
    assert found.errors == []
    inherited = {"value.converter": JSON, "value.converter.schemas.enable": "false"}
    assert seen == [{**config, **inherited}]
