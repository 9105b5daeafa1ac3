"""The rows: what security costs, as rates beside Apache Kafka and as costs within one broker."""

import shutil
import socket
import ssl
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks import frames
from benchmarks.blaster import (
    WITH_OPENSSL,
    WORK,
    Load,
    Outcome,
    RawConnection,
    blast,
    compile_program,
    fill,
)
from benchmarks.processes import Rate, cpu_nanoseconds, resident_mb
from benchmarks.rows import Effort, Row
from benchmarks.security.brokers import (
    BEARER,
    PASSWORD,
    SCRAM,
    USER,
    Credentials,
    Secured,
    SecuredHeadrace,
    SecuredKafka,
    cluster_of,
    make,
    start,
)
from benchmarks.sides import Broker, SideName, fresh_broker, temporary_topic
from headrace.client.acls import create_acls
from headrace.client.quotas import alter_quotas
from headrace.security.acls import (
    AclBinding,
    AclEntry,
    AclOperation,
    AclPermission,
    PatternType,
    ResourcePattern,
    ResourceType,
)
from tests.support.raw import frame

API_VERSIONS = frame(18, 0, b"")
LOGIN_THREADS = 8
LOGINS_SOURCE = Path(__file__).with_name("logins.c")
LOGINS = WORK / "logins"
IDLE_CONNECTIONS = 500
ACLS = 10_000
PAIRS = 5
UNREACHED = {"producer_byte_rate": 1e15, "consumer_byte_rate": 1e15}
QUOTA_BYTES, QUOTA_S, QUOTA_WARM_S = 1_000_000, 12, 3
"""A quota that is reached: bytes a second, for how long, and how much of that does not count."""
ATTACKS = ("half-open", "garbage", "drip", "plain-kafka")
ATTACK_PER_S, BYSTANDER_PAUSE_S = 75, 0.002


def secured(broker: Broker) -> Secured:
    assert isinstance(broker, SecuredKafka | SecuredHeadrace), "a row of this benchmark"
    return broker


# --------------------------------------------------------------------------- rates beside Kafka


def costed_blast(broker: Broker, load: Load, seconds: float) -> tuple[Outcome, float]:
    """What the client measured, and the broker's CPU for one request in microseconds."""
    port = secured(broker).tls_port if load.tls else broker.port
    before = cpu_nanoseconds(broker.pid)
    outcome = blast(port, load, seconds)
    return outcome, (cpu_nanoseconds(broker.pid) - before) / outcome.all_requests / 1000


def produces(
    batch: bytes, connections: int, partitions: int, megabytes: bool, tls: bool = True
) -> Callable[[Broker, Effort], float]:
    """Requests or megabytes per second, acks=1."""

    def measure(broker: Broker, effort: Effort) -> float:
        with temporary_topic(broker, partitions) as topic:
            load = Load(
                frames=tuple(frames.produce(topic, p, batch) for p in range(partitions)),
                connections=connections,
                error_at=frames.produce_error_at(topic),
                tls=tls,
            )
            outcome, cpu_us = costed_blast(broker, load, effort.seconds)
            return Rate(outcome.sent_mb_per_s if megabytes else outcome.requests_per_s, cpu_us)

    return measure


def fetches(size: int, connections: int, log_mb: int) -> Callable[[Broker, Effort], float]:
    """Megabytes per second of fetches over TLS that answer one batch each."""

    def measure(broker: Broker, effort: Effort) -> float:
        batch = frames.batch_of_size(size)
        records = (size - frames.BATCH_OVERHEAD_BYTES) // (1024 + 9)
        count = log_mb * 1_000_000 // len(batch)
        with temporary_topic(broker) as topic:
            produce = frames.produce(topic, 0, batch)
            fill(broker.port, produce, count, frames.produce_error_at(topic))
            load = Load(
                frames=tuple(
                    frames.fetch(topic, 0, number * records, len(batch)) for number in range(count)
                ),
                connections=connections,
                error_at=frames.fetch_error_at(topic),
                min_answer_bytes=len(batch),
                tls=True,
            )
            outcome, cpu_us = costed_blast(broker, load, effort.seconds)
            return Rate(outcome.received_mb_per_s, cpu_us)

    return measure


