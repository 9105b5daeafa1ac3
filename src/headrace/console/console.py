"""The state of the console: its connections and what it has been configured with."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.admin.record_times import RecordTimes
from headrace.client.config import ClientConfig, client_config, from_librdkafka
from headrace.console.cluster_threads import ClusterThreads
from headrace.console.flow_rates import FlowRates
from headrace.console.observer import Observer
from headrace.console.query_progress import QueryProgress
from headrace.console.records.search import Searches
from headrace.console.records.shown import Decoder
from headrace.console.records.tail import Tails
from headrace.schemas.client import SchemaClient, split_urls

CLIENT_ID = "headrace-console"
ANSWER_TIMEOUT_MS = 10_000
"""How long a page waits for the cluster, unless the operator's properties say otherwise."""


@dataclass(frozen=True, slots=True)
class ConsoleOptions:
    """What the operator chooses."""

    bootstrap: str
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Client properties with librdkafka's names, secrets included."""
    registry_url: str = ""
    """Empty: the console has no schema registry."""
    exports_metrics: bool = False
    """Whether `/metrics` has the names of kafka_exporter."""
    read_only: bool = False
    """Whether the routes that change something are left out."""
    hosts: frozenset[str] = frozenset()
    """Further host names under which browsers reach the console."""

    @property
    def client_properties(self) -> dict[str, str]:
        """Properties of `headrace.client`."""
        return {
            "client.id": CLIENT_ID,
            "default.api.timeout.ms": str(ANSWER_TIMEOUT_MS),
            **from_librdkafka(self.properties),
            "bootstrap.servers": self.bootstrap,
        }

    @property
    def client_config(self) -> ClientConfig:
        return client_config(self.client_properties)

    @property
    def consumer_properties(self) -> dict[str, str]:
        """Properties of librdkafka, for the consumers that follow topics."""
        return {
            "client.id": CLIENT_ID,
            **self.properties,
            "bootstrap.servers": self.bootstrap,
        }

    @property
    def registry(self) -> SchemaClient | None:
        urls = split_urls(self.registry_url)
        return SchemaClient(urls, attempts=1) if urls else None


class Console:
    """One console of one cluster."""

    def __init__(self, options: ConsoleOptions) -> None:
        self.options = options
        self.cluster = ClusterThreads(options.client_config)
        self.registry = options.registry
        self.decoder = Decoder.of(self.registry)
        self.tails = Tails(options.consumer_properties, self.decoder)
        self.searches = Searches()
        self.observer = Observer(self.cluster, exports=options.exports_metrics)
        self.queries = QueryProgress(self.cluster)
        self.flow_rates = FlowRates(self.cluster)
        self.forecast_times = RecordTimes()
        self.forecast_lock = asyncio.Lock()

    async def start(self) -> None:
        """The console starts without its cluster, too; the pages then tell what is wrong."""
        self.observer.start()

    async def stop(self) -> None:
        await self.observer.stop()
        await self.queries.stop()
        self.tails.close()
        self.cluster.close()
