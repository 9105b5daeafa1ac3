"""Promises of the settings table itself."""

from pathlib import Path

import pytest

import headrace.settings
from headrace.errors import SettingError
from headrace.settings import (
    TABLE,
    TOPIC_TABLE,
    Setting,
    Settings,
    Type,
    check_topic_config,
    format_value,
)
from headrace.settings.group_table import BOUNDS, GROUP_TABLE, check_group_configs
from headrace.settings.ignored import ignored_names, why_ignored
from headrace.settings.no_effect import BROKER_NO_EFFECT, TOPIC_NO_EFFECT
from headrace.settings.service_table import CONSOLE_TABLE, REGISTRY_TABLE
from headrace.settings.setting import parse_value
from headrace.settings.topic_table import FIELDS

ROWS = [
    *TABLE.values(),
    *TOPIC_TABLE.values(),
    *GROUP_TABLE.values(),
    *REGISTRY_TABLE.values(),
    *CONSOLE_TABLE.values(),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.scope}:{row.name}")
def test_every_row_is_documented_and_its_default_is_a_value_it_accepts(row: Setting) -> None:
    assert row.doc.endswith("."), "one line that ends like a sentence"
    assert "|" not in row.doc, "the page is a table"
    if row.default is not None:
        text = format_value(row.default)
        assert text is not None
        assert parse_value(row, text) == row.default


def test_no_name_stands_in_the_tables_twice() -> None:
    from headrace.settings.broker_table import BROKER_ROWS
    from headrace.settings.security_table import SECURITY_ROWS

    names = [row.name for row in (*BROKER_ROWS, *SECURITY_ROWS)]
    assert len(names) == len(set(names))
    assert not [name for name in names if why_ignored(name)]
    assert len(ignored_names()) == len({name for name, _ in ignored_names()})


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.scope}:{row.name}")
def test_every_synonym_is_a_broker_setting_of_a_fitting_type(row: Setting) -> None:
    whole = {Type.INT, Type.LONG}
    for synonym in row.synonyms:
        other = TABLE[synonym.name]
        assert other.type is row.type or {other.type, row.type} <= whole
        if row.scope == "topic":
            assert other.live or synonym.factor != 1 or other.default is not None


@pytest.mark.parametrize("row", TOPIC_TABLE.values(), ids=lambda row: row.name)
def test_a_topic_default_equals_that_of_its_broker_setting(row: Setting) -> None:
    for synonym in row.synonyms:
        value = TABLE[synonym.name].default
        if value is not None:
            if synonym.factor != 1:
                assert isinstance(value, int)
                value *= synonym.factor
            assert value == row.default
            return


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("retention.ms", "-1", "-2"),
        ("segment.bytes", "1048576", "1048575"),
        ("segment.bytes", "2147483647", "2147483648"),
        ("max.message.bytes", "0", "-1"),
        ("max.message.bytes", " 100 ", "1 00"),
        ("flush.messages", "1", "0"),
        ("flush.messages", "9223372036854775807", "9223372036854775808"),
        ("min.cleanable.dirty.ratio", "0.25", "1.25"),
        ("min.cleanable.dirty.ratio", "1", "nan"),
        ("preallocate", "TRUE", "yes"),
        ("cleanup.policy", "compact, delete", "compact,shrink"),
        ("compression.type", "zstd", "brotli"),
        ("compression.gzip.level", "-1", "0"),
        ("compression.lz4.level", "17", "18"),
        ("compression.zstd.level", "-131072", "23"),
        ("message.timestamp.type", "LogAppendTime", "logappendtime"),
        ("leader.replication.throttled.replicas", "0:1,1:2", "0-1"),
        ("leader.replication.throttled.replicas", "*", "**"),
        ("min.insync.replicas", "2", "two"),
        ("min.insync.replicas", "2", ""),
        ("min.insync.replicas", "2", "٢"),
    ],
)
def test_a_topic_config_takes_what_kafka_takes(name: str, good: str, bad: str) -> None:
    check_topic_config(name, good)
    with pytest.raises(SettingError, match=name.replace(".", r"\.")):
        check_topic_config(name, bad)


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("consumer.session.timeout.ms", "45000", "44999"),
        ("consumer.session.timeout.ms", " 60000 ", "60001"),
        ("consumer.session.timeout.ms", "50000", "soon"),
        ("consumer.session.timeout.ms", "50000", "99999999999"),
        ("consumer.heartbeat.interval.ms", "5000", "4999"),
        ("consumer.heartbeat.interval.ms", "15000", "15001"),
        ("share.session.timeout.ms", "46000", "1000"),
        ("share.record.lock.duration.ms", "15000", "999"),
        ("share.auto.offset.reset", "earliest", "Earliest"),
        ("share.auto.offset.reset", "by_duration:PT1H30M", "by_duration:P"),
        ("share.auto.offset.reset", "by_duration:P1DT0.5S", "by_duration:PT"),
        ("share.isolation.level", "read_committed", "committed"),
        ("streams.heartbeat.interval.ms", "6000", "46000"),
        ("streams.num.standby.replicas", "2", "3"),
        ("streams.num.standby.replicas", "0", "-1"),
    ],
)
def test_a_group_config_takes_what_kafka_takes(name: str, good: str, bad: str) -> None:
    broker = Settings.parse({})
    check_group_configs(broker, {name: good})
    with pytest.raises(SettingError, match=name.replace(".", r"\.")):
        check_group_configs(broker, {name: bad})


