"""Promises of Settings and LogSettings."""

from dataclasses import fields

import pytest

from headrace.errors import SettingError
from headrace.settings import (
    TABLE,
    TOPIC_TABLE,
    LogSettings,
    Settings,
    check_topic_configs,
    log_settings,
)
from headrace.settings.topic_table import FIELDS

HOUR_MS = 3_600_000


def test_log_settings_of_nothing_given_are_the_dataclasss_own_defaults() -> None:
    assert log_settings(Settings.parse({}), {}) == LogSettings()


def test_every_topic_config_with_an_effect_reaches_the_log_settings() -> None:
    named = {name for name, row in TOPIC_TABLE.items() if not row.inert}
    assert set(FIELDS) == named
    assert set(FIELDS.values()) | {"producer_id_expiration_ms"} == {
        field.name for field in fields(LogSettings)
    }


def test_a_topics_config_goes_before_the_brokers_and_that_before_the_default() -> None:
    broker = Settings.parse({"log.segment.bytes": "2000000"})
    assert log_settings(broker, {}).segment_bytes == 2_000_000
    assert log_settings(broker, {"segment.bytes": "3000000"}).segment_bytes == 3_000_000
    assert broker.topic_value("segment.bytes", {}) == 2_000_000
    assert broker.topic_value("segment.bytes", {"segment.bytes": "3000000"}) == 3_000_000
    assert broker.topic_value("segment.ms", {}) == 168 * HOUR_MS


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, 168 * HOUR_MS),
        ({"log.retention.hours": "1"}, HOUR_MS),
        ({"log.retention.hours": "1", "log.retention.minutes": "2"}, 120_000),
        ({"log.retention.minutes": "2", "log.retention.ms": "3"}, 3),
        ({"log.retention.hours": "-1"}, -1),
        ({"log.retention.hours": "2147483647"}, 2_147_483_647 * HOUR_MS),
    ],
)
def test_the_finest_unit_of_retention_goes_first(given: dict[str, str], expected: int) -> None:
    assert log_settings(Settings.parse(given), {}).retention_ms == expected


def test_a_cleanup_policy_is_a_set_and_internal_segments_may_be_small() -> None:
    resolved = log_settings(
        Settings.parse({}),
        {
            "internal.segment.bytes": "2000",
            "segment.bytes": "5000000",
            "cleanup.policy": "compact,delete",
            "remote.storage.enable": "false",
        },
    )
    assert resolved.cleanup_policy == frozenset({"compact", "delete"})
    assert resolved.segment_bytes == 2000


def test_older_names_stand_in_for_newer_ones() -> None:
    assert Settings.parse({}).integer("node.id") == 1
    assert Settings.parse({"broker.id": "7"}).integer("node.id") == 7
    assert Settings.parse({"broker.id": "7", "node.id": "8"}).integer("node.id") == 8
    assert Settings.parse({"log.dir": "a"}).words("log.dirs") == ("a",)
    assert Settings.parse({"log.dir": "a", "log.dirs": "b, c"}).words("log.dirs") == ("b", "c")
    listeners = {"listeners": "PLAINTEXT://:1"}
    assert Settings.parse(listeners).text("advertised.listeners") == "PLAINTEXT://:1"


def test_each_type_is_read_by_its_own_lookup() -> None:
    settings = Settings.parse({"auto.create.topics.enable": "False", "quota.window.num": "5"})
    assert settings.boolean("auto.create.topics.enable") is False
    assert settings.integer("quota.window.num") == 5
    assert settings.real("log.cleaner.min.cleanable.ratio") == 0.5
    assert settings.words("group.consumer.assignors") == ("uniform", "range")
    assert settings.text("broker.rack") == ""
    with pytest.raises(AssertionError):
        settings.integer("auto.create.topics.enable")


def test_replacing_makes_new_settings_and_none_goes_back_to_the_default() -> None:
    first = Settings.parse({"num.partitions": "3"})
    second = first.replace({"num.partitions": None, "log.retention.ms": "5"})
    assert (first.integer("num.partitions"), second.integer("num.partitions")) == (3, 1)
    assert dict(second.explicit) == {"log.retention.ms": "5"}
    assert log_settings(second, {}).retention_ms == 5
    assert log_settings(first, {}).retention_ms == 168 * HOUR_MS
    with pytest.raises(SettingError, match=r"num\.partitions=0"):
        first.replace({"num.partitions": "0"})


def test_an_unknown_broker_setting_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(SettingError, match=r"num\.partition: .*did you mean num\.partitions"):
        Settings.parse({"num.partition": "3"})
    with pytest.raises(SettingError, match=r"docs/settings\.md"):
        Settings.parse({"warp.factor": "9"})


def test_kraft_names_are_kept_with_a_note_that_they_do_nothing() -> None:
    settings = Settings.parse({"process.roles": "broker", "controller.quorum.voters": "1@a:1"})
    assert set(settings.ignored) == {"process.roles", "controller.quorum.voters"}
    assert "KRaft" in settings.ignored["process.roles"]


def test_a_setting_for_one_listener_is_checked_like_the_setting() -> None:
    name = "listener.name.plaintext.max.connections"
    settings = Settings.parse({name: "5"})
    assert settings.explicit[name] == "5"
    assert settings.integer("max.connections") == TABLE["max.connections"].default
    with pytest.raises(SettingError, match="at least 0"):
        Settings.parse({"listener.name.a.max.connections": "-5"})
    with pytest.raises(SettingError, match="no such broker setting"):
        Settings.parse({"listener.name.a.nonsense": "1"})


def test_configs_of_a_topic_must_fit_together() -> None:
    check_topic_configs({"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "5"})
    with pytest.raises(SettingError, match=r"min\.compaction\.lag\.ms=6"):
        check_topic_configs({"min.compaction.lag.ms": "6", "max.compaction.lag.ms": "5"})


def test_settings_that_do_nothing_in_this_version_can_be_named_to_the_user() -> None:
    settings = Settings.parse({"num.io.threads": "8", "num.partitions": "2"})
    assert settings.unused == ("num.io.threads",)
