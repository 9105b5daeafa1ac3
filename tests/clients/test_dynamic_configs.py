"""Broker settings that Kafka alters while it runs, and those that it refuses to alter.

Against an Apache Kafka (HEADRACE_TEST_BOOTSTRAP) the same test checks the lists themselves.
"""

from collections.abc import Iterator

import pytest
from kio.schema.describe_configs.v4.request import DescribeConfigsRequest, DescribeConfigsResource
from kio.schema.describe_configs.v4.response import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)
from kio.schema.incremental_alter_configs.v1.request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kio.schema.incremental_alter_configs.v1.response import IncrementalAlterConfigsResponse

from headrace.client.cluster import Cluster
from headrace.client.config import ClientConfig, parse_bootstrap
from headrace.errors import ErrorCode
from headrace.wire.primitives import i8
from tests.support.stores import eventually

BROKER = i8(4)
SET, DELETE = i8(0), i8(1)

ALTERABLE = [
    "background.threads",
    "compression.gzip.level",
    "compression.lz4.level",
    "compression.type",
    "compression.zstd.level",
    "log.cleaner.backoff.ms",
    "log.cleaner.dedupe.buffer.size",
    "log.cleaner.delete.retention.ms",
    "log.cleaner.io.buffer.load.factor",
    "log.cleaner.io.buffer.size",
    "log.cleaner.io.max.bytes.per.second",
    "log.cleaner.max.compaction.lag.ms",
    "log.cleaner.min.cleanable.ratio",
    "log.cleaner.min.compaction.lag.ms",
    "log.cleaner.threads",
    "log.cleanup.policy",
    "log.flush.interval.messages",
    "log.flush.interval.ms",
    "log.index.interval.bytes",
    "log.index.size.max.bytes",
    "log.local.retention.bytes",
    "log.local.retention.ms",
    "log.message.timestamp.after.max.ms",
    "log.message.timestamp.before.max.ms",
    "log.message.timestamp.type",
    "log.preallocate",
    "log.retention.bytes",
    "log.retention.ms",
    "log.roll.jitter.ms",
    "log.roll.ms",
    "log.segment.bytes",
    "log.segment.delete.delay.ms",
    "max.connection.creation.rate",
    "max.connections",
    "max.connections.per.ip",
    "max.connections.per.ip.overrides",
    "message.max.bytes",
    "metric.reporters",
    "min.insync.replicas",
    "num.io.threads",
    "num.network.threads",
    "num.recovery.threads.per.data.dir",
    "num.replica.fetchers",
    "producer.id.expiration.ms",
    "remote.fetch.max.wait.ms",
    "remote.list.offsets.request.timeout.ms",
    "remote.log.index.file.cache.total.size.bytes",
    "remote.log.manager.copier.thread.pool.size",
    "remote.log.manager.copy.max.bytes.per.second",
    "remote.log.manager.expiration.thread.pool.size",
    "remote.log.manager.fetch.max.bytes.per.second",
    "remote.log.reader.threads",
    "transaction.partition.verification.enable",
    "unclean.leader.election.enable",
]
"""All that Kafka 4.1 alters for the whole cluster."""

READ_ONLY = [
    "auto.create.topics.enable",
    "broker.rack",
    "controller.quorum.voters",
    "default.replication.factor",
    "delete.topic.enable",
    "fetch.max.bytes",
    "group.consumer.session.timeout.ms",
    "metadata.log.segment.bytes",
    "num.partitions",
    "offsets.topic.num.partitions",
    "process.roles",
    "queued.max.requests",
    "remote.log.storage.system.enable",
    "replica.fetch.max.bytes",
    "socket.request.max.bytes",
    "transaction.state.log.num.partitions",
]


@pytest.fixture(scope="module")
def cluster(bootstrap: str) -> Iterator[Cluster]:
    with Cluster(ClientConfig(parse_bootstrap(bootstrap), request_timeout_s=60)) as client:
        yield client


def described(cluster: Cluster, name: str = "1") -> dict[str, DescribeConfigsResourceResult]:
    resource = DescribeConfigsResource(
        resource_type=BROKER, resource_name=name, configuration_keys=None
    )
    request = DescribeConfigsRequest(
        resources=(resource,), include_synonyms=True, include_documentation=False
    )
    (result,) = cluster.ask(request, DescribeConfigsResponse).results
    assert result.error_code == 0, result.error_message
    return {row.name: row for row in result.configs}


def altered(
    cluster: Cluster, where: str, name: str, value: str | None, *, validate_only: bool = True
) -> tuple[ErrorCode, str]:
    change = AlterableConfig(
        name=name, config_operation=DELETE if value is None else SET, value=value
    )
    resource = AlterConfigsResource(resource_type=BROKER, resource_name=where, configs=(change,))
    request = IncrementalAlterConfigsRequest(resources=(resource,), validate_only=validate_only)
    (result,) = cluster.ask(request, IncrementalAlterConfigsResponse).responses
    return ErrorCode(result.error_code), result.error_message or ""


def test_every_setting_that_kafka_alters_can_be_altered_for_all_brokers_and_for_one(
    cluster: Cluster,
) -> None:
    shown = described(cluster)
    refused = {}
    for name in ALTERABLE:
        assert not shown[name].read_only, name
        value = shown[name].value
        for where in ("", "1"):
            code, message = altered(cluster, where, name, "1000" if value is None else value)
            if code is not ErrorCode.NONE:
                refused[name, where] = (code, message.partition(";")[0].partition(" while ")[0])
    assert refused == {
        ("min.insync.replicas", "1"): (
            ErrorCode.INVALID_CONFIG,
            "Broker-level min.insync.replicas cannot be altered",
        )
    }


@pytest.mark.parametrize("name", READ_ONLY)
@pytest.mark.parametrize("where", ["", "1"])
def test_a_setting_that_counts_from_the_start_only_is_refused_with_its_name(
    cluster: Cluster, name: str, where: str
) -> None:
    shown = described(cluster)
    value = shown[name].value if name in shown else None
    code, message = altered(cluster, where, name, value or "1")
    assert code is ErrorCode.INVALID_REQUEST
    assert f"Cannot update these configs dynamically: [{name}]" in message
    assert altered(cluster, where, name, None)[0] is ErrorCode.NONE, "there is nothing to delete"


def test_a_setting_without_effect_is_kept_shown_and_deleted(cluster: Cluster) -> None:
    name = "remote.log.reader.threads"
    assert altered(cluster, "", name, "abc")[0] is ErrorCode.INVALID_REQUEST
    assert altered(cluster, "", name, "0")[0] is ErrorCode.INVALID_REQUEST
    assert altered(cluster, "", name, "12", validate_only=False)[0] is ErrorCode.NONE
    assert altered(cluster, "1", name, "13", validate_only=False)[0] is ErrorCode.NONE
    eventually(lambda: described(cluster)[name].value == "13", "it is shown")
    assert [(one.name, one.value, one.source) for one in described(cluster)[name].synonyms] == [
        (name, "13", 2),
        (name, "12", 3),
        (name, "10", 5),
    ]
    assert {row.name: row.value for row in described(cluster, "").values()}[name] == "12"
    for where in ("", "1"):
        assert altered(cluster, where, name, None, validate_only=False)[0] is ErrorCode.NONE
    eventually(lambda: described(cluster)[name].value == "10", "the default counts again")
