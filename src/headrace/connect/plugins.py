"""Finds connector classes: the built-in ones, and those of installed packages by entry point.

Looking for names imports no plug-in; a class is imported when it is first used. A configuration
may name a class by its own name, by its name without `Connector`, or by the Java class whose
options it accepts.
"""

import importlib
import logging
from collections.abc import Iterator
from importlib.metadata import EntryPoint, entry_points
from typing import NamedTuple

from headrace import __version__
from headrace.connect.plugin import Connector, Sink, Source

log = logging.getLogger("headrace.connect")

GROUP = "headrace.connectors"
SUFFIX = "Connector"

BUILT_IN = (
    "headrace.connect.connectors.datagen:Datagen",
    "headrace.connect.connectors.files:FileStreamSource",
    "headrace.connect.connectors.files:Files",
    "headrace.connect.connectors.file_sinks:FileStreamSink",
    "headrace.connect.connectors.file_sinks:FilesSink",
    "headrace.connect.connectors.http.source:HttpSource",
    "headrace.connect.connectors.http.sink:HttpSink",
    "headrace.connect.connectors.http.webhook:WebhookSource",
    "headrace.connect.connectors.lake.apache_iceberg:ApacheIcebergSink",
    "headrace.connect.connectors.lake.hive:HiveSink",
    "headrace.connect.connectors.lake.parquet:HdfsSink",
    "headrace.connect.connectors.lake.parquet:ParquetSink",
    "headrace.connect.connectors.lake.parquet:S3Sink",
    "headrace.connect.connectors.lake.tables:DeltaSink",
    "headrace.connect.connectors.lake.tables:IcebergSink",
    "headrace.connect.connectors.jdbc.sink:DebeziumJdbcSink",
    "headrace.connect.connectors.jdbc.sink:JdbcSink",
    "headrace.connect.connectors.jdbc.source:JdbcSource",
    "headrace.connect.connectors.mqtt.sink:MqttSink",
    "headrace.connect.connectors.mqtt.source:MqttSource",
    "headrace.connect.connectors.mysql_changes.source:MySqlChanges",
    "headrace.connect.connectors.postgresql_changes.source:PostgresqlChanges",
    "headrace.connect.connectors.rabbitmq.sink:RabbitMqSink",
    "headrace.connect.connectors.rabbitmq.source:RabbitMqSource",
)
"""As `module:Class`."""


class UnknownPlugin(Exception):
    """No class with this name is installed; the message lists the classes that are."""


class Plugin(NamedTuple):
    """A connector class."""

    name: str
    """As `GET /connector-plugins` shows it: module and class."""
    kind: type[Connector]
    version: str

    @property
    def type(self) -> str:
        """`source` or `sink`."""
        return "sink" if issubclass(self.kind, Sink) else "source"


class Plugins:
    """The connector classes of this process."""

    def __init__(self, built_in: tuple[str, ...] = BUILT_IN) -> None:
        self._built_in = built_in
        self._found: list[Plugin] | None = None

    def all(self) -> list[Plugin]:
        """All classes that can be imported, sorted by name."""
        if self._found is None:
            found = {plugin.name: plugin for plugin in self._load()}
            self._found = sorted(found.values(), key=lambda plugin: plugin.name)
        return self._found

    def find(self, name: str) -> Plugin:
        """The class with a name, a short name or an alias; UnknownPlugin if there is none."""
        for plugin in self.all():
            if name in (plugin.name, *plugin.kind.aliases):
                return plugin
        # A name with a package means one class only.
        wanted = "" if "." in name else _short(name)
        own = [plugin for plugin in self.all() if wanted == _short(plugin.name)]
        short = own or [plugin for plugin in self.all() if wanted in _short_names(plugin)]
        if len(short) == 1:
            return short[0]
        known = ", ".join(plugin.name for plugin in self.all())
        if short:
            several = ", ".join(plugin.name for plugin in short)
            raise UnknownPlugin(f"More than one connector matches alias {name}: {several}")
        raise UnknownPlugin(
            f"Failed to find any class that implements Connector and which name matches {name}, "
            f"available connectors are: {known}"
        )

    def _load(self) -> Iterator[Plugin]:
        for path in self._built_in:
            module, _, kind = path.partition(":")
            try:
                yield _plugin(getattr(importlib.import_module(module), kind), __version__)
            except ModuleNotFoundError as error:
                # A connector whose library is not installed is not offered.
                log.debug("connector %s is not available: %s", path, error)
        for entry in entry_points(group=GROUP):
            try:
                yield _plugin(entry.load(), _version(entry))
            except Exception as error:
                log.warning("connector %s cannot be loaded: %s", entry.value, error)


def _plugin(kind: type[Connector], version: str) -> Plugin:
    if not issubclass(kind, (Source, Sink)):
        raise TypeError(f"{kind.__qualname__} is neither a Source nor a Sink")
    return Plugin(f"{kind.__module__}.{kind.__qualname__}", kind, kind.version or version)


def _version(entry: EntryPoint) -> str:
    return entry.dist.version if entry.dist is not None else ""


def _short(name: str) -> str:
    simple = name.rpartition(".")[2]
    return simple.removesuffix(SUFFIX) or simple


def _short_names(plugin: Plugin) -> set[str]:
    return {_short(each) for each in plugin.kind.aliases}
