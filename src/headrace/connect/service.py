"""Builds a Connect worker from its settings: its topics, its host, and its HTTP service."""

import socket
import ssl
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from functools import partial

from headrace.client.config import ClientConfig, client_config, from_librdkafka
from headrace.connect.converters.options import JSON
from headrace.connect.host.settings import DriverSettings
from headrace.connect.host.spark_host import SparkHost
from headrace.connect.hosting import Host
from headrace.connect.plugins import Plugins
from headrace.connect.rest.call import ConnectCall
from headrace.connect.rest.routes import ROUTES
from headrace.connect.runner import WorkerAddress, WorkerOptions
from headrace.connect.secrets import SecretSources
from headrace.connect.sharing.forwarding import Forwarder
from headrace.connect.sharing.slots import SLOTS
from headrace.connect.storage.store import ConnectStore, StoreTopics
from headrace.connect.validation import CONVERTERS
from headrace.connect.worker import ConnectWorker
from headrace.service.http_service import Health, HttpService, ServiceMetric
from headrace.service.internal_topics import InternalTopic
from headrace.service.settings import ServiceSettings

CLIENT_ID = "headrace-connect"
EVERY_ADDRESS = frozenset({"0.0.0.0", "::"})
"""Addresses to listen on that other workers cannot connect to."""


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
        store,
        host or make_host(settings, client),
        plugins or Plugins(),
        options,
        Forwarder(client_tls(settings)),
    )
    return HttpService(
        name="connect",
        summary=f"connectors in {settings.text('config.storage.topic')} at "
        f"{settings.text('bootstrap.servers')}",
        routes=ROUTES,
        make_request=partial(ConnectCall, worker),
        start=worker.start,
        stop=worker.stop,
        listening=options.address.listening,
        health=partial(health, worker),
        metrics=partial(metrics, worker),
        internal_error_code=500,
    )


def client_tls(settings: ServiceSettings) -> Callable[[], ssl.SSLContext] | None:
    """The TLS of requests to other workers: the certificates of this worker, if it has HTTPS."""
    if not settings.tls:
        return None
    # Imported here: a worker without TLS starts faster without.
    from headrace.security.tls import ClientTls

    return ClientTls("the connect worker", settings).context


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
        tracing=settings.boolean("headrace.tracing"),
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

    configs = topic("config", 1)
    return StoreTopics(
        configs,
        topic("offset", settings.integer("offset.storage.partitions")),
        topic("status", settings.integer("status.storage.partitions")),
        replace(configs, name=f"{configs.name}-slots", partitions=SLOTS),
    )


def make_worker_options(settings: ServiceSettings, client: ClientConfig) -> WorkerOptions:
    """What the settings say about connectors."""
    host, port = settings.listen
    if host in EVERY_ADDRESS:
        host = socket.getfqdn()
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
        address=WorkerAddress(host, port, "https" if settings.tls else "http"),
        group=settings.text("group.id"),
        defaults=defaults,
        secrets=secret_sources(settings),
        session_timeout_ms=settings.integer("session.timeout.ms"),
        heartbeat_interval_ms=settings.integer("heartbeat.interval.ms"),
        folder=settings.text("headrace.connect.folder"),
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
    """Ready while the internal topics are read and the worker is in its group."""
    problem = worker.ownership.problem
    if worker.ownership.is_starting:
        problem = problem or "The worker is joining its group"
    if not worker.store.is_running:
        problem = "The internal topics are no longer read; restart"
    return Health(problem, {"connectors": len(worker.store.configs.connectors)})


def metrics(worker: ConnectWorker) -> list[ServiceMetric]:
    """The number of connectors."""
    connectors = worker.store.configs.connectors
    tasks = sum(len(each.tasks) for each in connectors.values())
    return [
        ServiceMetric("connectors", "Connectors of the cluster.", len(connectors)),
        ServiceMetric("tasks", "Tasks of all connectors.", tasks),
        ServiceMetric("slots", "Slots of connectors of this worker.", len(worker.ownership.slots)),
    ]
