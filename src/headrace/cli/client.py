"""The Kafka clients of the command line, and their errors as Failures.

Records are produced and consumed with librdkafka, or with `headrace.client` if librdkafka does not
have the login; everything else goes through `headrace.client`.
librdkafka's admin client is not used: it aborts the process while brokers come and go.
Consumers here never join a group: positions are assigned by hand.
"""

import contextlib
import logging
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from headrace.cli.failures import ExitCode, Failure, bad_usage, not_found
from headrace.cli.option_table import DEFAULT_BOOTSTRAP

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Producer, ShareConsumer

    from headrace.cli.records.own_client import OwnConsumer, OwnProducer
    from headrace.client.cluster import Cluster as Connected
    from headrace.client.config import ClientConfig as OwnConfig
    from headrace.errors import ErrorCode
    from headrace.errors import KafkaError as ProtocolError
    from headrace.types import Address

CLIENT_ID = "headrace-cli"
CONNECT_TIMEOUT_S = 2.0
ANSWER_TIMEOUT_S = 5.0
DEFAULT_PORT = 9092

_silent = logging.getLogger("headrace.cli.librdkafka")
_silent.addHandler(logging.NullHandler())
_silent.propagate = False


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """Where the cluster is, and the client properties that the user gave."""

    bootstrap: str
    properties: Mapping[str, str] = field(default_factory=dict)

    @property
    def addresses(self) -> list[tuple[str, int]]:
        return [parse_address(word) for word in self.bootstrap.split(",") if word.strip()]


def connect(bootstrap: str, client_config: str | None = None) -> ClusterOptions:
    """The cluster, after a check that it accepts connections."""
    properties = read_properties_file(client_config) if client_config else {}
    bootstrap = take_bootstrap(properties, bootstrap)
    cluster = ClusterOptions(bootstrap, properties)
    check_listening(cluster)
    return cluster


def take_bootstrap(properties: dict[str, str], bootstrap: str) -> str:
    """The address of the cluster: --bootstrap, or the property in a --client-config file.

    The property is removed from the others, so that no client gets two addresses.
    """
    in_file = properties.pop("bootstrap.servers", bootstrap)
    return in_file if bootstrap == DEFAULT_BOOTSTRAP else bootstrap


def parse_address(text: str) -> tuple[str, int]:
    """`host`, `host:port` or `[v6]:port`."""
    host, colon, port = text.strip().rpartition(":")
    if not colon or host.endswith(":") or port.endswith("]"):
        return text.strip().strip("[]"), DEFAULT_PORT
    if not port.isdecimal() or not 0 < int(port) < 65536:
        raise bad_usage(
            f"--bootstrap {text!r} is not an address", "Use HOST:PORT, for example localhost:9092."
        )
    return host.strip("[]"), int(port)


def read_properties_file(path: str) -> dict[str, str]:
    """The properties of a --client-config file."""
    from pathlib import Path

    from headrace.settings.files import read_properties

    try:
        text = Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise bad_usage(f"--client-config {path}: {reason}") from None
    return {name: value for _, name, value in read_properties(text)}


def check_listening(cluster: ClusterOptions) -> None:
    """Fail immediately if nothing listens, where a client would retry for long."""
    reason = "no address given"
    for host, port in cluster.addresses:
        try:
            socket.create_connection((host, port), CONNECT_TIMEOUT_S).close()
        except OSError as error:
            reason = _reason(error)
        else:
            return
    raise unreachable(cluster, reason)


