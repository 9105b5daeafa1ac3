"""Spark's settings `spark.kafka.clusters.*`: logins to clusters, by the addresses of brokers.

The names are those of Spark's own Kafka connector. Only the driver has these settings and logs in
with them; `delegation_tokens.py` gets tokens there, and hands them to all Python processes of Spark
in a file of `SparkContext.addFile`. Here such a process finds the login for a cluster in the newest
of these files. A query whose options have a login of their own uses that one.
"""

import base64
import json
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headrace.client.config import GSSAPI, PROTOCOLS, READ_HERE, ClientConfig, client_config
from headrace.client.errors import ClientError
from headrace.client.tokens import TokenDescription

PREFIX = "spark.kafka.clusters."
TOKEN_MECHANISM = "sasl.token.mechanism"
_AUTH, _TARGET, _PROTOCOL = (
    "auth.bootstrap.servers",
    "target.bootstrap.servers.regex",
    "security.protocol",
)
_KAFKA = "kafka."
_FILE = re.compile(r"headrace-kafka-clusters-(\d+)\.json")


@dataclass(frozen=True, slots=True)
class KafkaCluster:
    """One cluster of the settings."""

    name: str
    target: re.Pattern[str]
    """Addresses of brokers for which this login is used."""
    token_mechanism: str
    properties: Mapping[str, str] = field(repr=False)
    """The properties of the client that logs in to get tokens."""

    @property
    def has_tokens(self) -> bool:
        """Whether tasks log in with tokens; without SASL they have only the protocol and TLS."""
        return self.properties[_PROTOCOL].startswith("SASL")

    @property
    def shared(self) -> dict[str, str]:
        """The properties that tasks get: the protocol and the files of TLS, no login."""
        return {
            name: value
            for name, value in self.properties.items()
            if name == _PROTOCOL or name.startswith("ssl.")
        }

    def client(self) -> ClientConfig:
        """The client that gets tokens; ClientError names the setting that is wrong."""
        return client_config(self.properties, f"{PREFIX}{self.name}.")


def parse_clusters(settings: Mapping[str, str]) -> list[KafkaCluster]:
    """The clusters of all Spark settings; ClientError if one is not valid."""
    found: dict[str, dict[str, str]] = {}
    for name, value in settings.items():
        if name.startswith(PREFIX):
            cluster, _, rest = name.removeprefix(PREFIX).partition(".")
            found.setdefault(cluster, {})[rest] = value
    return [_parse(name, values) for name, values in sorted(found.items())]


def _parse(name: str, values: Mapping[str, str]) -> KafkaCluster:
    prefix = f"{PREFIX}{name}."
    properties = {_PROTOCOL: "SASL_SSL", "sasl.kerberos.service.name": "kafka"}
    for rest, value in values.items():
        if rest in (_AUTH, _TARGET, TOKEN_MECHANISM):
            continue
        plain = rest.removeprefix(_KAFKA)
        if plain == rest and rest != _PROTOCOL and not rest.startswith(("sasl.", "ssl.")):
            raise ClientError(
                f"{prefix}{rest}: no such setting; known are {_AUTH}, {_TARGET}, {_PROTOCOL}, "
                f"{TOKEN_MECHANISM}, sasl.*, ssl.*, and {_KAFKA}* for any property of the client"
            )
        properties[plain] = value
    # Settings with the prefix kafka. override the others, as in Spark.
    properties |= {
        rest.removeprefix(_KAFKA): value
        for rest, value in values.items()
        if rest.startswith(_KAFKA)
    }
    properties.setdefault("sasl.mechanism", GSSAPI)
    if not values.get(_AUTH):
        raise ClientError(f"{prefix}{_AUTH} is missing: the brokers that issue tokens")
    properties["bootstrap.servers"] = values[_AUTH]
    properties[_PROTOCOL] = properties[_PROTOCOL].upper()
    if properties[_PROTOCOL] not in PROTOCOLS:
        raise ClientError(f"{prefix}{_PROTOCOL}: expected one of {', '.join(PROTOCOLS)}")
    mechanism = values.get(TOKEN_MECHANISM, "SCRAM-SHA-512")
    if mechanism not in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        raise ClientError(
            f"{prefix}{TOKEN_MECHANISM}={mechanism}: expected SCRAM-SHA-256 or SCRAM-SHA-512"
        )
    try:
        target = re.compile(values.get(_TARGET, ".*"))
    except re.error as error:
        raise ClientError(f"{prefix}{_TARGET}: not a regular expression: {error}") from error
    return KafkaCluster(name, target, mechanism, properties)


