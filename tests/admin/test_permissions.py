"""Views of a user who may not see everything: the rest is shown, nothing fails."""

from collections.abc import Iterator
from contextlib import closing

import pytest
from confluent_kafka import Consumer, TopicPartition

from headrace.admin.exporter import collect, render
from headrace.admin.group_view import existing_groups, view_groups
from headrace.admin.record_times import RecordTimes
from headrace.admin.retention_forecast import retention_forecast
from headrace.client.acls import create_acls
from headrace.client.cluster import Cluster
from headrace.client.config import ClientConfig, Security, parse_bootstrap
from headrace.client.topics import create_topics
from headrace.errors import ErrorCode, KafkaError
from headrace.security.acls import (
    AclBinding,
    AclEntry,
    AclOperation,
    AclPermission,
    PatternType,
    ResourcePattern,
    ResourceType,
)
from tests.security.secured import SecuredBroker

ADMIN, VIEWER = "admin", "viewer"
PASSWORD = "secret"
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    settings = {"authorizer.class.name": AUTHORIZER, "super.users": f"User:{ADMIN}"}
    folder = tmp_path_factory.mktemp("secured")
    with SecuredBroker(folder, {ADMIN: PASSWORD, VIEWER: PASSWORD}, settings) as broker:
        yield broker


def connect(broker: SecuredBroker, user: str) -> Cluster:
    security = Security("SASL_PLAINTEXT", username=user, password=PASSWORD)
    bootstrap = parse_bootstrap(broker.addresses["SASL_PLAINTEXT"])
    return Cluster(ClientConfig(bootstrap, total_timeout_s=60, security=security))


def may_describe(kind: ResourceType, name: str) -> AclBinding:
    pattern = ResourcePattern(kind, PatternType.LITERAL, name)
    entry = AclEntry(f"User:{VIEWER}", "*", AclOperation.DESCRIBE, AclPermission.ALLOW)
    return AclBinding(pattern, entry)


@pytest.fixture(scope="module")
def member(secured: SecuredBroker) -> Iterator[Consumer]:
    """A consumer of two topics, of which the viewer may see one."""
    with connect(secured, ADMIN) as admin:
        assert create_topics(admin, ["hidden", "seen"], partitions=1) == {}
        create_acls(
            admin,
            [may_describe(ResourceType.TOPIC, "seen"), may_describe(ResourceType.GROUP, "*")],
        )
    consumer = Consumer(
        {
            "bootstrap.servers": secured.addresses["SASL_PLAINTEXT"],
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": ADMIN,
            "sasl.password": PASSWORD,
            "group.id": "billing",
        }
    )
    with closing(consumer):
        consumer.subscribe(["hidden", "seen"])
        while len(consumer.assignment()) < 2:
            consumer.poll(0.1)
        yield consumer


def test_a_group_shows_what_the_user_may_see(secured: SecuredBroker, member: Consumer) -> None:
    with connect(secured, VIEWER) as cluster:
        (view,) = view_groups(cluster, existing_groups(cluster, ["billing"]), RecordTimes())
    ends = {row.topic: row.end for row in view.partitions}
    assert ends == {"hidden": None, "seen": 0}


def test_metrics_have_what_the_user_may_see(secured: SecuredBroker, member: Consumer) -> None:
    with connect(secured, VIEWER) as cluster:
        text = render(collect(cluster))
    assert 'kafka_topic_partition_current_offset{topic="seen",partition="0"} 0\n' in text
    assert 'topic="hidden"' not in text
    assert "kafka_cluster_partition_atminisr" not in text, "configs may not be read"


def test_a_forecast_without_the_settings_says_what_is_missing(
    secured: SecuredBroker, member: Consumer
) -> None:
    member.commit(offsets=[TopicPartition("seen", 0, 0)], asynchronous=False)
    with connect(secured, VIEWER) as cluster:
        views = view_groups(cluster, existing_groups(cluster, ["billing"]))
        with pytest.raises(KafkaError) as caught:
            retention_forecast(cluster, views, RecordTimes(), 0)
    assert caught.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