def _reason(error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return "no response"
    return (error.strerror or str(error)).lower()


def unreachable(cluster: ClusterOptions, reason: str) -> Failure:
    """The Failure if there is no Kafka cluster at the address."""
    return Failure(
        f"no Kafka cluster at {cluster.bootstrap}: {reason}",
        exit_code=ExitCode.UNREACHABLE,
        code="UNREACHABLE",
        hint="Is it running? Start one with `headrace serve`, or specify another with --bootstrap.",
    )


def producer(cluster: ClusterOptions, settings: Mapping[str, object]) -> "Producer | OwnProducer":
    """A producer: librdkafka's, if it can log in to the cluster."""
    if not _has_library_login(cluster):
        from headrace.cli.records.own_client import OwnProducer

        timeout_s = int(str(settings.get("message.timeout.ms", 30_000))) / 1000
        with translated(cluster):
            return OwnProducer(open_client(cluster, timeout_s), {**cluster.properties, **settings})
    from confluent_kafka import Producer

    with _translated_library(cluster):
        return Producer(_configuration(cluster, settings), logger=_silent)


def consumer(cluster: ClusterOptions, settings: Mapping[str, object]) -> "Consumer | OwnConsumer":
    """A consumer without a group, librdkafka's if it can log in.

    It reports the end of each partition.
    """
    if _has_library_login(cluster):
        return library_consumer(cluster, settings)
    from headrace.cli.records.own_client import OwnConsumer

    return OwnConsumer(open_client(cluster), settings, lambda: translated(cluster))


def library_consumer(cluster: ClusterOptions, settings: Mapping[str, object]) -> "Consumer":
    """librdkafka's consumer without a group; it reports the end of each partition."""
    from confluent_kafka import Consumer

    fixed: dict[str, object] = {
        # librdkafka requires a group id; no group is joined and no offset committed.
        "group.id": "headrace-cli",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,
        # Retention may delete records meanwhile; continue with the first that is left.
        "auto.offset.reset": "earliest",
        "allow.auto.create.topics": False,
        "fetch.wait.max.ms": 100,
    }
    with _translated_library(cluster):
        return Consumer(_configuration(cluster, {**fixed, **settings}), logger=_silent)


def share_consumer(cluster: ClusterOptions, group: str, max_records: int) -> "ShareConsumer":
    """librdkafka's consumer of a share group, with explicit acknowledgements."""
    from confluent_kafka import ShareConsumer

    settings = {
        "group.id": group,
        "share.acknowledgement.mode": "explicit",
        "max.poll.records": max_records,
    }
    with _translated_library(cluster):
        return ShareConsumer(_configuration(cluster, settings), logger=_silent)


def _has_library_login(cluster: ClusterOptions) -> bool:
    """Whether librdkafka has the login that the properties ask for."""
    from headrace.client.config import has_library_login

    with translated(cluster):
        return has_library_login(cluster.properties, _own_config(cluster).security)


def _configuration(cluster: ClusterOptions, settings: Mapping[str, object]) -> dict[str, object]:
    return {
        "bootstrap.servers": cluster.bootstrap,
        "client.id": CLIENT_ID,
        "socket.connection.setup.timeout.ms": 5000,
        "log_level": 0,
        **cluster.properties,
        **settings,
    }


def open_client(cluster: ClusterOptions, timeout_s: float = 2 * ANSWER_TIMEOUT_S) -> "Connected":
    """The client for all requests except records, with retries for `timeout_s` at most.

    Its exceptions are not translated: see `admin` and `translated`.
    """
    from headrace.client.cluster import Cluster as Connected

    with translated(cluster):
        config = replace(
            _own_config(cluster),
            connect_timeout_s=ANSWER_TIMEOUT_S,
            request_timeout_s=ANSWER_TIMEOUT_S,
            total_timeout_s=timeout_s,
        )
        return Connected(config)


def _own_config(cluster: ClusterOptions) -> "OwnConfig":
    from headrace.client.config import client_config

    return client_config(
        {
            "client.id": CLIENT_ID,
            **checked_properties(cluster.properties),
            "bootstrap.servers": cluster.bootstrap,
        }
    )


@contextlib.contextmanager
def admin(cluster: ClusterOptions) -> "Iterator[Connected]":
    """A client for all requests except records, as a context; its errors are translated."""
    with translated(cluster), open_client(cluster) as connected:
        yield connected


def checked_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """The properties of a --client-config file that `headrace.client` reads.

    librdkafka gets the whole file, so its other properties are allowed, but unknown names are not.
    A security property that only librdkafka supports is refused.
    """
    from headrace.client.config import READ_HERE, from_librdkafka
    from headrace.client.errors import ClientError

    try:
        known = from_librdkafka(properties)
    except ClientError as error:
        raise bad_usage(f"--client-config: {error}") from None
    others = properties.keys() - READ_HERE - {"sasl.mechanisms"}
    if others:
        _check_names({name: properties[name] for name in others})
    return known


def _check_names(properties: Mapping[str, str]) -> None:
    """A usage error if librdkafka does not know one of these properties. Does not connect."""
    from confluent_kafka import KafkaException, Producer

    try:
        Producer(dict(properties), logger=_silent)
    except KafkaException as error:
        raise bad_usage(f"--client-config: {plain_text(error.args[0])}") from None


@contextlib.contextmanager
def translated(cluster: ClusterOptions) -> Iterator[None]:
    """Turns the exceptions of `headrace.client` into Failures."""
    from headrace.client.errors import ClientError, Unreachable
    from headrace.errors import KafkaError

    try:
        yield
    except Unreachable as error:
        raise _no_answer(cluster, str(error)) from None
    except KafkaError as error:
        raise refusal(error) from None
    except ClientError as error:
        raise bad_usage(str(error)) from None


def refusal(error: "ProtocolError") -> Failure:
    """The Failure for an error in a broker's response."""
    from headrace.errors import ErrorCode

    text = _refusal_text(error)
    if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return not_found(text)
    if error.code in (
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    ):
        return _timed_out(text)
    return Failure(text, code=error.code.name, hint=_hint(error.code))


def _hint(code: "ErrorCode") -> str:
    """The hint for an error of logins or permissions."""
    if code.name == "SECURITY_DISABLED":
        return "Set authorizer.class.name on the brokers; see docs/security.md."
    if code.name == "SASL_AUTHENTICATION_FAILED":
        return "Check the user and the password in the file of --client-config."
    if code.name.endswith("AUTHORIZATION_FAILED"):
        return "An administrator can find the reason with `headrace acls explain`, and add an ACL."
    return ""


def _refusal_text(error: "ProtocolError") -> str:
    """The broker's message after its subject, without the code, which --json has."""
    text = str(error).removesuffix(f" (error {int(error.code)} {error.code.name})")
    subject, colon, message = text.partition(": ")
    message = message[:1].lower() + message[1:]
    return message if message.startswith(subject) else f"{subject}{colon}{message}"


@contextlib.contextmanager
def _translated_library(cluster: ClusterOptions) -> Iterator[None]:
    """Turns librdkafka's exceptions into Failures."""
    from confluent_kafka import KafkaException

    try:
        yield
    except KafkaException as error:
        raise failure(cluster, error.args[0]) from None


def failure(cluster: ClusterOptions, error: "KafkaError", what: str = "") -> Failure:
    """The Failure for one of librdkafka's errors."""
    from confluent_kafka import KafkaError

    code = error.code()
    text = plain_text(error)
    if code in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE):
        return unreachable(cluster, "it accepts connections, but does not respond like Kafka")
    if code in (KafkaError._TIMED_OUT, KafkaError._TIMED_OUT_QUEUE, KafkaError._MSG_TIMED_OUT):
        return _timed_out(f"{what or 'the request'}: no response from {cluster.bootstrap} in time")
    subject = f"{what}: " if what and what not in text else ""
    if code in (
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
    ):
        return not_found(f"{what or 'topic'} does not exist")
    if code == KafkaError._INVALID_ARG:
        return bad_usage(f"{subject}{text}")
    return Failure(f"{subject}{text}", code=error.name())


