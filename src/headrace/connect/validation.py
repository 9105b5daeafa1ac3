"""Validates the configuration of a connector, with the answer of Kafka Connect: ConfigInfos.

Other than there, an option that nothing knows is an error, and the plug-in's own `check` runs.
"""

import asyncio
import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from headrace.connect import converters, transforms
from headrace.connect.config_keys import ConfigKey, invalid, key_of, missing
from headrace.connect.plugin import Connector, Option, OptionError, PermanentError, Source
from headrace.connect.plugins import Plugin
from headrace.connect.secrets import (
    EVERYTHING,
    SecretSources,
    UnresolvedSecret,
    is_reference,
    resolve,
)
from headrace.connect.worker_options import PREFIXES, worker_options

CHECK_TIMEOUT_S = 30.0
CONVERTERS = ("key.converter", "value.converter", "header.converter")
HEADER_CONVERTERS = ("org.apache.kafka.connect.storage.SimpleHeaderConverter",)
EXACTLY_ONCE = "exactly.once.support"
STRATEGY = "subject.name.strategy"
"""An option of converters that Confluent's have with `key.` and `value.` before it."""

CLIENT_SECRETS = ("password", "sasl.jaas.config", "ssl.keystore.key")
"""How the names of Kafka clients' settings end whose values are secrets."""

_TYPE = ConfigKey("type", "CLASS", None, "The class of this step.", True, "HIGH", width="LONG")
_CONDITION = (
    ConfigKey("predicate", "STRING", None, "The predicate that selects records."),
    ConfigKey("negate", "BOOLEAN", "false", "Whether to select the other records."),
)
_VERSION = ConfigKey(
    "plugin.version", "STRING", None, "Has no effect.", False, "HIGH", width="LONG"
)


@dataclass(slots=True)
class OptionValue:
    """A key with its value and the errors that were found."""

    name: str
    key: ConfigKey | None
    value: str | None
    errors: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, object]:
        """`ConfigInfo`."""
        choices = self.key.option.choices if self.key and self.key.option else ()
        return {
            "definition": None if self.key is None else self.key.definition(),
            "value": {
                "name": self.name,
                "value": self.value,
                "recommended_values": list(choices),
                "errors": self.errors,
                "visible": True,
            },
        }


@dataclass(frozen=True, slots=True)
class Validation:
    """The result for a whole configuration."""

    connector_class: str
    values: Sequence[OptionValue]

    @property
    def errors(self) -> list[str]:
        """All errors, in the order of the keys."""
        return [error for value in self.values for error in value.errors]

    def as_json(self) -> dict[str, object]:
        """`ConfigInfos`."""
        groups = dict.fromkeys(each.key.group for each in self.values if each.key)
        return {
            "name": self.connector_class,
            "error_count": len(self.errors),
            "groups": [group for group in groups if group is not None],
            "configs": [value.as_json() for value in self.values],
        }


def step_classes() -> dict[str, str]:
    """The classes of transformations, predicates and converters, with their types."""
    headers = dict.fromkeys(HEADER_CONVERTERS, "header_converter")
    return {**transforms.class_types(), **converters.class_types(), **headers}


def options_of_converter(name: str) -> Sequence[Option] | None:
    """The options of a converter; None if there is no such class."""
    return () if name in HEADER_CONVERTERS else converters.options_of(name)


def secret_options(plugin: Plugin, config: Mapping[str, str]) -> set[str]:
    """The options of a configuration whose values are secrets: those of type PASSWORD."""
    keys = _all_keys(plugin, config, {}, {})
    found = {name for name, key in keys.items() if key.type == "PASSWORD"}
    overrides = {name for name in config if ".override." in name and name.endswith(CLIENT_SECRETS)}
    return found | overrides


def keys_of(plugin: Plugin, defaults: Mapping[str, str]) -> list[ConfigKey]:
    """The keys of a connector class without a configuration: the worker's and its own."""
    keys = {key.name: key for key in worker_options(plugin.type)}
    keys["connector.plugin.version"] = replace(
        keys["connector.plugin.version"], default=plugin.version
    )
    for name in CONVERTERS:
        keys[name] = replace(keys[name], default=defaults.get(name))
    own = {option.name: key_of(option) for option in plugin.kind.options}
    # A plug-in may define an option of the worker with another default.
    keys = {name: key for name, key in keys.items() if name not in own}
    return [*keys.values(), *own.values()]


