"""Settings of a topic or broker, read from and written to a cluster."""

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.cli import client, output
from headrace.cli.client import Cluster

# What DescribeConfigs calls the places that a value can come from.
SOURCES = {
    0: "unknown",
    1: "topic",
    2: "broker",
    3: "cluster default",
    4: "server file",
    5: "default",
    8: "group",
}


@dataclass(frozen=True, slots=True)
class ConfigValue:
    """One setting as the cluster reports it."""

    name: str
    value: str | None
    source: str
    read_only: bool
    sensitive: bool

    @property
    def is_default(self) -> bool:
        return self.source == "default"

    @property
    def changed_here(self) -> bool:
        """Set on this very topic, not inherited from the broker."""
        return self.source == "topic"


@dataclass(frozen=True, slots=True)
class Changes:
    """Settings to give and settings to take back."""

    to_set: Mapping[str, str]
    to_unset: tuple[str, ...]


def current(cluster: Cluster, kind: str, name: str) -> list[ConfigValue]:
    """All settings of a resource, by name."""
    from confluent_kafka.admin import ConfigResource

    what = f"{kind} {name!r}"
    resource = ConfigResource(kind, name)
    admin = client.admin(cluster)
    with client.translated(cluster, what):
        futures = admin.describe_configs([resource], request_timeout=client.ANSWER_TIMEOUT_S)
        found = next(iter(futures.values())).result()
    return [
        ConfigValue(
            name=each.name,
            value=each.value,
            source=SOURCES.get(_number(each.source), "unknown"),
            read_only=bool(each.is_read_only),
            sensitive=bool(each.is_sensitive),
        )
        for each in sorted(found.values(), key=lambda entry: str(entry.name))
    ]


def _number(source: object) -> int:
    """The library hands out a bare number or an enum, depending on its version."""
    value = getattr(source, "value", source)
    return value if isinstance(value, int) else 0


def apply(cluster: Cluster, kind: str, name: str, changes: Changes) -> None:
    """Make the changes, all or none."""
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

    entries = [
        ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        for key, value in changes.to_set.items()
    ]
    entries += [
        ConfigEntry(key, None, incremental_operation=AlterConfigOpType.DELETE)
        for key in changes.to_unset
    ]
    resource = ConfigResource(kind, name, incremental_configs=entries)
    admin = client.admin(cluster)
    with client.translated(cluster, f"{kind} {name!r}"):
        futures = admin.incremental_alter_configs(
            [resource], request_timeout=client.ANSWER_TIMEOUT_S
        )
        next(iter(futures.values())).result()


def report(what: str, changes: Changes, *, as_json: bool) -> None:
    """Say what was changed."""
    if as_json:
        kind, _, name = what.partition(" ")
        output.print_json(
            {kind: name, "set": dict(changes.to_set), "unset": list(changes.to_unset)}
        )
        return
    for key, value in changes.to_set.items():
        print(f"{what}: {key}={value}")
    for key in changes.to_unset:
        print(f"{what}: {key} is back to its default")