def tls_share(broker: Broker, effort: Effort) -> float:
    """The rate of small produces over TLS, as a share of that without."""
    batch = frames.batch(1, 100)
    encrypted = produces(batch, 10, 8, megabytes=False)(broker, effort)
    return encrypted / produces(batch, 10, 8, megabytes=False, tls=False)(broker, effort)


def handshakes(broker: Broker, effort: Effort) -> float:
    """New TLS connections per second, each with one request."""
    load = Load(frames=(API_VERSIONS,), connections=16, tls=True, once=True)
    outcome, cpu_us = costed_blast(broker, load, effort.seconds)
    return Rate(outcome.requests_per_s, cpu_us)


def logins(mechanism: str) -> Callable[[Broker, Effort], float]:
    """Logins per second over TLS, each with a connection of its own."""

    def measure(broker: Broker, effort: Effort) -> float:
        compile_program(LOGINS, LOGINS_SOURCE, *WITH_OPENSSL, "-lpthread")
        seconds = max(effort.seconds, 2.0)
        secret = PASSWORD if mechanism == SCRAM else secured(broker).token
        arguments = [secured(broker).login_port, mechanism, seconds, USER, secret, LOGIN_THREADS]
        before = cpu_nanoseconds(broker.pid)
        done = subprocess.run(
            [str(LOGINS), *map(str, arguments)],
            capture_output=True,
            text=True,
            timeout=seconds + 60,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(
                f"logins by {mechanism} failed on port {broker.port}: {done.stderr.strip()}"
            )
        count = int(done.stdout)
        cpu_us = (cpu_nanoseconds(broker.pid) - before) / count / 1000
        return Rate(count / seconds, cpu_us)

    return measure


# --------------------------------------------------------------------------- costs of one broker


def cpu_of_small_produce(broker: Broker, seconds: float) -> float:
    """Microseconds of the broker's CPU for one small Produce over ten connections."""
    with temporary_topic(broker, 8) as topic:
        batch = frames.batch(1, 100)
        load = Load(
            frames=tuple(frames.produce(topic, p, batch) for p in range(8)),
            connections=10,
            error_at=frames.produce_error_at(topic),
        )
        return costed_blast(broker, load, seconds)[1]


def quota_cost(broker: Broker, effort: Effort) -> float:
    """The CPU of a small Produce with a quota that is not reached, as a share of that without."""
    with cluster_of(secured(broker)) as cluster:
        ratios = []
        for _ in range(PAIRS):
            without = cpu_of_small_produce(broker, effort.seconds / 2)
            alter_quotas(cluster, {"client-id": None}, UNREACHED)
            with_quota = cpu_of_small_produce(broker, effort.seconds / 2)
            alter_quotas(cluster, {"client-id": None}, {}, UNREACHED)
            ratios.append(with_quota / without)
    return statistics.median(ratios)


def reached_fetch_quota(broker: Broker, effort: Effort) -> float:
    """What a greedy consumer gets in answers of 1 MB, as a share of its quota of 1 MB a second."""
    batch = frames.batch_of_size(16_384)
    records = (16_384 - frames.BATCH_OVERHEAD_BYTES) // (1024 + 9)
    with temporary_topic(broker) as topic, cluster_of(broker) as cluster:
        produce = frames.produce(topic, 0, batch)
        most_bytes = QUOTA_S * QUOTA_BYTES * 2
        fill(broker.port, produce, most_bytes // len(batch), frames.produce_error_at(topic))
        alter_quotas(cluster, {"client-id": None}, {"consumer_byte_rate": QUOTA_BYTES})
        connection = RawConnection(broker.port)
        try:
            offset = received = 0
            began = time.monotonic()
            while (now := time.monotonic()) - began < QUOTA_S:
                answer = connection.ask(frames.fetch(topic, 0, offset, QUOTA_BYTES))
                offset += len(answer) // len(batch) * records
                # At first a consumer gets what fits into all windows at once.
                received += len(answer) if now - began > QUOTA_WARM_S else 0
        finally:
            connection.close()
            alter_quotas(cluster, {"client-id": None}, {}, ["consumer_byte_rate"])
    return received / (QUOTA_S - QUOTA_WARM_S) / QUOTA_BYTES


def many_acls() -> list[AclBinding]:
    """The few that the benchmark needs, and many of others."""
    allow, everyone = AclPermission.ALLOW, "User:ANONYMOUS"

    def binding(pattern: ResourcePattern, principal: str) -> AclBinding:
        return AclBinding(pattern, AclEntry(principal, "*", AclOperation.ALL, allow))

    topic, cluster = ResourceType.TOPIC, ResourceType.CLUSTER
    own = [
        binding(ResourcePattern(topic, PatternType.PREFIXED, "bench-"), everyone),
        binding(ResourcePattern(cluster, PatternType.LITERAL, "kafka-cluster"), everyone),
    ]
    others = [
        binding(
            ResourcePattern(
                topic,
                PatternType.PREFIXED if number % 10 == 0 else PatternType.LITERAL,
                f"team-{number // 10}-{number}",
            ),
            f"User:user-{number % 500}",
        )
        for number in range(ACLS - len(own))
    ]
    return own + others


def acl_cost(_broker: Broker, effort: Effort) -> float:
    """The CPU of a small Produce with 10,000 ACLs, as a share of that without an authorizer."""
    authorizer = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    }
    with ExitStack() as stack:
        plain = stack.enter_context(fresh_broker("headrace", "no-acls"))
        plain.start()
        first = {**authorizer, "super.users": "User:ANONYMOUS"}
        limited = stack.enter_context(fresh_broker("headrace", "acls", first))
        limited.start()
        bindings = many_acls()
        with cluster_of(limited) as cluster:
            for at in range(0, len(bindings), 1000):
                create_acls(cluster, bindings[at : at + 1000])
        limited.stop()
        limited._settings = dict(authorizer)  # without super users ACLs count
        limited.start()
        pairs = [
            (cpu_of_small_produce(limited, effort.seconds / 2),
             cpu_of_small_produce(plain, effort.seconds / 2))
            for _ in range(PAIRS)
        ]  # fmt: skip
    return statistics.median(one / other for one, other in pairs)


def idle_tls_memory(name: SideName) -> float:
    """Kilobytes of an idle TLS connection, on a broker of its own: memory is used again."""
    credentials = Credentials(WORK / "idle-credentials")
    broker = make(name, credentials, "idle")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, broker.folder, ignore_errors=True)
        start(broker, credentials)
        stack.callback(broker.stop)

        def open_some(count: int) -> None:
            for _ in range(count):
                plain = socket.create_connection(("127.0.0.1", broker.tls_port), 60)
                tls = stack.enter_context(context.wrap_socket(plain))
                tls.sendall(API_VERSIONS)
                assert tls.recv(65536)

        open_some(50)  # what the first ones need is not theirs
        before = resident_mb(broker.pid)
        open_some(IDLE_CONNECTIONS)
        return (resident_mb(broker.pid) - before) * 1000 / IDLE_CONNECTIONS


