"""Builds a Connect worker from its settings: its topics, its host, and its HTTP service."""

from collections.abc import Mapping
from dataclasses import asdict
from functools import partial

from headrace.client.config import ClientConfig, client_config, from_librdkafka
from headrace.connect.converters.options import JSON
from headrace.connect.host.settings import DriverSettings
from headrace.connect.host.spark_host import SparkHost
from headrace.connect.hosting import Host
from headrace.connect.plugins import Plugins
from headrace.connect.rest.call import ConnectCall
from headrace.connect.rest.routes import ROUTES
from headrace.connect.runner import WorkerOptions
from headrace.connect.secrets import SecretSources
from headrace.connect.storage.store import ConnectStore, StoreTopics
from headrace.connect.storage.topics import InternalTopic
from headrace.connect.validation import CONVERTERS
from headrace.connect.worker import ConnectWorker
from headrace.service.http_service import Health, HttpService, ServiceMetric
from headrace.service.settings import ServiceSettings

CLIENT_ID = "headrace-connect"


def connect_service(
    settings: ServiceSettings,
    properties: Mapping[str, str],
    host: Host | None = None,
    plugins: Plugins | None = None,
) -> HttpService[ConnectCall]:
    """The HTTP service of a worker. `properties` are those of the Kafka client."""
    client = {
        "client.id": CLIENT_ID,
        **from_librdkafka(properties),
        "bootstrap.servers": settings.text("bootstrap.servers"),
    }
    config = client_config(client)
    options = make_worker_options(settings, config)
    store: ConnectStore = ConnectStore(
        config, store_topics(settings), lambda change: worker.runner.changed(change)
    )
    worker = ConnectWorker(
        store, host or make_host(settings, client), plugins or Plugins(), options
    )
    return HttpService(
        name="connect",
        summary=f"connectors in {settings.text('config.storage.topic')} at "
        f"{settings.text('bootstrap.servers')}",
        routes=ROUTES,
        make_request=partial(ConnectCall, worker),
        start=worker.start,
        stop=worker.stop,
        health=partial(health, worker),
        metrics=partial(metrics, worker),
        internal_error_code=500,
    )


def make_host(settings: ServiceSettings, client: Mapping[str, str]) -> Host:
    """The host that runs connectors with Spark. PySpark is imported by its child processes only."""
    driver_settings = DriverSettings(
        bootstrap=settings.text("bootstrap.servers"),
        client=client,
        offsets_topic=settings.text("offset.storage.topic"),
        folder=settings.text("headrace.connect.folder"),
        spark=dict(each.split("=", 1) for each in settings.words("headrace.spark.conf")),
        master=settings.text("headrace.spark.master"),
        secrets=asdict(secret_sources(settings)),
    )
    return SparkHost(driver_settings)


def store_topics(settings: ServiceSettings) -> StoreTopics:
    """The internal topics that the settings name."""

    def topic(kind: str, partitions: int) -> InternalTopic:
        return InternalTopic(
            settings.text(f"{kind}.storage.topic"),
            partitions,
            settings.integer(f"{kind}.storage.replication.factor"),
            f"{kind}.storage.topic",
        )

    return StoreTopics(
        topic("config", 1),
        topic("offset", settings.integer("offset.storage.partitions")),
        topic("status", settings.integer("status.storage.partitions")),
    )


def make_worker_options(settings: ServiceSettings, client: ClientConfig) -> WorkerOptions:
    """What the settings say about connectors."""
    host, port = settings.listen
    host = settings.text("rest.advertised.host.name") or host
    if settings.is_changed("rest.advertised.port"):
        port = settings.integer("rest.advertised.port")
    defaults = {name: settings.text(name) for name in CONVERTERS}
    for part in ("key.converter", "value.converter"):
        if defaults[part] == JSON:
            enabled = settings.boolean(f"{part}.schemas.enable")
            defaults[f"{part}.schemas.enable"] = str(enabled).lower()
        if url := settings.text(f"{part}.schema.registry.url"):
            defaults[f"{part}.schema.registry.url"] = url
    return WorkerOptions(
        client=client,
        worker_id=f"{host}:{port}",
        defaults=defaults,
        secrets=secret_sources(settings),
        scheme="https" if settings.tls else "http",
        shows_secrets=settings.boolean("secrets.show"),
        tracks_topics=settings.boolean("topic.tracking.enable"),
        resets_topics=settings.boolean("topic.tracking.allow.reset"),
    )


def secret_sources(settings: ServiceSettings) -> SecretSources:
    """Which references to secrets are resolved."""
    return SecretSources(
        settings.words("config.providers"),
        settings.words("config.providers.file.param.allowed.paths"),
        settings.words("config.providers.dir.param.allowed.paths"),
        settings.text("config.providers.env.param.allowlist.pattern"),
    )


def health(worker: ConnectWorker) -> Health:
    """Ready while the internal topics are read."""
    problem = "" if worker.store.is_running else "The internal topics are no longer read; restart"
    return Health(problem, {"connectors": len(worker.store.configs.connectors)})


def metrics(worker: ConnectWorker) -> list[ServiceMetric]:
    """The number of connectors."""
    connectors = worker.store.configs.connectors
    tasks = sum(len(each.tasks) for each in connectors.values())
    return [
        ServiceMetric("connectors", "Connectors of the cluster.", len(connectors)),
        ServiceMetric("tasks", "Tasks of all connectors.", tasks),
    ]
