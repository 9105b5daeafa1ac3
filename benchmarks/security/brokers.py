"""The two secured brokers: listeners without TLS, with TLS, and with TLS and logins."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.blaster import WORK
from benchmarks.sides import KAFKA_HEAP_MB, KAFKA_SETTINGS, Broker, SideName, Sides
from headrace.client.cluster import Cluster
from headrace.client.config import ClientConfig, parse_bootstrap
from headrace.client.users import set_password
from tests.security.authority import Authority, write
from tests.security.issuer import AUDIENCE, ISSUER, SigningKey, write_key_set
from tests.support.apache_kafka import ApacheKafka
from tests.support.headrace_broker import HeadraceBroker
from tests.support.ports import free_port

USER, PASSWORD = "alice", "alice-password"
SCRAM, BEARER = "SCRAM-SHA-256", "OAUTHBEARER"
_LISTENER = "listener.name.sasl_ssl"
_MODULES = "org.apache.kafka.common.security"
_BEARER = f"{_MODULES}.oauthbearer"


class SecuredKafka(ApacheKafka):
    """Apache Kafka with three listeners."""

    tls_port: int
    login_port: int
    token: str


class SecuredHeadrace(HeadraceBroker):
    """Headrace with three listeners."""

    tls_port: int
    login_port: int
    token: str


Secured = SecuredKafka | SecuredHeadrace


class Credentials:
    """What both brokers and their clients use: a certificate, and a signed token."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        authority = Authority()
        own = authority.issue("CN=broker")
        self.key_store = write(folder / "broker.pem", own.key_pem(), own.certificate_pem)
        os.chmod(self.key_store, 0o600)
        key = SigningKey("benchmark")
        self.key_set_url = write_key_set(folder / "keys.json", key)
        self.token = key.token()

    def settings(self) -> dict[str, str]:
        """What both brokers are told in the same words."""
        return {
            "quota.window.num": "3",  # so that the row of a reached quota takes seconds
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": self.key_store,
            "sasl.enabled.mechanisms": f"{SCRAM},{BEARER}",
            "sasl.oauthbearer.jwks.endpoint.url": self.key_set_url,
            "sasl.oauthbearer.expected.issuer": ISSUER,
            "sasl.oauthbearer.expected.audience": AUDIENCE,
        }


def make(name: SideName, credentials: Credentials, label: str = "secured") -> Secured:
    """A secured broker on an empty folder; not started."""
    folder = WORK / f"{name}-{label}"
    shutil.rmtree(folder, ignore_errors=True)
    port, tls_port, login_port = free_port(), free_port(), free_port()
    listeners = f"PLAINTEXT://127.0.0.1:{port},SSL://127.0.0.1:{tls_port}"
    listeners += f",SASL_SSL://127.0.0.1:{login_port}"
    settings = credentials.settings()
    broker: Secured
    if name == "headrace":
        settings["listeners"] = listeners
        broker = SecuredHeadrace(folder, port=port, settings=settings)
    else:
        controller_port = free_port()
        settings |= KAFKA_SETTINGS | {
            "listeners": f"{listeners},CONTROLLER://127.0.0.1:{controller_port}",
            "advertised.listeners": listeners,
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller_port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_SSL:SASL_SSL,"
            "CONTROLLER:PLAINTEXT",
            f"{_LISTENER}.scram-sha-256.sasl.jaas.config": f"{_MODULES}.scram.ScramLoginModule "
            "required;",
            f"{_LISTENER}.oauthbearer.sasl.jaas.config": f"{_BEARER}.OAuthBearerLoginModule "
            "required;",
            f"{_LISTENER}.oauthbearer.sasl.server.callback.handler.class": f"{_BEARER}."
            "OAuthBearerValidatorCallbackHandler",
            # Without it Kafka 4.1 takes tokens of any key.
            "sasl.oauthbearer.jwt.validator.class": f"{_BEARER}.BrokerJwtValidator",
        }
        broker = SecuredKafka(folder, heap_mb=KAFKA_HEAP_MB, port=port, settings=settings)
    broker.tls_port, broker.login_port = tls_port, login_port
    broker.token = credentials.token
    return broker


def start(broker: Secured, credentials: Credentials) -> None:
    """Start it, and give it a user."""
    allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={credentials.key_set_url}"
    os.environ["JAVA_TOOL_OPTIONS"] = allowed
    try:
        broker.start()
    finally:
        del os.environ["JAVA_TOOL_OPTIONS"]
    with cluster_of(broker) as cluster:
        set_password(cluster, USER, PASSWORD, [SCRAM])


@contextmanager
def cluster_of(broker: Broker) -> Iterator[Cluster]:
    """A client for administration, without TLS."""
    with Cluster(ClientConfig(parse_bootstrap(broker.bootstrap))) as cluster:
        yield cluster


class SecuredSides(Sides):
    """Both brokers; each starts when it is first asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.credentials = Credentials(WORK / "credentials")

    def __getitem__(self, name: SideName) -> Broker:
        if name not in self._running:
            broker = make(name, self.credentials)
            self._running[name] = broker
            start(broker, self.credentials)
        return self._running[name]