@contextmanager
def attacked(broker: Secured, seconds: float) -> Iterator[None]:
    """Hostile clients on the TLS listener (`tests/security/hostile.py`)."""
    address = f"127.0.0.1:{broker.tls_port}"
    command = [sys.executable, "-m", "tests.security.hostile", address]
    attackers = [
        subprocess.Popen(
            [*command, kind, str(ATTACK_PER_S), str(seconds)], stdout=subprocess.DEVNULL
        )
        for kind in ATTACKS
    ]
    try:
        yield
    finally:
        for attacker in attackers:
            attacker.terminate()
            attacker.wait()


def p99_us(port: int, request: bytes, seconds: float) -> float:
    """Of a client that sends a small request every two milliseconds."""
    connection = RawConnection(port)
    took = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        began = time.perf_counter()
        connection.ask(request)
        took.append(time.perf_counter() - began)
        time.sleep(BYSTANDER_PAUSE_S)
    connection.close()
    return statistics.quantiles(took, n=100)[98] * 1e6


def hostile_p99(broker: Broker, effort: Effort) -> float:
    """The p99 of a bystander under attack, in multiples of its usual p99."""
    seconds = max(effort.seconds, 2.0)
    ratios = []
    with temporary_topic(broker) as topic:
        request = frames.produce(topic, 0, frames.batch(1, 100))
        p99_us(broker.port, request, 0.5)
        for _ in range(3):
            usual = p99_us(broker.port, request, seconds)
            with attacked(secured(broker), 4 * seconds):
                time.sleep(0.5)
                ratios.append(p99_us(broker.port, request, seconds) / usual)
    return statistics.median(ratios)


