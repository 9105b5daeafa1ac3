"""`headrace security check`: connects like a client, step by step.

It stops at the first step that fails, because the later ones depend on it.
"""

import socket
import ssl
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from headrace.cli.client import read_properties_file
from headrace.cli.failures import Failure
from headrace.client.cluster import Cluster
from headrace.client.config import ClientConfig, Security, client_config, from_librdkafka
from headrace.client.connection import Connection
from headrace.client.errors import ClientError
from headrace.errors import ErrorCode, KafkaError
from headrace.security.acls import SUPPORTED, AclOperation, ResourceType
from headrace.security.x509 import Certificate, parse_certificate
from headrace.types import Address

TIMEOUT_S = 10.0
WARN_DAYS = 30
_OTHERS_MAY_READ = 0o077


class Step(NamedTuple):
    """The result of one step."""

    what: str
    ok: bool
    detail: str


class _Wrong(Exception):
    """A failed step: the problem, and what to do."""


def check_client(path: Path, bootstrap: str | None = None, topic: str | None = None) -> list[Step]:
    """The steps of a client that uses this file, up to the first that fails."""
    client = _Client(path, bootstrap, topic)
    steps: list[Step] = []
    for what, look in client.steps():
        try:
            steps.append(Step(what, True, look()))
        except _Wrong as wrong:
            return [*steps, Step(what, False, str(wrong))]
    return steps


class _Client:
    def __init__(self, path: Path, bootstrap: str | None, topic: str | None) -> None:
        self._path = path
        self._bootstrap = bootstrap
        self._topic = topic
        self._config: ClientConfig | None = None

    @property
    def config(self) -> ClientConfig:
        assert self._config is not None, "the file is read first"
        return self._config

    def steps(self) -> Iterator[tuple[str, Callable[[], str]]]:
        """The steps for the protocol in the file."""
        yield "file", self._read
        yield "network", self._reach
        if self.config.security.tls:
            yield "TLS", self._shake_hands
        if self.config.security.login:
            yield "login", self._log_in
        yield "advertised addresses", self._advertised
        yield "permissions", self._permissions

    def _read(self) -> str:
        try:
            properties = read_properties_file(str(self._path))
            if self._bootstrap is not None:
                properties["bootstrap.servers"] = self._bootstrap
            self._config = replace(
                client_config(from_librdkafka(properties)),
                connect_timeout_s=TIMEOUT_S,
                request_timeout_s=TIMEOUT_S,
                total_timeout_s=TIMEOUT_S,
            )
        except Failure as failure:
            raise _Wrong(failure.message.removeprefix("--client-config ")) from None
        except ClientError as error:
            raise _Wrong(str(error)) from None
        security = self._config.security
        if security.password and self._path.stat().st_mode & _OTHERS_MAY_READ:
            raise _Wrong(f"other users may read the password in it; chmod 600 {self._path}")
        for file in (security.ca_file, security.certificate_file, security.key_file):
            if file is not None and not Path(file).is_file():
                raise _Wrong(f"its file {file} does not exist")
        if security.login:
            return f"{security.protocol} as {security.username} with {security.mechanism}"
        return security.protocol

    def _reach(self) -> str:
        for address in self.config.bootstrap:
            _check_reachable(address)
        return f"{', '.join(map(str, self.config.bootstrap))} accepts connections"

    def _shake_hands(self) -> str:
        details = [self._check_certificate(address) for address in self.config.bootstrap]
        return "; ".join(details)

    def _log_in(self) -> str:
        security = self.config.security
        try:
            Connection(self.config.bootstrap[0], self.config).close()
        except KafkaError as error:
            if error.code is ErrorCode.SASL_AUTHENTICATION_FAILED:
                raise _Wrong(
                    f"the broker refuses {security.username}: wrong password, or no such user. "
                    "`headrace users list` shows the users; the broker's log has the reason"
                ) from None
            raise _Wrong(str(error)) from None
        except ClientError as error:
            raise _Wrong(str(error)) from None
        return f"{security.username} is logged in"

    def _advertised(self) -> str:
        with self._cluster() as cluster:
            addresses = list(cluster.brokers().values())
        for address in addresses:
            try:
                _check_reachable(address)
                if self.config.security.tls:
                    self._check_certificate(address)
            except _Wrong as wrong:
                raise _Wrong(f"clients use {address} (advertised.listeners), but {wrong}") from None
        return ", ".join(map(str, addresses))

    def _permissions(self) -> str:
        from kio.schema.metadata.v12.request import MetadataRequest, MetadataRequestTopic
        from kio.schema.metadata.v12.response import MetadataResponse

        from headrace.wire.primitives import TopicName

        if self._topic is None:
            with self._cluster() as cluster:
                count = len(cluster.topics(None))
            return f"it sees {count} topic{'' if count == 1 else 's'}; --topic NAME shows more"
        asked = MetadataRequestTopic(topic_id=None, name=TopicName(self._topic))
        request = MetadataRequest(
            topics=(asked,),
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=True,
        )
        with self._cluster() as cluster:
            (row,) = cluster.ask(request, MetadataResponse).topics
        code = int(row.error_code)
        if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise _Wrong(f"topic {self._topic} does not exist")
        allowed = _operations(int(row.topic_authorized_operations))
        if code or not {AclOperation.READ, AclOperation.WRITE} & set(allowed):
            raise _Wrong(
                f"it may neither read nor write topic {self._topic}. An administrator can find "
                "the reason with `headrace acls explain`, and add an ACL with `headrace acls add`"
            )
        names = ", ".join(one.name.lower() for one in allowed)
        return f"it may {names} topic {self._topic}"

    def _cluster(self) -> "_Open":
        return _Open(self.config)

    def _check_certificate(self, address: Address) -> str:
        """Verify the certificate like clients; the message is derived from the certificate."""
        security = self.config.security
        try:
            certificate = _handshake(address, _context(security))
        except ssl.SSLCertVerificationError as error:
            raise _Wrong(_verification_text(address, error, security.ca_file)) from None
        except OSError as error:
            raise _Wrong(
                f"{address} does not use TLS, or refuses the handshake ({error}). Is it the "
                "port of a listener with SSL or SASL_SSL?"
            ) from None
        left = (certificate.not_after - datetime.now(UTC)).days
        if left < WARN_DAYS:
            return (
                f"the certificate of {address} expires in {left} days: run headrace security renew"
            )
        return f"the certificate of {address} is valid for {left} days"


