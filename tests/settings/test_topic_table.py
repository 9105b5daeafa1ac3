"""One declaration of a topic setting: what derives from it fits together."""

from dataclasses import fields

from headrace.settings import TABLE, TOPIC_TABLE, LogSettings
from headrace.settings.topic_table import FIELDS, TOPIC_DEFAULTS


def test_a_field_of_the_log_settings_has_the_name_and_default_of_its_topic_config() -> None:
    defaults = {one.name: one.default for one in fields(LogSettings)}
    own = {name: field for name, field in FIELDS.items() if name != "internal.segment.bytes"}
    for name, field in own.items():
        assert field == name.replace(".", "_")
        default = TOPIC_TABLE[name].default
        assert defaults[field] == (frozenset(default) if isinstance(default, tuple) else default)


def test_every_broker_setting_behind_a_topic_config_is_derived_from_it() -> None:
    synonyms = [synonym.name for row in TOPIC_TABLE.values() for synonym in row.synonyms]
    assert sorted(row.name for row in TOPIC_DEFAULTS) == sorted(synonyms)
    for row in TOPIC_TABLE.values():
        rows = [TABLE[synonym.name] for synonym in row.synonyms]
        assert [one.live for one in rows] == [True, False, False][: len(rows)]
        assert all(one.default is None for one in rows[:-1]), "only the last has a default"


def test_a_broker_setting_in_another_unit_mentions_it() -> None:
    assert TABLE["log.retention.minutes"].doc == (
        "log.retention.ms in minutes; used if log.retention.ms is not set."
    )
    assert TABLE["log.roll.hours"].default == 168