def plain_text(error: "KafkaError") -> str:
    """The library's message without its prefixes."""
    text = str(error.str())
    for prefix in ("Broker: ", "Local: ", "Failed to get metadata: Local: "):
        text = text.removeprefix(prefix)
    return text[:1].lower() + text[1:]


def _timed_out(message: str) -> Failure:
    return Failure(
        message,
        exit_code=ExitCode.UNREACHABLE,
        code="TIMED_OUT",
        hint="The cluster may be overloaded or in the middle of an election; try again.",
    )


def _no_answer(cluster: ClusterOptions, reason: str) -> Failure:
    """The Failure if a broker cannot be reached, often because of its advertised address."""
    for address in _advertised(cluster):
        try:
            socket.create_connection((address.host, address.port), CONNECT_TIMEOUT_S).close()
        except OSError as error:
            return Failure(
                f"{cluster.bootstrap} responds, but its broker advertises {address}, "
                f"which cannot be reached from here: {_reason(error)}",
                exit_code=ExitCode.UNREACHABLE,
                code="UNREACHABLE",
                hint="Set the broker's advertised address (`headrace serve --advertise`, "
                "`advertised.listeners`) to one that clients can reach.",
            )
    answer = unreachable(cluster, reason)
    if not cluster.properties.get("security.protocol"):
        answer.hint = (
            "It accepts connections. If it requires TLS or a login, use --client-config FILE."
        )
    return answer


def _advertised(cluster: ClusterOptions) -> "list[Address]":
    from headrace.client.errors import ClientError
    from headrace.errors import KafkaError

    try:
        with open_briefly(cluster, CONNECT_TIMEOUT_S) as connected:
            return list(connected.brokers().values())
    except (ClientError, KafkaError):
        return []


def open_briefly(cluster: ClusterOptions, timeout_s: float) -> "Connected":
    """A client with short time-outs, regardless of the properties."""
    from headrace.client.cluster import Cluster as Connected

    config = replace(
        open_client(cluster).config,
        connect_timeout_s=timeout_s,
        request_timeout_s=timeout_s,
        total_timeout_s=timeout_s,
    )
    return Connected(config)


def topic_names_now(bootstrap: str) -> list[str]:
    """Topic names for completion: an empty list unless a broker responds quickly."""
    return _names_now(bootstrap, lambda connected: connected.topics(None))


def group_names_now(bootstrap: str) -> list[str]:
    """Names of groups for completion; empty unless a broker responds quickly."""
    from headrace.client.groups import list_groups

    return _names_now(
        bootstrap, lambda connected: [each.name for each in list_groups(connected)[0]]
    )


def _names_now(bootstrap: str, ask: Callable[["Connected"], Iterable[str]]) -> list[str]:
    from headrace.client.errors import ClientError
    from headrace.errors import KafkaError

    try:
        host, port = parse_address(bootstrap.split(",")[0])
        socket.create_connection((host, port), 0.2).close()
        with open_briefly(ClusterOptions(bootstrap), 1.0) as connected:
            found = ask(connected)
    except (OSError, ClientError, KafkaError, Failure):
        return []
    return sorted(name for name in found if not name.startswith("__"))
