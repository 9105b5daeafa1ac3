"""The settings of the HTTP services. Confluent's services have the same names."""

import re

from headrace.settings.security_table import SECURITY_ROWS
from headrace.settings.setting import (
    Check,
    Setting,
    Type,
    Value,
    at_least,
    matching,
    one_of,
    some_of,
)

_LISTENER = re.compile(r"https?://(\[[0-9A-Fa-f:.]+\]|[^:/\[\]\s]+):([0-9]{1,5})")


def _is_listener(value: Value) -> bool:
    found = _LISTENER.fullmatch(str(value))
    return found is not None and int(found[2]) <= 65535


_TOKEN_CHECKS = (
    "sasl.oauthbearer.jwks.",
    "sasl.oauthbearer.expected.",
    "sasl.oauthbearer.sub.claim.",
    "sasl.oauthbearer.scope.claim.",
    "sasl.oauthbearer.clock.",
)
_IS_LISTENER = Check("http://HOST:PORT or https://HOST:PORT", _is_listener)


METHODS = ("NONE", "BASIC", "BEARER", "CERTIFICATE")
CLUSTER_METHOD = "CLUSTER"
ROLES = ("view", "read", "write", "admin")
_NO_TLS_ROWS = ("ssl.client.auth", "ssl.endpoint.identification.algorithm")
"""Of brokers only."""


def _row(name: str, kind: Type, default: Value, check: Check | None, doc: str) -> Setting:
    return Setting(name, kind, default, doc, check, scope="service")


# fmt: off
_TLS = (
    *(row._replace(scope="service", kafka_default=None) for row in SECURITY_ROWS
      if row.name.startswith("ssl.") and row.name not in _NO_TLS_ROWS),
    _row("ssl.client.authentication", Type.STRING, "NONE", one_of("NONE", "REQUESTED", "REQUIRED"),
         "Whether clients must show a certificate that an authority of the trust store issued."),
)

_AUTHENTICATION = (
    _row("authentication.method", Type.LIST, ("NONE",), some_of(*METHODS),
         "How clients log in: BASIC with a user of headrace.authentication.users.file, BEARER with "
         "a token of an OAuth provider, CERTIFICATE with their TLS certificate."),
    _row("authentication.realm", Type.STRING, "",
         matching(r'[ !#-\[\]-~]*', "printable ASCII without quotes and backslashes"),
         "The realm that clients are told; without it, the name of the service."),
    _row("authentication.roles", Type.LIST, ("*",), some_of("*", *ROLES),
         "Users need one of these roles; * is any."),
    _row("headrace.authentication.users.file", Type.STRING, "", None,
         "The file with users, their passwords' verifiers and their roles: read, write or admin. "
         "`headrace users add NAME --file FILE` writes it. It is read again when it changes."),
    _row("headrace.authentication.default.role", Type.STRING, "none", one_of("none", *ROLES),
         "The role of users of tokens and certificates who are not in that file."),
    _row("headrace.authentication.anonymous.role", Type.STRING, "none", one_of("none", *ROLES),
         "The role of clients that do not log in; read lets everybody read."),
    _row("headrace.authentication.without.tls", Type.BOOLEAN, False, None,
         "Allow logins over http:// on addresses that other machines reach, where everyone on the "
         "way can read passwords and tokens: for a service behind a proxy that has TLS."),
    _row("headrace.audit.file", Type.STRING, "", None,
         "File of the audit log: one JSON object a line for each login that failed. Without it "
         "they go to the service's log."),
    *(row._replace(scope="service", name=row.name.removeprefix("sasl."))
      for row in SECURITY_ROWS if row.name.startswith(_TOKEN_CHECKS)),
)
# fmt: on


def _common(port: int) -> tuple[Setting, ...]:
    """The rows that every service has."""
    return (
        Setting("listeners", Type.STRING, f"http://127.0.0.1:{port}",
                "The address for HTTP, or with https:// for HTTP over TLS; port 0 selects a free "
                "port.", _IS_LISTENER, scope="service"),
        Setting("bootstrap.servers", Type.STRING, "localhost:9092",
                "Brokers of the Kafka cluster, as HOST:PORT, separated by commas.",
                scope="service"),
        Setting("shutdown.graceful.ms", Type.INT, 10_000,
                "How long a stop waits for requests in progress, rounded up to seconds. "
                "Requests that take longer get status 503.", at_least(0), scope="service"),
        Setting("idle.timeout.ms", Type.INT, 60_000,
                "How long a connection without requests stays open, rounded up to seconds.",
                at_least(1), scope="service"),
        *_TLS,
        *_AUTHENTICATION,
    )  # fmt: skip


REGISTRY_TABLE: dict[str, Setting] = {
    row.name: row
    for row in (
        *_common(8081),
        Setting("kafkastore.topic", Type.STRING, "_schemas",
                "The compacted topic that stores the schemas; it is created if it does not exist.",
                scope="service"),
        Setting("inter.instance.protocol", Type.STRING, "http",
                "Has no effect: instances do not call each other, but share the topic.",
                one_of("http", "https"), scope="service"),
    )
}  # fmt: skip

CONSOLE_TABLE: dict[str, Setting] = {
    row.name: row
    for row in (
        *_common(8080),
        _row("authentication.method", Type.LIST, ("NONE",), some_of(*METHODS, CLUSTER_METHOD),
             "How users log in: as for the registry, or CLUSTER with their name and password of "
             "the Kafka cluster, whose ACLs then decide what they see and change."),
        Setting("schema.registry.url", Type.STRING, "",
                "The address of the schema registry, as http://HOST:PORT. Empty: values are "
                "decoded without schemas.", scope="service"),
        Setting("console.read.only", Type.BOOLEAN, False,
                "Leave out every function that changes something.", scope="service"),
        Setting("console.metrics", Type.BOOLEAN, False,
                "Add the metrics of the cluster to /metrics, with the names of kafka_exporter.",
                scope="service"),
        Setting("console.metrics.partitions", Type.BOOLEAN, True,
                "Whether these metrics have a row for each partition.", scope="service"),
        Setting("console.masks", Type.LIST, (),
                "Fields that nobody sees, as TOPIC:PATH. TOPIC may end with *; PATH is key, value, "
                "value.FIELD.FIELD, or headers.NAME. An example: orders*:value.card.number.",
                scope="service"),
        Setting("console.hosts", Type.STRING, "",
                "Further host names under which browsers reach the console, separated by commas. "
                "Requests for other names are refused.", scope="service"),
    )
}  # fmt: skip
