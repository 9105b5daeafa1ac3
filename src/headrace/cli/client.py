"""librdkafka's clients, built the one way this command line uses them, and its errors translated.

Consumers here never join a group: positions are assigned by hand. A cluster that does not answer
is reported at once and in one line; librdkafka's own log goes nowhere.
"""

import contextlib
import logging
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from headrace.cli.failures import ExitCode, Failure, bad_usage, not_found

if TYPE_CHECKING:
    from concurrent.futures import Future

    from confluent_kafka import Consumer, KafkaError, Producer
    from confluent_kafka.admin import AdminClient, ClusterMetadata, TopicDescription

    from headrace.client import cluster as client_cluster

CONNECT_TIMEOUT_S = 2.0
ANSWER_TIMEOUT_S = 5.0
SETTLE_TIMEOUT_S = 5.0
DEFAULT_PORT = 9092

_silent = logging.getLogger("headrace.cli.librdkafka")
_silent.addHandler(logging.NullHandler())
_silent.propagate = False


@dataclass(frozen=True, slots=True)
class Cluster:
    """Where the cluster is, and what the user wants the client library to know about it."""

    bootstrap: str
    properties: Mapping[str, str] = field(default_factory=dict)

    @property
    def plaintext(self) -> bool:
        """Whether a bare socket can speak to it."""
        return self.properties.get("security.protocol", "PLAINTEXT").upper() == "PLAINTEXT"

    @property
    def addresses(self) -> list[tuple[str, int]]:
        return [parse_address(word) for word in self.bootstrap.split(",") if word.strip()]


def connect(bootstrap: str, client_config: str | None = None) -> Cluster:
    """The cluster, after a first look that something listens there."""
    cluster = Cluster(bootstrap, read_properties_file(client_config) if client_config else {})
    check_listening(cluster)
    return cluster


