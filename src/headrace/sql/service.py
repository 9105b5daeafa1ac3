"""Builds a SQL server from its settings: its topic, its host, and its HTTP service."""

from collections.abc import Mapping
from functools import partial

from headrace.admin.connect_client import ConnectRest
from headrace.client.config import client_config, from_librdkafka
from headrace.schemas.client import SchemaClient
from headrace.service.http_service import Health, HttpService, ServiceMetric
from headrace.service.internal_topics import InternalTopic
from headrace.service.settings import ServiceSettings
from headrace.sql.commands.records import QueryTarget
from headrace.sql.errors import SERVER_ERROR
from headrace.sql.execution.executor import Executor
from headrace.sql.execution.inserting import RowInserter
from headrace.sql.execution.querying import SelectQueries
from headrace.sql.execution.replays.switching import ReplaySwitches
from headrace.sql.host.settings import SqlDriverSettings
from headrace.sql.host.sql_host import SqlHost
from headrace.sql.hosting import SqlHosting
from headrace.sql.rest.call import SqlCall, SqlEngine
from headrace.sql.rest.queries_api import DELIMITED, JSON, KSQL_JSON
from headrace.sql.rest.routes import ROUTES
from headrace.sql.server import SqlOptions, SqlServer

CLIENT_ID = "headrace-sql"
COMMAND_TOPIC_PREFIX = "_headrace_sql_"
BODY_BYTES = 32_000_000
BODY_TYPES = frozenset(
    {
        JSON,
        KSQL_JSON,
        DELIMITED,
        # ksqlDB takes any; `curl -d` sends the first of these.
        "application/x-www-form-urlencoded",
        "application/octet-stream",
        "text/plain",
    }
)
SHOWN = (
    "ksql.service.id",
    "ksql.schema.registry.url",
    "ksql.connect.url",
    "ksql.output.topic.name.prefix",
    "ksql.logging.processing.topic.name",
    "bootstrap.servers",
)
"""Settings that LIST PROPERTIES shows."""


def sql_service(
    settings: ServiceSettings,
    properties: Mapping[str, str],
    registry: SchemaClient | None = None,
    connect: ConnectRest | None = None,
    host: SqlHosting | None = None,
) -> HttpService[SqlCall]:
    """The HTTP service of a server. `properties` are those of the Kafka client."""
    client = {
        "client.id": CLIENT_ID,
        **from_librdkafka(properties),
        "bootstrap.servers": settings.text("bootstrap.servers"),
    }
    options = make_options(settings, client, registry, connect)
    server = SqlServer(options, host or make_host(settings, client, registry))
    inserter = RowInserter(server)
    switches = ReplaySwitches(server)
    engine = SqlEngine(
        server, Executor(server, inserter, switches), inserter, SelectQueries(server, inserter)
    )

    async def start() -> None:
        await server.start()
        switches.resume()

    async def stop() -> None:
        await switches.stop()
        await server.stop()

    return HttpService(
        name="sql",
        summary=f"statements in {options.command_topic.name} at "
        f"{settings.text('bootstrap.servers')}",
        routes=ROUTES,
        make_request=partial(SqlCall, engine),
        start=start,
        stop=stop,
        listening=server.listening,
        health=partial(health, server),
        metrics=partial(metrics, engine),
        response_types=(JSON, KSQL_JSON, DELIMITED),
        body_types=BODY_TYPES,
        body_bytes=BODY_BYTES,
        internal_error_code=SERVER_ERROR,
    )


def make_options(
    settings: ServiceSettings,
    client: Mapping[str, str],
    registry: SchemaClient | None,
    connect: ConnectRest | None,
) -> SqlOptions:
    """What the settings say about statements."""
    service = settings.text("ksql.service.id")
    shown = {name: settings.text(name) for name in SHOWN}
    return SqlOptions(
        client=client_config(client),
        service=service,
        folder=settings.text("headrace.sql.folder"),
        command_topic=InternalTopic(
            f"{COMMAND_TOPIC_PREFIX}{service}",
            1,
            settings.integer("ksql.internal.topic.replicas"),
            "ksql.service.id",
        ),
        registry=registry,
        connect=connect,
        allows_functions=settings.boolean("headrace.sql.functions.enable"),
        adopts_statements=settings.boolean("headrace.sql.folder.lost"),
        replication_factor=settings.integer("ksql.output.topic.replicas"),
        topic_prefix=settings.text("ksql.output.topic.name.prefix"),
        listen=settings.listen,
        shown={**shown, "ksql.logging.processing.topic.name": processing_log(settings)},
    )


def processing_log(settings: ServiceSettings) -> str:
    """The topic for records that cannot be read."""
    service = settings.text("ksql.service.id").rstrip("_") or "sql"
    return settings.text("ksql.logging.processing.topic.name") or f"{service}-processing-log"


def make_host(
    settings: ServiceSettings, client: Mapping[str, str], registry: SchemaClient | None
) -> SqlHosting:
    """The host that runs queries with Spark. PySpark is imported by its child processes only."""
    driver_settings = SqlDriverSettings(
        bootstrap=settings.text("bootstrap.servers"),
        client=client,
        folder=f"{settings.text('headrace.sql.folder')}/queries",
        processing_log=processing_log(settings),
        registry={} if registry is None else registry_options(registry),
        spark=dict(each.split("=", 1) for each in settings.words("headrace.spark.conf")),
        master=settings.text("headrace.spark.master"),
        allows_functions=settings.boolean("headrace.sql.functions.enable"),
    )
    return SqlHost(driver_settings)


def registry_options(registry: SchemaClient) -> dict[str, str]:
    """The registry and its login, as the Spark source has them."""
    found = {
        "schema.registry.url": ",".join(registry.urls),
        "schema.registry.basic.auth.user.info": registry.user_info,
        "schema.registry.bearer.auth.token": registry.token,
        "schema.registry.ssl.ca.location": registry.ca_file,
        "schema.registry.ssl.certificate.location": registry.certificate_file,
    }
    return {name: value for name, value in found.items() if value is not None}


def health(server: SqlServer) -> Health:
    """Ready while the command topic is read, and no other server has taken over."""
    problem = server.problem
    if not problem and not server.commands.is_running:
        problem = "The command topic is no longer read; restart"
    details = {
        "sources": len(server.catalog.sources()),
        "queries": sum(1 for _ in server.catalog.queries()),
        "failed_statements": len(server.catalog.failed),
    }
    return Health(problem, details)


def metrics(engine: SqlEngine) -> list[ServiceMetric]:
    """Numbers of objects and of queries."""
    catalog, selects = engine.server.catalog, engine.queries
    found = list(catalog.queries())
    running = sum(each.query.target is QueryTarget.RUNNING for each in found)
    tables = sum(each.source.is_table for each in catalog.sources())
    return [
        ServiceMetric("streams", "Streams.", len(catalog.sources()) - tables),
        ServiceMetric("tables", "Tables.", tables),
        ServiceMetric("queries", "Persistent queries that are not paused.", running),
        ServiceMetric("paused_queries", "Paused queries.", len(found) - running),
        ServiceMetric("push_queries", "Push queries that run.", len(selects.running)),
        ServiceMetric("push_queries_total", "Push queries since the start.", selects.pushes),
        ServiceMetric("pull_queries_total", "Pull queries since the start.", selects.pulls),
        ServiceMetric(
            "failed_statements", "Records of the command topic that cannot be read.",
            len(catalog.failed),
        ),
    ]  # fmt: skip