# ------------------------------------------------------------------------------------- the file


def file_name(number: int) -> str:
    """The name of the file with tokens; a later one has a higher number."""
    return f"headrace-kafka-clusters-{number}.json"


def file_text(clusters: Iterable[tuple[KafkaCluster, TokenDescription | None]]) -> str:
    """The content of the file: for each cluster what tasks need, and a token."""
    rows = [
        {
            "name": cluster.name,
            "target": cluster.target.pattern,
            "mechanism": cluster.token_mechanism,
            "properties": cluster.shared,
            "token": None
            if token is None
            else {"id": token.id, "hmac": base64.b64encode(token.hmac).decode()},
        }
        for cluster, token in clusters
    ]
    return json.dumps(rows)


def _rows() -> list[dict[str, Any]]:
    """The newest file that this process has; empty if the driver has not handed over any."""
    files = sys.modules.get("pyspark.core.files")
    root = getattr(files.SparkFiles, "_root_directory", None) if files is not None else None
    if not root:
        return []
    # The processes of streaming sources get a folder within that of added files as their root.
    files_found = {
        int(match[1]): path
        for folder in (Path(root), Path(root).parent)
        if folder.is_dir()
        for path in folder.iterdir()
        if (match := _FILE.fullmatch(path.name))
    }
    if not files_found:
        return []
    newest = files_found[max(files_found)]
    if newest.stat().st_mode & 0o077:
        # Executors create files with their umask.
        newest.chmod(0o600)
    rows: list[dict[str, Any]] = json.loads(newest.read_text())
    return rows


@dataclass(frozen=True, slots=True)
class HandedToken:
    """The login of a task: the token of a cluster in the newest file, looked up at each login."""

    cluster: str

    def read(self) -> tuple[str, str]:
        """The id of the token, and its HMAC."""
        for row in _rows():
            if row["name"] == self.cluster and row["token"] is not None:
                return row["token"]["id"], row["token"]["hmac"]
        raise ClientError(
            f"there is no delegation token of the cluster {self.cluster} "
            f"({PREFIX}{self.cluster}.*) in this process; is the driver's session still running?"
        )


def handed_properties(
    properties: Mapping[str, str],
) -> tuple[dict[str, str], HandedToken | None] | None:
    """A client's properties with those of the one cluster that matches its brokers, and its token.

    None if no cluster matches, or if the properties have a login of their own. ClientError if
    several match.
    """
    if any(name.startswith("sasl.") for name in properties):
        return None
    servers = [word.strip() for word in properties.get("bootstrap.servers", "").split(",")]
    rows = [row for row in _rows() if any(re.fullmatch(row["target"], one) for one in servers)]
    if not rows:
        return None
    if len(rows) > 1:
        names = ", ".join(f"{PREFIX}{row['name']}" for row in rows)
        raise ClientError(f"{names}: several match the brokers {', '.join(servers)}; expected one")
    (row,) = rows
    known = {name: value for name, value in row["properties"].items() if name in READ_HERE}
    merged = {**known, **properties, _PROTOCOL: row["properties"][_PROTOCOL]}
    if row["token"] is None:
        return merged, None
    return {**merged, "sasl.mechanism": row["mechanism"]}, HandedToken(row["name"])
