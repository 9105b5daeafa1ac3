"""What the operator of a console chooses."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from headrace.client.config import ClientConfig, client_config, from_librdkafka
from headrace.client.errors import ClientError
from headrace.console.masks import NO_MASKS, Masks, parse_masks
from headrace.errors import SettingError
from headrace.security.roles import Role
from headrace.service.settings import ServiceSettings
from headrace.settings.service_table import CLUSTER_METHOD

if TYPE_CHECKING:
    from headrace.admin.connect_client import ConnectRest
    from headrace.admin.sql_client import SqlRest
    from headrace.schemas.client import SchemaClient

CLIENT_ID = "headrace-console"
ANSWER_TIMEOUT_MS = 10_000
"""How long a page waits for the cluster, unless the operator's properties say otherwise."""


@dataclass(frozen=True, slots=True)
class ConsoleOptions:
    """What the operator chooses."""

    bootstrap: str
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Client properties with librdkafka's names, secrets included."""
    registry: "SchemaClient | None" = None
    """None: the console has no schema registry."""
    connect: "ConnectRest | None" = None
    """None: the console has no Kafka Connect."""
    sql: "SqlRest | None" = None
    """None: the console has no SQL server."""
    exports_metrics: bool = False
    """Whether `/metrics` has the names of kafka_exporter."""
    exports_partitions: bool = True
    """Whether these metrics have a row for each partition."""
    metrics_urls: tuple[str, ...] = field(default=(), repr=False)
    """Pages of brokers with the metrics that clients push; they may contain credentials."""
    masks: Masks = NO_MASKS
    audit_file: str = ""
    """Empty: the audit log is part of the console's log."""
    read_only: bool = False
    """Whether the routes that change something are left out."""
    hosts: frozenset[str] = frozenset()
    """Further host names under which browsers reach the console."""
    cluster_login_role: Role | None = None
    """The role of users who log in to the cluster as themselves; None: there is no such login."""

    @property
    def without_sql(self) -> str:
        """Why there is no SQL; empty if there is."""
        if self.sql is None:
            return "the console was started without --sql"
        if self.cluster_login_role is not None:
            return (
                "users of this console log in to the cluster as themselves, and the SQL server "
                "reads topics with rights of its own. Use `headrace sql`"
            )
        return ""

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

    def check_client(self) -> None:
        """Raises SettingError if the client's properties are not valid."""
        try:
            self.client_config  # noqa: B018
        except ClientError as error:
            raise SettingError(f"--client-config: {error}") from None

    @property
    def consumer_properties(self) -> dict[str, str]:
        """Properties of librdkafka, for the consumers that follow topics."""
        return {
            "client.id": CLIENT_ID,
            **self.properties,
            "bootstrap.servers": self.bootstrap,
        }


def read_options(
    settings: ServiceSettings,
    properties: Mapping[str, str],
    registry: "SchemaClient | None",
    connect: "ConnectRest | None",
    sql: "SqlRest | None" = None,
) -> ConsoleOptions:
    """The options that the settings and the client's properties mean; SettingError if invalid."""
    is_cluster_login = CLUSTER_METHOD in settings.words("authentication.method")
    default_role = settings.text("headrace.authentication.default.role")
    return ConsoleOptions(
        bootstrap=settings.text("bootstrap.servers"),
        properties=properties,
        registry=registry,
        connect=connect,
        sql=sql,
        exports_metrics=settings.boolean("console.metrics"),
        exports_partitions=settings.boolean("console.metrics.partitions"),
        metrics_urls=_urls(settings.words("console.metrics.urls")),
        masks=parse_masks(settings.words("console.masks")),
        audit_file=settings.text("headrace.audit.file"),
        read_only=settings.boolean("console.read.only"),
        hosts=frozenset(filter(None, settings.text("console.hosts").lower().split(","))),
        cluster_login_role=Role[default_role.upper()] if is_cluster_login else None,
    )


def _urls(given: Sequence[str]) -> tuple[str, ...]:
    for url in given:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise SettingError(
                f"console.metrics.urls: {url!r} is not a URL such as http://localhost:9180/metrics"
            )
    return tuple(given)
