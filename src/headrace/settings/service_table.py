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
    *(row._replace(scope="service", kafka_default=None, live=False) for row in SECURITY_ROWS
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
         "The realm in challenges; by default the name of the service."),
    _row("authentication.roles", Type.LIST, ("*",), some_of("*", *ROLES),
         "Users need one of these roles; * is any."),
    _row("headrace.authentication.users.file", Type.STRING, "", None,
         "The file with users, their passwords' verifiers and their roles: read, write or admin. "
         "`headrace users add NAME --file FILE` writes it. It is read again when it changes."),
    _row("headrace.authentication.default.role", Type.STRING, "none", one_of("none", *ROLES),
         "The role of users of tokens and certificates who are not in that file."),
    _row("headrace.authentication.anonymous.role", Type.STRING, "none", one_of("none", *ROLES),
         "The role of clients that do not log in; read allows all clients to read."),
    _row("headrace.authentication.without.tls", Type.BOOLEAN, False, None,
         "Allow logins over http:// on addresses that other machines reach, where passwords "
         "and tokens can be intercepted: for a service behind a proxy that has TLS."),
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
        Setting("console.connect.url", Type.STRING, "",
                "The address of a Kafka Connect worker, as http://HOST:PORT. Empty: connectors are "
                "not shown.", scope="service"),
        Setting("console.sql.url", Type.STRING, "",
                "The address of a SQL server, as http://HOST:PORT. Empty: the SQL page is not "
                "available.", scope="service"),
        Setting("console.read.only", Type.BOOLEAN, False,
                "Leave out every function that changes something.", scope="service"),
        Setting("console.metrics", Type.BOOLEAN, False,
                "Add the metrics of the cluster to /metrics, with the names of kafka_exporter.",
                scope="service"),
        Setting("console.metrics.partitions", Type.BOOLEAN, True,
                "Whether these metrics have a row for each partition.", scope="service"),
        Setting("console.metrics.urls", Type.LIST, (),
                "The /metrics pages of the brokers, as http://HOST:PORT/metrics, separated by "
                "commas: they have the metrics that clients push. Empty: these are not shown.",
                scope="service"),
        Setting("console.masks", Type.LIST, (),
                "Fields that are hidden from all users, as TOPIC:PATH. TOPIC may end with *; "
                "PATH is key, value, value.FIELD.FIELD, or headers.NAME. An example: "
                "orders*:value.card.number.",
                scope="service"),
        Setting("console.hosts", Type.STRING, "",
                "Further host names under which browsers reach the console, separated by commas. "
                "Requests for other names are refused.", scope="service"),
    )
}  # fmt: skip

_CONVERTERS = (
    ("key", "org.apache.kafka.connect.storage.StringConverter"),
    ("value", "org.apache.kafka.connect.json.JsonConverter"),
)


def _replicas(topic: str) -> Setting:
    return Setting(f"{topic}.storage.replication.factor", Type.SHORT, 3,
                   "The replication factor of this topic when it is created; never more than there "
                   "are brokers.", at_least(1), scope="service")  # fmt: skip


