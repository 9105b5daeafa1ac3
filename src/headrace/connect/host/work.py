"""What the driver tells readers and writers of a connector; picklable for Spark's workers."""

import importlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.connect.plugin import Connector, Source, SourceOffset, SourcePartition
from headrace.connect.secrets import EVERYTHING, SecretSources, resolve


@dataclass(frozen=True, slots=True)
class ConnectorWork:
    """A connector's class and configuration. Secrets are references until an instance is made."""

    name: str
    plugin: str
    """`module:Class`."""
    config: Mapping[str, str] = field(repr=False)
    secrets: SecretSources = EVERYTHING
    folder: str = ""
    """Where a source may have files of its own, beside the checkpoint."""

    def connector(self) -> Connector:
        """A new instance."""
        found = self.plugin_class()(resolve(self.config, self.secrets))
        assert isinstance(found, Connector)
        if isinstance(found, Source):
            found.folder = self.folder
        return found

    def plugin_class(self) -> type[Connector]:
        module, _, name = self.plugin.partition(":")
        found: type[Connector] = getattr(importlib.import_module(module), name)
        assert issubclass(found, Connector)
        return found


def partition_key(partition: Mapping[str, object]) -> str:
    """A partition as a text that is equal for equal partitions."""
    return json.dumps(partition, sort_keys=True, separators=(",", ":"))


def offset_record_key(name: str, partition: SourcePartition) -> str:
    """The key of the record in the offsets topic, as Kafka Connect writes it."""
    return json.dumps([name, dict(partition)], separators=(",", ":"))


def offset_record_value(offset: SourceOffset) -> str:
    return json.dumps(dict(offset), separators=(",", ":"))