def test_a_groups_session_is_longer_than_its_heartbeat_interval() -> None:
    broker = Settings.parse(
        {
            "group.consumer.min.session.timeout.ms": "1000",
            "group.consumer.max.heartbeat.interval.ms": "60000",
        }
    )
    check_group_configs(broker, {"consumer.session.timeout.ms": "5001"})
    with pytest.raises(SettingError, match="must be greater than consumer"):
        check_group_configs(broker, {"consumer.session.timeout.ms": "5000"})
    with pytest.raises(SettingError, match="must be greater than consumer"):
        check_group_configs(broker, {"consumer.heartbeat.interval.ms": "45000"})


def test_a_refused_value_is_named_with_what_was_expected() -> None:
    with pytest.raises(SettingError) as caught:
        check_topic_config("segment.bytes", "1k")
    assert str(caught.value) == (
        "segment.bytes=1k: expected a whole number of 32 bits (default: 1073741824)"
    )


def test_a_refused_secret_is_not_shown() -> None:
    row = Setting("x.password", Type.PASSWORD, None, "A secret.", TABLE["ssl.client.auth"].check)
    with pytest.raises(SettingError) as caught:
        parse_value(row, "hunter2")
    assert "hunter2" not in str(caught.value)


def test_a_misspelt_topic_config_is_answered_with_the_nearest_name() -> None:
    with pytest.raises(SettingError, match=r"did you mean retention\.ms"):
        check_topic_config("retention.msec", "1")


def test_a_broker_setting_given_to_a_topic_is_answered_with_the_topics_own_name() -> None:
    with pytest.raises(SettingError, match=r"use max\.message\.bytes for a topic"):
        check_topic_config("message.max.bytes", "1")


def test_a_setting_is_read_somewhere_or_is_listed_as_without_effect() -> None:
    package = Path(headrace.settings.__file__).parents[1]
    # Clients have properties of the same names.
    elsewhere = {"settings", "client", "pipelines"}
    source = "\n".join(
        path.read_text(encoding="utf-8")
        for path in package.rglob("*.py")
        if path.name == "listeners.py" or not elsewhere & set(path.relative_to(package).parts)
    )
    read = {name for name in TABLE if f'"{name}"' in source} | {"producer.id.expiration.ms"}
    read |= {synonym.name for name in FIELDS for synonym in TOPIC_TABLE[name].synonyms}
    for row in GROUP_TABLE.values():
        if not row.inert:
            read |= {one.name for one in row.synonyms}
            read |= {name for name in BOUNDS.get(row.name, ()) if name}
    while more := {synonym.name for name in read for synonym in TABLE[name].synonyms} - read:
        read |= more
    listed = "src/headrace/settings/no_effect.py"
    assert not read & BROKER_NO_EFFECT, f"these work now: take them out of {listed}"
    assert not set(TABLE) - read - BROKER_NO_EFFECT, f"nothing reads these: add them to {listed}"
    assert set(TABLE) >= BROKER_NO_EFFECT
    assert set(TOPIC_TABLE) - TOPIC_NO_EFFECT == set(FIELDS)
