"""The state of the console: its connections, its readers and its observer."""

import asyncio

from headrace.admin.record_times import RecordTimes
from headrace.console.cluster_threads import ClusterThreads
from headrace.console.connect.connectors import Connectors
from headrace.console.dead_letters.jobs import ResendJobs
from headrace.console.flow.flow_rates import FlowRates
from headrace.console.flow.query_progress import QueryProgress
from headrace.console.observer import Observer
from headrace.console.options import ConsoleOptions
from headrace.console.records.search import Searches
from headrace.console.records.shown import Decoder
from headrace.console.records.tail import Tails
from headrace.console.sql.sql_server import SqlServerClient


class Console:
    """One console of one cluster."""

    def __init__(self, options: ConsoleOptions) -> None:
        self.options = options
        self.cluster = ClusterThreads(options.client_config)
        self.registry = options.registry
        self.decoder = Decoder.of(self.registry, options.masks)
        self.tails = Tails(options.consumer_properties, self.decoder)
        self.searches = Searches()
        self.observer = Observer(
            self.cluster,
            exports=options.exports_metrics,
            by_partition=options.exports_partitions,
        )
        self.connectors = Connectors(options.connect)
        missing = options.without_sql
        self.sql = SqlServerClient(None if missing else options.sql, missing)
        self.queries = QueryProgress(self.cluster)
        self.resends = ResendJobs(self.cluster)
        self.flow_rates = FlowRates(self.cluster)
        self.forecast_times = RecordTimes()
        self.forecast_lock = asyncio.Lock()

    def start(self) -> None:
        self.observer.start()

    @property
    def is_busy(self) -> bool:
        """Whether something runs for the user without new requests."""
        return (
            self.tails.is_followed
            or self.searches.is_running
            or self.resends.is_running
            or self.sql.running.is_running
        )

    async def stop(self) -> None:
        await self.observer.stop()
        await self.queries.stop()
        await self.resends.stop()
        await self.sql.stop()
        self.tails.close()
        self.cluster.close()
