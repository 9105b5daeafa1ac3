"""Config entries of responses: the effective value, its source, and its synonyms.

The value of a topic config comes from the first of these that has one: the topic, the dynamic
configs of this broker, the dynamic configs of all brokers, the settings with which this broker was
started, the default. All but the topic are searched under the config's synonyms. A broker config
has the same sources without the topic.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum

from headrace.apis.context import Services
from headrace.cluster.image import CLUSTER_DEFAULT
from headrace.settings import (
    CLIENT_METRICS_TABLE,
    GROUP_TABLE,
    TABLE,
    TOPIC_TABLE,
    Setting,
    Settings,
    Type,
    format_value,
    group_value,
)
from headrace.settings.listeners import LISTENER_PREFIX
from headrace.settings.resolve import listener_row
from headrace.settings.setting import parse_value

INTERNAL_PREFIX = "internal."


class ConfigSource(IntEnum):
    """The source of a value, with its number in Kafka's protocol."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


@dataclass(frozen=True, slots=True)
class ConfigSynonym:
    """A source that has a value for a config, and the config's name there."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One config of a resource; the value is None if it is secret or not set."""

    name: str
    value: str | None
    source: ConfigSource
    read_only: bool
    sensitive: bool
    type: int
    doc: str
    synonyms: tuple[ConfigSynonym, ...]


@dataclass(frozen=True, slots=True)
class BrokerConfigs:
    """This broker's configs by source, and the effective settings."""

    own: Mapping[str, str]
    of_all: Mapping[str, str]
    static: Mapping[str, str]
    now: Settings

    @classmethod
    def of(cls, services: Services) -> "BrokerConfigs":
        """The present configs of this broker."""
        live = services.metadata.image.broker_configs
        own, of_all = live.get(str(services.node_id), {}), live.get(CLUSTER_DEFAULT, {})
        static = services.settings
        now = static.with_dynamic({**of_all, **own}) if own or of_all else static
        return cls(own, of_all, static.explicit, now)

    def synonyms(self, names: Iterable[str]) -> Iterator[ConfigSynonym]:
        """Every value that one of `names` has here; the effective one comes first."""
        names = tuple(names)
        for source, given in (
            (ConfigSource.DYNAMIC_BROKER, self.own),
            (ConfigSource.DYNAMIC_DEFAULT_BROKER, self.of_all),
            (ConfigSource.STATIC_BROKER, self.static),
        ):
            for name in names:
                if name in given:
                    yield ConfigSynonym(name, given[name], source)
        for name in names:
            default = TABLE[name].default if name in TABLE else None
            if default is not None:
                yield ConfigSynonym(name, format_value(default), ConfigSource.DEFAULT)


def topic_entries(broker: BrokerConfigs, configs: Mapping[str, str]) -> list[ConfigEntry]:
    """Every config of a topic with its own `configs`."""
    return [
        _topic_entry(broker, configs, row)
        for name, row in TOPIC_TABLE.items()
        if name in configs or not name.startswith(INTERNAL_PREFIX)
    ]


def broker_entries(broker: BrokerConfigs) -> list[ConfigEntry]:
    """Every config of this broker, including those of listeners and unknown ones that were set."""
    entries = [_broker_entry(broker, row) for row in TABLE.values()]
    for name in sorted({*broker.static, *broker.own} - TABLE.keys()):
        row = listener_row(name) if name.startswith(LISTENER_PREFIX) else None
        if row is not None:
            entries.append(_listener_entry(broker, name, row))
        else:
            # An unknown setting may be a secret, so its value is not returned.
            source = ConfigSource.STATIC_BROKER
            entries.append(ConfigEntry(name, None, source, True, True, 0, "", ()))
    return entries


def group_entries(broker: Settings, configs: Mapping[str, str]) -> list[ConfigEntry]:
    """Every config of a group with its own `configs`; a default is the broker's value."""
    entries = []
    for name, row in GROUP_TABLE.items():
        value = format_value(group_value(broker, configs, name))
        source = ConfigSource.GROUP if name in configs else ConfigSource.DEFAULT
        synonyms = (ConfigSynonym(name, value, source),)
        entries.append(ConfigEntry(name, value, source, False, False, row.type, row.doc, synonyms))
    return entries


def client_metrics_entries(configs: Mapping[str, str]) -> list[ConfigEntry]:
    """Every config of a subscription to client metrics that was given `configs`."""
    entries = []
    for name, row in CLIENT_METRICS_TABLE.items():
        if name in configs:
            value, source = configs[name], ConfigSource.CLIENT_METRICS
            synonyms = (ConfigSynonym(name, value, source),)
            entries.append(
                ConfigEntry(name, value, source, False, False, row.type, row.doc, synonyms)
            )
        else:
            value, source = format_value(row.default) or "", ConfigSource.DEFAULT
            entries.append(ConfigEntry(name, value, source, False, False, row.type, row.doc, ()))
    return entries


def cluster_entries(broker: BrokerConfigs) -> list[ConfigEntry]:
    """The dynamic configs that are set for all brokers."""
    entries = []
    for name, value in broker.of_all.items():
        row = TABLE[name]
        shown = _shown(row, value)
        synonym = ConfigSynonym(name, shown, ConfigSource.DYNAMIC_DEFAULT_BROKER)
        entries.append(
            ConfigEntry(
                name, shown, synonym.source, not row.live, row.secret, row.type, row.doc, (synonym,)
            )
        )
    return entries


def _topic_entry(broker: BrokerConfigs, configs: Mapping[str, str], row: Setting) -> ConfigEntry:
    name = row.name
    synonyms = tuple(broker.synonyms(synonym.name for synonym in row.synonyms))
    if name in configs:
        synonyms = (ConfigSynonym(name, configs[name], ConfigSource.TOPIC), *synonyms)
    value = format_value(broker.now.topic_value(name, configs))
    source = synonyms[0].source if synonyms else ConfigSource.DEFAULT
    return ConfigEntry(name, value, source, False, row.secret, row.type, row.doc, synonyms)


def _broker_entry(broker: BrokerConfigs, row: Setting) -> ConfigEntry:
    names = (row.name, *(synonym.name for synonym in row.synonyms))
    return _entry(broker, row, names, read_only=not row.live)


def _listener_entry(broker: BrokerConfigs, name: str, row: Setting) -> ConfigEntry:
    """A config of one listener; Kafka marks even those as read-only that can be altered."""
    return _entry(broker, row, (name, row.name), read_only=True)


def _entry(
    broker: BrokerConfigs, row: Setting, names: tuple[str, ...], *, read_only: bool
) -> ConfigEntry:
    """The config that is the first of `names`; the others are its synonyms."""
    found = tuple(broker.synonyms(names))
    synonyms = tuple(ConfigSynonym(one.name, _shown(row, one.value), one.source) for one in found)
    own = next((one.value for one in found if one.name == names[0]), None)
    source = synonyms[0].source if synonyms else ConfigSource.DEFAULT
    return ConfigEntry(
        names[0], _shown(row, own), source, read_only, row.secret, row.type, row.doc, synonyms
    )


def _shown(row: Setting, value: str | None) -> str | None:
    """The value without secrets, in Kafka's format."""
    if value is None or row.secret:
        return None
    if row.type is Type.LIST:
        return value
    return format_value(parse_value(row, value))
