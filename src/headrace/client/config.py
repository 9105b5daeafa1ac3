"""The configuration of a client, from properties with Kafka's names."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from headrace.client.bearer import TokenSource
from headrace.client.errors import ClientError
from headrace.client.kerberos import TicketSource, ticket_source
from headrace.types import Address

if TYPE_CHECKING:
    import ssl

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
OAUTHBEARER = "OAUTHBEARER"
GSSAPI = "GSSAPI"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", OAUTHBEARER, GSSAPI)
DEFAULT_PORT = 9092


class DelegationTokenSource(Protocol):
    """A place with a delegation token, which may be another one at the next login."""

    def read(self) -> tuple[str, str]:
        """The id of the token, and its HMAC."""


@dataclass(frozen=True, slots=True)
class Security:
    """The security protocol and SASL settings of a client."""

    protocol: str = "PLAINTEXT"
    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None
    key_password: str | None = field(default=None, repr=False)
    check_host: bool = True
    mechanism: str = "PLAIN"
    username: str = ""
    password: str = field(default="", repr=False)
    by_token: bool = False
    """Whether user name and password are the id and the HMAC of a delegation token."""
    delegation: DelegationTokenSource | None = None
    """For SCRAM, instead of a user name and a password."""
    tokens: TokenSource | None = None
    """For OAUTHBEARER, instead of a password."""
    tickets: TicketSource | None = None
    """For GSSAPI, instead of a password."""
    context: "ssl.SSLContext | None" = field(default=None, repr=False, compare=False)
    """For TLS, instead of a context that is made from the files."""

    @property
    def tls(self) -> bool:
        return self.protocol.endswith("SSL")

    @property
    def login(self) -> bool:
        return self.protocol.startswith("SASL")

    def current(self) -> "Security":
        """The same with the delegation token of this moment, if it logs in with one."""
        if self.delegation is None:
            return self
        username, password = self.delegation.read()
        return replace(self, username=username, password=password, by_token=True)


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """Addresses, timeouts and security of a client; picklable for Spark's executors."""

    bootstrap: tuple[Address, ...]
    client_id: str = "headrace"
    request_timeout_s: float = 30.0
    total_timeout_s: float = 60.0
    """How long a request is retried."""
    retry_backoff_s: float = 0.1
    retry_backoff_max_s: float = 1.0
    connect_timeout_s: float = 10.0
    security: Security = Security()


READ_HERE = frozenset(
    {
        "bootstrap.servers",
        "client.id",
        "default.api.timeout.ms",
        "request.timeout.ms",
        "retry.backoff.ms",
        "retry.backoff.max.ms",
        "sasl.jaas.config",
        "sasl.kerberos.keytab",
        "sasl.kerberos.principal",
        "sasl.kerberos.service.name",
        "sasl.mechanism",
        "sasl.oauthbearer.client.credentials.client.id",
        "sasl.oauthbearer.client.credentials.client.secret",
        "sasl.oauthbearer.client.id",
        "sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.method",
        "sasl.oauthbearer.scope",
        "sasl.oauthbearer.token.endpoint.url",
        "sasl.password",
        "sasl.username",
        "security.protocol",
        "socket.connection.setup.timeout.ms",
        "ssl.ca.location",
        "ssl.certificate.location",
        "ssl.endpoint.identification.algorithm",
        "ssl.key.location",
        "ssl.key.password",
        "ssl.keystore.location",
        "ssl.keystore.type",
        "ssl.truststore.location",
        "ssl.truststore.type",
    }
)
"""Properties that `client_config` reads; all others are left to the caller."""


ONLY_JAVA = frozenset(
    {
        "sasl.jaas.config",
        "sasl.oauthbearer.client.credentials.client.id",
        "sasl.oauthbearer.client.credentials.client.secret",
        "ssl.keystore.type",
        "ssl.truststore.location",
        "ssl.truststore.type",
    }
)
"""Those of them for security that librdkafka does not have."""


def has_library_login(properties: Collection[str], security: "Security") -> bool:
    """Whether librdkafka has this login: its packages on PyPI have no GSSAPI.

    It has no tokens from files either, and not the names that only Java's clients have, such as
    those of delegation tokens.
    """
    if not ONLY_JAVA.isdisjoint(properties):
        return False
    from_file = security.tokens is not None and security.tokens.url.startswith("file:")
    return not security.login or (security.mechanism != GSSAPI and not from_file)