async def validate(
    plugin: Plugin,
    config: Mapping[str, str | None],
    defaults: Mapping[str, str],
    sources: SecretSources,
    timeout_s: float = CHECK_TIMEOUT_S,
) -> Validation:
    """Parse all values, and run the check of the plug-in if they are valid.

    `defaults` are the options of the worker that a connector may leave out.
    """
    found = parsed(plugin, config, defaults, sources)
    if not found.errors:
        _check_steps(found, _resolved(config, sources))
    if not found.errors:
        complete = with_defaults(_resolved(config, sources), defaults)
        await _check(plugin, found, complete, timeout_s)
    return found


def with_defaults(config: Mapping[str, str], defaults: Mapping[str, str]) -> dict[str, str]:
    """With the worker's converters, as far as the connector has none of its own."""
    used = [name for name in CONVERTERS if name not in config]
    inherited = {
        option: text
        for option, text in defaults.items()
        if any(option == name or option.startswith(f"{name}.") for name in used)
    }
    return {**inherited, **config}


def _resolved(config: Mapping[str, str | None], sources: SecretSources) -> dict[str, str]:
    return resolve({name: text for name, text in config.items() if text is not None}, sources)


def parsed(
    plugin: Plugin,
    config: Mapping[str, str | None],
    defaults: Mapping[str, str] | None = None,
    sources: SecretSources = EVERYTHING,
) -> Validation:
    """All values, without the check of the plug-in."""
    problems: dict[str, list[str]] = {}
    keys = _all_keys(plugin, config, defaults or {}, problems)
    values = {name: _value(key, config, sources) for name, key in keys.items()}
    for name, errors in problems.items():
        values[name].errors += errors
    unknown = list(_unknown(plugin, config, keys))
    if plugin.type == "sink":
        _check_topics(config, values)
    for name, text in config.items():
        if text is None and name in values:
            values[name].errors.append("Null value can not be supplied as the configuration value.")
    return Validation(str(config.get("connector.class", "")), [*unknown, *values.values()])


def _all_keys(
    plugin: Plugin,
    config: Mapping[str, str | None],
    defaults: Mapping[str, str],
    problems: dict[str, list[str]],
) -> dict[str, ConfigKey]:
    """The keys of the connector and of the steps and converters that its configuration names."""
    keys = {key.name: key for key in keys_of(plugin, defaults)}
    for prefix, kind in (("transforms", "Transformation"), ("predicates", "Predicate")):
        keys |= {key.name: key for key in _step_keys(prefix, kind, config, problems)}
    return keys | {key.name: key for key in _converter_keys(config, problems)}


def _value(key: ConfigKey, config: Mapping[str, str | None], sources: SecretSources) -> OptionValue:
    text = config.get(key.name)
    if text is None:
        errors = [missing(key.name)] if key.required and key.name not in config else []
        return OptionValue(key.name, key, key.default, errors)
    if not is_reference(text):
        return OptionValue(key.name, key, key.shown(text), key.errors(text))
    try:
        resolved = resolve({key.name: text}, sources)[key.name]
    except UnresolvedSecret as error:
        return OptionValue(key.name, key, text, [str(error)])
    errors = key.errors(resolved)
    # The error would show the secret.
    hidden = [f"Invalid value behind the reference {text} for configuration {key.name}"]
    return OptionValue(key.name, key, text, hidden if errors else [])


def _step_keys(
    prefix: str, kind: str, config: Mapping[str, str | None], problems: dict[str, list[str]]
) -> Iterator[ConfigKey]:
    """The keys of the transformations or of the predicates."""
    for alias in dict.fromkeys(filter(None, map(str.strip, (config.get(prefix) or "").split(",")))):
        start, group = f"{prefix}.{alias}.", f"{prefix.capitalize()}: {alias}"
        display = f"{kind} type for {alias}"
        yield replace(_TYPE, display_name=display).prefixed(start, group, 0)
        version = replace(_VERSION, display_name=f"{kind} version for {alias}")
        yield version.prefixed(start, group, 1)
        name = config.get(f"{start}type")
        if not name:
            continue
        options = transforms.options_of(name)
        if options is None:
            text = f"Class {name} could not be found."
            problems.setdefault(f"{start}type", []).append(invalid(f"{start}type", name, text))
            continue
        own = {option.name: key_of(option) for option in options}
        if prefix == "transforms":
            own |= {key.name: key for key in _CONDITION}
        for order, key in enumerate(sorted(own.values(), key=lambda key: key.name), 2):
            yield key.prefixed(start, group, order)


