"""The options of the sink: those of Spark's Kafka sink, and the delivery guarantee."""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from headrace.client.config import READ_HERE, ClientConfig
from headrace.client.errors import ClientError
from headrace.pipelines.cluster_client import cluster_client
from headrace.pipelines.replay_bounds import ProgramVersion, present_version
from headrace.pipelines.sink.epoch import Epoch, of_options
from headrace.pipelines.typed.options import SINK_NAMES as TYPED
from headrace.pipelines.typed.options import TypedOptions, parse_typed
from headrace.wire.compression import CODECS

AT_LEAST_ONCE: Literal["at-least-once"] = "at-least-once"
EXACTLY_ONCE: Literal["exactly-once"] = "exactly-once"

NAMES = (
    "topic",
    "delivery",
    "ledger",
    "ledgerTopic",
    "ledgerOwner",
    "transactionalIdPrefix",
    "query",
    "epoch",
    "includeHeaders",
    "tracing",
    *TYPED,
)
SPARKS_OWN = frozenset({"checkpointlocation", "path", "queryname", "outputmode", "numrows"})
"""The options that Spark passes to every sink."""

READ_FROM_KAFKA = frozenset(
    {
        "acks",
        "batch.size",
        "compression.type",
        "delivery.timeout.ms",
        "enable.idempotence",
        "max.in.flight.requests.per.connection",
        "max.request.size",
        "transaction.timeout.ms",
    }
)
WITHOUT_EFFECT = frozenset(
    {
        "buffer.memory",
        "client.dns.lookup",
        "connections.max.idle.ms",
        "linger.ms",
        "max.block.ms",
        "metadata.max.age.ms",
        "metadata.max.idle.ms",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "receive.buffer.bytes",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "retries",
        "security.providers",
        "send.buffer.bytes",
        "socket.connection.setup.timeout.max.ms",
    }
)
"""Settings of the Java producer without an effect here."""
REFUSED = {
    "interceptor.classes": "there is no Java producer here",
    "key.serializer": "use a binary or string key",
    "partitioner.class": "use a column partition",
    "transactional.id": "the sink chooses it; see transactionalIdPrefix",
    "value.serializer": "use a binary or string value",
}

DEFAULT_BATCH_BYTES = 512 << 10
# The default message.max.bytes of brokers is 1 MiB including the header.
DEFAULT_REQUEST_BYTES = 1 << 20
# The default transaction.max.timeout.ms of brokers.
DEFAULT_TRANSACTION_MS = 900_000