CONNECT_TABLE: dict[str, Setting] = {
    row.name: row
    for row in (
        *_common(8083),
        Setting("group.id", Type.STRING, "connect",
                "The name of the Connect cluster: the consumer group in which workers share the "
                "connectors.", scope="service"),
        Setting("session.timeout.ms", Type.INT, 10_000,
                "After this time without a sign of life the connectors of a worker move to other "
                "workers. The broker's group.min.session.timeout.ms is the lowest value.",
                at_least(1), scope="service"),
        Setting("heartbeat.interval.ms", Type.INT, 1_000,
                "The time between two heartbeats of a worker; a third of session.timeout.ms or "
                "less.", at_least(1), scope="service", kafka_default="3000"),
        Setting("config.storage.topic", Type.STRING, "connect-configs",
                "The compacted topic that stores the connectors; it is created if it does not "
                "exist, with one partition.", scope="service"),
        _replicas("config"),
        Setting("offset.storage.topic", Type.STRING, "connect-offsets",
                "The compacted topic that stores the offsets of sources.", scope="service"),
        Setting("offset.storage.partitions", Type.INT, 25,
                "The number of partitions of this topic when it is created.", at_least(1),
                scope="service"),
        _replicas("offset"),
        Setting("status.storage.topic", Type.STRING, "connect-status",
                "The compacted topic that stores states and topics in use.", scope="service"),
        Setting("status.storage.partitions", Type.INT, 5,
                "The number of partitions of this topic when it is created.", at_least(1),
                scope="service"),
        _replicas("status"),
        *(Setting(f"{part}.converter", Type.CLASS, converter,
                  f"The format of {part}s in Kafka, for connectors that have no {part}.converter.",
                  scope="service") for part, converter in _CONVERTERS),
        *(Setting(f"{part}.converter.schemas.enable", Type.BOOLEAN, False,
                  f"Whether {part}s in JSON carry a schema.", scope="service",
                  kafka_default="true") for part in ("key", "value")),
        *(Setting(f"{part}.converter.schema.registry.url", Type.STRING, "",
                  f"The schema registry for {part}s with a schema.", scope="service")
          for part in ("key", "value")),
        Setting("header.converter", Type.CLASS,
                "org.apache.kafka.connect.storage.SimpleHeaderConverter",
                "The format of headers, for connectors that have no header.converter.",
                scope="service"),
        Setting("rest.advertised.host.name", Type.STRING, "",
                "The host name under which clients and other workers reach this worker; empty: "
                "that of listeners.", scope="service"),
        Setting("rest.advertised.port", Type.INT, None,
                "The port under which clients and other workers reach this worker; none: that of "
                "listeners.", scope="service"),
        Setting("ssl.endpoint.identification.algorithm", Type.STRING, "https",
                "Check host names between workers; empty: do not.", scope="service"),
        Setting("topic.tracking.enable", Type.BOOLEAN, True,
                "Whether the topics that connectors use are recorded.", scope="service"),
        Setting("topic.tracking.allow.reset", Type.BOOLEAN, True,
                "Whether requests may reset these records.", scope="service"),
        Setting("secrets.show", Type.BOOLEAN, False,
                "Show literal passwords in responses, for tools that compare configurations, such "
                "as Terraform.", scope="service"),
        Setting("config.providers", Type.LIST, ("file", "env", "dir"),
                "Which references to secrets are resolved: file, env, dir.",
                some_of("file", "env", "dir"), scope="service"),
        Setting("config.providers.file.param.allowed.paths", Type.LIST, (),
                "Files and folders that ${file:...} may read; empty: all.", scope="service"),
        Setting("config.providers.dir.param.allowed.paths", Type.LIST, (),
                "Folders that ${dir:...} may read; empty: all.", scope="service"),
        Setting("config.providers.env.param.allowlist.pattern", Type.STRING, "",
                "A regular expression for the variables that ${env:...} may read; empty: all.",
                scope="service"),
        Setting("headrace.connect.folder", Type.STRING, "data/connect",
                "The folder for the checkpoints of connectors.", scope="service"),
        Setting("headrace.spark.master", Type.STRING, "local[4,4]",
                "The master of the Spark drivers that run connectors.", scope="service"),
        Setting("headrace.spark.conf", Type.LIST, (),
                "Settings of Spark, as NAME=VALUE.", scope="service"),
        Setting("headrace.tracing", Type.BOOLEAN, False,
                "Send a span of OpenTelemetry for each epoch of a connector.", scope="service"),
    )
}  # fmt: skip

SQL_TABLE: dict[str, Setting] = {
    row.name: row
    for row in (
        *_common(8088),
        Setting("ksql.service.id", Type.STRING, "default_",
                "The name of the service. Its statements are in the compacted topic "
                "_headrace_sql_NAME, and one server runs them.",
                matching(r"[A-Za-z0-9._-]{1,100}", "letters, digits, '.', '_' and '-'"),
                scope="service"),
        Setting("ksql.internal.topic.replicas", Type.SHORT, 3,
                "The replication factor of that topic when it is created; never more than there "
                "are brokers.", at_least(1), scope="service"),
        Setting("headrace.sql.folder", Type.STRING, "data/sql",
                "The folder for checkpoints of queries and for views of tables. It belongs to one "
                "service.", scope="service"),
        Setting("headrace.sql.folder.lost", Type.BOOLEAN, False,
                "Start though the checkpoints of the queries are in another folder: each query "
                "begins again, at the beginning of its inputs. For a folder that is lost.",
                scope="service"),
        Setting("ksql.schema.registry.url", Type.STRING, "",
                "The schema registry for AVRO, JSON_SR and PROTOBUF, as http://HOST:PORT.",
                scope="service"),
        Setting("ksql.connect.url", Type.STRING, "",
                "A Kafka Connect worker for statements about connectors, as http://HOST:PORT.",
                scope="service"),
        Setting("ksql.output.topic.name.prefix", Type.STRING, "",
                "A prefix for the names of topics that statements do not name.", scope="service"),
        Setting("ksql.output.topic.replicas", Type.SHORT, -1,
                "The replication factor of topics that statements create and say nothing about; "
                "-1: the default of the brokers.", scope="service"),
        Setting("ksql.logging.processing.topic.name", Type.STRING, "",
                "The topic for records that cannot be read; empty: SERVICE-processing-log. It is "
                "created with the first of them.", scope="service"),
        Setting("headrace.sql.functions.enable", Type.BOOLEAN, False,
                "Allow CREATE FUNCTION. Python code of clients then runs with the rights of the "
                "server.", scope="service"),
        Setting("headrace.spark.master", Type.STRING, "local[4,4]",
                "The master of the Spark driver that runs the queries.", scope="service"),
        Setting("headrace.spark.conf", Type.LIST, (),
                "Settings of Spark, as NAME=VALUE.", scope="service"),
    )
}  # fmt: skip