def _converter_keys(
    config: Mapping[str, str | None], problems: dict[str, list[str]]
) -> Iterator[ConfigKey]:
    for converter in CONVERTERS:
        name = config.get(converter)
        if not name:
            continue
        options = options_of_converter(name)
        if options is None:
            text = f"Class {name} could not be found."
            problems.setdefault(converter, []).append(invalid(converter, name, text))
            continue
        for option in options:
            yield replace(
                key_of(option), name=f"{converter}.{option.name}", display_name=option.name
            )


def _unknown(
    plugin: Plugin, config: Mapping[str, str | None], keys: Mapping[str, ConfigKey]
) -> Iterator[OptionValue]:
    """Options that nothing knows; each is an error."""
    for name, text in config.items():
        if name in keys or name in plugin.kind.ignored or name.startswith(PREFIXES):
            continue
        if name.startswith(CONVERTERS) and name.endswith(f".{STRATEGY}"):
            continue
        close = difflib.get_close_matches(name, keys, 1)
        hint = f"; did you mean {close[0]}?" if close else ""
        value = None if text is None else str(text)
        message = f"Unknown configuration {name} for {plugin.name}{hint}"
        yield OptionValue(name, None, value, [message])


def _check_topics(config: Mapping[str, str | None], values: Mapping[str, OptionValue]) -> None:
    """What Kafka Connect checks of the topics of a sink, with its sentences."""
    topics, regex = (config.get("topics") or "").strip(), (config.get("topics.regex") or "").strip()
    both = "topics and topics.regex are mutually exclusive options, but both are set."
    neither = "Must configure one of topics or topics.regex"
    if topics and regex:
        values["topics"].errors.append(both)
        values["topics.regex"].errors.append(both)
    if not topics and not regex:
        values["topics"].errors.append(neither)
        values["topics.regex"].errors.append(neither)
    if regex:
        try:
            pattern = re.compile(regex)
        except re.error as error:
            text = invalid("topics.regex", regex, f"Invalid regular expression: {error}")
            values["topics.regex"].errors.append(text)
            return
    dlq = (config.get("errors.deadletterqueue.topic.name") or "").strip()
    if dlq and dlq in [word.strip() for word in topics.split(",")]:
        values["topics"].errors.append(
            f"The DLQ topic '{dlq}' may not be included in the list of topics "
            f"('topics={topics}') consumed by the connector"
        )
    if dlq and regex and pattern.fullmatch(dlq):
        values["topics.regex"].errors.append(
            f"The DLQ topic '{dlq}' may not be matched by the regex for the topics "
            f"('topics.regex={regex}') consumed by the connector"
        )


def _check_steps(found: Validation, config: Mapping[str, str]) -> None:
    """What converters and transformations know about options together."""
    by_name = {value.name: value for value in found.values}
    for error in (*converters.check(config), *transforms.check(config)):
        by_name.get(error.option, by_name["connector.class"]).errors.append(str(error))


async def _check(
    plugin: Plugin, found: Validation, config: Mapping[str, str], timeout_s: float
) -> None:
    """Let the plug-in try what it needs, in a thread."""

    def run() -> None:
        connector = plugin.kind(config)
        _check_once(connector, config)
        connector.check()

    problem, name = "", "connector.class"
    try:
        await asyncio.wait_for(asyncio.to_thread(run), timeout_s)
    except TimeoutError:
        problem = f"The check of {plugin.name} did not end within {timeout_s:g} s"
    except OptionError as error:
        problem, name = str(error), error.option
    except PermanentError as error:
        problem = str(error)
    except Exception as error:
        problem = f"The check of {plugin.name} failed: {type(error).__name__}: {error}"
    if problem:
        by_name = {value.name: value for value in found.values}
        by_name.get(name, by_name["connector.class"]).errors.append(problem)


def _check_once(connector: Connector, config: Mapping[str, str]) -> None:
    """With Kafka Connect's words for a source that may write a record twice."""
    required = config.get(EXACTLY_ONCE, "").strip().lower() == "required"
    if required and isinstance(connector, Source) and not connector.once:
        raise OptionError(
            EXACTLY_ONCE,
            "The connector does not support exactly-once semantics with the provided "
            "configuration.",
        )