SMALL = frames.batch(1, 100)


ROWS = (
    *(
        Row(
            f"tls-produce-{connections}",
            f"Produce 100 B over TLS, connections: {connections}",
            "req/s", "higher", bar, produces(SMALL, connections, min(connections, 8), False),
        )
        for connections, bar in ((1, 2.0), (10, 1.4), (100, 1.0))
    ),
    Row("tls-produce-16k", "Produce 16 KB over TLS", "MB/s", "higher", 1.8,
        produces(frames.batch_of_size(16_384), 10, 4, True)),
    Row("tls-produce-1m", "Produce 1 MB over TLS", "MB/s", "higher", 1.0,
        produces(frames.batch_of_size(1_048_576), 4, 4, True)),
    Row("tls-fetch-16k", "Fetch 16 KB over TLS", "MB/s", "higher", 1.3,
        fetches(16_384, 10, 64)),
    Row("tls-fetch-1m", "Fetch 1 MB over TLS", "MB/s", "higher", 1.0,
        fetches(1_048_576, 4, 256)),
    Row("tls-share", "Produce 100 B: TLS / plain", "", "higher", None, tls_share),
    Row("handshakes", "New TLS connections", "conn/s", "higher", 3.0, handshakes),
    Row("scram", "SCRAM-SHA-256 logins over TLS", "logins/s", "higher", 2.0,
        logins(SCRAM)),
    Row("bearer", "OAUTHBEARER logins over TLS", "logins/s", "higher", None,
        logins(BEARER)),
    Row("quota", "CPU of a small Produce: unreached quota / none", "", "lower", 1.05,
        quota_cost, absolute=True),
    Row("fetch-quota", "Fetch 1 MB at a reached quota: share of the quota", "", "higher", 0.9,
        reached_fetch_quota),
    Row("hostile", "p99 of a bystander: under attack / usual", "", "lower", 2.0,
        hostile_p99, absolute=True),
)  # fmt: skip


OWN_ROWS = (
    Row("acls", "CPU of a small Produce: 10,000 ACLs / no authorizer", "", "lower", 1.03,
        acl_cost, absolute=True),
    Row("tls-memory", "Idle TLS connection", "KB", "lower", 30,
        measure_alone=idle_tls_memory, absolute=True),
)  # fmt: skip
"""Of Headrace alone: Kafka reserves its memory at the start."""
LONG_ROWS = {"quota", "fetch-quota", "hostile", *(row.name for row in OWN_ROWS)}
"""Rows that take long, or that repeat themselves: without warm-up, and in fewer rounds."""


def all_rows() -> tuple[Row, ...]:
    return ROWS + OWN_ROWS