def parse_address(text: str) -> tuple[str, int]:
    """`host`, `host:port` or `[v6]:port`."""
    host, colon, port = text.strip().rpartition(":")
    if not colon or host.endswith(":") or port.endswith("]"):
        return text.strip().strip("[]"), DEFAULT_PORT
    if not port.isdecimal() or not 0 < int(port) < 65536:
        raise bad_usage(
            f"--bootstrap {text!r} is not an address", "Give HOST:PORT, for example localhost:9092."
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


def check_listening(cluster: Cluster) -> None:
    """Fail at once where the client library would try for long."""
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
        return "no answer"
    return (error.strerror or str(error)).lower()


def unreachable(cluster: Cluster, reason: str) -> Failure:
    """Nobody there, or nobody who speaks Kafka."""
    return Failure(
        f"no Kafka cluster at {cluster.bootstrap}: {reason}",
        exit_code=ExitCode.UNREACHABLE,
        code="UNREACHABLE",
        hint="Is it running? Start one with `headrace serve`, or name another with --bootstrap.",
    )


def admin(cluster: Cluster) -> "AdminClient":
    from confluent_kafka.admin import AdminClient

    with translated(cluster):
        return AdminClient(_configuration(cluster, {}), logger=_silent)


def producer(cluster: Cluster, settings: Mapping[str, object]) -> "Producer":
    from confluent_kafka import Producer

    with translated(cluster):
        return Producer(_configuration(cluster, settings), logger=_silent)


def consumer(cluster: Cluster, settings: Mapping[str, object]) -> "Consumer":
    """A consumer outside any group; it tells when it reaches the end of a partition."""
    from confluent_kafka import Consumer

    fixed: dict[str, object] = {
        # The library insists on a name, though nothing is ever committed or joined under it.
        "group.id": "headrace-cli",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,
        # Retention may delete what was asked for in the meantime; go on with what is left.
        "auto.offset.reset": "earliest",
        "allow.auto.create.topics": False,
        "fetch.wait.max.ms": 100,
    }
    with translated(cluster):
        return Consumer(_configuration(cluster, {**fixed, **settings}), logger=_silent)


def _configuration(cluster: Cluster, settings: Mapping[str, object]) -> dict[str, object]:
    return {
        "bootstrap.servers": cluster.bootstrap,
        "client.id": "headrace-cli",
        "socket.connection.setup.timeout.ms": 5000,
        "log_level": 0,
        **cluster.properties,
        **settings,
    }


@contextlib.contextmanager
def own(cluster: Cluster) -> "Iterator[client_cluster.Cluster]":
    """The project's own client, for what librdkafka cannot do; its errors are translated too."""
    from headrace.client.cluster import Cluster as Connected
    from headrace.client.config import client_config
    from headrace.client.errors import ClientError, Unreachable
    from headrace.errors import KafkaError

    properties = {**cluster.properties, "bootstrap.servers": cluster.bootstrap}
    if "sasl.mechanisms" in properties:  # librdkafka's other name for it
        properties["sasl.mechanism"] = properties["sasl.mechanisms"]
    try:
        config = replace(
            client_config(properties),
            client_id="headrace-cli",
            request_timeout_s=ANSWER_TIMEOUT_S,
            total_timeout_s=2 * ANSWER_TIMEOUT_S,
        )
        with Connected(config) as connected:
            yield connected
    except Unreachable as error:
        raise unreachable(cluster, str(error)) from None
    except KafkaError as error:
        raise Failure(str(error), code=error.code.name) from None
    except ClientError as error:
        raise bad_usage(str(error)) from None


def metadata(cluster: Cluster, client: "AdminClient") -> "ClusterMetadata":
    """Brokers and topics, as the first broker that answers sees them."""
    with translated(cluster):
        return client.list_topics(timeout=ANSWER_TIMEOUT_S)


def describe_topics(
    cluster: Cluster, client: "AdminClient", names: Sequence[str]
) -> list["TopicDescription"]:
    """The named topics, in this order; a missing one ends the command, with a suggestion."""
    from confluent_kafka import TopicCollection

    with translated(cluster, "topic name"):
        futures = client.describe_topics(
            TopicCollection(list(names)), request_timeout=ANSWER_TIMEOUT_S
        )
    found = []
    for name in names:
        with translated(cluster, f"topic {name!r}", missing=partial(_near, cluster, client, name)):
            found.append(futures[name].result())
    return found


def _near(cluster: Cluster, client: "AdminClient", name: str) -> str:
    """What to tell someone who named a topic that is not there."""
    import difflib

    close = difflib.get_close_matches(name, list(metadata(cluster, client).topics), 3)
    if close:
        return f"Did you mean {' or '.join(close)}?"
    return f"`headrace topics list` shows what exists; `headrace topics create {name}` makes it."


def settle_topics(
    cluster: Cluster, client: "AdminClient", names: Sequence[str], *, present: bool
) -> None:
    """Wait until brokers show what the controller has just done to these topics.

    Apache Kafka answers as soon as its controller knows; without this, the next command may not
    find a topic that was just made.
    """
    from confluent_kafka import KafkaException, TopicCollection

    deadline = time.monotonic() + SETTLE_TIMEOUT_S
    waiting = list(names)
    while waiting and time.monotonic() < deadline:
        with translated(cluster, "topic name"):
            futures = client.describe_topics(
                TopicCollection(waiting), request_timeout=ANSWER_TIMEOUT_S
            )
        settled = []
        for name, future in futures.items():
            try:
                ready = all(part.leader is not None for part in future.result().partitions)
            except KafkaException:
                ready = False
            if ready == present:
                settled.append(name)
        waiting = [name for name in waiting if name not in settled]
        if waiting:
            time.sleep(0.05)


def wait(cluster: Cluster, future: "Future[object]", what: str) -> object:
    """The answer of one admin operation."""
    with translated(cluster, what):
        return future.result()


@contextlib.contextmanager
def translated(
    cluster: Cluster, what: str = "", *, missing: Callable[[], str] | None = None
) -> Iterator[None]:
    """Turns the client library's exceptions into Failures that name `what` they are about."""
    from confluent_kafka import KafkaException

    try:
        yield
    except KafkaException as error:
        raise failure(cluster, error.args[0], what, missing=missing) from None


def failure(
    cluster: Cluster,
    error: "KafkaError",
    what: str = "",
    *,
    missing: Callable[[], str] | None = None,
) -> Failure:
    """The Failure for one of the client library's errors."""
    from confluent_kafka import KafkaError

    code = error.code()
    text = plain_text(error)
    if code in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE):
        return unreachable(cluster, "something listens there, but it does not answer as Kafka does")
    if code in (KafkaError._TIMED_OUT, KafkaError._TIMED_OUT_QUEUE, KafkaError._MSG_TIMED_OUT):
        return _no_answer(cluster, what)
    subject = f"{what}: " if what and what not in text else ""
    if code in (
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
    ):
        return not_found(f"{what or 'topic'} does not exist", missing() if missing else "")
    if code == KafkaError._INVALID_ARG:
        return bad_usage(f"{subject}{text}")
    return Failure(f"{subject}{text}", code=error.name())


