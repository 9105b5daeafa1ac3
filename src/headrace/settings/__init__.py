"""The settings: the tables with Kafka's names, files of settings, and the settings of topics."""

from headrace.settings.client_metrics_table import (
    CLIENT_METRICS_TABLE,
    check_client_metrics_configs,
)
from headrace.settings.files import load_properties, load_toml, parse_assignment
from headrace.settings.group_table import GROUP_TABLE, check_group_configs, group_value
from headrace.settings.resolve import (
    Settings,
    check_broker_config,
    check_topic_config,
    check_topic_configs,
    log_settings,
)
from headrace.settings.setting import LONG_MAX, Setting, Type, Value, format_value
from headrace.settings.table import TABLE
from headrace.settings.topic_table import TOPIC_TABLE, LogSettings

__all__ = [
    "CLIENT_METRICS_TABLE",
    "GROUP_TABLE",
    "LONG_MAX",
    "TABLE",
    "TOPIC_TABLE",
    "LogSettings",
    "Setting",
    "Settings",
    "Type",
    "Value",
    "check_broker_config",
    "check_client_metrics_configs",
    "check_group_configs",
    "check_topic_config",
    "check_topic_configs",
    "format_value",
    "group_value",
    "load_properties",
    "load_toml",
    "log_settings",
    "parse_assignment",
]
