"""Configs: what is shown, and what can be altered."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from kio.schema.alter_configs.v2 import request as replacing
from kio.schema.describe_configs.v4.request import DescribeConfigsRequest, DescribeConfigsResource
from kio.schema.describe_configs.v4.response import (
    DescribeConfigsResourceResult,
    DescribeConfigsResult,
)
from kio.schema.incremental_alter_configs.v1 import request as altering

from headrace.apis.configs.configs import alter_configs, describe_configs, incremental_alter_configs
from headrace.cluster.controller import Alteration, ConfigChange, Operation
from headrace.errors import ErrorCode
from headrace.settings import GROUP_TABLE, TABLE, TOPIC_TABLE, Type
from headrace.wire.primitives import i8
from tests.apis.one_broker import OneBroker

TOPIC, BROKER, LOGGER, GROUP = 2, 4, 8, 32
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
NONE = ErrorCode.NONE


def described(
    broker: OneBroker, kind: int, name: str, keys: tuple[str, ...] | None = None, more: bool = True
) -> DescribeConfigsResult:
    resource = DescribeConfigsResource(
        resource_type=i8(kind), resource_name=name, configuration_keys=keys
    )
    request = DescribeConfigsRequest(
        resources=(resource,), include_synonyms=more, include_documentation=more
    )
    (result,) = broker.ask(describe_configs, request).results
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result


def entries(
    broker: OneBroker, kind: int, name: str, *keys: str
) -> dict[str, DescribeConfigsResourceResult]:
    result = described(broker, kind, name, keys or None)
    assert ErrorCode(result.error_code) == NONE, result.error_message
    return {entry.name: entry for entry in result.configs}


def change(
    broker: OneBroker,
    kind: int,
    name: str,
    *configs: tuple[str, int, str | None],
    validate_only: bool = False,
) -> int:
    resource = altering.AlterConfigsResource(
        resource_type=i8(kind),
        resource_name=name,
        configs=tuple(
            altering.AlterableConfig(name=key, config_operation=i8(operation), value=value)
            for key, operation, value in configs
        ),
    )
    request = altering.IncrementalAlterConfigsRequest(
        resources=(resource,), validate_only=validate_only
    )
    (result,) = broker.ask(incremental_alter_configs, request).responses
    assert (result.error_message is None) == (ErrorCode(result.error_code) == NONE)
    return ErrorCode(result.error_code)


def replace(broker: OneBroker, kind: int, name: str, **configs: str | None) -> int:
    resource = replacing.AlterConfigsResource(
        resource_type=i8(kind),
        resource_name=name,
        configs=tuple(
            replacing.AlterableConfig(name=key.replace("_", "."), value=value)
            for key, value in configs.items()
        ),
    )
    request = replacing.AlterConfigsRequest(resources=(resource,), validate_only=False)
    (result,) = broker.ask(alter_configs, request).responses
    return ErrorCode(result.error_code)


def test_a_topic_shows_every_config_with_its_source(tmp_path: Path) -> None:
    broker = OneBroker(tmp_path, {"log.cleanup.policy": "compact"})
    broker.create("t", retention_ms="5")
    shown = entries(broker, TOPIC, "t")
    assert shown.keys() == {n for n in TOPIC_TABLE if not n.startswith("internal.")}
    assert [(shown[n].value, shown[n].config_source) for n in ("retention.ms", "segment.ms")] == [
        ("5", 1),
        ("604800000", 5),
    ]
    assert (shown["cleanup.policy"].value, shown["cleanup.policy"].config_source) == ("compact", 4)
    synonyms = [(s.name, s.value, s.source) for s in shown["cleanup.policy"].synonyms]
    assert synonyms == [
        ("log.cleanup.policy", "compact", 4),
        ("log.cleanup.policy", "delete", 5),
    ]
    assert shown["retention.ms"].synonyms[0].name == "retention.ms"
    assert not any(entry.read_only or entry.is_sensitive for entry in shown.values())
    assert all(entry.documentation for entry in shown.values())
    assert Type(shown["retention.ms"].config_type) is TOPIC_TABLE["retention.ms"].type


def test_only_the_names_asked_for_are_shown_and_no_more_than_asked(broker: OneBroker) -> None:
    broker.create("t")
    result = described(broker, TOPIC, "t", ("segment.ms", "nothing"), more=False)
    (entry,) = result.configs
    assert (entry.name, entry.synonyms, entry.documentation) == ("segment.ms", (), None)


def test_a_broker_shows_its_settings_and_hides_its_secrets(tmp_path: Path) -> None:
    broker = OneBroker(tmp_path, {"num.partitions": "3", "headrace.metadata.login": "me:hush"})
    shown = entries(broker, BROKER, "1")
    assert shown.keys() == TABLE.keys()
    partitions, password = shown["num.partitions"], shown["headrace.metadata.login"]
    assert (partitions.value, partitions.config_source, partitions.read_only) == ("3", 4, True)
    assert (password.value, password.is_sensitive) == (None, True)
    assert [synonym.value for synonym in password.synonyms] == [None]
    assert not shown["log.retention.ms"].read_only
    assert shown["log.retention.ms"].value is None


def test_live_configs_of_all_brokers_and_of_one(broker: OneBroker) -> None:
    broker.create("t")
    assert change(broker, BROKER, "", ("log.retention.ms", SET, "7")) == NONE
    assert change(broker, BROKER, "1", ("log.retention.ms", SET, "8")) == NONE
    assert {n: e.value for n, e in entries(broker, BROKER, "").items()} == {"log.retention.ms": "7"}
    entry = entries(broker, BROKER, "1", "log.retention.ms")["log.retention.ms"]
    assert [(s.value, s.source) for s in entry.synonyms] == [("8", 2), ("7", 3)]
    topic = entries(broker, TOPIC, "t", "retention.ms")["retention.ms"]
    assert (topic.value, topic.config_source) == ("8", 2)
    assert broker.replicas.partition("t", 0).settings.retention_ms == 8
    assert change(broker, BROKER, "1", ("log.retention.ms", DELETE, None)) == NONE
    assert broker.replicas.partition("t", 0).settings.retention_ms == 7


@pytest.mark.parametrize(
    ("where", "name", "sentence"),
    [
        ("1", "ssl.keystore.location", "only per-listener using the listener prefix"),
        ("", "listener.name.ssl.ssl.keystore.location", "broker id must be specified"),
        ("1", "listener.name.ssl.ssl.client.auth", "Cannot update these configs dynamically"),
        ("1", "listener.name.ssl.no.such", "no such broker setting"),
    ],
)
def test_certificates_are_altered_for_a_listener_of_one_broker_only(
    broker: OneBroker, where: str, name: str, sentence: str
) -> None:
    changes = (ConfigChange(name, Operation.SET, "none"),)
    (error,) = broker.metadata.alter_configs([Alteration("broker", where, changes)])
    assert error is not None
    assert error.code == ErrorCode.INVALID_REQUEST
    assert sentence in str(error)


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "none", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "a/b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "2", ErrorCode.INVALID_REQUEST),
        (BROKER, "one", ErrorCode.INVALID_REQUEST),
        (LOGGER, "", ErrorCode.INVALID_REQUEST),
        (GROUP, "", ErrorCode.INVALID_REQUEST),
        (77, "x", ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_cannot_be_described(broker: OneBroker, kind: int, name: str, code: ErrorCode) -> None:
    result = described(broker, kind, name)
    assert (ErrorCode(result.error_code), result.configs) == (code, ())
    assert result.error_message


def test_single_configs_are_changed(broker: OneBroker) -> None:
    broker.create("t", retention_ms="5")
    configs = broker.metadata.image.topics
    assert change(broker, TOPIC, "t", ("segment.ms", SET, "9")) == NONE
    assert change(broker, TOPIC, "t", ("retention.ms", DELETE, None)) == NONE
    assert change(broker, TOPIC, "t", ("cleanup.policy", APPEND, "compact")) == NONE
    assert broker.metadata.image.topics["t"].configs == {
        "segment.ms": "9",
        "cleanup.policy": "delete,compact",
    }
    assert change(broker, TOPIC, "t", ("cleanup.policy", SUBTRACT, "delete")) == NONE
    assert broker.metadata.image.topics["t"].configs["cleanup.policy"] == "compact"
    assert broker.replicas.partition("t", 0).settings.cleanup_policy == {"compact"}
    assert configs["t"].configs == {"retention.ms": "5"}, "an old image never changes"


@pytest.mark.parametrize("value", ["compact,,delete", "delete,", ",", " , "])
def test_lists_with_empty_words_are_refused_as_in_kafka_4_3(broker: OneBroker, value: str) -> None:
    broker.create("t")
    policy = ("cleanup.policy", SET, value)
    assert change(broker, TOPIC, "t", policy) == ErrorCode.INVALID_CONFIG
    assert broker.metadata.image.topics["t"].configs == {}
    assert change(broker, BROKER, "", (f"log.{policy[0]}", SET, value)) == ErrorCode.INVALID_REQUEST
    throttled = ("leader.replication.throttled.replicas", SET, "0:1,,0:2")
    assert change(broker, TOPIC, "t", throttled) == NONE


def test_all_configs_are_replaced(broker: OneBroker) -> None:
    broker.create("t", retention_ms="5")
    assert replace(broker, TOPIC, "t", segment_ms="9") == NONE
    assert broker.metadata.image.topics["t"].configs == {"segment.ms": "9"}
    assert replace(broker, BROKER, "1", log_retention_ms="9") == NONE
    assert replace(broker, BROKER, "1") == NONE
    assert broker.metadata.image.broker_configs == {"1": {}}


@pytest.mark.parametrize(
    ("kind", "name", "row", "code"),
    [
        (TOPIC, "t", ("retention.ms", SET, "soon"), ErrorCode.INVALID_CONFIG),
        (TOPIC, "t", ("no.such", SET, "1"), ErrorCode.INVALID_CONFIG),
        (TOPIC, "t", ("retention.ms", APPEND, "1"), ErrorCode.INVALID_CONFIG),
        (TOPIC, "t", ("retention.ms", SET, None), ErrorCode.INVALID_REQUEST),
        (TOPIC, "t", ("retention.ms", 9, "1"), ErrorCode.INVALID_REQUEST),
        (TOPIC, "none", ("retention.ms", SET, "1"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "", ("retention.ms", SET, "1"), ErrorCode.INVALID_REQUEST),
        (BROKER, "2", ("log.retention.ms", SET, "1"), ErrorCode.INVALID_REQUEST),
        (BROKER, "1", ("log.retention.ms", SET, "x"), ErrorCode.INVALID_REQUEST),
        (BROKER, "1", ("num.partitions", SET, "4"), ErrorCode.INVALID_REQUEST),
        (BROKER, "1", ("max.connections.per.ip", SET, "-4"), ErrorCode.INVALID_REQUEST),
        (BROKER, "1", ("ssl.provider", SET, "x"), ErrorCode.INVALID_REQUEST),
        (BROKER, "1", ("process.roles", SET, "broker"), ErrorCode.INVALID_REQUEST),
        (BROKER, "", ("no.such", SET, "1"), ErrorCode.INVALID_REQUEST),
        (BROKER, "1", ("min.insync.replicas", SET, "1"), ErrorCode.INVALID_CONFIG),
        (GROUP, "g", ("consumer.session.timeout.ms", SET, "1"), ErrorCode.INVALID_CONFIG),
        (GROUP, "g", ("consumer.session.timeout.ms", SET, "soon"), ErrorCode.INVALID_CONFIG),
        (GROUP, "g", ("consumer.session.timeout.ms", APPEND, "1"), ErrorCode.INVALID_CONFIG),
        (GROUP, "g", ("consumer.session.timeout.ms", SET, None), ErrorCode.INVALID_REQUEST),
        (GROUP, "g", ("no.such", SET, "1"), ErrorCode.INVALID_CONFIG),
        (GROUP, "", ("consumer.session.timeout.ms", SET, "50000"), ErrorCode.INVALID_REQUEST),
        (77, "x", ("a", SET, "b"), ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_cannot_be_altered(
    broker: OneBroker, kind: int, name: str, row: tuple[str, int, str | None], code: ErrorCode
) -> None:
    broker.create("t")
    before = broker.metadata.image
    assert change(broker, kind, name, row) == code
    assert broker.metadata.image is before


def test_a_config_that_comes_twice_is_refused(broker: OneBroker) -> None:
    broker.create("t")
    twice = [("segment.ms", SET, "1"), ("segment.ms", DELETE, None)]
    assert change(broker, TOPIC, "t", *twice) == ErrorCode.INVALID_REQUEST


def test_a_resource_that_comes_twice_is_refused_both_times(broker: OneBroker) -> None:
    broker.create("t")
    resource = altering.AlterConfigsResource(resource_type=i8(TOPIC), resource_name="t", configs=())
    request = altering.IncrementalAlterConfigsRequest(
        resources=(resource, resource), validate_only=False
    )
    answer = broker.ask(incremental_alter_configs, request)
    assert [ErrorCode(one.error_code) for one in answer.responses] == [
        ErrorCode.INVALID_REQUEST
    ] * 2


def test_validation_alters_nothing(broker: OneBroker) -> None:
    broker.create("t")
    before = broker.metadata.image
    assert change(broker, TOPIC, "t", ("segment.ms", SET, "1"), validate_only=True) == NONE
    bad = change(broker, TOPIC, "t", ("segment.ms", SET, "x"), validate_only=True)
    assert bad == ErrorCode.INVALID_CONFIG
    assert broker.metadata.image is before


# --- Groups ---------------------------------------------------------------------------------------


def test_the_configs_of_a_group_are_shown_set_replaced_and_deleted(tmp_path: Path) -> None:
    broker = OneBroker(tmp_path, {"group.consumer.session.timeout.ms": "50000"})
    session, interval = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
    shown = entries(broker, GROUP, "a/b")
    assert shown.keys() == GROUP_TABLE.keys()
    assert [(s.name, s.value, s.source) for s in shown[session].synonyms] == [(session, "50000", 5)]
    assert not any(entry.read_only or entry.is_sensitive for entry in shown.values())
    assert change(broker, GROUP, "a/b", (session, SET, "47000"), (interval, SET, "6000")) == NONE
    entry = entries(broker, GROUP, "a/b", session)[session]
    assert (entry.value, entry.config_source) == ("47000", 8)
    assert [(s.name, s.value, s.source) for s in entry.synonyms] == [(session, "47000", 8)]
    assert entries(broker, GROUP, "other")[session].config_source == 5
    assert replace(broker, GROUP, "a/b", consumer_heartbeat_interval_ms="7000") == NONE
    assert broker.metadata.image.group_configs == {"a/b": {interval: "7000"}}
    assert change(broker, GROUP, "a/b", (interval, DELETE, None), ("x", DELETE, None)) == NONE
    assert broker.metadata.image.group_configs == {}


# --- Loggers --------------------------------------------------------------------------------------


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    logger = logging.getLogger("headrace.test")
    yield logger
    logger.setLevel(logging.NOTSET)


def test_levels_of_loggers_are_shown_set_and_given_back(
    broker: OneBroker, logger: logging.Logger
) -> None:
    assert change(broker, LOGGER, "1", ("headrace.test", SET, "DEBUG")) == NONE
    assert logger.level == logging.DEBUG
    entry = entries(broker, LOGGER, "1")["headrace.test"]
    assert (entry.value, entry.config_source, entry.read_only) == ("DEBUG", 6, False)
    assert change(broker, LOGGER, "1", ("headrace.test", DELETE, None)) == NONE
    assert logger.level == logging.NOTSET


@pytest.mark.parametrize(
    ("row", "code"),
    [
        (("headrace.test", SET, "LOUD"), ErrorCode.INVALID_CONFIG),
        (("headrace.none", SET, "INFO"), ErrorCode.INVALID_CONFIG),
        (("headrace.test", APPEND, "INFO"), ErrorCode.INVALID_REQUEST),
        (("root", DELETE, None), ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_level_that_cannot_be_is_refused(
    broker: OneBroker, logger: logging.Logger, row: tuple[str, int, str | None], code: ErrorCode
) -> None:
    assert change(broker, LOGGER, "1", row) == code
    assert logger.level == logging.NOTSET