class _Open(Cluster):
    """A client whose errors describe the problem."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.close()
        if isinstance(error, (ClientError, KafkaError)):
            raise _Wrong(str(error)) from None


def _check_reachable(address: Address) -> None:
    try:
        socket.create_connection(address, TIMEOUT_S).close()
    except OSError as error:
        raise _Wrong(f"{address} cannot be reached: {error.strerror or error}") from None


def _context(security: Security) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=security.ca_file)
    except ssl.SSLError:
        raise _Wrong(f"{security.ca_file} has no certificates in PEM form") from None
    context.check_hostname = security.check_host
    if security.certificate_file is not None:
        try:
            # Without a callback OpenSSL would prompt for a password on the terminal.
            context.load_cert_chain(
                security.certificate_file, security.key_file, lambda: security.key_password or ""
            )
        except ssl.SSLError as error:
            raise _Wrong(f"{security.certificate_file} cannot be used: {error.reason}") from None
    return context


def _handshake(address: Address, context: ssl.SSLContext) -> Certificate:
    with (
        socket.create_connection(address, TIMEOUT_S) as plain,
        context.wrap_socket(plain, server_hostname=address.host) as wrapped,
    ):
        return parse_certificate(wrapped.getpeercert(binary_form=True) or b"")


def _verification_text(
    address: Address, error: ssl.SSLCertVerificationError, ca_file: str | None
) -> str:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        certificate = _handshake(address, context)
    except OSError:
        return f"the certificate of {address} is refused: {error.verify_message}"
    if not certificate.not_before <= datetime.now(UTC) <= certificate.not_after:
        return (
            f"the certificate of {address} is valid from {certificate.not_before:%Y-%m-%d} to "
            f"{certificate.not_after:%Y-%m-%d} only; `headrace security renew` creates a new one"
        )
    if not certificate.names(address.host):
        return (
            f"the certificate is not valid for {address.host}, but only for "
            f"{', '.join(sorted(certificate.hosts))}; add it with `headrace security renew --host "
            f"{address.host}`, or connect to one of these names"
        )
    trusted = ca_file or "the system's authorities"
    return f"the certificate of {address} is not issued by {trusted}: {error.verify_message}"


def _operations(bits: int) -> list[AclOperation]:
    return [
        one for one in sorted(SUPPORTED[ResourceType.TOPIC]) if bits > 0 and bits >> int(one) & 1
    ]