def client_config(
    properties: Mapping[str, str],
    prefix: str = "",
    delegation: DelegationTokenSource | None = None,
) -> ClientConfig:
    """The configuration of these properties; `prefix` precedes their names in errors.

    With `delegation` they have no user and no password.
    """
    said = _Properties(properties, prefix)
    return ClientConfig(
        bootstrap=parse_bootstrap(said.need("bootstrap.servers"), prefix + "bootstrap.servers"),
        client_id=said.get("client.id", "headrace"),
        request_timeout_s=said.seconds("request.timeout.ms", 30_000),
        total_timeout_s=said.seconds("default.api.timeout.ms", 60_000),
        retry_backoff_s=said.seconds("retry.backoff.ms", 100),
        retry_backoff_max_s=said.seconds("retry.backoff.max.ms", 1000),
        connect_timeout_s=said.seconds("socket.connection.setup.timeout.ms", 10_000),
        security=_security(said, delegation),
    )


def from_librdkafka(properties: Mapping[str, str]) -> dict[str, str]:
    """The properties for `client_config`, from properties that also configure librdkafka.

    Other properties of librdkafka are left out. A security property that only librdkafka supports
    is refused.
    """
    known = {name: value for name, value in properties.items() if name in READ_HERE}
    if "sasl.mechanisms" in properties:  # librdkafka's alias of sasl.mechanism
        known["sasl.mechanism"] = properties["sasl.mechanisms"]
    for name in properties.keys() - known.keys() - {"sasl.mechanisms"}:
        if name.startswith(("ssl.", "sasl.", "enable.ssl.", "enable.sasl.")):
            supported = sorted(
                each for each in READ_HERE if each.startswith(("ssl.", "sasl.", "security."))
            )
            raise ClientError(f"{name} is not supported; supported are {', '.join(supported)}")
    return known


def parse_bootstrap(text: str, name: str = "bootstrap.servers") -> tuple[Address, ...]:
    """host:port,host:port as addresses."""
    found: list[Address] = []
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        plain = part.rpartition("://")[2]
        match = re.fullmatch(r"(?:\[([^\]]+)\]|([^:\[\]]+))(?::(\d{1,5}))?", plain)
        if match is None or not 0 < int(match[3] or DEFAULT_PORT) < 65536:
            raise ClientError(f"{name}: {part!r} is not host:port")
        found.append(Address(match[1] or match[2], int(match[3] or DEFAULT_PORT)))
    if not found:
        raise ClientError(f"{name} is empty; expected host:port[,host:port...]")
    return tuple(found)


class _Properties:
    """Properties, with errors that include their names."""

    def __init__(self, values: Mapping[str, str], prefix: str) -> None:
        self._values = values
        self._prefix = prefix

    def get(self, name: str, default: str) -> str:
        return self._values.get(name, default)

    def maybe(self, name: str) -> str | None:
        return self._values.get(name)

    def need(self, name: str) -> str:
        value = self._values.get(name)
        if not value:
            raise ClientError(f"{self._prefix}{name} is missing")
        return value

    def seconds(self, name: str, default_ms: int) -> float:
        text = self._values.get(name)
        if text is None:
            return default_ms / 1000
        if not text.strip().isdigit() or int(text) <= 0:
            raise self.wrong(name, f"{text!r} is not a positive number of milliseconds")
        return int(text) / 1000

    def full_name(self, name: str) -> str:
        return f"{self._prefix}{name}"

    def wrong(self, name: str, why: str) -> ClientError:
        return ClientError(f"{self.full_name(name)}: {why}")


