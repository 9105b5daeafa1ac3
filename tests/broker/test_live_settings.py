"""A setting that is marked as live takes effect in a running broker, without a restart."""

import select
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headrace.broker.compaction import Compaction
from headrace.broker.metrics.values import Metrics
from headrace.client.cluster import Cluster
from headrace.client.config import ClientConfig, parse_bootstrap
from headrace.client.configs import alter_configs
from headrace.clock import ManualClock
from headrace.cluster.controller import Alteration, ConfigChange, Operation
from headrace.errors import ErrorCode
from headrace.settings import TABLE, Settings, log_settings
from headrace.testing.plugin import BrokerFactory
from headrace.testing.running import RunningBroker
from headrace.types import ConfigResourceType
from headrace.wire.compression import GZIP
from tests.apis.one_broker import OneBroker
from tests.support.raw import RawClient, batch_of, create, frame, produce, produce_error
from tests.support.raw_producer import RawProducer

WAIT_S = 60
EVERY_BROKER = ""

LOG_SETTINGS = {
    "compression.gzip.level": "2",
    "compression.lz4.level": "2",
    "compression.type": "zstd",
    "compression.zstd.level": "2",
    "log.cleaner.delete.retention.ms": "1001",
    "log.cleaner.max.compaction.lag.ms": "1002",
    "log.cleaner.min.cleanable.ratio": "0.25",
    "log.cleaner.min.compaction.lag.ms": "1003",
    "log.cleanup.policy": "compact,delete",
    "log.flush.interval.messages": "1004",
    "log.flush.interval.ms": "1005",
    "log.index.interval.bytes": "1006",
    "log.index.size.max.bytes": "1007",
    "log.message.timestamp.after.max.ms": "1008",
    "log.message.timestamp.before.max.ms": "1009",
    "log.message.timestamp.type": "LogAppendTime",
    "log.preallocate": "true",
    "log.record.validation": "full",
    "log.retention.bytes": "1010",
    "log.retention.hold.bytes": "1011",
    "log.retention.messages": "1012",
    "log.retention.ms": "1013",
    "log.retention.warn.ratio": "0.25",
    "log.roll.jitter.ms": "1014",
    "log.roll.ms": "1015",
    "log.segment.bytes": "2000000",
    "log.segment.delete.delay.ms": "1016",
    "message.max.bytes": "1017",
    "min.insync.replicas": "2",
    "producer.id.expiration.ms": "1018",
    "unclean.leader.election.enable": "true",
}
"""Settings of logs, each with a value that is not its default."""

CLEANER_LIMITS = {
    "log.cleaner.dedupe.buffer.size": "1000",
    "log.cleaner.io.buffer.load.factor": "0.5",
    "log.cleaner.io.max.bytes.per.second": "1000",
    "log.cleaner.threads": "4",
}

TESTED_BELOW = {
    "headrace.max.decompressed.bytes",
    "max.connections",
    "num.recovery.threads.per.data.dir",
    "transaction.partition.verification.enable",
}

TESTED_ELSEWHERE = {
    "follower.replication.throttled.rate": "tests/replication/test_throttle.py",
    "log.cleaner.backoff.ms": "tests/broker/test_compaction.py",
    "max.connection.creation.rate": "tests/broker/quotas/test_connection_limits.py",
    "max.connections.per.ip": "tests/broker/quotas/test_connection_limits.py",
    "max.connections.per.ip.overrides": "tests/broker/quotas/test_connection_limits.py",
    "leader.replication.throttled.rate": "tests/replication/test_throttle.py",
    "replica.alter.log.dirs.io.max.bytes.per.second": "tests/broker/test_moves.py",
    **dict.fromkeys(
        (
            "ssl.key.password",
            "ssl.keystore.certificate.chain",
            "ssl.keystore.key",
            "ssl.keystore.location",
            "ssl.keystore.password",
            "ssl.keystore.type",
            "ssl.truststore.certificates",
            "ssl.truststore.location",
            "ssl.truststore.password",
            "ssl.truststore.type",
        ),
        "tests/security/test_dynamic_certificates.py",
    ),
}


def test_every_live_setting_that_has_an_effect_is_tested() -> None:
    live = {row.name for row in TABLE.values() if row.live and not row.inert}
    assert live == {*LOG_SETTINGS, *CLEANER_LIMITS, *TESTED_BELOW, *TESTED_ELSEWHERE}
    root = Path(__file__).resolve().parents[2]
    for name, file in TESTED_ELSEWHERE.items():
        assert name.partition(".")[2] in (root / file).read_text(), name


# ------------------------------------------------------------------------ without a process


@pytest.fixture
def one_broker(tmp_path: Path) -> Iterator[OneBroker]:
    broker = OneBroker(tmp_path)
    broker.create("orders")
    yield broker
    broker.close()