class SinkOptionError(ClientError):
    """An invalid option. The message has its name and what is expected."""


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The options of the sink; picklable for executors."""

    client: ClientConfig
    topic: str | None
    exactly_once: bool
    ledger_topic: str | None
    begin_anew: bool
    owner: str | None
    prefix: str
    codec: int
    batch_bytes: int
    in_flight: int
    transaction_ms: int
    typed: TypedOptions | None = None
    tracing: bool = False
    epoch: Epoch | None = None
    """The epoch of a batch write that is recorded in the ledger."""


def parse_options(given: Mapping[str, str]) -> SinkOptions:
    """Parse the options, or raise SinkOptionError."""
    plain, kafka = _split(given)
    version = present_version()
    if version is not None:
        plain = _replayed(plain, version)
    topic = plain.get("topic") or None
    try:
        client = cluster_client(kafka)
        typed = parse_typed({name: plain[name] for name in TYPED if name in plain}, topic)
    except ClientError as error:
        raise SinkOptionError(str(error)) from error
    patience_ms = _number(kafka, "delivery.timeout.ms", 120_000)
    if kafka.get("acks", "all") not in ("all", "-1"):
        raise SinkOptionError(
            f"kafka.acks={kafka['acks']}: the sink always waits for all in-sync replicas; leave it "
            "out or set all"
        )
    batch_bytes = _number(kafka, "batch.size", DEFAULT_BATCH_BYTES)
    exactly_once = _choice(plain, "delivery", (AT_LEAST_ONCE, EXACTLY_ONCE)) == EXACTLY_ONCE
    return SinkOptions(
        client=replace(client, total_timeout_s=patience_ms / 1000),
        topic=topic,
        exactly_once=exactly_once,
        ledger_topic=plain.get("ledgertopic") or topic,
        begin_anew=_choice(plain, "ledger", ("keep", "new")) == "new",
        owner=plain.get("ledgerowner") or None,
        prefix=plain.get("transactionalidprefix") or "headrace-sink",
        codec=_codec(kafka.get("compression.type", "none")),
        batch_bytes=min(batch_bytes, _number(kafka, "max.request.size", DEFAULT_REQUEST_BYTES)),
        in_flight=min(_number(kafka, "max.in.flight.requests.per.connection", 5), 5),
        transaction_ms=_number(kafka, "transaction.timeout.ms", DEFAULT_TRANSACTION_MS),
        typed=typed,
        tracing=_choice(plain, "tracing", ("false", "true")) == "true",
        epoch=_epoch(plain, exactly_once, plain.get("ledgertopic") or topic),
    )


def _replayed(plain: dict[str, str], version: ProgramVersion) -> dict[str, str]:
    """The options of a replay of the program: it writes to topics of its own."""
    if not plain.get("topic"):
        raise SinkOptionError(
            "a replay writes to topics of its own, and cannot rename those of the column topic: "
            "set the option topic"
        )
    # The ledger is kept with the version's own topic.
    others = {name: text for name, text in plain.items() if name != "ledgertopic"}
    return {**others, "topic": version.topic(plain["topic"])}


def _epoch(plain: Mapping[str, str], exactly_once: bool, topic: str | None) -> Epoch | None:
    query, number = plain.get("query"), plain.get("epoch")
    if query is None and number is None:
        return None
    if query is None or number is None:
        given, missing = ("query", "epoch") if number is None else ("epoch", "query")
        raise SinkOptionError(
            f"the option {given} needs the option {missing}: a batch write is recognised when it "
            "is repeated by the query's id, which does not change when the query is restarted, "
            "and by the epoch that foreachBatch passes"
        )
    if not exactly_once:
        raise SinkOptionError(
            "the options query and epoch have an effect with delivery=exactly-once only: set it, "
            "or remove both"
        )
    if plain.get("ledgerowner"):
        raise SinkOptionError("ledgerOwner is for streams: remove it, or query and epoch")
    try:
        # Without a topic the sink is refused later, with a message of its own.
        return of_options(query, number, topic or "")
    except ValueError as error:
        raise SinkOptionError(str(error)) from error


def _split(given: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    plain: dict[str, str] = {}
    kafka: dict[str, str] = {}
    known = {name.lower() for name in NAMES}
    for name, value in given.items():
        small = name.lower()
        if small.startswith("kafka."):
            _check_kafka(small.removeprefix("kafka."))
            kafka[small.removeprefix("kafka.")] = str(value).strip()
        elif small in known:
            plain[small] = str(value).strip()
        elif small not in SPARKS_OWN:
            raise SinkOptionError(_unknown(name, NAMES))
    return plain, kafka


def _check_kafka(name: str) -> None:
    if name in REFUSED:
        raise SinkOptionError(f"kafka.{name} is not supported: {REFUSED[name]}")
    known = READ_HERE | READ_FROM_KAFKA | WITHOUT_EFFECT
    if name not in known and not name.startswith(("sasl.", "ssl.")):
        raise SinkOptionError(_unknown(f"kafka.{name}", [f"kafka.{each}" for each in known]))


def _choice(plain: Mapping[str, str], name: str, allowed: tuple[str, ...]) -> str:
    """One of the allowed values; the first is the default."""
    value = plain.get(name, allowed[0]).lower()
    if value not in allowed:
        raise SinkOptionError(f"{name}={value}: expected one of {', '.join(allowed)}")
    return value


def _number(kafka: Mapping[str, str], name: str, default: int) -> int:
    text = kafka.get(name, str(default))
    if not text.isdigit() or not 0 < int(text) < 1 << 31:
        raise SinkOptionError(f"kafka.{name}={text}: expected a whole number of at least 1")
    return int(text)


def _codec(name: str) -> int:
    codecs = {"none": 0} | {each: code for each, code in CODECS.items() if code}
    if name.lower() not in codecs:
        raise SinkOptionError(f"kafka.compression.type={name}: expected one of {', '.join(codecs)}")
    return codecs[name.lower()]


def _unknown(name: str, known: "tuple[str, ...] | list[str]") -> str:
    near = difflib.get_close_matches(name.lower(), [each.lower() for each in known], 1, 0.75)
    proper = {each.lower(): each for each in known}
    hint = f"; did you mean {proper[near[0]]}?" if near else ""
    return f"the headrace sink has no option {name}{hint}"