def _security(said: _Properties, delegation: DelegationTokenSource | None) -> Security:
    protocol = said.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in PROTOCOLS:
        raise said.wrong("security.protocol", f"{protocol} is not one of {', '.join(PROTOCOLS)}")
    security = Security(protocol=protocol)
    if not security.tls and not security.login:
        return security
    mechanism = said.get("sasl.mechanism", "PLAIN").upper()
    if security.login and mechanism not in MECHANISMS:
        raise said.wrong(
            "sasl.mechanism", f"{mechanism} is not supported; supported are {', '.join(MECHANISMS)}"
        )
    tokens = _tokens(said) if security.login and mechanism == OAUTHBEARER else None
    tickets = _tickets(said) if security.login and mechanism == GSSAPI else None
    username, password = "", ""
    if tokens is not None:
        username = tokens.client_id
    elif tickets is not None:
        username = tickets.principal
    elif security.login and delegation is None:
        username, password = _credentials(said)
    return Security(
        protocol=protocol,
        ca_file=said.maybe("ssl.ca.location") or _pem(said, "truststore"),
        certificate_file=said.maybe("ssl.certificate.location") or _pem(said, "keystore"),
        key_file=said.maybe("ssl.key.location"),
        key_password=said.maybe("ssl.key.password"),
        check_host=said.get("ssl.endpoint.identification.algorithm", "https") == "https",
        mechanism=mechanism,
        username=username,
        password=password,
        by_token=_TOKEN_LOGIN.search(said.maybe("sasl.jaas.config") or "") is not None,
        delegation=delegation,
        tokens=tokens,
        tickets=tickets,
    )


def _tickets(said: _Properties) -> TicketSource:
    """The source of tickets, in librdkafka's names or in Java's (JAAS)."""
    in_jaas = ticket_source(
        jaas_values(said.get("sasl.jaas.config", "")), said.get("sasl.kerberos.service.name", "")
    )
    tickets = replace(
        in_jaas,
        principal=said.maybe("sasl.kerberos.principal") or in_jaas.principal,
        keytab=said.maybe("sasl.kerberos.keytab") or in_jaas.keytab,
    )
    if tickets.keytab and not tickets.principal:
        raise said.wrong(
            "sasl.kerberos.principal", f"set it to the principal of the keytab {tickets.keytab}"
        )
    return tickets


def _tokens(said: _Properties) -> TokenSource:
    """The source of tokens, in librdkafka's names (`method=oidc`) or Java's."""
    method = said.get("sasl.oauthbearer.method", "oidc")
    if method.lower() != "oidc":
        raise said.wrong("sasl.oauthbearer.method", f"{method} is not supported; supported is oidc")
    url = "sasl.oauthbearer.token.endpoint.url"
    jaas = jaas_values(said.get("sasl.jaas.config", ""))

    def value(name: str, in_jaas: str) -> str:
        ours = said.maybe(f"sasl.oauthbearer.{name}")
        java = said.maybe(f"sasl.oauthbearer.client.credentials.{name}")
        return ours or java or jaas.get(in_jaas, "")

    tokens = TokenSource(
        said.need(url),
        value("client.id", "clientId"),
        value("client.secret", "clientSecret"),
        value("scope", "scope"),
    )
    if tokens.problem():
        raise said.wrong(url, f"{tokens.url}: {tokens.problem()}")
    return tokens


def _pem(said: _Properties, store: str) -> str | None:
    """The file of a Java key or trust store of type PEM; other types are refused."""
    place = said.maybe(f"ssl.{store}.location")
    if place is not None and said.get(f"ssl.{store}.type", "JKS").upper() != "PEM":
        instead = "ssl.ca.location" if store == "truststore" else "ssl.certificate.location"
        raise said.wrong(
            f"ssl.{store}.location",
            f"{place} is a Java key store; use a PEM file with ssl.{store}.type=PEM, "
            f"or set {instead} to one",
        )
    return place


_TOKEN_LOGIN = re.compile(r'\btokenauth\s*=\s*"?true\b', re.IGNORECASE)
"""A JAAS option: the user and the password are those of a delegation token."""


def _credentials(said: _Properties) -> tuple[str, str]:
    jaas = said.maybe("sasl.jaas.config")
    if jaas is None:
        return said.need("sasl.username"), said.need("sasl.password")
    return parse_jaas(jaas, said.full_name("sasl.jaas.config"))


def parse_jaas(text: str, name: str) -> tuple[str, str]:
    """The user and the password in a JAAS value; `name` is its setting."""
    values = jaas_values(text)
    if "username" not in values or "password" not in values:
        raise ClientError(f'{name}: expected ... required username="..." password="...";')
    return values["username"], values["password"]


def jaas_values(text: str) -> dict[str, str]:
    """The options in a JAAS value; a value without special characters needs no quotes."""
    found = re.findall(r'(\w+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s";]+))', text)
    return {key: re.sub(r"\\(.)", r"\1", quoted) or word for key, quoted, word in found}
