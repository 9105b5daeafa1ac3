"""The folder of `security init`: all files of a secured broker and its clients.

    ca.pem ca.key                the authority of the cluster, and its private key
    broker.pem                   the broker's private key and certificate
    broker.properties            the settings of the broker
    USER.properties              client files of a user: librdkafka and `headrace`,
    USER.java.properties         Java,
    USER.kcat.conf               kcat,
    USER.python.json             kafka-python, aiokafka and confluent-kafka,
    USER.spark.json              Spark
    registry.pem                 the schema registry's private key and certificate
    registry-http.properties     the settings of its HTTP API, also for the other services, and
    http-users                   the users of that
    USER.registry.json           for clients of that API

All files except ca.pem are readable by their owner only. Users are not created here.
"""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from headrace.security.certificates import CERTIFICATE_DAYS, CertificateAuthority
from headrace.security.client_login import SCRAM, ClientLogin, jaas_text
from headrace.security.http_users import verifier_text, write_user
from headrace.security.x509 import Certificate, pem_blocks, read_certificate

ADMIN, BROKER = "admin", "broker"
REGISTRY, CONNECT, SQL, CONSOLE = "registry", "connect", "sql", "console"
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")


class SecuredFolder:
    """The files, and their contents."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()

    @property
    def ca_file(self) -> Path:
        return self.path / "ca.pem"

    @property
    def ca_key_file(self) -> Path:
        return self.path / "ca.key"

    @property
    def key_store_file(self) -> Path:
        return self.path / "broker.pem"

    @property
    def registry_key_store_file(self) -> Path:
        return self.path / "registry.pem"

    @property
    def registry_file(self) -> Path:
        return self.path / "registry-http.properties"

    @property
    def http_users_file(self) -> Path:
        return self.path / "http-users"

    @property
    def broker_file(self) -> Path:
        return self.path / "broker.properties"

    def certificate(self) -> Certificate:
        """The broker's certificate; ValueError or OSError without one."""
        for kind, block in pem_blocks(self.key_store_file.read_text()):
            if kind == "CERTIFICATE":
                return read_certificate(block)
        raise ValueError(f"{self.key_store_file} contains no certificate")

    def make_certificates(self, hosts: Sequence[str]) -> None:
        """A new authority, and certificates of broker and registry for these hosts."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        authority = CertificateAuthority.make("Headrace cluster authority")
        self._write(self.ca_key_file, authority.key_pem)
        self._write(self.ca_file, authority.pem, mode=0o644)
        self._write(self.key_store_file, authority.issue(BROKER, hosts))
        self._write(self.registry_key_store_file, authority.issue(REGISTRY, hosts))

    def renew(self, more_hosts: Sequence[str] = (), days: int = CERTIFICATE_DAYS) -> Certificate:
        """New keys and certificates for the present hosts and for more; returns the broker's."""
        authority = CertificateAuthority.load(
            self.ca_key_file.read_text(), self.ca_file.read_text()
        )
        hosts = dict.fromkeys([*sorted(self.certificate().hosts), *more_hosts])
        self._write(self.key_store_file, authority.issue(BROKER, hosts, days))
        if self.registry_key_store_file.exists():
            self._write(self.registry_key_store_file, authority.issue(REGISTRY, hosts, days))
        return self.certificate()

    def broker_settings(self, password: str) -> dict[str, str]:
        """The settings except addresses; `password` is that of the brokers' own user."""
        return {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.key_store_file),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.ca_file),
            "sasl.enabled.mechanisms": "SCRAM-SHA-512,SCRAM-SHA-256,PLAIN",
            "sasl.mechanism.inter.broker.protocol": SCRAM,
            "listener.name.sasl_ssl.sasl.jaas.config": jaas_text(BROKER, password),
            "authorizer.class.name": AUTHORIZER,
            "super.users": f"User:{ADMIN};User:{BROKER}",
        }

    def write_broker_file(self, settings: Mapping[str, str]) -> None:
        """Write the file for `headrace serve --config`."""
        self._write(self.broker_file, properties_text(settings))

    def write_registry_files(
        self, bind: str, host: str, port: int, passwords: Mapping[str, str]
    ) -> None:
        """The settings of the registry's HTTP API, its users, and a file for clients of each."""
        for username, password in passwords.items():
            write_user(self.http_users_file, username, f"{verifier_text(password)},admin")
            client = {
                "url": f"https://{host}:{port}",
                "ssl.ca.location": str(self.ca_file),
                "basic.auth.user.info": f"{username}:{password}",
            }
            path = self.path / f"{username}.registry.json"
            self._write(path, json.dumps(client, indent=2) + "\n")
        settings = {
            "listeners": f"https://{bind}:{port}",
            "ssl.keystore.location": str(self.registry_key_store_file),
            "authentication.method": "BASIC",
            "headrace.authentication.users.file": str(self.http_users_file),
        }
        self._write(self.registry_file, properties_text(settings))

    def write_client_file(self, login: ClientLogin) -> Path:
        """Write the file of a user for librdkafka and `headrace`."""
        path = self.path / f"{login.username}.properties"
        self._write(path, properties_text(login.librdkafka()))
        return path

    def write_all_client_files(self, login: ClientLogin) -> list[Path]:
        """Write the files of a user for all clients."""
        python = {
            "confluent_kafka": login.librdkafka(),
            "kafka_python": login.kafka_python(),
            "aiokafka": login.aiokafka(),
        }
        texts = {
            "java.properties": properties_text(login.java()),
            # Brokers refuse SCRAM of the librdkafka in Debian's kcat; PLAIN is safe within TLS.
            "kcat.conf": properties_text(login.librdkafka("PLAIN")),
            "python.json": json.dumps(python, indent=2) + "\n",
            "spark.json": json.dumps(login.spark(), indent=2) + "\n",
        }
        paths = [self.write_client_file(login)]
        for suffix, text in texts.items():
            paths.append(self.path / f"{login.username}.{suffix}")
            self._write(paths[-1], text)
        return paths

    def _write(self, path: Path, text: str, mode: int = 0o600) -> None:
        """Write a file atomically; readers see the old or the new content."""
        new = path.with_name(f".{path.name}.new")
        new.unlink(missing_ok=True)
        fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with open(fd, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        new.rename(path)


def properties_text(values: Mapping[str, str]) -> str:
    """Java properties, one per line."""
    return "".join(f"{name}={value}\n" for name, value in values.items())
