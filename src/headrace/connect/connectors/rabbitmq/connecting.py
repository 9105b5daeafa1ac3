"""Connections to RabbitMQ: the options, TLS, and which errors are permanent."""

import contextlib
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

from headrace.connect.connectors.pem_files import tls_context
from headrace.connect.plugin import Connector, Option, Password, PermanentError

if TYPE_CHECKING:
    from pika import ConnectionParameters
    from pika.adapters.blocking_connection import BlockingConnection

TRUSTED = "rabbitmq.https.ssl.truststore.location"
OWN = "rabbitmq.https.ssl.keystore.location"
PERMANENT = (403, 404, 406, 530)
"""Reply codes that do not pass: access refused, no such queue or exchange, a queue with other
properties, no such virtual host."""

CONNECTION = (
    Option("rabbitmq.host", str, "localhost", "The server.", importance="high",
           group="Connection"),
    Option("rabbitmq.port", int, 5672, "Its port; 5671 is usual with TLS.", group="Connection"),
    Option("rabbitmq.username", str, "guest", "The user.", importance="high", group="Connection"),
    Option("rabbitmq.password", Password, "guest", "The password.", importance="high",
           group="Connection"),
    Option("rabbitmq.virtual.host", str, "/", "The virtual host.", importance="high",
           group="Connection"),
    Option("rabbitmq.connection.timeout.ms", int, 60_000, "How long connecting may take.",
           importance="low", group="Connection"),
    Option("rabbitmq.requested.heartbeat.seconds", int, 60,
           "After how many quiet seconds the connection is tested; 0: never.", importance="low",
           group="Connection"),
    Option("rabbitmq.security.protocol", str, "PLAINTEXT", "Whether TLS is used.",
           ("PLAINTEXT", "SSL"), "medium", "TLS"),
    Option(TRUSTED, str, "",
           "A PEM file with the certificates of trusted authorities; empty: the system's.",
           group="TLS"),
    Option(OWN, str, "",
           "A PEM file with a certificate and its key, for servers that ask for one.",
           group="TLS"),
    Option("rabbitmq.https.ssl.key.password", Password, "", "The password of the key.",
           group="TLS"),
)  # fmt: skip
IGNORED = (
    "confluent.license",
    "confluent.topic",
    "confluent.topic.bootstrap.servers",
    "confluent.topic.replication.factor",
    "rabbitmq.automatic.recovery.enabled",
    "rabbitmq.handshake.timeout.ms",
    "rabbitmq.https.ssl.keystore.password",
    "rabbitmq.https.ssl.truststore.password",
    "rabbitmq.network.recovery.interval.ms",
    "rabbitmq.requested.channel.max",
    "rabbitmq.requested.frame.max",
    "rabbitmq.shutdown.timeout.ms",
    "rabbitmq.topology.recovery.enabled",
)


class RabbitMqConnector(Connector):
    """The options of a connection, as attributes."""

    rabbitmq_host: str
    rabbitmq_port: int
    rabbitmq_username: str
    rabbitmq_password: str
    rabbitmq_virtual_host: str
    rabbitmq_connection_timeout_ms: int
    rabbitmq_requested_heartbeat_seconds: int
    rabbitmq_security_protocol: str
    rabbitmq_https_ssl_key_password: str

    def parameters(self) -> "ConnectionParameters":
        """The options as the client library takes them."""
        import pika

        # Its errors are raised as well, and are then the connector's.
        logging.getLogger("pika").setLevel(logging.CRITICAL)
        tls = None
        if self.rabbitmq_security_protocol == "SSL":
            context = tls_context(self, TRUSTED, OWN, self.rabbitmq_https_ssl_key_password)
            tls = pika.SSLOptions(context, self.rabbitmq_host)
        timeout_s = self.rabbitmq_connection_timeout_ms / 1000
        return pika.ConnectionParameters(
            self.rabbitmq_host,
            self.rabbitmq_port,
            self.rabbitmq_virtual_host,
            pika.PlainCredentials(self.rabbitmq_username, self.rabbitmq_password),
            heartbeat=self.rabbitmq_requested_heartbeat_seconds,
            ssl_options=tls,
            socket_timeout=timeout_s,
            stack_timeout=timeout_s,
            blocked_connection_timeout=timeout_s,
            client_properties={"connection_name": f"headrace {self.config.get('name', '')}"},
        )

    @property
    def address(self) -> str:
        return f"{self.rabbitmq_host}:{self.rabbitmq_port}"

    @contextlib.contextmanager
    def connected(self) -> "Iterator[BlockingConnection]":
        """A connection; errors are PermanentError or ConnectionError."""
        import pika

        with self.translated():
            connection = pika.BlockingConnection(self.parameters())
            try:
                yield connection
            finally:
                with contextlib.suppress(pika.exceptions.AMQPError):
                    connection.close()

    @contextlib.contextmanager
    def translated(self) -> Iterator[None]:
        """Errors of the library as PermanentError or ConnectionError."""
        from pika import exceptions

        server = f"the RabbitMQ server {self.address}"
        try:
            yield
        except exceptions.ProbableAuthenticationError:
            raise PermanentError(
                f"{server} refuses the user {self.rabbitmq_username} or the password"
            ) from None
        except exceptions.ProbableAccessDeniedError:
            raise PermanentError(
                f"{server} has no virtual host {self.rabbitmq_virtual_host} for the user "
                f"{self.rabbitmq_username}"
            ) from None
        except (exceptions.ChannelClosedByBroker, exceptions.ConnectionClosedByBroker) as error:
            message = f"{server} says: {error.reply_text}"
            if error.reply_code in PERMANENT:
                raise PermanentError(message) from None
            raise ConnectionError(message) from None
        except (exceptions.AMQPError, OSError) as error:
            if type(error) is ConnectionError:
                # It has a sentence already.
                raise
            raise ConnectionError(f"{server} cannot be reached: {error!r}") from None