def set_live(broker: OneBroker, name: str, value: str) -> None:
    change = ConfigChange(name, Operation.SET, value)
    assert broker.metadata.alter_configs([Alteration("broker", EVERY_BROKER, (change,))]) == [None]


@pytest.mark.parametrize(("name", "value"), LOG_SETTINGS.items())
def test_a_setting_of_logs_reaches_a_log_that_is_open(
    one_broker: OneBroker, name: str, value: str
) -> None:
    partition = one_broker.replicas.partition("orders", 0)
    log = partition.replica.log
    expected = log_settings(Settings.parse({name: value}), {})
    assert log.settings == log_settings(Settings.parse({}), {}) != expected
    set_live(one_broker, name, value)
    assert partition.settings == expected
    assert log.settings == expected


@pytest.mark.parametrize(("name", "value"), CLEANER_LIMITS.items())
def test_a_limit_of_compaction_holds_for_the_next_job(
    one_broker: OneBroker, name: str, value: str
) -> None:
    compaction = Compaction(one_broker.replicas, one_broker.executor, ManualClock(0), Metrics())
    before = compaction._limits()
    set_live(one_broker, name, value)
    assert compaction._limits() != before


def test_the_threads_that_recover_logs_are_counted_again(one_broker: OneBroker) -> None:
    before = one_broker.directories.threads
    set_live(one_broker, "num.recovery.threads.per.data.dir", str(before + 3))
    assert one_broker.directories.threads == before + 3


# --------------------------------------------------------------------------- with a process


@pytest.fixture
def broker(headrace_factory: BrokerFactory) -> RunningBroker:
    return headrace_factory()


def alter(broker: RunningBroker, name: str, value: str) -> None:
    config = ClientConfig(parse_bootstrap(broker.bootstrap_servers))
    with Cluster(config) as cluster:
        alter_configs(cluster, ConfigResourceType.BROKER, "1", {name: value})


def wait_until(what: str, holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < deadline, f"no {what} within {WAIT_S} s"
        time.sleep(0.02)


VERSIONS = frame(18, 0, b"")
SHORTLY_S = 0.5


def is_served(client: RawClient, within_s: float = WAIT_S) -> bool:
    """Whether a request that was sent is answered."""
    return bool(select.select([client.socket], [], [], within_s)[0])


def test_a_new_limit_of_connections_holds_for_the_next_connection(broker: RunningBroker) -> None:
    with RawClient(broker.bootstrap_servers) as first:
        create(first, "orders")
        alter(broker, "max.connections", "1")
        with RawClient(broker.bootstrap_servers) as second:
            second.send(VERSIONS)
            assert not is_served(second, SHORTLY_S)
            create(first, "more")  # the connection that was there stays
            first.socket.close()
            assert is_served(second), "it waited until there was room"


def test_a_limit_of_connections_can_be_raised_while_it_is_reached(
    headrace_factory: BrokerFactory,
) -> None:
    broker = headrace_factory({"max.connections": "2"})
    config = ClientConfig(parse_bootstrap(broker.bootstrap_servers))
    with Cluster(config) as cluster, RawClient(broker.bootstrap_servers) as first:
        create(first, "orders")
        alter_configs(cluster, ConfigResourceType.BROKER, "1", {"log.retention.ms": "100000000"})
        with RawClient(broker.bootstrap_servers) as third:
            third.send(VERSIONS)
            assert not is_served(third, SHORTLY_S)
            alter_configs(cluster, ConfigResourceType.BROKER, "1", {"max.connections": "9"})
            assert is_served(third)


def test_a_new_limit_of_decompressed_bytes_holds_for_the_next_batch(broker: RunningBroker) -> None:
    alter(broker, "log.record.validation", "full")
    batch = batch_of(bytes(200_000), codec=GZIP)
    found = []
    with RawClient(broker.bootstrap_servers) as client:
        create(client, "orders")
        for limit in ("100000000", "100000", "100000000"):
            alter(broker, "headrace.max.decompressed.bytes", limit)
            code, _ = produce_error(client.ask(produce("orders", batch)), "orders")
            found.append(ErrorCode(code))
    assert found == [ErrorCode.NONE, ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.NONE]


def test_partitions_of_transactions_are_verified_as_long_as_that_is_wanted(
    broker: RunningBroker,
) -> None:
    producer = RawProducer(broker.bootstrap_servers, "copier")
    create(producer.client, "orders")
    who = producer.init()
    refused, _ = producer.produce(who, "orders", b"value", version=11)
    alter(broker, "transaction.partition.verification.enable", "false")
    accepted, _ = producer.produce(who, "orders", b"value", version=11)
    assert (refused, accepted) == (ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.NONE)
