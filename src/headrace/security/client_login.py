"""A user's login over SASL_SSL, as the properties of each client library."""

from dataclasses import dataclass, field

SCRAM = "SCRAM-SHA-512"
_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"


@dataclass(frozen=True, slots=True)
class ClientLogin:
    """The address of a cluster, the trusted authority, and the credentials of a user."""

    bootstrap: str
    ca_file: str
    username: str
    password: str = field(repr=False)

    def librdkafka(self, mechanism: str = SCRAM) -> dict[str, str]:
        """Properties for confluent-kafka, kcat, other clients with librdkafka, and `headrace`."""
        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": self.ca_file,
            "sasl.mechanism": mechanism,
            "sasl.username": self.username,
            "sasl.password": self.password,
        }

    def java(self) -> dict[str, str]:
        """Properties for Kafka's Java clients and tools."""
        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "SASL_SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.ca_file,
            "sasl.mechanism": SCRAM,
            "sasl.jaas.config": jaas_text(self.username, self.password),
        }

    def spark(self) -> dict[str, str]:
        """Options of Spark's sources and sinks for Kafka, Headrace's and Spark's own."""
        return {f"kafka.{name}": value for name, value in self.java().items()}

    def kafka_python(self) -> dict[str, str]:
        """Arguments of kafka-python's clients."""
        return {**self.aiokafka(), "ssl_cafile": self.ca_file}

    def aiokafka(self) -> dict[str, str]:
        """Arguments of aiokafka's clients; they also need an `ssl_context`."""
        return {
            "bootstrap_servers": self.bootstrap,
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": SCRAM,
            "sasl_plain_username": self.username,
            "sasl_plain_password": self.password,
        }


def jaas_text(username: str, password: str) -> str:
    """The value of `sasl.jaas.config` for a login with SCRAM."""
    return f'{_MODULE} required username="{_quoted(username)}" password="{_quoted(password)}";'


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