def plain_text(error: "KafkaError") -> str:
    """The library's words without its prefixes."""
    text = str(error.str())
    for prefix in ("Broker: ", "Local: ", "Failed to get metadata: Local: "):
        text = text.removeprefix(prefix)
    return text[:1].lower() + text[1:]


def _no_answer(cluster: Cluster, what: str) -> Failure:
    """A time-out after the first connection worked: often an address that only the broker knows."""
    for host, port in _advertised(cluster):
        try:
            socket.create_connection((host, port), CONNECT_TIMEOUT_S).close()
        except OSError as error:
            return Failure(
                f"{cluster.bootstrap} answers, but its broker calls itself {host}:{port}, "
                f"which cannot be reached from here: {_reason(error)}",
                exit_code=ExitCode.UNREACHABLE,
                code="UNREACHABLE",
                hint="Set the broker's advertised address (`headrace serve --advertise`, "
                "`advertised.listeners`) to one that clients can reach.",
            )
    return Failure(
        f"{what or 'the request'}: no answer from {cluster.bootstrap} in time",
        exit_code=ExitCode.UNREACHABLE,
        code="TIMED_OUT",
        hint="The cluster may be overloaded or in the middle of an election; try again.",
    )


def _advertised(cluster: Cluster) -> list[tuple[str, int]]:
    from confluent_kafka import KafkaException

    try:
        brokers = admin(cluster).list_topics(timeout=CONNECT_TIMEOUT_S).brokers.values()
    except KafkaException:
        return []
    return [(str(broker.host), int(broker.port)) for broker in brokers]


def topic_names_now(bootstrap: str) -> list[str]:
    """Topic names for completion: an empty list unless a broker answers within a moment."""
    return _names_now(bootstrap, lambda client: client.list_topics(timeout=1.0).topics)


def group_names_now(bootstrap: str) -> list[str]:
    """Names of consumer groups for completion, as with topics."""

    def listed(client: "AdminClient") -> list[str]:
        found = client.list_consumer_groups(request_timeout=1.0).result()
        return [str(each.group_id) for each in found.valid]

    return _names_now(bootstrap, listed)


def _names_now(bootstrap: str, ask: Callable[["AdminClient"], Iterable[str]]) -> list[str]:
    from confluent_kafka import KafkaException

    try:
        host, port = parse_address(bootstrap.split(",")[0])
        socket.create_connection((host, port), 0.2).close()
        found = ask(admin(Cluster(bootstrap)))
    except (OSError, KafkaException, Failure):
        return []
    return sorted(name for name in found if not name.startswith("__"))
